/* The plan as JSON, one object a line: plan, then stage, rank, group and route objects.  Complete: nothing that a rank
 * acts on is left out.  Written straight into the text, because a plan may have a million lines. */
#include <inttypes.h>
#include <string.h>

#include "checkpoint/model_config.h"
#include "runtime/plan_private.h"

static void add_string(struct text *out, const char *name, const char *value)
{
    text_add(out, ",\"%s\":", name);
    text_add_json(out, value, strlen(value));
}

static void add_number(struct text *out, const char *name, uint64_t value)
{
    text_add(out, ",\"%s\":%" PRIu64, name, value);
}

/* UINT64_MAX stands for no limit. */
static void add_limit(struct text *out, const char *name, uint64_t value)
{
    if (value == UINT64_MAX)
        text_add(out, ",\"%s\":null", name);
    else
        add_number(out, name, value);
}

/* Ids count from 1; 0 is none. */
static void add_id(struct text *out, const char *name, uint32_t id)
{
    if (id)
        add_number(out, name, id);
    else
        text_add(out, ",\"%s\":null", name);
}

static void add_share(struct text *out, const char *name, struct share share)
{
    text_add(out, ",\"%s\":{\"start\":%" PRIu64 ",\"count\":%" PRIu64 "}", name, share.start, share.count);
}

static void add_verdict(const struct plan *plan, struct text *out)
{
    const char *line = text_string(&plan->verdict);
    const char *between = "";

    text_add(out, ",\"notes\":[");
    while (*line) {
        size_t length = strcspn(line, "\n");

        text_add(out, "%s", between);
        text_add_json(out, line, length);
        between = ",";
        line += length + (line[length] != '\0');
    }
    text_add(out, "]");
}

static void add_model(const struct plan *plan, struct text *out)
{
    const struct model_config *model = plan->model;

    if (!model) {
        text_add(out, ",\"model\":null");
        return;
    }
    text_add(out, ",\"model\":{\"architecture\":");
    text_add_json(out, model->architecture_name, strlen(model->architecture_name));
    add_number(out, "layers", model->layer_count);
    add_number(out, "hidden", model->hidden_size);
    add_number(out, "ffn", model->ffn_size);
    add_number(out, "heads", model->head_count);
    add_number(out, "kv_heads", model->kv_head_count);
    add_number(out, "head_dim", model->head_dim);
    add_number(out, "vocab", model->vocab_size);
    add_number(out, "context", model->context_length);
    text_add(out, ",\"tied\":%s}", model->tied ? "true" : "false");
}

static void add_plan(const struct plan *plan, struct text *out)
{
    text_add(out, "{\"kind\":\"plan\"");
    add_string(out, "name", plan->topology->name.value);
    add_number(out, "world", (uint64_t)plan->mesh.world);
    text_add(out, ",\"mesh\":{\"data\":%d,\"pipeline\":%d,\"tensor\":%d,\"expert\":%d}", plan->mesh.size[AXIS_DATA],
             plan->mesh.size[AXIS_PIPELINE], plan->mesh.size[AXIS_TENSOR], plan->mesh.size[AXIS_EXPERT]);
    add_string(out, "transport", plan_transport_name(plan));
    add_string(out, "reduction", plan_reduction_name(plan));
    add_string(out, "memory", plan_memory_words(plan));
    add_string(out, "verdict", "sound");
    add_verdict(plan, out);
    add_model(plan, out);
    if (plan->topology->workload.generate.at.line) {
        add_number(out, "pieces", plan->pieces);
        add_number(out, "slots", plan->slots);
        add_number(out, "wave_rows", plan->wave_rows);
        add_number(out, "waves", plan_waves(plan));
        if (plan->model)
            add_number(out, "context", plan->context);
    }
    add_number(out, "group_count", plan->group_count);
    add_number(out, "route_count", plan->route_count);
    text_add(out, ",\"digest\":\"%016" PRIx64 "\"}\n", plan_digest(plan));
}

static void add_stage(const struct plan *plan, int stage, struct text *out)
{
    int run = mesh_stride(&plan->mesh, AXIS_PIPELINE);
    int stages = plan->mesh.size[AXIS_PIPELINE];

    text_add(out, "{\"kind\":\"stage\",\"stage\":%d", stage);
    if (plan->stage_layers)
        add_share(out, "layers", plan->stage_layers[stage]);
    text_add(out, ",\"ranks\":[");
    for (int i = 0; i < plan->mesh.world / stages; i++)
        text_add(out, i ? ",%d" : "%d", (i / run * stages + stage) * run + i % run);
    text_add(out, "]}\n");
}

static void add_rank(const struct plan *plan, int number, struct text *out)
{
    struct rank_plan rank;
    struct text node = {0};

    plan_rank(plan, number, &rank);
    text_add(out, "{\"kind\":\"rank\",\"rank\":%d", number);
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        add_number(out, axis_name(axis), (uint64_t)rank.at.at[axis]);
    plan_add_node(&node, plan, number);
    if (node.length)
        add_string(out, "node", text_string(&node));
    text_done(&node);
    if (plan->store->ledger) {
        add_share(out, "layers", rank.layers);
        add_share(out, "heads", rank.heads);
        add_share(out, "kv_heads", rank.kv_heads);
        add_share(out, "ffn", rank.ffn);
        add_share(out, "vocab", rank.vocab);
        add_share(out, "pieces", rank.pieces);
        add_number(out, "weight_bytes", rank.weight_bytes);
        add_number(out, "replica_bytes", rank.replica_bytes);
        add_number(out, "cache_bytes_per_request", rank.cache_bytes_per_request);
        add_number(out, "state_bytes", rank.state_bytes);
    }
    add_id(out, "world_group", rank.world_group);
    add_id(out, "tensor_group", rank.tensor_group);
    add_id(out, "pipeline_group", rank.pipeline_group);
    add_id(out, "data_group", rank.data_group);
    add_id(out, "expert_group", rank.expert_group);
    add_id(out, "stage_group", rank.stage_group);
    add_id(out, "forward_in", rank.forward_in);
    add_id(out, "forward_out", rank.forward_out);
    add_id(out, "token_in", rank.token_in);
    add_id(out, "token_out", rank.token_out);
    add_id(out, "result_out", rank.result_out);
    text_add(out, "}\n");
}

static void add_group(const struct group_spec *group, struct text *out)
{
    const char *between = "";

    text_add(out, "{\"kind\":\"group\",\"id\":%" PRIu32, group->id);
    add_string(out, "name", group->name);
    text_add(out, ",\"members\":[");
    for (int m = 0; m < group->size; m++)
        text_add(out, m ? ",%d" : "%d", group->members[m]);
    text_add(out, "],\"operations\":[");
    for (int operation = 1; operation < OPERATION_COUNT; operation++) {
        if (group->operations & OPERATION_BIT(operation)) {
            text_add(out, "%s\"%s\"", between, operation_name(operation));
            between = ",";
        }
    }
    text_add(out, "],\"dtypes\":[");
    between = "";
    for (int dtype = 1; dtype < DTYPE_COUNT; dtype++) {
        if (group->dtypes & DTYPE_BIT(dtype)) {
            text_add(out, "%s\"%s\"", between, dtype_name(dtype));
            between = ",";
        }
    }
    text_add(out, "]");
    add_limit(out, "max_bytes", group->max_bytes);
    text_add(out, "}\n");
}

static void add_tensor(const struct route_spec *route, const struct tensor_spec *tensor, struct text *out)
{
    text_add(out, "{\"role\":");
    text_add_json(out, tensor->role, strlen(tensor->role));
    add_string(out, "dtype", dtype_name(tensor->dtype));
    text_add(out, ",\"shape\":[");
    for (int i = 0; i < tensor->ndim; i++) {
        const struct dim_spec *dim = &tensor->dim[i];

        text_add(out, "%s{\"low\":%" PRIu64 ",\"high\":%" PRIu64, i ? "," : "", dim->low, dim->high);
        if (dim->extent >= 0)
            add_string(out, "extent", route->extents[dim->extent].name);
        text_add(out, "}");
    }
    text_add(out, "]");
    add_limit(out, "max_bytes", plan_tensor_bytes(tensor));
    text_add(out, "}");
}

static void add_route(const struct route_spec *route, struct text *out)
{
    text_add(out, "{\"kind\":\"route\",\"id\":%" PRIu32, route->id);
    add_string(out, "name", route->name);
    text_add(out, ",\"from\":%d,\"to\":%d,\"depth\":%d,\"bundle\":[", route->from, route->to, route->depth);
    for (int t = 0; t < route->tensor_count; t++) {
        text_add(out, "%s", t ? "," : "");
        add_tensor(route, &route->tensors[t], out);
    }
    text_add(out, "]}\n");
}

void plan_json(const struct plan *plan, struct text *out)
{
    add_plan(plan, out);
    for (int stage = 0; stage < plan->mesh.size[AXIS_PIPELINE]; stage++)
        add_stage(plan, stage, out);
    for (int rank = 0; rank < plan->mesh.world; rank++)
        add_rank(plan, rank, out);
    for (size_t i = 0; i < plan->group_count; i++)
        add_group(&plan->groups[i], out);
    for (size_t i = 0; i < plan->route_count; i++)
        add_route(&plan->routes[i], out);
}
