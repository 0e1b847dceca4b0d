/* A route's bundle, with the smallest, middle and largest extents; as many transfers in flight as its pool allows. */
#include <inttypes.h>
#include <stdlib.h>

#include "comm/route.h"
#include "launcher/check_pattern.h"
#include "launcher/check_probe.h"
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

static enum status send_one(struct route *route, int which, uint64_t step, struct completion **ret, struct error *err)
{
    const struct route_spec *spec = route_spec(route);
    struct bundle *bundle = NULL;
    enum status st = route_acquire(route, &bundle, err);

    if (st != STATUS_OK)
        return st;
    for (int t = 0; t < spec->tensor_count && st == STATUS_OK; t++) {
        struct tensor *tensor = bundle->tensor[t];
        struct shape shape;
        struct slab slab;

        shape_of(spec, t, which, &shape);
        st = tensor_reshape(tensor, tensor->dtype, &shape, err);
        slab = whole(tensor);
        if (st == STATUS_OK && tensor->bytes)
            pattern_fill(tensor, &slab, 0, 1, pattern_of(spec, t, step));
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

static enum status verify(struct route *route, struct completion *completion, uint64_t step, struct error *err)
{
    const struct route_spec *spec = route_spec(route);
    struct bundle *bundle = route_take(completion, NULL);
    enum status st = STATUS_OK;

    for (int t = 0; t < spec->tensor_count && st == STATUS_OK; t++) {
        const struct tensor *tensor = bundle->tensor[t];
        struct slab slab = whole(tensor);
        unsigned char expected;
        size_t byte;

        if (tensor->bytes && !pattern_holds(tensor, &slab, 0, 1, pattern_of(spec, t, step), &byte, &expected))
            st = error_set(err, STATUS_CORRUPT,
                           "route %s (rank %d to rank %d), tensor %s of %zu bytes: byte %zu is %u, expected %u",
                           spec->name, spec->from, spec->to, spec->tensors[t].role, tensor->bytes, byte,
                           tensor->data[byte], expected);
    }
    route_return(route, bundle);
    return st;
}

/* count transfers of one size, all posted before the first is waited for. */
static enum status transfers(struct route *route, bool sender, int which, int count, uint64_t *step, struct error *err)
{
    struct completion *flying[MOST_IN_FLIGHT] = {NULL};
    uint64_t first = *step;
    enum status st = STATUS_OK;

    for (int i = 0; i < count && st == STATUS_OK; i++, ++*step)
        st =
            sender ? send_one(route, which, *step, &flying[i], err) : receive_one(route, which, *step, &flying[i], err);
    for (int i = 0; i < count; i++) {
        if (st == STATUS_OK)
            st = completion_wait(flying[i], DEADLINE_NONE, err);
        if (st == STATUS_OK && !sender)
            st = verify(route, flying[i], first + (uint64_t)i, err);
        completion_abandon(flying[i]);
    }
    return st;
}

enum status probe_route(struct route *route, bool sender, uint64_t *ret_cases, struct error *err)
{
    int count = route_spec(route)->depth < MOST_IN_FLIGHT ? route_spec(route)->depth : MOST_IN_FLIGHT;
    uint64_t step = 0;
    enum status st = STATUS_OK;

    for (int which = 0; which < EXTENTS && st == STATUS_OK; which++)
        st = transfers(route, sender, which, count, &step, err);
    *ret_cases = step;
    return st;
}
