/* The ledger of what every rank holds.
 *
 * One entry per (pipeline, tensor) coordinate, because data lines are alike; one walk over the family's table per layer
 * and tensor coordinate. */
#include <stdlib.h>

#include "base/fit.h"
#include "base/size.h"
#include "runtime/plan_private.h"

/* Which part of a dimension t holds, and how much of it a lower tensor rank holds too. */
struct part {
    uint64_t count;
    uint64_t shared;
};

static struct part part_of(const struct plan *plan, enum split split, uint64_t whole, int t)
{
    uint64_t head_dim = plan->model->head_dim;

    switch (split) {
    case SPLIT_Q_ROWS:
    case SPLIT_Q_COLS:
        return (struct part){.count = plan_heads(plan, t).count * head_dim};
    case SPLIT_KV_ROWS: {
        struct share here = plan_kv_heads(plan, t);
        struct share below = t ? plan_kv_heads(plan, t - 1) : (struct share){0};
        uint64_t end = below.start + below.count;
        uint64_t shared = end > here.start ? end - here.start : 0;

        return (struct part){here.count * head_dim, (shared < here.count ? shared : here.count) * head_dim};
    }
    case SPLIT_FFN_ROWS:
    case SPLIT_FFN_COLS:
        return (struct part){.count = plan_ffn(plan, t).count};
    case SPLIT_VOCAB_ROWS:
        return (struct part){.count = plan_vocab(plan, t).count};
    case SPLIT_NONE:
        break;
    }
    return (struct part){whole, t ? whole : 0};
}

/* Add one parameter to the ledger; replica: a rank of a lower stage holds it too. */
static void enter(const struct plan *plan, const struct plan_types *types, const struct parameter_rule *rule,
                  enum split split, uint64_t layer, int t, bool replica, struct ledger *ledger)
{
    uint64_t rows = family_extent(plan->model, rule->rows);
    uint64_t cols = family_extent(plan->model, rule->cols);
    bool inner = rule->rows == EXTENT_NONE || split == SPLIT_Q_COLS || split == SPLIT_FFN_COLS;
    struct part part = part_of(plan, split, inner ? cols : rows, t);
    uint64_t bytes = plan_types_bytes(types, rule, layer, inner ? rows : part.count, inner ? part.count : cols);

    ledger->weight_bytes += bytes;
    if (replica)
        ledger->replica_bytes += bytes;
    else
        ledger->replica_bytes +=
            plan_types_bytes(types, rule, layer, inner ? rows : part.shared, inner ? part.shared : cols);
}

static void enter_stage(const struct plan *plan, const struct plan_types *types, const struct parameter_rule *rule,
                        int stage, int t, struct ledger *ledger)
{
    bool first = stage == 0;
    bool last = stage == plan->mesh.size[AXIS_PIPELINE] - 1;
    struct share layers = plan->stage_layers[stage];

    switch (rule->place) {
    case PLACE_LAYER:
        for (uint64_t i = 0; i < layers.count; i++)
            enter(plan, types, rule, rule->split, layers.start + i, t, false, ledger);
        break;
    case PLACE_FIRST:
        if (first)
            enter(plan, types, rule, rule->split, 0, t, false, ledger);
        break;
    case PLACE_LAST:
        if (last)
            enter(plan, types, rule, rule->split, 0, t, false, ledger);
        break;
    case PLACE_EVERY:
        enter(plan, types, rule, rule->split, 0, t, !first, ledger);
        break;
    }
    if (rule->parameter == PARAMETER_EMBEDDING && plan->model->tied && last && !first)
        enter(plan, types, rule, SPLIT_VOCAB_ROWS, 0, t, true, ledger);
}

/* Keys and values of every position in f32, heads padded to whole vectors of 16. */
static uint64_t cache_bytes(const struct plan *plan, int stage, int t)
{
    size_t bytes = 2 * sizeof(float) * ((plan->model->head_dim + 15) / 16 * 16);

    if (size_mul(bytes, plan_kv_heads(plan, t).count, &bytes) || size_mul(bytes, plan->context, &bytes) ||
        size_mul(bytes, plan->stage_layers[stage].count, &bytes))
        return UINT64_MAX;
    return bytes;
}

enum status plan_ledger(struct plan *plan, const struct plan_types *types, struct error *err)
{
    int stages = plan->mesh.size[AXIS_PIPELINE];
    int parts = plan->mesh.size[AXIS_TENSOR];
    int rule_count;
    const struct parameter_rule *const *rules = family_rules(plan->model, &rule_count);

    plan->store->ledger = calloc((size_t)stages * (size_t)parts, sizeof *plan->store->ledger);
    if (!plan->store->ledger)
        return error_set(err, STATUS_NOMEM, "the ledger of %d x %d ranks", stages, parts);
    for (int stage = 0; stage < stages; stage++) {
        for (int t = 0; t < parts; t++) {
            struct ledger *ledger = &plan->store->ledger[stage * parts + t];

            for (int r = 0; r < rule_count; r++)
                enter_stage(plan, types, rules[r], stage, t, ledger);
            ledger->cache_bytes = cache_bytes(plan, stage, t);
        }
    }
    return STATUS_OK;
}

static enum status refuse_state(const struct rank_plan *rank, struct memory_space space, struct error *err)
{
    struct text need = {0};
    enum status st;

    text_add(&need, "this rank's caches take ");
    text_add_size(&need, rank->state_bytes);
    text_add(&need, ", and ");
    text_add_size(&need, space.available);
    text_add(&need, " of memory are available: set workload.generate.microbatch or context lower, or use more ranks");
    st = error_set(err, STATUS_NOMEM, "%s", text_string(&need));
    text_done(&need);
    return st;
}

enum status rank_plan_fits(const struct rank_plan *rank, struct memory_space space, struct text *warning,
                           struct error *err)
{
    uint64_t all = 0;

    if (would_fit(rank->state_bytes, space) == FIT_NOT)
        return refuse_state(rank, space, err);
    if (__builtin_add_overflow(rank->state_bytes, rank->weight_bytes, &all))
        all = UINT64_MAX;
    if (would_fit(all, space) != FIT_NOT)
        return STATUS_OK;
    text_add(warning, "caches and weights take ");
    text_add_size(warning, all);
    text_add(warning, ", and ");
    text_add_size(warning, space.available);
    text_add(warning, " of memory are available: parts of the weights will be read again and again");
    return STATUS_OK;
}
