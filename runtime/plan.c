/* A plan from its parts, and where one rank stands in it.
 *
 * Every id follows from the rank by arithmetic, so that a plan of a hundred thousand ranks costs a few arrays. */
#include "runtime/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "checkpoint/checkpoint.h"
#include "runtime/plan_private.h"

/* Without a mesh the ranks have no coordinates: every axis is 1, whatever the world. */
static enum status plan_mesh(struct plan *plan, struct error *err)
{
    const struct topology *topology = plan->topology;
    enum status st;

    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        uint64_t size = topology->mesh.at.line ? topology->mesh.axis[axis].value : 1;

        if (size > TOPOLOGY_MAX_RANKS)
            return error_set(err, STATUS_OVERFLOW, "mesh.%s: %" PRIu64 " ranks, at most %d are possible",
                             axis_name(axis), size, TOPOLOGY_MAX_RANKS);
        plan->mesh.size[axis] = (int)size;
    }
    st = mesh_init(&plan->mesh, err);
    if (st == STATUS_OK && !topology->mesh.at.line)
        plan->mesh.world = (int)topology->world_size;
    return st;
}

/* What is well formed, but asks for something that this version has not. */
static void check_unbuilt(const struct plan *plan)
{
    const struct topology *topology = plan->topology;

    if (topology->workload.train.at.line)
        topology_error_at(topology, topology->workload.train.at,
                          "workload.train: training is not built in this version; workload.generate is");
    if (topology->compute.backend.value == TOPOLOGY_CUDA)
        topology_error_at(topology, topology->compute.backend.at,
                          "compute.backend: cuda is not built in this version; cpu is");
    if (topology->communication.reduction.value == TOPOLOGY_REDUCTION_NATIVE &&
        (topology->communication.transport.value == TOPOLOGY_MPI ||
         topology->communication.transport.value == TOPOLOGY_LOOPBACK))
        topology_error_at(topology, topology->communication.reduction.at,
                          "communication.reduction: %s offers no native sum; use ordered, or transport nccl",
                          plan_transport_name(plan));
}

/* Memory that no transport which is asked for could use. */
static void check_memory(const struct topology *topology)
{
    enum topology_memory memory = (enum topology_memory)topology->communication.memory.value;

    if (memory == TOPOLOGY_MEMORY_HOST && topology->communication.transport.value == TOPOLOGY_NCCL)
        topology_error_at(topology, topology->communication.memory.at,
                          "communication.memory: nccl moves tensors in device memory; use device or auto, or transport "
                          "mpi");
    if (memory == TOPOLOGY_MEMORY_DEVICE && topology->communication.transport.value == TOPOLOGY_LOOPBACK)
        topology_error_at(topology, topology->communication.memory.at,
                          "communication.memory: loopback has no devices; use host or auto");
    if (memory == TOPOLOGY_MEMORY_HOST && topology->communication.transport.value == TOPOLOGY_TRANSPORT_AUTO &&
        topology->communication.reduction.value == TOPOLOGY_REDUCTION_NATIVE)
        topology_error_at(
            topology, topology->communication.reduction.at,
            "communication.reduction: native sums are nccl's, which communication.memory: host rules out; "
            "use ordered");
}

static void check_workload(struct plan *plan)
{
    const struct topology *topology = plan->topology;
    const struct topology_generate *generate = &topology->workload.generate;
    int lines = plan->mesh.size[AXIS_DATA];

    if (!generate->at.line)
        return;
    if (!topology->mesh.at.line && plan->mesh.world > 1)
        topology_error_at(topology, topology->world.at,
                          "mesh: needed with a workload, it says how %d ranks share the work", plan->mesh.world);
    if (plan->mesh.size[AXIS_EXPERT] > 1)
        topology_error_at(topology, topology->mesh.axis[TOPOLOGY_EXPERT].at,
                          "mesh.expert: %d, but expert models are not built in this version: 1 is possible",
                          plan->mesh.size[AXIS_EXPERT]);
    if (generate->prompts.count && generate->prompts.count < (size_t)lines)
        text_add(&plan->verdict, "%zu prompt%s for %d data lines: %zu of them stay idle\n", generate->prompts.count,
                 generate->prompts.count == 1 ? "" : "s", lines, (size_t)lines - generate->prompts.count);
}

/* What a run finds out of the transport. */
static void note_auto(struct plan *plan)
{
    const struct topology *topology = plan->topology;

    if (topology->communication.memory.value == TOPOLOGY_MEMORY_HOST) {
        text_add(&plan->verdict, "transport auto takes mpi: communication.memory: host\n");
        return;
    }
    text_add(&plan->verdict,
             "not checked: which transport auto takes: nccl where every rank finds a GPU of its own and the CUDA "
             "plugin, else mpi%s%s\n",
             topology->communication.memory.value == TOPOLOGY_MEMORY_DEVICE
                 ? " through pinned memory, for which every rank needs a GPU, too"
                 : "",
             topology->communication.reduction.value == TOPOLOGY_REDUCTION_NATIVE
                 ? ", which is refused for want of a native sum"
                 : "");
}

/* What of GPUs the job needs, or may use. */
static const char *gpu_words(const struct topology *topology)
{
    enum topology_memory memory = (enum topology_memory)topology->communication.memory.value;

    if (memory == TOPOLOGY_MEMORY_HOST || topology->communication.transport.value == TOPOLOGY_LOOPBACK)
        return "";
    if (topology->communication.transport.value == TOPOLOGY_MPI)
        return memory == TOPOLOGY_MEMORY_DEVICE ? "GPUs, CUDA, " : "";
    return "GPUs, CUDA, NCCL, ";
}

/* What nobody can know here. */
static void note_unchecked(struct plan *plan, const struct checkpoint *checkpoint)
{
    const struct topology *topology = plan->topology;
    bool generate = topology->workload.generate.at.line;

    if (checkpoint && checkpoint_notes(checkpoint)[0])
        text_add(&plan->verdict, "%s%s", checkpoint_notes(checkpoint),
                 checkpoint_notes(checkpoint)[strlen(checkpoint_notes(checkpoint)) - 1] == '\n' ? "" : "\n");
    if (generate && !checkpoint) {
        text_add(&plan->verdict, "not checked: the model (there is no ");
        topology_path(topology, topology->workload.generate.model.value, &plan->verdict);
        text_add(&plan->verdict, "): layers, heads, vocabulary, context, weights, memory, the width of what stages "
                                 "exchange\n");
    } else if (generate && !checkpoint_has_weights(checkpoint))
        text_add(&plan->verdict,
                 "not checked: the weights (only their description is here); bytes follow from its "
                 "element type %s\n",
                 plan->model->torch_dtype[0] ? plan->model->torch_dtype : "float32 (it names none)");
    if (!generate && !topology->launch.program.count)
        text_add(&plan->verdict, "no workload: the groups and routes are for a program that links libferry%s\n",
                 plan->mesh.size[AXIS_PIPELINE] > 1 && !topology->boundary.at.line
                     ? "; forward routes carry a probe of bytes"
                     : "");
    if (topology->communication.transport.value == TOPOLOGY_LOOPBACK)
        text_add(&plan->verdict, "transport loopback is for tests: all ranks are threads of one process\n");
    if (topology->communication.transport.value == TOPOLOGY_TRANSPORT_AUTO)
        note_auto(plan);
    text_add(&plan->verdict, "not checked: the machines: hosts, memory, MPI, %sinterfaces, %s\n", gpu_words(topology),
             topology->launch.require_env.count ? "the environment that is required" : "the environment");
}

static enum status build(struct plan *plan, const struct checkpoint *checkpoint, struct error *err)
{
    struct text messages = {0};
    enum status st = plan_mesh(plan, err);

    if (st != STATUS_OK)
        return st;
    check_unbuilt(plan);
    check_memory(plan->topology);
    check_workload(plan);
    plan_check_groups(plan);
    plan_check_routes(plan);
    if (plan->topology->workload.generate.at.line)
        st = plan_model(plan, checkpoint, err);
    if (st != STATUS_OK)
        return st;
    st = topology_report(plan->topology, &messages, err);
    if (st != STATUS_OK)
        st = error_set(err, st, "%s", text_string(&messages));
    text_done(&messages);
    if (st == STATUS_OK)
        st = plan_groups(plan, err);
    if (st == STATUS_OK)
        st = plan_routes(plan, err);
    if (st == STATUS_OK)
        st = plan_places(plan, err);
    note_unchecked(plan, checkpoint);
    if (st == STATUS_OK && plan->verdict.failed)
        st = error_set(err, STATUS_NOMEM, "the verdict");
    return st;
}

enum status plan_create(const struct topology *topology, const struct checkpoint *checkpoint, struct plan **ret,
                        struct error *err)
{
    struct plan *plan = calloc(1, sizeof *plan);
    enum status st;

    if (!plan || !(plan->store = calloc(1, sizeof *plan->store))) {
        st = error_set(err, STATUS_NOMEM, "a plan");
        goto fail;
    }
    plan->topology = topology;
    st = build(plan, checkpoint, err);
    if (st != STATUS_OK)
        goto fail;
    *ret = plan;
    return STATUS_OK;
fail:
    plan_destroy(plan);
    return st;
}

void plan_destroy(struct plan *plan)
{
    if (!plan)
        return;
    if (plan->store) {
        free(plan->store->members);
        free(plan->store->names);
        free(plan->store->tensors);
        free(plan->store->extents);
        free(plan->store->ledger);
        free(plan->store->host_start);
        free(plan->store);
    }
    free(plan->groups);
    free(plan->routes);
    free(plan->stage_layers);
    cut_done(&plan->head_cut);
    cut_done(&plan->ffn_cut);
    text_done(&plan->verdict);
    free(plan);
}

static uint32_t line_group(const struct plan *plan, enum axis axis, int rank)
{
    uint32_t first = plan->store->line_group[axis];

    return first ? first + (uint32_t)mesh_line(&plan->mesh, axis, rank) : 0;
}

/* Forward routes go by rank, without those of the last stage: blocks of (stages - 1) * step a data line. */
static void rank_routes(const struct plan *plan, struct rank_plan *ret)
{
    int stages = plan->mesh.size[AXIS_PIPELINE];
    int step = mesh_stride(&plan->mesh, AXIS_PIPELINE);
    int line = ret->at.at[AXIS_DATA];
    int inner = ret->rank % step;
    int before = line * (stages - 1) * step + ret->at.at[AXIS_PIPELINE] * step + inner;

    if (plan->store->forward_route && !ret->first)
        ret->forward_in = plan->store->forward_route + (uint32_t)(before - step);
    if (plan->store->forward_route && !ret->last)
        ret->forward_out = plan->store->forward_route + (uint32_t)before;
    if (plan->store->token_route && ret->first)
        ret->token_in = plan->store->token_route + (uint32_t)(line * step + inner);
    if (plan->store->token_route && ret->last)
        ret->token_out = plan->store->token_route + (uint32_t)(line * step + inner);
    if (ret->last && !inner)
        ret->result_out = plan_result_route(plan, line);
}

static void rank_shares(const struct plan *plan, struct rank_plan *ret)
{
    int t = ret->at.at[AXIS_TENSOR];
    int parts = plan->mesh.size[AXIS_TENSOR];
    int stage = ret->at.at[AXIS_PIPELINE];
    const struct ledger *ledger = &plan->store->ledger[stage * parts + t];

    ret->layers = plan->stage_layers[stage];
    ret->heads = plan_heads(plan, t);
    ret->kv_heads = plan_kv_heads(plan, t);
    ret->ffn = plan_ffn(plan, t);
    ret->pieces = cut_pieces(&plan->head_cut, (uint32_t)parts, (uint32_t)t);
    if (ret->last)
        ret->vocab = plan_vocab(plan, t);
    ret->weight_bytes = ledger->weight_bytes;
    ret->replica_bytes = ledger->replica_bytes;
    ret->cache_bytes_per_request = ledger->cache_bytes;
    if (__builtin_mul_overflow(ledger->cache_bytes, (uint64_t)plan->slots * plan_waves(plan), &ret->state_bytes))
        ret->state_bytes = UINT64_MAX;
}

void plan_rank(const struct plan *plan, int rank, struct rank_plan *ret)
{
    CHECK(rank >= 0 && rank < plan->mesh.world);
    *ret = (struct rank_plan){.rank = rank, .world_group = 1};
    if (plan->topology->mesh.at.line)
        ret->at = mesh_coordinates(&plan->mesh, rank);
    ret->first = ret->at.at[AXIS_PIPELINE] == 0;
    ret->last = ret->at.at[AXIS_PIPELINE] == plan->mesh.size[AXIS_PIPELINE] - 1;
    ret->tensor_group = line_group(plan, AXIS_TENSOR, rank);
    ret->pipeline_group = line_group(plan, AXIS_PIPELINE, rank);
    ret->data_group = line_group(plan, AXIS_DATA, rank);
    ret->expert_group = line_group(plan, AXIS_EXPERT, rank);
    if (plan->store->stage_group)
        ret->stage_group = plan->store->stage_group + (uint32_t)ret->at.at[AXIS_PIPELINE];
    if (plan->topology->mesh.at.line)
        rank_routes(plan, ret);
    if (plan->store->ledger)
        rank_shares(plan, ret);
}

static void digest_number(XXH3_state_t *state, uint64_t value)
{
    unsigned char bytes[8];

    put_u64(bytes, value);
    XXH3_64bits_update(state, bytes, sizeof bytes);
}

static void digest_name(XXH3_state_t *state, const char *name)
{
    XXH3_64bits_update(state, name, strlen(name) + 1);
}

static void digest_shares(XXH3_state_t *state, const struct plan *plan)
{
    for (int stage = 0; stage < plan->mesh.size[AXIS_PIPELINE]; stage++)
        digest_number(state, plan->stage_layers[stage].count);
    for (uint32_t piece = 0; piece <= plan->pieces; piece++) {
        digest_number(state, plan->head_cut.begin[piece]);
        digest_number(state, plan->ffn_cut.begin[piece]);
    }
    for (int i = 0; i < plan->mesh.size[AXIS_PIPELINE] * plan->mesh.size[AXIS_TENSOR]; i++)
        digest_number(state, plan->store->ledger[i].weight_bytes);
}

uint64_t plan_digest(const struct plan *plan)
{
    XXH3_state_t *state = XXH3_createState();
    uint64_t digest;

    CHECK(state != NULL);
    XXH3_64bits_reset(state);
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        digest_number(state, (uint64_t)plan->mesh.size[axis]);
    digest_number(state, (uint64_t)plan->mesh.world);
    digest_number(state, plan->slots);
    digest_number(state, plan->wave_rows);
    digest_number(state, plan->context);
    if (plan->store->ledger)
        digest_shares(state, plan);
    for (size_t i = 0; i < plan->group_count; i++) {
        const struct group_spec *group = &plan->groups[i];

        digest_name(state, group->name);
        digest_number(state, group->operations);
        digest_number(state, group->dtypes);
        digest_number(state, group->max_bytes);
        for (int m = 0; m < group->size; m++)
            digest_number(state, (uint64_t)group->members[m]);
    }
    for (size_t i = 0; i < plan->route_count; i++) {
        const struct route_spec *route = &plan->routes[i];

        digest_name(state, route->name);
        digest_number(state, (uint64_t)route->from);
        digest_number(state, (uint64_t)route->to);
        digest_number(state, route_spec_digest(route));
    }
    digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return digest;
}
