/* A checkpoint's metadata, for a person or as JSON. */
#include "launcher/inspect_command.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "runtime/plan.h"
#include "runtime/tokenizer.h"

static uint64_t total_bytes(const struct checkpoint *checkpoint)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++)
        bytes += checkpoint_tensor(checkpoint, i)->bytes;
    return bytes;
}

static void add_lines(struct text *out, const char *name, const char *lines)
{
    while (*lines) {
        size_t length = strcspn(lines, "\n");

        text_add(out, "%-13s %.*s\n", name, (int)length, lines);
        lines += length + (lines[length] != '\0');
    }
}

static void add_config(const struct model_config *model, struct text *out)
{
    text_add(out, "architecture  %s\n", model->architecture_name);
    text_add(out, "layers        %" PRIu64 "\n", model->layer_count);
    text_add(out, "hidden        %" PRIu64 ", feed-forward %" PRIu64 "\n", model->hidden_size, model->ffn_size);
    text_add(out, "heads         %" PRIu64 " of %" PRIu64 ", key/value %" PRIu64 "%s%s\n", model->head_count,
             model->head_dim, model->kv_head_count, model->attention_bias ? ", biases" : "",
             model->qk_norm ? ", q and k norms" : "");
    text_add(out, "vocabulary    %" PRIu64 "%s\n", model->vocab_size, model->tied ? ", tied head" : "");
    text_add(out, "context       %" PRIu64 ", rope theta %g%s%s\n", model->context_length, model->rope_theta,
             model->rope_theta_default ? " (default)" : "", model->rope_scaling.llama3 ? ", llama3 scaling" : "");
}

static void add_tensor(const struct stored_tensor *tensor, struct text *out)
{
    struct text shape = {0};

    for (int i = 0; i < tensor->ndim; i++)
        text_add(&shape, "%s%" PRIu64, i ? "," : "[", tensor->dim[i]);
    text_add(&shape, tensor->ndim ? "]" : "[]");
    text_add(out, "%-5s %-16s ", tensor->type_name, text_string(&shape));
    text_add_size(out, tensor->bytes);
    text_add(out, "  %s\n", tensor->name);
    text_done(&shape);
}

/* How many tokens its tokenizer has, or what is wrong with it; nothing when there is none. */
static void add_tokenizer(const struct checkpoint *checkpoint, bool json, struct text *out)
{
    struct tokenizer *tokenizer = NULL;
    struct error fault = {0};

    if (!tokenizer_is_here(checkpoint)) {
        text_add(out, json ? ",\"tokenizer\":null" : "tokenizer     none here\n");
    } else if (tokenizer_open(checkpoint, &tokenizer, &fault) == STATUS_OK) {
        text_add(out, json ? ",\"tokenizer\":{\"tokens\":%u}" : "tokenizer     %u tokens\n", tokenizer_size(tokenizer));
    } else if (json) {
        text_add(out, ",\"tokenizer\":{\"fault\":");
        text_add_json(out, fault.text, strlen(fault.text));
        text_add(out, "}");
    } else {
        text_add(out, "tokenizer     cannot be used: %s\n", fault.text);
    }
    tokenizer_close(tokenizer);
}

static void add_tree(const struct checkpoint *checkpoint, const char *notes, struct text *out)
{
    int shards = 0;

    text_add(out, "checkpoint    %s (%s)\n", checkpoint_path(checkpoint),
             checkpoint_is_saved(checkpoint)  ? "saved description"
             : checkpoint_is_gguf(checkpoint) ? "GGUF"
                                              : "Hugging Face folder");
    add_config(checkpoint_config(checkpoint), out);
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        if (checkpoint_tensor(checkpoint, i)->shard >= shards)
            shards = checkpoint_tensor(checkpoint, i)->shard + 1;
    }
    for (int shard = 0; shard < shards; shard++)
        text_add(out, "file          %s\n", checkpoint_shard_path(checkpoint, shard));
    if (!checkpoint_has_weights(checkpoint)) {
        text_add(out, "weights       none here\n");
    } else {
        text_add(out, "weights       %zu tensors, ", checkpoint_tensor_count(checkpoint));
        text_add_size(out, total_bytes(checkpoint));
        text_add(out, "\n");
    }
    add_tokenizer(checkpoint, false, out);
    add_lines(out, "note", checkpoint_notes(checkpoint));
    add_lines(out, "note", notes);
    if (checkpoint_tensor_count(checkpoint))
        text_add(out, "\n");
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++)
        add_tensor(checkpoint_tensor(checkpoint, i), out);
}

static void add_json_string(struct text *out, const char *name, const char *value)
{
    text_add(out, ",\"%s\":", name);
    text_add_json(out, value, strlen(value));
}

static void add_json_bool(struct text *out, const char *name, bool value)
{
    text_add(out, ",\"%s\":%s", name, value ? "true" : "false");
}

static void add_json_config(const struct model_config *model, struct text *out)
{
    add_json_string(out, "architecture", model->architecture_name);
    add_json_string(out, "family", checkpoint_family(model->architecture));
    add_json_string(out, "torch_dtype", model->torch_dtype);
    text_add(out,
             ",\"layers\":%" PRIu64 ",\"hidden\":%" PRIu64 ",\"ffn\":%" PRIu64 ",\"heads\":%" PRIu64
             ",\"kv_heads\":%" PRIu64 ",\"head_dim\":%" PRIu64 ",\"vocab\":%" PRIu64 ",\"context\":%" PRIu64
             ",\"rope_theta\":%.17g,\"norm_epsilon\":%.17g",
             model->layer_count, model->hidden_size, model->ffn_size, model->head_count, model->kv_head_count,
             model->head_dim, model->vocab_size, model->context_length, model->rope_theta, model->norm_epsilon);
    add_json_bool(out, "tied", model->tied);
    add_json_bool(out, "attention_bias", model->attention_bias);
    add_json_bool(out, "attention_output_bias", model->attention_output_bias);
    add_json_bool(out, "mlp_bias", model->mlp_bias);
    add_json_bool(out, "qk_norm", model->qk_norm);
    add_json_bool(out, "rope_freqs", model->rope_freqs);
}

static void add_json(const struct checkpoint *checkpoint, const char *notes, struct text *out)
{
    text_add(out, "{\"kind\":\"checkpoint\"");
    add_json_string(out, "path", checkpoint_path(checkpoint));
    add_json_string(out, "format", checkpoint_config(checkpoint)->gguf ? "gguf" : "safetensors");
    text_add(out, ",\"tensors\":%zu,\"bytes\":%" PRIu64, checkpoint_tensor_count(checkpoint), total_bytes(checkpoint));
    add_json_config(checkpoint_config(checkpoint), out);
    add_tokenizer(checkpoint, true, out);
    text_add(out, ",\"notes\":");
    text_add_json(out, notes, strlen(notes));
    text_add(out, "}\n");
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct stored_tensor *tensor = checkpoint_tensor(checkpoint, i);

        text_add(out, "{\"kind\":\"tensor\"");
        add_json_string(out, "name", tensor->name);
        add_json_string(out, "type", tensor->type_name);
        text_add(out, ",\"shape\":[");
        for (int d = 0; d < tensor->ndim; d++)
            text_add(out, d ? ",%" PRIu64 : "%" PRIu64, tensor->dim[d]);
        text_add(out, "],\"file\":%d,\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 "}\n", tensor->shard, tensor->offset,
                 tensor->bytes);
    }
}

int inspect_command(int argc, char **argv)
{
    struct inspect_options options = {0};
    struct checkpoint *checkpoint = NULL;
    struct text notes = {0};
    struct text out = {0};
    struct error err = {0};
    int code = inspect_options_parse(argc, argv, &options);
    enum status st;

    if (code >= 0)
        return code;
    st = checkpoint_open(options.path, &checkpoint, &err);
    if (st == STATUS_OK) {
        struct error fault = {0};

        /* A checkpoint that lacks tensors can still be looked at. */
        if (plan_check_tensors(checkpoint, &notes, &fault) != STATUS_OK)
            text_add(&notes, "%s\n", fault.text);
        (options.json ? add_json : add_tree)(checkpoint, text_string(&notes), &out);
        st = output_write(&out, &err);
    }
    if (st != STATUS_OK)
        log_error("%s: %s", status_name(st), err.text);
    checkpoint_close(checkpoint);
    text_done(&notes);
    text_done(&out);
    return status_exit_code(st);
}
