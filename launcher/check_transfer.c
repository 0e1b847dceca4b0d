/* A route's bundle, with the smallest, middle and largest extents; as many transfers in flight as its pool allows. */
#include <inttypes.h>
#include <stdlib.h>

#include "comm/route.h"
#include "launcher/check_pattern.h"
#include "launcher/check_probe.h"
#include "runtime/shuttle.h"
#include "runtime/wait.h"

enum { EXTENTS = 3, MOST_IN_FLIGHT = 3 };

/* The number that stands at which (0 smallest, 1 middle, 2 largest) of a range. */
static uint64_t within(uint64_t low, uint64_t high, int which)
{
    return which == 0 ? low : which == 1 ? low + (high - low) / 2 : high;
}

static void shape_of(const struct route_spec *spec, int tensor, int which, struct shape *ret)
{
    const struct tensor_spec *said = &spec->tensors[tensor];

    ret->ndim = said->ndim;
    for (int i = 0; i < said->ndim; i++) {
        const struct dim_spec *dim = &said->dim[i];
        const struct extent_spec *extent = dim->extent >= 0 ? &spec->extents[dim->extent] : NULL;

        /* Tied dimensions carry the extent's own range. */
        ret->dim[i] = extent ? within(extent->low, extent->high, which) : within(dim->low, dim->high, which);
    }
}

static struct pattern pattern_of(const struct route_spec *spec, int tensor, uint64_t step)
{
    return (struct pattern){.source = spec->from, .target = (int)step, .tensor = tensor};
}

static struct slab whole(const struct tensor *tensor)
{
    return (struct slab){.outer = 1, .extent = 1, .inner_bytes = tensor->bytes};
}

/* The host's end of a tensor: itself, or where its device's memory cannot be looked into, one like it (returns). */
static enum status host_end(struct shuttle *shuttle, struct tensor *tensor, struct tensor **ret, struct error *err)
{
    if (!memory_host_view(tensor->memory))
        return shuttle_tensor_here(shuttle, tensor->dtype, &tensor->shape, ret, err);
    *ret = tensor_retain(tensor);
    return STATUS_OK;
}

static enum status fill(struct shuttle *shuttle, struct tensor *tensor, struct pattern who, struct error *err)
{
    const struct slab slab = whole(tensor);
    struct completion *promotion = NULL;
    struct tensor *here = NULL;
    uint64_t waited = 0;
    enum status st = host_end(shuttle, tensor, &here, err);

    if (st != STATUS_OK)
        return st;
    pattern_fill(here, &slab, 0, 1, who);
    if (here != tensor)
        st = shuttle_promote(shuttle, here, tensor, &promotion, err);
    if (st == STATUS_OK)
        st = shuttle_settle(&promotion, &waited, err);
    tensor_release(here);
    return st;
}

/* *ret_right: it is what was sent; else the first byte that is not, and the two values. */
static enum status compare(struct shuttle *shuttle, struct tensor *tensor, struct pattern who, bool *ret_right,
                           size_t *byte, unsigned char values[2], struct error *err)
{
    const struct slab slab = whole(tensor);
    struct tensor *here = NULL;
    uint64_t waited = 0;
    enum status st = host_end(shuttle, tensor, &here, err);

    if (st == STATUS_OK && here != tensor)
        st = shuttle_demote(shuttle, tensor, here, &waited, err);
    if (st == STATUS_OK) {
        *ret_right = pattern_holds(here, &slab, 0, 1, who, byte, &values[0]);
        values[1] = *ret_right ? 0 : here->data[*byte];
    }
    tensor_release(here);
    return st;
}

static enum status send_one(struct route *route, struct shuttle *shuttle, int which, uint64_t step,
                            struct completion **ret, struct error *err)
{
    const struct route_spec *spec = route_spec(route);
    struct bundle *bundle = NULL;
    enum status st = route_acquire(route, &bundle, err);

    if (st != STATUS_OK)
        return st;
    for (int t = 0; t < spec->tensor_count && st == STATUS_OK; t++) {
        struct tensor *tensor = bundle->tensor[t];
        struct shape shape;

        shape_of(spec, t, which, &shape);
        st = tensor_reshape(tensor, tensor->dtype, &shape, err);
        if (st == STATUS_OK && tensor->bytes)
            st = fill(shuttle, tensor, pattern_of(spec, t, step), err);
    }
    if (st == STATUS_OK)
        st = route_send(route, bundle, step, ret, err);
    if (st != STATUS_OK)
        route_return(route, bundle);
    return st;
}

static enum status receive_one(struct route *route, int which, uint64_t step, struct completion **ret,
                               struct error *err)
{
    const struct route_spec *spec = route_spec(route);
    struct shape shapes[ROUTE_MAX_TENSORS] = {{0}};

    for (int t = 0; t < spec->tensor_count; t++)
        shape_of(spec, t, which, &shapes[t]);
    return route_receive(route, shapes, NULL, NULL, step, ret, err);
}

static enum status verify(struct route *route, struct shuttle *shuttle, struct completion *completion, uint64_t step,
                          struct error *err)
{
    const struct route_spec *spec = route_spec(route);
    struct bundle *bundle = route_take(completion, NULL);
    enum status st = STATUS_OK;

    for (int t = 0; t < spec->tensor_count && st == STATUS_OK; t++) {
        struct tensor *tensor = bundle->tensor[t];
        unsigned char values[2] = {0};
        bool right = true;
        size_t byte = 0;

        if (tensor->bytes)
            st = compare(shuttle, tensor, pattern_of(spec, t, step), &right, &byte, values, err);
        if (st == STATUS_OK && !right)
            st = error_set(err, STATUS_CORRUPT,
                           "route %s (rank %d to rank %d), tensor %s of %zu bytes: byte %zu is %u, expected %u",
                           spec->name, spec->from, spec->to, spec->tensors[t].role, tensor->bytes, byte, values[1],
                           values[0]);
    }
    route_return(route, bundle);
    return st;
}

/* count transfers of one size, all posted before the first is waited for. */
static enum status transfers(struct route *route, struct shuttle *shuttle, bool sender, int which, int count,
                             uint64_t *step, struct error *err)
{
    struct completion *flying[MOST_IN_FLIGHT] = {NULL};
    uint64_t first = *step;
    enum status st = STATUS_OK;

    for (int i = 0; i < count && st == STATUS_OK; i++, ++*step)
        st = sender ? send_one(route, shuttle, which, *step, &flying[i], err)
                    : receive_one(route, which, *step, &flying[i], err);
    for (int i = 0; i < count; i++) {
        if (st == STATUS_OK)
            st = completion_wait(flying[i], DEADLINE_NONE, err);
        if (st == STATUS_OK && !sender)
            st = verify(route, shuttle, flying[i], first + (uint64_t)i, err);
        completion_abandon(flying[i]);
    }
    return st;
}

enum status probe_route(struct route *route, struct shuttle *shuttle, bool sender, uint64_t *ret_cases,
                        struct error *err)
{
    int count = route_spec(route)->depth < MOST_IN_FLIGHT ? route_spec(route)->depth : MOST_IN_FLIGHT;
    uint64_t step = 0;
    enum status st = STATUS_OK;

    for (int which = 0; which < EXTENTS && st == STATUS_OK; which++)
        st = transfers(route, shuttle, sender, which, count, &step, err);
    *ret_cases = step;
    return st;
}
