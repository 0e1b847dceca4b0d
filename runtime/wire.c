/* NCCL's messages of the host go over MPI unchanged, so a rank whose NCCL would not open can still take part in the
 * consensus with those whose did. */
#include "runtime/wire.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/device_meeting.h"
#include "comm/plugin.h"
#include "comm/session.h"
#include "topology/topology.h"

static void describe(struct wire *wire)
{
    (void)snprintf(wire->about, sizeof wire->about, "%s", wire->ops->describe(wire->transport));
}

static void complain(struct wire *wire, enum status st, const struct error *problem)
{
    if (st == STATUS_OK || wire->problem != STATUS_OK)
        return;
    wire->problem = st;
    wire->complaint = *problem;
}

enum status wire_start(struct wire *wire, const struct transport_options *options, struct error *err)
{
    enum status st;

    *wire = (struct wire){.problem = STATUS_OK};
    st = plugin_transport("mpi", &wire->ops, wire->plugin, sizeof wire->plugin, err);
    if (st == STATUS_OK)
        st = wire->ops->open(options, &wire->transport, err);
    if (st == STATUS_OK)
        describe(wire);
    return st;
}

static enum device_wish wish_of(const struct topology *topology)
{
    if (!topology)
        return DEVICE_UNDECIDED;
    switch (topology->communication.transport.value) {
    case TOPOLOGY_NCCL:
        return DEVICE_WANTED;
    case TOPOLOGY_TRANSPORT_AUTO:
        return DEVICE_WELCOME;
    default:
        return DEVICE_UNWANTED;
    }
}

/* Everything that is needed of the plugin; lacking is what ops NULL means. */
static void open_plugin(const struct plugin **ret, char *path, size_t path_bytes, struct error *why)
{
    const struct plugin *plugin = NULL;

    if (plugin_open("cuda", &plugin, path, path_bytes, why) != STATUS_OK)
        return;
    if (!plugin->transport || !plugin->devices) {
        (void)error_set(why, STATUS_ENVIRONMENT, "%.400s was built without NCCL: rebuild it where NCCL is", path);
        return;
    }
    *ret = plugin;
}

/* What this rank finds, and what all of them make of it. */
static enum status meet(struct wire *wire, enum device_wish wish, const struct plugin *plugin, const char *lacking,
                        uint64_t deadline_ns, struct device_verdict *ret, struct error *err)
{
    struct device_offer offer;
    struct error problem = {0};
    enum status st = device_offer_read(plugin ? plugin->devices : NULL, lacking, wish, NULL, &offer, &problem);

    complain(wire, st, &problem);
    return device_meet(wire->ops, wire->transport, &offer, deadline_ns, ret, err);
}

/* NCCL over the transport so far, which it takes. */
static enum status open_nccl(struct wire *wire, const struct plugin *plugin, const struct transport_options *options,
                             int index, struct error *err)
{
    struct transport_options nccl = *options;
    struct transport *transport = NULL;
    enum status st = plugin->devices->open(index, &wire->device, err);

    if (st != STATUS_OK)
        return st;
    wire->devices = plugin->devices;
    nccl.carrier_ops = wire->ops;
    nccl.carrier = wire->transport;
    nccl.memory = wire->device->memory;
    st = plugin->transport->open(&nccl, &transport, err);
    if (st != STATUS_OK) {
        wire_end(wire);
        return st;
    }
    wire->ops = plugin->transport;
    wire->transport = transport;
    describe(wire);
    return STATUS_OK;
}

/* A decision for mpi that the topology has ruled out. */
static void check_sums(struct wire *wire, const struct topology *topology, const struct device_verdict *verdict)
{
    struct error problem = {0};

    if (topology->communication.reduction.value != TOPOLOGY_REDUCTION_NATIVE)
        return;
    complain(wire,
             error_set(&problem, STATUS_ENVIRONMENT,
                       "communication.reduction: native: mpi offers no native sum, and %s; set it to ordered",
                       verdict->text),
             &problem);
}

static void follow(struct wire *wire, const struct topology *topology, const struct plugin *plugin, const char *path,
                   const struct transport_options *options, const struct device_verdict *verdict)
{
    struct error problem = {0};

    (void)snprintf(wire->why, sizeof wire->why, "%s", verdict->text[0] ? verdict->text : "asked for");
    if (verdict->status != STATUS_OK)
        complain(wire, error_set(&problem, verdict->status, "%s", verdict->text), &problem);
    if (wire->problem != STATUS_OK || !topology)
        return;
    if (verdict->decision != DEVICES_NATIVE) {
        check_sums(wire, topology, verdict);
        return;
    }
    if (!plugin) {
        complain(wire, error_set(&problem, STATUS_CORRUPT, "rank 0 chose nccl for a rank that has none"), &problem);
        return;
    }
    complain(wire, open_nccl(wire, plugin, options, verdict->index, &problem), &problem);
    if (wire->problem == STATUS_OK)
        (void)snprintf(wire->plugin, sizeof wire->plugin, "%s", path);
}

enum status wire_choose(struct wire *wire, const struct topology *topology, const struct transport_options *options,
                        struct error *err)
{
    const enum device_wish wish = wish_of(topology);
    const struct plugin *plugin = NULL;
    struct device_verdict verdict = {.index = -1};
    struct error lacking = {0};
    char path[PATH_MAX] = "";
    enum status st;

    if (wish == DEVICE_WANTED || wish == DEVICE_WELCOME)
        open_plugin(&plugin, path, sizeof path, &lacking);
    st = meet(wire, wish, plugin, lacking.text, clock_ns() + options->startup_timeout_ns, &verdict, err);
    if (st == STATUS_OK)
        follow(wire, topology, plugin, path, options, &verdict);
    return st;
}

void wire_session(const struct wire *wire, struct session_options *ret)
{
    ret->memory = wire->device ? wire->device->memory : NULL;
    ret->pinned = wire->device ? wire->device->pinned : NULL;
}

void wire_end(struct wire *wire)
{
    if (wire->device)
        wire->devices->close(wire->device);
    wire->device = NULL;
}
