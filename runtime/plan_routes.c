/* The routes: forward between stages, the token's way back, results to rank 0, then the file's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "runtime/plan_private.h"

enum {
    FORWARD_TENSORS = 2,
    TOKEN_TENSORS = 1,
    RESULT_TENSORS = 5,
    WORKLOAD_TENSORS = FORWARD_TENSORS + TOKEN_TENSORS + RESULT_TENSORS,
    WORKLOAD_EXTENTS = 4
};

/* A pool beyond this many bytes gets half the bundles. */
#define LARGE_BUNDLE_BYTES (UINT64_C(64) << 20)

uint64_t plan_tensor_bytes(const struct tensor_spec *tensor)
{
    struct shape shape = {.ndim = tensor->ndim};
    size_t bytes;

    for (int i = 0; i < tensor->ndim; i++)
        shape.dim[i] = tensor->dim[i].high;
    return shape_bytes(&shape, tensor->dtype, &bytes, NULL) == STATUS_OK ? bytes : UINT64_MAX;
}

uint64_t plan_bundle_bytes(const struct route_spec *route)
{
    size_t sum = 0;

    for (int t = 0; t < route->tensor_count; t++) {
        if (size_add(sum, plan_tensor_bytes(&route->tensors[t]), &sum) != STATUS_OK)
            return UINT64_MAX;
    }
    return sum;
}

static int pool_depth(const struct route_spec *route)
{
    return plan_bundle_bytes(route) > LARGE_BUNDLE_BYTES ? PLAN_POOL_DEPTH / 2 : PLAN_POOL_DEPTH;
}

static struct dim_spec fixed(uint64_t size)
{
    return (struct dim_spec){.low = size, .high = size, .extent = -1};
}

static struct dim_spec tied(const struct extent_spec *extents, int extent)
{
    return (struct dim_spec){.low = extents[extent].low, .high = extents[extent].high, .extent = extent};
}

/* What travels for generation.  Without the model its width is anything up to 2^31 - 1: such a plan is for reading. */
static void workload_bundles(const struct plan *plan, struct route_spec *forward, struct route_spec *token,
                             struct route_spec *result)
{
    struct tensor_spec *tensor = plan->store->tensors;
    struct extent_spec *extent = plan->store->extents;
    uint64_t entries = (uint64_t)plan->slots * plan_waves(plan);

    extent[0] = (struct extent_spec){"rows", 0, plan->wave_rows};
    extent[1] = (struct extent_spec){"hidden", 1, INT32_MAX};
    extent[2] = (struct extent_spec){"entries", 0, entries};
    extent[3] = (struct extent_spec){"top", 0, PLAN_MAX_TOP};
    tensor[0] = (struct tensor_spec){"wave", DTYPE_U32, 2, {fixed(plan->slots), fixed(4)}};
    tensor[1] = (struct tensor_spec){
        "hidden", DTYPE_F32, 2, {tied(extent, 0), plan->model ? fixed(plan->model->hidden_size) : tied(extent, 1)}};
    tensor[2] = (struct tensor_spec){"tokens", DTYPE_U32, 2, {fixed(plan->slots), fixed(4)}};
    tensor[3] = (struct tensor_spec){"count", DTYPE_U32, 1, {fixed(4)}};
    tensor[4] = (struct tensor_spec){"tokens", DTYPE_U32, 2, {tied(extent + 2, 0), fixed(4)}};
    tensor[5] = (struct tensor_spec){"digests", DTYPE_U64, 1, {tied(extent + 2, 0)}};
    tensor[6] = (struct tensor_spec){"top_ids", DTYPE_U32, 2, {tied(extent + 2, 0), tied(extent + 2, 1)}};
    tensor[7] = (struct tensor_spec){"top_logits", DTYPE_F32, 2, {tied(extent + 2, 0), tied(extent + 2, 1)}};
    *forward = (struct route_spec){.tensors = tensor,
                                   .tensor_count = FORWARD_TENSORS,
                                   .extents = extent,
                                   .extent_count = plan->model ? 1 : 2,
                                   .memory_tensors = 1u << 1}; /* the rows; their description is the host's */
    *token = (struct route_spec){.tensors = tensor + FORWARD_TENSORS, .tensor_count = TOKEN_TENSORS};
    *result = (struct route_spec){.tensors = tensor + FORWARD_TENSORS + TOKEN_TENSORS,
                                  .tensor_count = RESULT_TENSORS,
                                  .extents = extent + 2,
                                  .extent_count = 2};
    forward->depth = PLAN_POOL_DEPTH;
    token->depth = PLAN_POOL_DEPTH;
    result->depth = PLAN_POOL_DEPTH;
}

/* Copy a bundle of the file behind *tensors and *extents, and move these. */
static void file_bundle(const struct topology_bundle *said, const struct topology_extents *said_extents,
                        struct tensor_spec **tensors, struct extent_spec **extents, struct route_spec *ret)
{
    *ret = (struct route_spec){.tensors = *tensors,
                               .tensor_count = (int)said->count,
                               .extents = *extents,
                               .extent_count = (int)said_extents->count};
    for (size_t i = 0; i < said_extents->count; i++) {
        const struct topology_extent *extent = &said_extents->item[i];

        *(*extents)++ = (struct extent_spec){extent->name.value, extent->low, extent->high};
    }
    for (size_t t = 0; t < said->count; t++) {
        const struct topology_tensor *tensor = &said->item[t];
        struct tensor_spec *spec = (*tensors)++;

        *spec = (struct tensor_spec){
            .role = tensor->role.value, .dtype = (enum dtype)tensor->dtype.value, .ndim = (int)tensor->shape.count};
        for (size_t i = 0; i < tensor->shape.count; i++) {
            const struct topology_dim *dim = &tensor->shape.item[i];

            spec->dim[i] = (struct dim_spec){.low = dim->low, .high = dim->high, .extent = dim->extent};
        }
    }
    ret->depth = pool_depth(ret);
}

/* For check and bench only: some bytes. */
static void probe_bundle(struct tensor_spec **tensors, struct extent_spec **extents, struct route_spec *ret)
{
    **extents = (struct extent_spec){"bytes", 0, PLAN_PROBE_BYTES};
    **tensors = (struct tensor_spec){"probe", DTYPE_U8, 1, {tied(*extents, 0)}};
    *ret = (struct route_spec){.tensors = *tensors, .tensor_count = 1, .extents = *extents, .extent_count = 1};
    ret->depth = pool_depth(ret);
    (*tensors)++;
    (*extents)++;
}

static struct route_spec *append(struct plan *plan, const struct route_spec *bundle, int from, int to)
{
    struct route_spec *route = &plan->routes[plan->route_count];

    *route = *bundle;
    route->id = (uint32_t)(plan->group_count + ++plan->route_count);
    route->from = from;
    route->to = to;
    return route;
}

static void append_implied(struct plan *plan, const struct route_spec *bundle, const char *kind, int from, int to,
                           uint32_t *first)
{
    char *name = plan->store->names[plan->store->implied_groups + plan->store->implied_routes++];
    struct route_spec *route = append(plan, bundle, from, to);

    snprintf(name, PLAN_NAME_BYTES, "%s/%d-%d", kind, from, to);
    route->name = name;
    if (!*first)
        *first = route->id;
}

static void append_forward(struct plan *plan, const struct route_spec *bundle)
{
    int step = mesh_stride(&plan->mesh, AXIS_PIPELINE);

    for (int rank = 0; rank < plan->mesh.world; rank++) {
        if (mesh_coordinates(&plan->mesh, rank).at[AXIS_PIPELINE] + 1 < plan->mesh.size[AXIS_PIPELINE])
            append_implied(plan, bundle, "forward", rank, rank + step, &plan->store->forward_route);
    }
}

static void append_token(struct plan *plan, const struct route_spec *bundle)
{
    int stages = plan->mesh.size[AXIS_PIPELINE];
    int way = mesh_stride(&plan->mesh, AXIS_PIPELINE) * (stages - 1);

    for (int rank = 0; stages > 1 && rank < plan->mesh.world; rank++) {
        if (mesh_coordinates(&plan->mesh, rank).at[AXIS_PIPELINE] + 1 == stages)
            append_implied(plan, bundle, "token", rank, rank - way, &plan->store->token_route);
    }
}

static int sampling_rank(const struct plan *plan, int data)
{
    return mesh_rank(&plan->mesh, (struct coordinates){{data, plan->mesh.size[AXIS_PIPELINE] - 1, 0, 0}});
}

static void append_result(struct plan *plan, const struct route_spec *bundle)
{
    for (int data = 0; data < plan->mesh.size[AXIS_DATA]; data++) {
        if (sampling_rank(plan, data))
            append_implied(plan, bundle, "result", sampling_rank(plan, data), 0, &plan->store->result_route);
    }
}

uint32_t plan_result_route(const struct plan *plan, int data)
{
    bool skipped = sampling_rank(plan, 0) == 0;

    if (!plan->store->result_route || !sampling_rank(plan, data))
        return 0;
    return plan->store->result_route + (uint32_t)data - (skipped ? 1 : 0);
}

/* The mesh's routes, with tensors and extents behind those of the workload. */
static void append_mesh_routes(struct plan *plan, struct tensor_spec **tensors, struct extent_spec **extents)
{
    const struct topology *topology = plan->topology;
    struct route_spec forward;
    struct route_spec token;
    struct route_spec result;

    if (topology->workload.generate.at.line) {
        workload_bundles(plan, &forward, &token, &result);
        append_forward(plan, &forward);
        append_token(plan, &token);
        append_result(plan, &result);
        return;
    }
    if (topology->boundary.at.line)
        file_bundle(&topology->boundary.bundle, &topology->boundary.extents, tensors, extents, &forward);
    else
        probe_bundle(tensors, extents, &forward);
    append_forward(plan, &forward);
}

enum status plan_routes(struct plan *plan, struct error *err)
{
    const struct topology *topology = plan->topology;
    const struct topology_routes *said = &topology->routes;
    size_t world = (size_t)plan->mesh.world;
    size_t tensor_count = WORKLOAD_TENSORS + topology->boundary.bundle.count + 1;
    size_t extent_count = WORKLOAD_EXTENTS + topology->boundary.extents.count + 1;
    struct tensor_spec *tensors;
    struct extent_spec *extents;

    for (size_t i = 0; i < said->count; i++) {
        tensor_count += said->item[i].bundle.count;
        extent_count += said->item[i].extents.count;
    }
    plan->routes = calloc(3 * world + said->count, sizeof *plan->routes);
    plan->store->tensors = tensors = calloc(tensor_count, sizeof *tensors);
    plan->store->extents = extents = calloc(extent_count, sizeof *extents);
    if (!plan->routes || !tensors || !extents)
        return error_set(err, STATUS_NOMEM, "%zu routes", 3 * world + said->count);
    tensors += WORKLOAD_TENSORS;
    extents += WORKLOAD_EXTENTS;
    append_mesh_routes(plan, &tensors, &extents);
    for (size_t i = 0; i < said->count; i++) {
        const struct topology_route *route = &said->item[i];
        struct route_spec bundle;

        file_bundle(&route->bundle, &route->extents, &tensors, &extents, &bundle);
        append(plan, &bundle, (int)route->from.world_rank, (int)route->to.world_rank)->name = route->name.value;
    }
    return STATUS_OK;
}

static void check_bundle(const struct topology *topology, const char *where, const struct topology_bundle *bundle,
                         const struct topology_extents *extents)
{
    if (bundle->count > ROUTE_MAX_TENSORS)
        topology_error_at(topology, bundle->at, "%s.bundle: %zu tensors, at most %d are possible", where, bundle->count,
                          ROUTE_MAX_TENSORS);
    if (extents->count > ROUTE_MAX_EXTENTS)
        topology_error_at(topology, extents->at, "%s.extents: %zu, at most %d are possible", where, extents->count,
                          ROUTE_MAX_EXTENTS);
    for (size_t t = 0; t < bundle->count; t++) {
        const struct topology_shape *dims = &bundle->item[t].shape;
        struct shape shape = {.ndim = (int)dims->count};
        size_t bytes;

        for (size_t i = 0; i < dims->count && i < TENSOR_MAX_NDIM; i++)
            shape.dim[i] = dims->item[i].high;
        if (shape_bytes(&shape, (enum dtype)bundle->item[t].dtype.value, &bytes, NULL) != STATUS_OK ||
            bytes > PTRDIFF_MAX / 2)
            topology_error_at(topology, dims->at, "%s.bundle[%zu].shape: more bytes than can be addressed", where, t);
    }
}

void plan_check_routes(const struct plan *plan)
{
    const struct topology *topology = plan->topology;

    for (size_t i = 0; i < topology->routes.count; i++) {
        char where[96];

        snprintf(where, sizeof where, "routes[%s]", topology->routes.item[i].name.value);
        check_bundle(topology, where, &topology->routes.item[i].bundle, &topology->routes.item[i].extents);
    }
    if (!topology->boundary.at.line)
        return;
    check_bundle(topology, "boundary", &topology->boundary.bundle, &topology->boundary.extents);
    if (topology->workload.generate.at.line)
        topology_error_at(topology, topology->boundary.at,
                          "boundary: the workload's model says what its stages exchange; leave this out");
}
