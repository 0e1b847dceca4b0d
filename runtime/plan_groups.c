/* The groups: what the mesh implies, then the file's.  Every array is sized before it is filled. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/plan_private.h"

/* The order in which axes get their ids. */
static const enum axis axis_order[AXIS_COUNT] = {AXIS_TENSOR, AXIS_PIPELINE, AXIS_DATA, AXIS_EXPERT};

#define GROUP_OPERATIONS (OPERATIONS_ALL & ~OPERATION_BIT(OPERATION_SEND_RECEIVE))
#define PAYLOAD_OPERATIONS                                                                                             \
    (GROUP_OPERATIONS & ~(OPERATION_BIT(OPERATION_BARRIER) | OPERATION_BIT(OPERATION_FAILURE_AGREEMENT)))
#define MIB (UINT64_C(1) << 20)

/* What a group may do. */
struct selection {
    uint32_t operations;
    uint32_t dtypes;
    uint64_t max_bytes;
};

static const struct selection everything = {GROUP_OPERATIONS, DTYPES_ALL, UINT64_MAX};

/* Rank 0 tells prompts and settings; statistics and digests are gathered; steps are voted on. */
static struct selection world_selection(const struct plan *plan)
{
    if (!plan->topology->workload.generate.at.line)
        return everything;
    return (struct selection){.operations =
                                  OPERATION_BIT(OPERATION_BROADCAST) | OPERATION_BIT(OPERATION_ALL_GATHER_EVEN) |
                                  OPERATION_BIT(OPERATION_ALL_GATHER_UNEVEN) | OPERATION_BIT(OPERATION_ALL_REDUCE_SUM) |
                                  OPERATION_BIT(OPERATION_BARRIER) | OPERATION_BIT(OPERATION_FAILURE_AGREEMENT),
                              .dtypes = DTYPE_BIT(DTYPE_U8) | DTYPE_BIT(DTYPE_U32) | DTYPE_BIT(DTYPE_U64) |
                                        DTYPE_BIT(DTYPE_F32) | DTYPE_BIT(DTYPE_F64),
                              .max_bytes = 1024 * MIB};
}

/* Partial sums of every piece of a wave's rows, or the logits of its requests, whichever is larger. */
static struct selection tensor_selection(const struct plan *plan)
{
    uint64_t width;

    if (!plan->topology->workload.generate.at.line || !plan->model)
        return everything;
    width = plan->model->hidden_size * plan->pieces;
    if (width < plan->model->vocab_size)
        width = plan->model->vocab_size;
    return (struct selection){.operations = OPERATION_BIT(OPERATION_ALL_REDUCE_SUM) |
                                            OPERATION_BIT(OPERATION_ALL_GATHER_EVEN) |
                                            OPERATION_BIT(OPERATION_ALL_GATHER_UNEVEN) |
                                            OPERATION_BIT(OPERATION_BROADCAST) | OPERATION_BIT(OPERATION_BARRIER),
                              .dtypes = DTYPE_BIT(DTYPE_F32) | DTYPE_BIT(DTYPE_U32),
                              .max_bytes = width * plan->wave_rows * sizeof(float)};
}

/* Generation does not compute over the other lines: they can be synchronised, no more. */
static struct selection line_selection(const struct plan *plan, enum axis axis)
{
    if (axis == AXIS_TENSOR)
        return tensor_selection(plan);
    if (!plan->topology->workload.generate.at.line)
        return everything;
    return (struct selection){.operations = OPERATION_BIT(OPERATION_BROADCAST) | OPERATION_BIT(OPERATION_BARRIER) |
                                            OPERATION_BIT(OPERATION_FAILURE_AGREEMENT),
                              .dtypes = DTYPE_BIT(DTYPE_U8) | DTYPE_BIT(DTYPE_U32) | DTYPE_BIT(DTYPE_U64),
                              .max_bytes = MIB};
}

/* The next group with size members to be filled in, and its name if it is implied. */
static struct group_spec *append(struct plan *plan, struct selection selection, int size, int **members)
{
    struct group_spec *group = &plan->groups[plan->group_count];

    *group = (struct group_spec){.id = (uint32_t)++plan->group_count,
                                 .size = size,
                                 .members = *members,
                                 .operations = selection.operations,
                                 .dtypes = selection.dtypes,
                                 .max_bytes = selection.max_bytes};
    *members += size;
    return group;
}

static struct group_spec *append_implied(struct plan *plan, struct selection selection, const char *kind, int index,
                                         int size, int **members)
{
    char *name = plan->store->names[plan->store->implied_groups++];
    struct group_spec *group = append(plan, selection, size, members);

    snprintf(name, PLAN_NAME_BYTES, "%s/%d", kind, index);
    group->name = name;
    return group;
}

static void append_lines(struct plan *plan, enum axis axis, int **members)
{
    const struct mesh *mesh = &plan->mesh;
    struct selection selection = line_selection(plan, axis);

    if (mesh->size[axis] == 1)
        return;
    plan->store->line_group[axis] = (uint32_t)plan->group_count + 1;
    for (int line = 0; line < mesh->world / mesh->size[axis]; line++) {
        int *member = *members;

        append_implied(plan, selection, axis_name(axis), line, mesh->size[axis], members)->first_line =
            plan->store->line_group[axis];
        for (int i = 0; i < mesh->size[axis]; i++)
            member[i] = mesh_line_member(mesh, axis, line, i);
    }
}

/* A stage's ranks are runs of stride neighbours, one run a data line. */
static void append_stages(struct plan *plan, int **members)
{
    const struct mesh *mesh = &plan->mesh;
    int stages = mesh->size[AXIS_PIPELINE];
    int run = mesh_stride(mesh, AXIS_PIPELINE);

    if (stages == 1)
        return;
    plan->store->stage_group = (uint32_t)plan->group_count + 1;
    for (int stage = 0; stage < stages; stage++) {
        int *member = *members;

        append_implied(plan, line_selection(plan, AXIS_PIPELINE), "stage", stage, mesh->world / stages, members)
            ->first_line = plan->store->stage_group;
        for (int i = 0; i < mesh->world / stages; i++)
            member[i] = (i / run * stages + stage) * run + i % run;
    }
}

static void append_file_group(struct plan *plan, const struct topology_group *said, int **members)
{
    bool limited = said->limits.max_bytes.at.line;
    int *member = *members;
    struct group_spec *group =
        append(plan,
               (struct selection){.operations = said->operations.value << 1 & GROUP_OPERATIONS,
                                  .dtypes = said->dtypes.value & DTYPES_ALL,
                                  .max_bytes = limited ? said->limits.max_bytes.value : UINT64_MAX},
               (int)said->members.count, members);

    group->name = said->name.value;
    for (int i = 0; i < group->size; i++)
        member[i] = (int)said->members.item[i].value;
}

enum status plan_groups(struct plan *plan, struct error *err)
{
    const struct topology_groups *said = &plan->topology->groups;
    const struct mesh *mesh = &plan->mesh;
    size_t world = (size_t)mesh->world;
    size_t implied = 1;
    size_t member_count = world;
    int *members;

    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (mesh->size[axis] > 1) {
            implied += world / (size_t)mesh->size[axis];
            member_count += world;
        }
    }
    if (mesh->size[AXIS_PIPELINE] > 1) {
        implied += (size_t)mesh->size[AXIS_PIPELINE];
        member_count += world;
    }
    for (size_t i = 0; i < said->count; i++)
        member_count += said->item[i].members.count;

    /* Names also for the implied routes: at most a forward route per rank, a token route per line, a result per line.
     */
    plan->store->names = calloc(implied + 3 * world, sizeof *plan->store->names);
    plan->store->members = calloc(member_count, sizeof *plan->store->members);
    plan->groups = calloc(implied + said->count, sizeof *plan->groups);
    if (!plan->store->names || !plan->store->members || !plan->groups)
        return error_set(err, STATUS_NOMEM, "%zu groups", implied + said->count);

    members = plan->store->members;
    append_implied(plan, world_selection(plan), "world", 0, mesh->world, &members);
    for (int rank = 0; rank < mesh->world; rank++)
        plan->store->members[rank] = rank;
    for (int i = 0; i < AXIS_COUNT; i++)
        append_lines(plan, axis_order[i], &members);
    append_stages(plan, &members);
    for (size_t i = 0; i < said->count; i++)
        append_file_group(plan, &said->item[i], &members);
    return STATUS_OK;
}

void plan_check_groups(const struct plan *plan)
{
    const struct topology *topology = plan->topology;

    for (size_t i = 0; i < topology->groups.count; i++) {
        const struct topology_group *group = &topology->groups.item[i];
        uint32_t operations = group->operations.value << 1;
        size_t widest = 0;

        for (int dtype = DTYPE_NONE + 1; dtype < DTYPE_COUNT; dtype++) {
            if (group->dtypes.value & DTYPE_BIT(dtype) && dtype_bytes(dtype) > widest)
                widest = dtype_bytes(dtype);
        }
        if (operations & OPERATION_BIT(OPERATION_ALL_REDUCE_SUM) && group->dtypes.value == DTYPE_BIT(DTYPE_BOOL))
            topology_error_at(
                topology, group->dtypes.at,
                "groups[%s].dtypes: all_reduce_sum has no dtype to work with, a sum of bool is not defined",
                group->name.value);
        if (operations & PAYLOAD_OPERATIONS && !widest)
            topology_error_at(topology, group->dtypes.at, "groups[%s].dtypes: its operations need at least one",
                              group->name.value);
        if (operations & PAYLOAD_OPERATIONS && group->limits.max_bytes.at.line && group->dtypes.at.line &&
            group->limits.max_bytes.value < widest)
            topology_error_at(topology, group->limits.max_bytes.at,
                              "groups[%s].limits.max_bytes: %" PRIu64 " bytes do not hold one element of %zu bytes",
                              group->name.value, group->limits.max_bytes.value, widest);
    }
}
