/* The plan as a tree that a person can read.  What is equal is shown once: ranks that hold the same amounts share a
 * line, and in a long pipeline so do stages; the size of the text follows the differences, not the number of ranks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/model_config.h"
#include "runtime/plan_private.h"

enum { MANY_STAGES = 8, MANY_LINES = 32, MANY_NODES = 4 };

static const char *const check_words[] = {"off", "light", "full"};
static const char *const integrity_words[] = {"header", "payload"};
static const char *const timeout_words[] = {"abort", "quarantine"};

static void add_mesh(const struct plan *plan, struct text *out)
{
    const char *between = ": ";

    text_add(out, "world      %d rank%s", plan->mesh.world, plan->mesh.world == 1 ? "" : "s");
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (plan->mesh.size[axis] > 1) {
            text_add(out, "%s%s %d", between, axis_name(axis), plan->mesh.size[axis]);
            between = " x ";
        }
    }
    text_add(out, plan->topology->mesh.at.line ? "\n" : ", no mesh\n");
}

static void add_communication(const struct plan *plan, struct text *out)
{
    const struct topology *topology = plan->topology;

    text_add(out, "transport  %s; reduction %s, checks %s, integrity %s, timeout %g s then %s\n",
             plan_transport_name(plan), plan_reduction_name(plan), check_words[topology->communication.checks.value],
             integrity_words[topology->communication.integrity.value],
             (double)topology->communication.timeout_ns.value / 1e9,
             timeout_words[topology->communication.on_timeout.value]);
    text_add(out, "tensors    in %s\n", plan_memory_words(plan));
}

static void add_model(const struct plan *plan, struct text *out)
{
    const struct model_config *model = plan->model;

    if (!plan->topology->workload.generate.at.line)
        return;
    text_add(out, "model      %s\n", plan->topology->workload.generate.model.value);
    if (model)
        text_add(out,
                 "           %s: %" PRIu64 " layers, hidden %" PRIu64 ", feed-forward %" PRIu64 ", %" PRIu64
                 " query heads of %" PRIu64 ", %" PRIu64 " key/value heads, vocabulary %" PRIu64 "%s\n",
                 model->architecture_name, model->layer_count, model->hidden_size, model->ffn_size, model->head_count,
                 model->head_dim, model->kv_head_count, model->vocab_size, model->tied ? ", tied head" : "");
    text_add(out, "workload   generate: %u request%s per wave%s, %u row%s per wave, %u wave%s per step, ", plan->slots,
             plan->slots == 1 ? "" : "s", plan->microbatch_auto ? " (auto)" : "", plan->wave_rows,
             plan->wave_rows == 1 ? "" : "s", plan_waves(plan), plan_waves(plan) == 1 ? "" : "s");
    if (model)
        text_add(out, "context %u, pieces %u\n", plan->context, plan->pieces);
    else
        text_add(out, "pieces %u\n", plan->pieces);
}

/* The verdict's lines that say (or do not say) that something was not checked, each behind indent. */
static void add_notes(const struct plan *plan, bool unchecked, const char *indent, struct text *out)
{
    static const char mark[] = "not checked: ";
    const char *line = text_string(&plan->verdict);

    while (*line) {
        size_t length = strcspn(line, "\n");
        bool is_unchecked = !strncmp(line, mark, sizeof mark - 1);
        size_t skip = is_unchecked ? sizeof mark - 1 : 0;

        if (is_unchecked == unchecked)
            text_add(out, "%s%.*s\n", indent, (int)(length - skip), line + skip);
        line += length + (line[length] != '\0');
    }
}

/* Do tensor coordinates a of stage s and b of stage r hold the same amounts? */
static bool equal_ranks(const struct plan *plan, int s, int a, int r, int b)
{
    int parts = plan->mesh.size[AXIS_TENSOR];

    if (!plan->store->ledger)
        return true;
    return !memcmp(&plan->store->ledger[s * parts + a], &plan->store->ledger[r * parts + b], sizeof(struct ledger)) &&
           plan_heads(plan, a).count == plan_heads(plan, b).count &&
           plan_kv_heads(plan, a).count == plan_kv_heads(plan, b).count;
}

static bool equal_stages(const struct plan *plan, int s, int r)
{
    if (plan->stage_layers && plan->stage_layers[s].count != plan->stage_layers[r].count)
        return false;
    for (int t = 0; t < plan->mesh.size[AXIS_TENSOR]; t++) {
        if (!equal_ranks(plan, s, t, r, t))
            return false;
    }
    return true;
}

static void add_nodes(const struct plan *plan, const int *ranks, size_t count, struct text *out)
{
    int shown[MANY_NODES];
    size_t nodes = 0;

    for (size_t i = 0; i < count; i++) {
        int node = plan_node(plan, ranks[i]);
        bool known = node < 0;

        for (size_t n = 0; n < nodes; n++)
            known = known || shown[n] == node;
        if (known)
            continue;
        if (nodes == MANY_NODES) {
            text_add(out, ", ...");
            return;
        }
        text_add(out, nodes ? ", " : "  on ");
        plan_add_node(out, plan, ranks[i]);
        shown[nodes++] = node;
    }
}

static void add_amounts(const struct plan *plan, int stage, int t, struct text *out)
{
    const struct ledger *ledger = &plan->store->ledger[stage * plan->mesh.size[AXIS_TENSOR] + t];

    text_add(out, "  heads %" PRIu64 "/%" PRIu64 "  weights ", plan_heads(plan, t).count, plan_kv_heads(plan, t).count);
    text_add_size(out, ledger->weight_bytes);
    if (ledger->replica_bytes) {
        text_add(out, " (");
        text_add_size(out, ledger->replica_bytes);
        text_add(out, " replicas)");
    }
    text_add(out, "  kv ");
    text_add_size(out, ledger->cache_bytes);
    text_add(out, " per request");
}

/* One line for all ranks of the stage that are equal to tensor coordinate t; ranks [world] is room to work in. */
static void add_rank_line(const struct plan *plan, int stage, int t, int *ranks, bool numbers, struct text *out)
{
    const struct mesh *mesh = &plan->mesh;
    int run = mesh_stride(mesh, AXIS_PIPELINE);
    int stages = mesh->size[AXIS_PIPELINE];
    size_t count = 0;

    for (int i = 0; i < mesh->world / stages; i++) {
        int rank = (i / run * stages + stage) * run + i % run;

        if (equal_ranks(plan, stage, t, stage, mesh_coordinates(mesh, rank).at[AXIS_TENSOR]))
            ranks[count++] = rank;
    }
    if (numbers) {
        text_add(out, count == 1 ? "  rank " : "  ranks ");
        plan_add_ranks(out, ranks, count);
        if (count > 1 && plan->store->ledger)
            text_add(out, " each");
    } else {
        text_add(out, "  %zu rank%s each", count, count == 1 ? "" : "s");
    }
    if (plan->store->ledger)
        add_amounts(plan, stage, t, out);
    if (numbers)
        add_nodes(plan, ranks, count, out);
    text_add(out, "\n");
}

static void add_stage_title(const struct plan *plan, int stage, int last, struct text *out)
{
    if (last > stage)
        text_add(out, "stages %d..%d", stage, last);
    else
        text_add(out, "stage %d", stage);
    if (plan->stage_layers) {
        struct share layers = plan->stage_layers[stage];
        struct share end = plan->stage_layers[last];

        text_add(out, "    layers %" PRIu64 "..%" PRIu64 " (%" PRIu64 "%s)", layers.start, end.start + end.count - 1,
                 layers.count, last > stage ? " each" : "");
    }
    text_add(out, "\n");
}

static void add_stages(const struct plan *plan, struct text *out)
{
    int stages = plan->mesh.size[AXIS_PIPELINE];
    int parts = plan->mesh.size[AXIS_TENSOR];
    int *ranks = calloc((size_t)plan->mesh.world, sizeof *ranks);

    if (!ranks) {
        out->failed = true;
        return;
    }
    for (int stage = 0; stage < stages;) {
        int last = stage;

        while (stages > MANY_STAGES && last + 1 < stages && equal_stages(plan, stage, last + 1))
            last++;
        if (plan->topology->mesh.at.line)
            add_stage_title(plan, stage, last, out);
        for (int t = 0; t < parts; t++) {
            bool seen = false;

            for (int lower = 0; lower < t && !seen; lower++)
                seen = equal_ranks(plan, stage, t, stage, lower);
            if (!seen)
                add_rank_line(plan, stage, t, ranks, last == stage, out);
        }
        stage = last + 1;
    }
    free(ranks);
}

/* A model that is not here: nobody knows how wide its rows are. */
static bool is_wide_as_model(const struct plan *plan, const struct route_spec *route, int tensor)
{
    return !plan->model && plan->topology->workload.generate.at.line &&
           !strncmp(route->name, "forward/", strlen("forward/")) && !strcmp(route->tensors[tensor].role, "hidden");
}

static void add_bundle(const struct plan *plan, const struct route_spec *route, const char *indent, struct text *out)
{
    for (int t = 0; t < route->tensor_count; t++) {
        uint64_t bytes = plan_tensor_bytes(&route->tensors[t]);
        struct text shape = {0};

        plan_add_tensor(&shape, route, &route->tensors[t]);
        text_add(out, "%s%-12s %-28s ", indent, route->tensors[t].role, text_string(&shape));
        text_done(&shape);
        if (bytes == UINT64_MAX || is_wide_as_model(plan, route, t))
            text_add(out, "unknown size");
        else
            text_add_size(out, bytes);
        text_add(out, "\n");
    }
}

/* What one step moves over a route of this bundle: at most, and when every request decodes. */
static void add_step(const struct plan *plan, const struct route_spec *route, struct text *out)
{
    uint64_t most = plan_bundle_bytes(route);
    bool forward = !strncmp(route->name, "forward/", strlen("forward/"));
    uint64_t waves = strncmp(route->name, "result/", strlen("result/")) ? plan_waves(plan) : 1;
    uint64_t step;

    if (!plan->model || !plan->topology->workload.generate.at.line || __builtin_mul_overflow(most, waves, &step))
        return;
    text_add(out, ", per step at most ");
    text_add_size(out, step);
    if (forward) {
        text_add(out, ", decoding ");
        text_add_size(out, waves * plan->slots * (4 * sizeof(uint32_t) + plan->model->hidden_size * sizeof(float)));
    }
}

/* Implied routes of one kind carry one bundle: shown once. */
static void add_boundaries(const struct plan *plan, struct text *out)
{
    size_t implied = plan->store->implied_routes;

    for (size_t i = 0; i < implied;) {
        const struct route_spec *route = &plan->routes[i];
        size_t kind = strcspn(route->name, "/") + 1;
        size_t end = i;

        while (end < implied && !strncmp(plan->routes[end].name, route->name, kind))
            end++;
        text_add(out, "%sboundary %.*s: %s", i ? "" : "\n", (int)kind - 1, route->name, route->name);
        if (end - i > 1)
            text_add(out, "%s%s (%zu routes)", end - i > 2 ? " .. " : ", ", plan->routes[end - 1].name, end - i);
        add_step(plan, route, out);
        text_add(out, "\n");
        add_bundle(plan, route, "  ", out);
        i = end;
    }
}

static void add_masks(const struct group_spec *group, struct text *out)
{
    uint32_t every = OPERATIONS_ALL & ~OPERATION_BIT(OPERATION_SEND_RECEIVE);
    const char *between = "";

    if (group->operations == every)
        text_add(out, "every operation");
    for (int operation = 1; group->operations != every && operation < OPERATION_COUNT; operation++) {
        if (group->operations & OPERATION_BIT(operation)) {
            text_add(out, "%s%s", between, operation_name(operation));
            between = ", ";
        }
    }
    between = "; ";
    if (group->dtypes == DTYPES_ALL)
        text_add(out, "; every dtype");
    for (int dtype = 1; group->dtypes != DTYPES_ALL && dtype < DTYPE_COUNT; dtype++) {
        if (group->dtypes & DTYPE_BIT(dtype)) {
            text_add(out, "%s%s", between, dtype_name(dtype));
            between = ", ";
        }
    }
    if (group->max_bytes != UINT64_MAX) {
        text_add(out, "; at most ");
        text_add_size(out, group->max_bytes);
    }
}

/* Implied groups in one line a kind; the file's own one a line. */
static void add_groups(const struct plan *plan, struct text *out)
{
    size_t implied = plan->store->implied_groups;

    for (size_t i = 0; i < implied;) {
        const char *name = plan->groups[i].name;
        size_t kind = strcspn(name, "/") + 1;
        size_t end = i;

        while (end < implied && !strncmp(plan->groups[end].name, name, kind))
            end++;
        text_add(out, "%s%s", i ? ", " : "\ngroups     ", name);
        if (end - i > 1)
            text_add(out, "..%s", plan->groups[end - 1].name + kind);
        text_add(out, " (%d)", plan->groups[i].size);
        i = end;
    }
    text_add(out, "\n");
    for (size_t i = implied; i < plan->group_count; i++) {
        const struct group_spec *group = &plan->groups[i];

        if (i == implied + MANY_LINES) {
            text_add(out, "and %zu more groups\n", plan->group_count - i);
            break;
        }
        text_add(out, "group %s: members", group->name);
        for (int m = 0; m < group->size && m < MANY_LINES; m++)
            text_add(out, "%s%d", m ? ", " : " ", group->members[m]);
        text_add(out, group->size > MANY_LINES ? ", ... (%d in all); " : "; ", group->size);
        add_masks(group, out);
        text_add(out, "\n");
    }
}

static void add_routes(const struct plan *plan, struct text *out)
{
    for (size_t i = plan->store->implied_routes; i < plan->route_count; i++) {
        const struct route_spec *route = &plan->routes[i];

        if (i == plan->store->implied_routes + MANY_LINES) {
            text_add(out, "and %zu more routes\n", plan->route_count - i);
            break;
        }
        text_add(out, "route %s: %d -> %d\n", route->name, route->from, route->to);
        add_bundle(plan, route, "  ", out);
    }
}

void plan_tree(const struct plan *plan, struct text *out)
{
    text_add(out, "plan       %s\n", plan->topology->name.value);
    add_mesh(plan, out);
    add_communication(plan, out);
    add_model(plan, out);
    text_add(out, "verdict    sound%s\n",
             plan->topology->workload.generate.at.line && !plan->model ? ", but for the model, which is not here" : "");
    add_notes(plan, false, "           ", out);
    text_add(out, "\n");
    add_stages(plan, out);
    add_boundaries(plan, out);
    add_groups(plan, out);
    add_routes(plan, out);
    text_add(out, "\nnot checked here:\n");
    add_notes(plan, true, "  ", out);
}

static void add_share(struct text *out, const char *name, struct share share)
{
    if (share.count)
        text_add(out, "%-10s %" PRIu64 "..%" PRIu64 " (%" PRIu64 ")\n", name, share.start,
                 share.start + share.count - 1, share.count);
}

static void add_rank_memory(const struct rank_plan *rank, struct text *out)
{
    text_add(out, "weights    ");
    text_add_size(out, rank->weight_bytes);
    text_add(out, ", of them replicas ");
    text_add_size(out, rank->replica_bytes);
    text_add(out, "\nkv         ");
    text_add_size(out, rank->cache_bytes_per_request);
    text_add(out, " per request, ");
    text_add_size(out, rank->state_bytes);
    text_add(out, " with all requests in flight\n");
}

static void add_memberships(const struct plan *plan, int number, struct text *out)
{
    for (size_t i = 0; i < plan->group_count; i++) {
        const struct group_spec *group = &plan->groups[i];

        for (int m = 0; m < group->size; m++) {
            if (group->members[m] == number) {
                text_add(out, "group      %" PRIu32 " %s: member %d of %d; ", group->id, group->name, m, group->size);
                add_masks(group, out);
                text_add(out, "\n");
            }
        }
    }
    for (size_t i = 0; i < plan->route_count; i++) {
        const struct route_spec *route = &plan->routes[i];

        if (route->from != number && route->to != number)
            continue;
        text_add(out, "route      %" PRIu32 " %s: %s %d\n", route->id, route->name,
                 route->from == number ? "to" : "from", route->from == number ? route->to : route->from);
        add_bundle(plan, route, "             ", out);
    }
}

void plan_rank_tree(const struct plan *plan, int number, struct text *out)
{
    struct rank_plan rank;

    plan_rank(plan, number, &rank);
    text_add(out, "rank       %d of %d", number, plan->mesh.world);
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (plan->mesh.size[axis] > 1)
            text_add(out, ", %s %d", axis_name(axis), rank.at.at[axis]);
    }
    if (plan_node(plan, number) >= 0) {
        text_add(out, ", on ");
        plan_add_node(out, plan, number);
    }
    text_add(out, "\ntransport  %s, tensors in %s\n", plan_transport_name(plan), plan_memory_words(plan));
    if (plan->store->ledger) {
        add_share(out, "layers", rank.layers);
        add_share(out, "heads", rank.heads);
        add_share(out, "kv heads", rank.kv_heads);
        add_share(out, "ffn", rank.ffn);
        add_share(out, "vocab", rank.vocab);
        add_share(out, "pieces", rank.pieces);
        add_rank_memory(&rank, out);
    }
    add_memberships(plan, number, out);
}
