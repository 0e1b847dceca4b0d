/* What a route's bundle may be: its schema checked once, and shapes against it at every transfer. */
#include "comm/route_schema.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* The range of one dimension, with that of the extent that it is tied to. */
static void dim_range(const struct route_spec *spec, const struct dim_spec *dim, uint64_t *low, uint64_t *high)
{
    *low = dim->low;
    *high = dim->high;
    if (dim->extent < 0)
        return;
    *low = *low > spec->extents[dim->extent].low ? *low : spec->extents[dim->extent].low;
    *high = *high < spec->extents[dim->extent].high ? *high : spec->extents[dim->extent].high;
}

void route_schema_largest(const struct route_spec *spec, int tensor, struct shape *ret)
{
    const struct tensor_spec *of = &spec->tensors[tensor];

    *ret = (struct shape){.ndim = of->ndim};
    for (int i = 0; i < of->ndim; i++) {
        uint64_t low = 0;

        dim_range(spec, &of->dim[i], &low, &ret->dim[i]);
    }
}

static enum status check_tensor_spec(const struct route_spec *spec, const struct tensor_spec *tensor, struct error *err)
{
    size_t role = strlen(tensor->role);

    if (!role || role > ROUTE_ROLE_BYTES)
        return error_set(err, STATUS_INVALID, "route %s: a role of %zu bytes, 1 to %d are allowed", spec->name, role,
                         ROUTE_ROLE_BYTES);
    if (!dtype_bytes(tensor->dtype))
        return error_set(err, STATUS_INVALID, "route %s, tensor %s: no dtype has the number %d", spec->name,
                         tensor->role, (int)tensor->dtype);
    if (tensor->ndim < 0 || tensor->ndim > TENSOR_MAX_NDIM)
        return error_set(err, STATUS_INVALID, "route %s, tensor %s: %s with %d dimensions, 0 to %d are allowed",
                         spec->name, tensor->role, dtype_name(tensor->dtype), tensor->ndim, TENSOR_MAX_NDIM);
    for (int i = 0; i < tensor->ndim; i++) {
        const struct dim_spec *dim = &tensor->dim[i];
        uint64_t low = 0;
        uint64_t high = 0;

        if (dim->extent >= spec->extent_count)
            return error_set(err, STATUS_INVALID, "route %s, tensor %s: extent number %d of %d", spec->name,
                             tensor->role, dim->extent, spec->extent_count);
        dim_range(spec, dim, &low, &high);
        if (low > high)
            return error_set(err, STATUS_INVALID, "route %s, tensor %s: dimension %d from %" PRIu64 " to %" PRIu64,
                             spec->name, tensor->role, i, low, high);
    }
    return STATUS_OK;
}

enum status route_schema_check(const struct route_spec *spec, int world_size, struct error *err)
{
    enum status st = STATUS_OK;

    if (spec->from < 0 || spec->to < 0 || spec->from >= world_size || spec->to >= world_size || spec->from == spec->to)
        return error_set(err, STATUS_INVALID, "route %s: from rank %d to rank %d of %d", spec->name, spec->from,
                         spec->to, world_size);
    if (spec->tensor_count < 1 || spec->tensor_count > ROUTE_MAX_TENSORS || spec->extent_count < 0 ||
        spec->extent_count > ROUTE_MAX_EXTENTS)
        return error_set(err, STATUS_INVALID, "route %s: %d tensors (1 to %d), %d extents (at most %d)", spec->name,
                         spec->tensor_count, ROUTE_MAX_TENSORS, spec->extent_count, ROUTE_MAX_EXTENTS);
    if (spec->depth < 1 || spec->depth > 64)
        return error_set(err, STATUS_INVALID, "route %s: depth %d, 1 to 64 are allowed", spec->name, spec->depth);
    for (int t = 0; t < spec->tensor_count && st == STATUS_OK; t++)
        st = check_tensor_spec(spec, &spec->tensors[t], err);
    return st;
}

/* Does this shape fit the schema, and agree with the extents that earlier tensors have fixed? */
static enum status check_shape(const struct route_spec *spec, int number, const struct shape *shape, uint64_t *extents,
                               bool *fixed, struct error *err)
{
    const struct tensor_spec *tensor = &spec->tensors[number];

    if (shape->ndim != tensor->ndim)
        return error_set(err, STATUS_INVALID, "route %s, tensor %s: %d dimensions, the plan says %d", spec->name,
                         tensor->role, shape->ndim, tensor->ndim);
    for (int i = 0; i < tensor->ndim; i++) {
        int extent = tensor->dim[i].extent;
        uint64_t low = 0;
        uint64_t high = 0;

        dim_range(spec, &tensor->dim[i], &low, &high);
        if (shape->dim[i] < low || shape->dim[i] > high)
            return error_set(err, STATUS_INVALID,
                             "route %s, tensor %s: dimension %d is %" PRIu64 ", the plan says %" PRIu64 " to %" PRIu64,
                             spec->name, tensor->role, i, shape->dim[i], low, high);
        if (extent < 0)
            continue;
        if (fixed[extent] && extents[extent] != shape->dim[i])
            return error_set(err, STATUS_INVALID,
                             "route %s, tensor %s: dimension %d is %" PRIu64 ", but %s is %" PRIu64
                             " elsewhere in the bundle",
                             spec->name, tensor->role, i, shape->dim[i], spec->extents[extent].name, extents[extent]);
        fixed[extent] = true;
        extents[extent] = shape->dim[i];
    }
    return STATUS_OK;
}

enum status route_schema_shapes(const struct route_spec *spec, const struct shape *shapes, struct error *err)
{
    uint64_t extents[ROUTE_MAX_EXTENTS];
    bool fixed[ROUTE_MAX_EXTENTS] = {false};
    enum status st = STATUS_OK;

    for (int t = 0; t < spec->tensor_count && st == STATUS_OK; t++)
        st = check_shape(spec, t, &shapes[t], extents, fixed, err);
    return st;
}

/* With a description only tensor 0's shape is known, and the plan must have fixed it. */
enum status route_schema_expect(const struct route_spec *spec, const struct shape *shapes, bool described,
                                struct shape *ret, struct error *err)
{
    const struct tensor_spec *first = &spec->tensors[0];

    if (!described && !shapes)
        return error_set(err, STATUS_INVALID, "route %s: no shapes to expect", spec->name);
    if (!described) {
        memcpy(ret, shapes, (size_t)spec->tensor_count * sizeof *ret);
        return route_schema_shapes(spec, ret, err);
    }
    ret[0].ndim = first->ndim;
    for (int i = 0; i < first->ndim; i++) {
        uint64_t low = 0;

        dim_range(spec, &first->dim[i], &low, &ret[0].dim[i]);
        if (low != ret[0].dim[i])
            return error_set(err, STATUS_INVALID, "route %s, tensor %s describes the others, but dimension %d is open",
                             spec->name, first->role, i);
    }
    return STATUS_OK;
}
