/* The plan's bundles have the sizes that the model needs; a bench needs all sizes.  So each route gets a bundle of
 * bytes and a way back, which the plan does not have, and a group of its two ends to agree in.  Ids are dense again:
 * world, groups, ends of routes; then routes and their ways back. */
#include "launcher/bench_target.h"

#include <stdlib.h>
#include <string.h>

#include "comm/session.h"
#include "runtime/plan.h"
#include "topology/topology.h"

/* What is summed and moved: the first of these that the group selects. */
static const enum dtype preferred[] = {DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_U32,  DTYPE_I64, DTYPE_U64,
                                       DTYPE_I8,  DTYPE_U8,  DTYPE_F16, DTYPE_BF16, DTYPE_BOOL};

static enum dtype choose_dtype(uint32_t dtypes)
{
    for (size_t i = 0; i < sizeof preferred / sizeof *preferred; i++) {
        if (dtypes & DTYPE_BIT(preferred[i]))
            return preferred[i];
    }
    return DTYPE_U8;
}

static bool chosen(const struct bench_options *options, const char *name, uint32_t *operations)
{
    if (options->operation != OPERATION_NONE)
        *operations &= OPERATION_BIT(options->operation);
    return *operations && (!options->target || !strcmp(options->target, name));
}

static void add_groups(const struct bench_options *options, const struct plan *plan, struct bench_targets *targets)
{
    targets->groups[targets->group_count++] = plan->groups[0];
    for (size_t i = 0; i < plan->group_count; i++) {
        const struct group_spec *spec = &plan->groups[i];
        struct bench_target target = {.name = spec->name,
                                      .operations = spec->operations & ~OPERATION_BIT(OPERATION_SEND_RECEIVE),
                                      .dtype = choose_dtype(spec->dtypes),
                                      .size = spec->size,
                                      .members = spec->members,
                                      .group_id = (uint32_t)(targets->group_count + 1)};

        if (target.dtype == DTYPE_BOOL)
            target.operations &= ~OPERATION_BIT(OPERATION_ALL_REDUCE_SUM);
        if (!chosen(options, spec->name, &target.operations))
            continue;
        targets->groups[targets->group_count++] = *spec;
        targets->target[targets->count++] = target;
    }
}

static void add_routes(const struct bench_options *options, const struct plan *plan, struct bench_targets *targets)
{
    for (size_t i = 0; i < plan->route_count; i++) {
        const struct route_spec *spec = &plan->routes[i];
        struct bench_target *target = &targets->target[targets->count];
        uint32_t operations = OPERATION_BIT(OPERATION_SEND_RECEIVE);

        if (!chosen(options, spec->name, &operations))
            continue;
        *target = (struct bench_target){.name = spec->name,
                                        .is_route = true,
                                        .operations = operations,
                                        .dtype = DTYPE_U8,
                                        .size = 2,
                                        .members = target->pair,
                                        .pair = {spec->from, spec->to}};
        targets->count++;
        targets->groups[targets->group_count++] =
            (struct group_spec){.name = spec->name, .size = 2, .members = target->pair};
        target->group_id = (uint32_t)targets->group_count;
        targets->routes[targets->route_count++] = *spec;
        targets->routes[targets->route_count++] =
            (struct route_spec){.name = spec->name, .from = spec->to, .to = spec->from};
    }
}

/* Ids, and room for everything that the bench sends. */
static void open_up(size_t last_bytes, struct bench_targets *targets)
{
    uint32_t id = 0;

    targets->payload = (struct tensor_spec){
        .role = "payload", .dtype = DTYPE_U8, .ndim = 1, .dim = {{.low = 0, .high = last_bytes, .extent = -1}}};
    for (size_t i = 0; i < targets->group_count; i++) {
        targets->groups[i].id = ++id;
        targets->groups[i].operations = OPERATIONS_ALL;
        targets->groups[i].dtypes = DTYPES_ALL;
        targets->groups[i].max_bytes = UINT64_C(1) << 40;
    }
    for (size_t i = 0; i < targets->route_count; i++) {
        struct route_spec *spec = &targets->routes[i];

        *spec = (struct route_spec){.id = ++id,
                                    .name = spec->name,
                                    .from = spec->from,
                                    .to = spec->to,
                                    .tensor_count = 1,
                                    .tensors = &targets->payload,
                                    .depth = 1,
                                    .memory_tensors = 1}; /* in the device's memory, where there is one */
    }
}

static enum status nothing(const struct bench_options *options, const struct plan *plan, struct error *err)
{
    size_t count = plan->group_count + plan->route_count;
    const char **names = calloc(count + 1, sizeof *names);
    const char *nearest = NULL;
    bool known = false;
    enum status st;

    if (!names)
        return error_set(err, STATUS_NOMEM, "names of %zu groups and routes", count);
    for (size_t i = 0; i < count; i++) {
        names[i] = i < plan->group_count ? plan->groups[i].name : plan->routes[i - plan->group_count].name;
        known = known || (options->target && !strcmp(names[i], options->target));
    }
    if (options->target && !known)
        nearest = topology_nearest(options->target, names, count);
    if (known || !options->target)
        st = error_set(err, STATUS_USAGE, "--operation %s: %s%s does not select it; `ferry plan --json` shows who does",
                       operation_name(options->operation), known ? "" : "this topology", known ? options->target : "");
    else
        st = error_set(err, STATUS_USAGE, "--target %s: the plan has no group or route of this name%s%s%s",
                       options->target, nearest ? "; did you mean " : "; `ferry plan` lists them",
                       nearest ? nearest : "", nearest ? "?" : "");
    free(names);
    return st;
}

enum status bench_targets_build(const struct bench_options *options, const struct job_view *view,
                                struct bench_targets *ret, struct error *err)
{
    const struct plan *plan = view->plan;
    size_t most = plan->group_count + plan->route_count;
    enum status st = STATUS_OK;
    size_t route = 0;

    ret->target = calloc(most, sizeof *ret->target);
    ret->groups = calloc(most + 1, sizeof *ret->groups);
    ret->routes = calloc(2 * plan->route_count + 1, sizeof *ret->routes);
    if (!ret->target || !ret->groups || !ret->routes)
        return error_set(err, STATUS_NOMEM, "%zu groups and routes", most);
    add_groups(options, plan, ret);
    add_routes(options, plan, ret);
    if (!ret->count)
        return nothing(options, plan, err);
    open_up(options->last_bytes, ret);
    st = session_build(view->session, ret->groups, ret->group_count, ret->routes, ret->route_count, err);
    if (st != STATUS_OK)
        return st;
    ret->world = session_group(view->session, ret->groups[0].id);
    for (int i = 0; i < ret->count; i++) {
        struct bench_target *target = &ret->target[i];

        target->group = session_group(view->session, target->group_id);
        if (!target->is_route)
            continue;
        target->route_id = ret->routes[route++].id;
        target->back_id = ret->routes[route++].id;
        target->route = session_route(view->session, target->route_id);
        target->back = session_route(view->session, target->back_id);
    }
    return STATUS_OK;
}

void bench_targets_done(struct bench_targets *targets)
{
    free(targets->target);
    free(targets->groups);
    free(targets->routes);
}
