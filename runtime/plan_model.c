/* The workload's side of a plan: limits, layers per stage, cuts. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/size.h"
#include "checkpoint/checkpoint.h"
#include "runtime/plan_private.h"

static int tensor_size(const struct plan *plan)
{
    return plan->mesh.size[AXIS_TENSOR];
}

struct share plan_heads(const struct plan *plan, int t)
{
    return cut_range(&plan->head_cut, (uint32_t)tensor_size(plan), (uint32_t)t);
}

/* Query head h reads key/value head h / (heads / kv_heads). */
struct share plan_kv_heads(const struct plan *plan, int t)
{
    struct share heads = plan_heads(plan, t);
    uint64_t readers = plan->model->head_count / plan->model->kv_head_count;
    uint64_t first = heads.start / readers;

    return (struct share){.start = first, .count = (heads.start + heads.count - 1) / readers + 1 - first};
}

struct share plan_ffn(const struct plan *plan, int t)
{
    return cut_range(&plan->ffn_cut, (uint32_t)tensor_size(plan), (uint32_t)t);
}

struct share plan_vocab(const struct plan *plan, int t)
{
    uint64_t parts = (uint64_t)tensor_size(plan);

    return (struct share){.start = share_start(plan->model->vocab_size, parts, (uint64_t)t),
                          .count = share_count(plan->model->vocab_size, parts, (uint64_t)t)};
}

/* Requests per wave, rows per wave and context: from the file, the model's where it is silent. */
static void plan_limits(struct plan *plan)
{
    const struct topology *topology = plan->topology;
    const struct topology_generate *generate = &topology->workload.generate;
    uint64_t most = plan->model ? plan->model->context_length : UINT32_MAX;
    uint64_t chunk = generate->prompt_chunk.automatic ? PLAN_DEFAULT_CHUNK : generate->prompt_chunk.value;
    uint64_t slots = generate->microbatch.automatic ? PLAN_DEFAULT_SLOTS : generate->microbatch.value;
    uint64_t context = generate->context.at.line ? generate->context.value : most;

    if (slots < 1 || slots > PLAN_MAX_SLOTS)
        topology_error_at(topology, generate->microbatch.at,
                          "workload.generate.microbatch: %" PRIu64 " requests per wave, 1 to %d are possible", slots,
                          PLAN_MAX_SLOTS);
    if (chunk < 1 || chunk > PLAN_MAX_CHUNK)
        topology_error_at(topology, generate->prompt_chunk.at,
                          "workload.generate.prompt_chunk: %" PRIu64 " rows per wave, 1 to %d are possible", chunk,
                          PLAN_MAX_CHUNK);
    if (context < 2 || context > most)
        topology_error_at(topology, generate->context.at,
                          "workload.generate.context: %" PRIu64 " tokens, the model has 2 to %" PRIu64, context, most);
    else if (plan->model && generate->max_new_tokens.value >= context)
        text_add(&plan->verdict,
                 "max_new_tokens %" PRIu64 " does not fit behind a prompt in a context of %" PRIu64
                 ": generation stops at the context\n",
                 generate->max_new_tokens.value, context);
    plan->context = context > UINT32_MAX ? UINT32_MAX : (uint32_t)context;
    plan->slots = (uint32_t)slots;
    plan->wave_rows = (uint32_t)(chunk > context ? context : chunk);
    if (plan->wave_rows < plan->slots)
        plan->wave_rows = plan->slots;
    plan->microbatch_auto = generate->microbatch.automatic;
}

static void check_prompts(const struct plan *plan)
{
    const struct topology_prompts *prompts = &plan->topology->workload.generate.prompts;

    for (size_t i = 0; i < prompts->count; i++) {
        const struct topology_numbers *tokens = &prompts->item[i].tokens;

        if (tokens->count > plan->context)
            topology_error_at(plan->topology, tokens->at,
                              "workload.generate.prompts[%zu]: %zu tokens exceed the context of %u", i, tokens->count,
                              plan->context);
        for (size_t t = 0; t < tokens->count; t++) {
            if (tokens->item[t].value < plan->model->vocab_size)
                continue;
            topology_error_at(plan->topology, tokens->item[t].at,
                              "workload.generate.prompts[%zu]: token %" PRIu64 " is not in the vocabulary of %" PRIu64,
                              i, tokens->item[t].value, plan->model->vocab_size);
            break;
        }
    }
}

/* False when the file's own list is wrong. */
static bool take_layers(struct plan *plan)
{
    const struct topology_numbers *layers = &plan->topology->workload.generate.layers;
    uint64_t stages = (uint64_t)plan->mesh.size[AXIS_PIPELINE];
    uint64_t start = 0;

    if (layers->count != stages) {
        topology_error_at(plan->topology, layers->at,
                          "workload.generate.layers: %zu numbers for %" PRIu64 " pipeline stages", layers->count,
                          stages);
        return false;
    }
    for (size_t stage = 0; stage < layers->count; stage++) {
        uint64_t count = layers->item[stage].value;

        if (count < 1) {
            topology_error_at(plan->topology, layers->item[stage].at,
                              "workload.generate.layers: stage %zu has no layer, at least 1 is needed", stage);
            return false;
        }
        plan->stage_layers[stage] = (struct share){.start = start, .count = count};
        if (__builtin_add_overflow(start, count, &start))
            start = UINT64_MAX;
    }
    if (start != plan->model->layer_count) {
        topology_error_at(plan->topology, layers->at,
                          "workload.generate.layers: the sum is %" PRIu64 ", the model has %" PRIu64 " layers", start,
                          plan->model->layer_count);
        return false;
    }
    return true;
}

/* Bytes of weights that one decode step reads: the embedding is one row, the head all of it. */
static enum status deal_by_cost(struct plan *plan, const struct plan_types *types, struct error *err)
{
    const struct model_config *model = plan->model;
    int rule_count;
    const struct parameter_rule *const *rules = family_rules(model, &rule_count);
    uint64_t *cost = calloc((size_t)model->layer_count, sizeof *cost);
    uint64_t head = 0;

    if (!cost)
        return error_set(err, STATUS_NOMEM, "the costs of %" PRIu64 " layers", model->layer_count);
    for (int r = 0; r < rule_count; r++) {
        uint64_t rows = family_extent(model, rules[r]->rows);
        uint64_t cols = family_extent(model, rules[r]->cols);

        for (uint64_t layer = 0; rules[r]->place == PLACE_LAYER && layer < model->layer_count; layer++)
            cost[layer] += plan_types_bytes(types, rules[r], layer, rows, cols);
        if (rules[r]->parameter == (model->tied ? PARAMETER_EMBEDDING : PARAMETER_HEAD))
            head = plan_types_bytes(types, rules[r], 0, rows, cols);
    }
    plan_deal_layers(cost, model->layer_count, head, (uint64_t)plan->mesh.size[AXIS_PIPELINE], plan->stage_layers);
    free(cost);
    return STATUS_OK;
}

static enum status plan_layers(struct plan *plan, const struct plan_types *types, bool *ret_well, struct error *err)
{
    const struct topology *topology = plan->topology;
    uint64_t stages = (uint64_t)plan->mesh.size[AXIS_PIPELINE];

    plan->stage_layers = calloc((size_t)stages, sizeof *plan->stage_layers);
    if (!plan->stage_layers)
        return error_set(err, STATUS_NOMEM, "the layers of %" PRIu64 " stages", stages);
    if (stages > plan->model->layer_count) {
        topology_error_at(topology, topology->mesh.axis[TOPOLOGY_PIPELINE].at,
                          "mesh.pipeline: %" PRIu64 " stages, but the model has only %" PRIu64
                          " layer%s: at most %" PRIu64 " stages are possible",
                          stages, plan->model->layer_count, plan->model->layer_count == 1 ? "" : "s",
                          plan->model->layer_count);
        *ret_well = false;
        return STATUS_OK;
    }
    if (topology->workload.generate.layers.at.line || topology->workload.generate.layers.count) {
        *ret_well = take_layers(plan);
        return STATUS_OK;
    }
    *ret_well = true;
    return deal_by_cost(plan, types, err);
}

/* A refused cut is a mistake of whichever key asked for the pieces. */
static bool cut_or_note(struct plan *plan, uint64_t total, uint64_t unit, const char *what, struct cut *ret)
{
    const struct topology *topology = plan->topology;
    bool given = topology->compute.pieces.at.line;
    struct error err = {0};

    if (cut_init(total, unit, plan->pieces, what, ret, &err) == STATUS_OK)
        return true;
    topology_error_at(topology, given ? topology->compute.pieces.at : topology->mesh.axis[TOPOLOGY_TENSOR].at,
                      "%s: %s (tensor %d, query heads %" PRIu64 ", key/value heads %" PRIu64 ")",
                      given ? "compute.pieces" : "mesh.tensor", err.text, tensor_size(plan), plan->model->head_count,
                      plan->model->kv_head_count);
    return false;
}

/* Attention is cut between heads only, at multiples of B / gcd(B, head_dim) heads for blocks of B. */
static bool plan_cuts(struct plan *plan, const struct plan_types *types)
{
    const struct topology *topology = plan->topology;
    const struct model_config *model = plan->model;
    uint64_t block = plan_types_unit(types, PARAMETER_O);
    uint64_t common = block;
    uint64_t rest = model->head_dim;
    bool well;

    while (rest) {
        uint64_t next = common % rest;

        common = rest;
        rest = next;
    }
    if (plan->pieces < (uint32_t)tensor_size(plan)) {
        topology_error_at(topology, topology->compute.pieces.at,
                          "compute.pieces: %u pieces for tensor %d, at least one piece per rank is needed",
                          plan->pieces, tensor_size(plan));
        return false;
    }
    well = cut_or_note(plan, model->head_count, block / common, "query heads", &plan->head_cut);
    well = cut_or_note(plan, model->ffn_size, plan_types_unit(types, PARAMETER_DOWN), "the feed-forward dimension",
                       &plan->ffn_cut) &&
           well;
    if (model->vocab_size < (uint64_t)tensor_size(plan)) {
        topology_error_at(topology, topology->mesh.axis[TOPOLOGY_TENSOR].at,
                          "mesh.tensor: %d ranks share a vocabulary of %" PRIu64, tensor_size(plan), model->vocab_size);
        well = false;
    }
    return well;
}

enum status plan_model(struct plan *plan, const struct checkpoint *checkpoint, struct error *err)
{
    const struct topology *topology = plan->topology;
    struct plan_types types = {0};
    bool well = true;
    enum status st;

    plan->pieces =
        topology->compute.pieces.value ? (uint32_t)topology->compute.pieces.value : (uint32_t)tensor_size(plan);
    if (topology->compute.pieces.value > CUT_MAX_PIECES) {
        topology_error_at(topology, topology->compute.pieces.at, "compute.pieces: %" PRIu64 ", 1 to %d are possible",
                          topology->compute.pieces.value, CUT_MAX_PIECES);
        return STATUS_OK;
    }
    if (!checkpoint) {
        plan_limits(plan);
        return STATUS_OK;
    }
    plan->model = checkpoint_config(checkpoint);
    if (plan->model->context_length < 2)
        return error_set(err, STATUS_MODEL,
                         "%s: the model has a context of %" PRIu64
                         " position, but a prompt and one generated token need 2: nothing can be generated with it",
                         checkpoint_path(checkpoint), plan->model->context_length);
    st = plan_check_tensors(checkpoint, &plan->verdict, err);
    if (st != STATUS_OK)
        return st;
    plan_limits(plan);
    check_prompts(plan);
    st = plan_types_init(&types, checkpoint, err);
    if (st == STATUS_OK)
        st = plan_layers(plan, &types, &well, err);
    if (st == STATUS_OK && plan_cuts(plan, &types) && well)
        st = plan_ledger(plan, &types, err);
    plan_types_done(&types);
    return st;
}
