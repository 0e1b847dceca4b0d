/* NCCL's messages of the host go over MPI unchanged, so a rank whose NCCL would not open can still take part in the
 * consensus with those whose did. */
#include "runtime/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory_shared.h"
#include "comm/device_meeting.h"
#include "comm/plugin.h"
#include "comm/session.h"
#include "topology/topology.h"

/* Addresses, not memory: what is larger than its room goes without it. */
#define SHARED_BYTES ((size_t)1 << 30)

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

/* Where tensors lie that peers of the host read where they are: those that do so quickly (of very long messages
 * all), or for diagnosis all or none.
 * STATUS_ENVIRONMENT when it is not said clearly which. */
static enum status share(struct transport_options *options, struct error *err)
{
    const char *wish = getenv("FERRY_LEND");

    options->shared = NULL;
    options->lend_all = wish && !strcmp(wish, "all");
    if (wish && !strcmp(wish, "off"))
        return STATUS_OK;
    if (wish && strcmp(wish, "auto") != 0 && !options->lend_all)
        return error_set(
            err, STATUS_ENVIRONMENT,
            "FERRY_LEND is '%.40s': say all, and every rank of a host reads the others' tensors where they "
            "lie, off, and none does, or auto, as without it",
            wish);
    options->shared = memory_shared_create(SHARED_BYTES);
    return STATUS_OK;
}

enum status wire_start(struct wire *wire, const struct transport_options *options, struct error *err)
{
    struct transport_options shared = *options;
    enum status st;

    *wire = (struct wire){.problem = STATUS_OK};
    st = share(&shared, err);
    wire->shared = shared.shared;
    wire->lends_all = shared.lend_all && shared.shared;
    if (st == STATUS_OK)
        st = plugin_transport("mpi", &wire->ops, wire->plugin, sizeof wire->plugin, err);
    if (st == STATUS_OK)
        st = wire->ops->open(&shared, &wire->transport, err);
    if (st == STATUS_OK)
        describe(wire);
    return st;
}

static enum device_wish wish_of(const struct topology *topology)
{
    bool device;

    if (!topology)
        return DEVICE_UNDECIDED;
    device = topology->communication.memory.value == TOPOLOGY_MEMORY_DEVICE;
    if (topology->communication.memory.value == TOPOLOGY_MEMORY_HOST)
        return DEVICE_UNWANTED;
    switch (topology->communication.transport.value) {
    case TOPOLOGY_NCCL:
        return DEVICE_WANTED;
    case TOPOLOGY_TRANSPORT_AUTO:
        return device ? DEVICE_MEMORY_WANTED : DEVICE_WELCOME;
    default:
        return device ? DEVICE_STAGING_WANTED : DEVICE_UNWANTED;
    }
}

/* The plugin for GPUs; lacking: what it, or its NCCL, has not. */
struct gpu_plugin {
    const struct plugin *plugin; /* NULL: none */
    char path[PATH_MAX];
    struct error lacking;
};

/* Without NCCL's library the devices alone: tensors may still lie there. */
static void open_plugin(struct gpu_plugin *gpu)
{
    struct error problem = {0};

    if (plugin_open("cuda", &gpu->plugin, gpu->path, sizeof gpu->path, &gpu->lacking) == STATUS_OK)
        return;
    if (plugin_open("cuda-staged", &gpu->plugin, gpu->path, sizeof gpu->path, &problem) != STATUS_OK)
        gpu->plugin = NULL;
}

static enum status read_offer(const struct gpu_plugin *gpu, enum device_wish wish, struct device_offer *ret,
                              struct error *err)
{
    return device_offer_read(gpu->plugin ? gpu->plugin->devices : NULL, gpu->lacking.text[0] ? gpu->lacking.text : NULL,
                             wish, NULL, ret, err);
}

/* What this rank finds, and what all of them make of it. */
static enum status meet(struct wire *wire, enum device_wish wish, const struct gpu_plugin *gpu, uint64_t deadline_ns,
                        struct device_verdict *ret, struct error *err)
{
    struct device_offer offer;
    struct error problem = {0};
    enum status st = read_offer(gpu, wish, &offer, &problem);

    complain(wire, st, &problem);
    return device_meet(wire->ops, wire->transport, &offer, deadline_ns, ret, err);
}

static enum status open_device(struct wire *wire, const struct plugin *plugin, int index, struct error *err)
{
    enum status st = plugin->devices->open(index, &wire->device, err);

    if (st == STATUS_OK)
        wire->devices = plugin->devices;
    return st;
}

static void close_device(struct wire *wire)
{
    if (wire->device)
        wire->devices->close(wire->device);
    wire->device = NULL;
}

/* NCCL over the transport so far, which it takes. */
static enum status open_nccl(struct wire *wire, const struct gpu_plugin *gpu, const struct transport_options *options,
                             struct error *err)
{
    const struct transport_ops *ops = gpu->plugin->transport;
    struct transport_options nccl = *options;
    struct transport *transport = NULL;
    enum status st;

    nccl.carrier_ops = wire->ops;
    nccl.carrier = wire->transport;
    nccl.memory = wire->device->memory;
    st = ops->open(&nccl, &transport, err);
    if (st != STATUS_OK) {
        close_device(wire);
        return st;
    }
    wire->ops = ops;
    wire->transport = transport;
    (void)snprintf(wire->plugin, sizeof wire->plugin, "%s", gpu->path);
    describe(wire);
    return STATUS_OK;
}

/* A decision for mpi that the topology has ruled out. */
static void check_sums(struct wire *wire, const struct topology *topology, const struct device_verdict *verdict)
{
    struct error problem = {0};

    if (topology->communication.reduction.value != TOPOLOGY_REDUCTION_NATIVE || !verdict->text[0])
        return;
    complain(wire,
             error_set(&problem, STATUS_ENVIRONMENT,
                       "communication.reduction: native: mpi offers no native sum, and %s; set it to ordered",
                       verdict->text),
             &problem);
}

/* What the verdict says, as far as this rank can. */
static enum status follow(struct wire *wire, const struct gpu_plugin *gpu, const struct transport_options *options,
                          const struct device_verdict *verdict, struct error *err)
{
    bool native = verdict->decision == DEVICES_NATIVE;
    enum status st;

    if (verdict->decision == DEVICES_UNUSED)
        return STATUS_OK;
    if (!gpu->plugin || (native && !gpu->plugin->transport))
        return error_set(err, STATUS_CORRUPT, "rank 0 chose %s for a rank that has none", native ? "nccl" : "a GPU");
    st = open_device(wire, gpu->plugin, verdict->index, err);
    return st == STATUS_OK && native ? open_nccl(wire, gpu, options, err) : st;
}

/* Why mpi, where devices are no question. */
static const char *unasked(const struct topology *topology)
{
    return topology && topology->communication.transport.value == TOPOLOGY_TRANSPORT_AUTO
               ? "transport auto takes mpi: communication.memory: host"
               : "asked for";
}

enum status wire_choose(struct wire *wire, const struct topology *topology, const struct transport_options *options,
                        struct error *err)
{
    const enum device_wish wish = wish_of(topology);
    struct gpu_plugin gpu = {0};
    struct device_verdict verdict = {.index = -1};
    struct error problem = {0};
    enum status st;

    if (wish != DEVICE_UNWANTED && wish != DEVICE_UNDECIDED)
        open_plugin(&gpu);
    st = meet(wire, wish, &gpu, clock_ns() + options->startup_timeout_ns, &verdict, err);
    if (st != STATUS_OK)
        return st;
    (void)snprintf(wire->why, sizeof wire->why, "%s", verdict.text[0] ? verdict.text : unasked(topology));
    if (verdict.status != STATUS_OK)
        complain(wire, error_set(&problem, verdict.status, "%s", verdict.text), &problem);
    if (wire->problem != STATUS_OK || !topology)
        return STATUS_OK;
    if (verdict.decision != DEVICES_NATIVE)
        check_sums(wire, topology, &verdict);
    if (wire->problem == STATUS_OK)
        complain(wire, follow(wire, &gpu, options, &verdict, &problem), &problem);
    return STATUS_OK;
}

static const char *memory_words(enum device_decision decision)
{
    static const char *const words[] = {
        [DEVICES_UNUSED] = "host memory",
        [DEVICES_STAGED] = "device memory, staged through pinned host memory",
        [DEVICES_NATIVE] = "device memory",
    };

    return words[decision];
}

const char *wire_memory(const struct wire *wire)
{
    if (!wire->device && wire->lends_all)
        return "host memory, read in place by ranks of the host";
    return memory_words(!wire->device ? DEVICES_UNUSED : wire->ops->device ? DEVICES_NATIVE : DEVICES_STAGED);
}

void wire_preview(bool device_memory, struct wire_preview *ret)
{
    const enum device_wish wish = device_memory ? DEVICE_MEMORY_WANTED : DEVICE_WELCOME;
    struct gpu_plugin gpu = {0};
    struct device_offer offer;
    struct device_verdict verdict;
    struct error err = {0};
    int index = -1;

    open_plugin(&gpu);
    if (read_offer(&gpu, wish, &offer, &err) != STATUS_OK)
        offer.count = 0;
    device_decide(&offer, 1, &index, &verdict);
    *ret = (struct wire_preview){.status = verdict.status, .memory = memory_words(verdict.decision)};
    ret->transport = "mpi";
    (void)snprintf(ret->why, sizeof ret->why, "%s", verdict.text);
    if (verdict.decision == DEVICES_UNUSED)
        return;
    CHECK(gpu.plugin); /* it has offered the device */
    if (verdict.decision == DEVICES_NATIVE)
        ret->transport = gpu.plugin->transport->name;
    (void)snprintf(ret->device, sizeof ret->device, "%.8s:%d", gpu.plugin->devices->name, index);
}

void wire_session(const struct wire *wire, struct session_options *ret)
{
    ret->memory = wire->device ? wire->device->memory : NULL;
    ret->shared = wire_shared(wire);
    ret->pinned = wire->device ? wire->device->pinned : NULL;
}

struct memory *wire_shared(const struct wire *wire)
{
    return wire->device ? NULL : wire->shared;
}

void wire_end(struct wire *wire)
{
    close_device(wire);
    memory_shared_destroy(wire->shared);
    wire->shared = NULL;
}
