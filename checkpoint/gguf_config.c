/* A GGUF file's keys as struct model_config.  Keys are "ARCHITECTURE.name"; what the keys do not say (vocabulary, ties,
 * biases) is told by which tensors are there. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint_private.h"
#include "checkpoint/config_check.h"
#include "checkpoint/gguf_private.h"

static const struct family {
    const char *name;
    enum architecture architecture;
    enum rope_layout layout;
    bool qk_norm;
} families[] = {
    {"llama", ARCH_LLAMA, ROPE_PAIRS, false}, /* Mistral's models too */
    {"qwen2", ARCH_QWEN2, ROPE_HALVES, false},
    {"qwen3", ARCH_QWEN3, ROPE_HALVES, true},
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

struct reader {
    const struct checkpoint *checkpoint;
    const struct gguf *gguf;
    const char *path;
    struct model_config *config;
    struct text *notes;
    char key[160];
};

static const char *full_key(struct reader *reader, const char *name)
{
    (void)snprintf(reader->key, sizeof reader->key, "%s.%s", reader->config->architecture_name, name);
    return reader->key;
}

static bool has_key(struct reader *reader, const char *name)
{
    return gguf_value_type(reader->gguf, full_key(reader, name)) != GGUF_NONE;
}

static bool has_tensor(const struct reader *reader, const char *name)
{
    return checkpoint_find(reader->checkpoint, name) != NULL;
}

/* Leave *ret as it is when the key is absent. */
static enum status get_u64(struct reader *reader, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                           struct error *err)
{
    const char *key = full_key(reader, name);
    enum gguf_type type = gguf_value_type(reader->gguf, key);
    uint64_t number;

    if (type == GGUF_NONE)
        return STATUS_OK;
    if (!gguf_get_u64(reader->gguf, key, &number))
        return error_set(err, STATUS_MODEL,
                         "%s: %s is of type %s, expected a whole number from %" PRIu64 " to %" PRIu64, reader->path,
                         key, gguf_type_name(type), min, max);
    if (number < min || number > max)
        return error_set(err, STATUS_MODEL, "%s: %s is %" PRIu64 ", expected %" PRIu64 " to %" PRIu64, reader->path,
                         key, number, min, max);
    *ret = number;
    return STATUS_OK;
}

static enum status require_u64(struct reader *reader, const char *name, uint64_t max, uint64_t *ret, struct error *err)
{
    if (!has_key(reader, name))
        return error_set(err, STATUS_MODEL, "%s: %s is missing", reader->path, full_key(reader, name));
    return get_u64(reader, name, 1, max, ret, err);
}

static enum status get_f64(struct reader *reader, const char *name, double min, double max, double *ret,
                           struct error *err)
{
    const char *key = full_key(reader, name);
    enum gguf_type type = gguf_value_type(reader->gguf, key);
    double number;

    if (type == GGUF_NONE)
        return STATUS_OK;
    if (!gguf_get_f64(reader->gguf, key, &number))
        return error_set(err, STATUS_MODEL, "%s: %s is of type %s, expected a number", reader->path, key,
                         gguf_type_name(type));
    if (!(number >= min && number <= max))
        return error_set(err, STATUS_MODEL, "%s: %s is %g, expected %g to %g", reader->path, key, number, min, max);
    *ret = number;
    return STATUS_OK;
}

static enum status unknown_architecture(const char *path, const char *name, size_t length, struct error *err)
{
    struct text known = {0};

    for (int i = 0; i < FAMILY_COUNT; i++)
        text_add(&known, "%s%s", i ? ", " : "", families[i].name);
    error_set(err, STATUS_UNSUPPORTED, "%s: architecture '%.*s' is not supported; known: %s", path,
              (int)(length < 100 ? length : 100), name, text_string(&known));
    text_done(&known);
    return STATUS_UNSUPPORTED;
}

static enum status read_family(struct reader *reader, struct error *err)
{
    struct model_config *config = reader->config;
    const char *name = NULL;
    size_t length = 0;

    if (!gguf_get_string(reader->gguf, "general.architecture", &name, &length))
        return error_set(err, STATUS_MODEL, "%s: general.architecture is missing", reader->path);
    for (int i = 0; i < FAMILY_COUNT; i++) {
        if (length != strlen(families[i].name) || memcmp(name, families[i].name, length))
            continue;
        config->architecture = families[i].architecture;
        config->rope_layout = families[i].layout;
        config->qk_norm = families[i].qk_norm;
        (void)snprintf(config->architecture_name, sizeof config->architecture_name, "%s", families[i].name);
        return STATUS_OK;
    }
    return unknown_architecture(reader->path, name, length, err);
}

static enum status read_sizes(struct reader *reader, struct error *err)
{
    struct model_config *config = reader->config;
    const struct {
        const char *key;
        uint64_t max;
        uint64_t *ret;
    } required[] = {
        {"block_count", CONFIG_MAX_LAYERS, &config->layer_count},
        {"embedding_length", CONFIG_MAX_HIDDEN, &config->hidden_size},
        {"feed_forward_length", CONFIG_MAX_FFN, &config->ffn_size},
        {"attention.head_count", CONFIG_MAX_HEADS, &config->head_count},
        {"context_length", CONFIG_MAX_CONTEXT, &config->context_length},
    };
    enum status st = STATUS_OK;

    for (size_t i = 0; i < sizeof required / sizeof required[0] && st == STATUS_OK; i++)
        st = require_u64(reader, required[i].key, required[i].max, required[i].ret, err);
    if (st == STATUS_OK && !has_key(reader, "attention.layer_norm_rms_epsilon"))
        return error_set(err, STATUS_MODEL, "%s: %s is missing", reader->path,
                         full_key(reader, "attention.layer_norm_rms_epsilon"));
    if (st == STATUS_OK)
        st = get_f64(reader, "attention.layer_norm_rms_epsilon", CONFIG_MIN_EPSILON, CONFIG_MAX_EPSILON,
                     &config->norm_epsilon, err);
    return st;
}

static enum status read_heads(struct reader *reader, struct error *err)
{
    struct model_config *config = reader->config;
    uint64_t value_length;
    enum status st;

    config->kv_head_count = config->head_count;
    st = get_u64(reader, "attention.head_count_kv", 1, CONFIG_MAX_HEADS, &config->kv_head_count, err);
    if (st == STATUS_OK)
        st = get_u64(reader, "attention.key_length", 1, CONFIG_MAX_HEAD_DIM, &config->head_dim, err);
    if (st == STATUS_OK && !config->head_dim) {
        if (config->hidden_size % config->head_count || config->hidden_size / config->head_count > CONFIG_MAX_HEAD_DIM)
            return error_set(err, STATUS_MODEL,
                             "%s: invalid model: embedding_length %" PRIu64 " over %" PRIu64
                             " heads gives no head size from 1 to %" PRIu64,
                             reader->path, config->hidden_size, config->head_count, CONFIG_MAX_HEAD_DIM);
        config->head_dim = config->hidden_size / config->head_count;
    }
    value_length = config->head_dim;
    if (st == STATUS_OK)
        st = get_u64(reader, "attention.value_length", 1, CONFIG_MAX_HEAD_DIM, &value_length, err);
    if (st == STATUS_OK && value_length != config->head_dim)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: values of %" PRIu64 " elements a head beside keys of %" PRIu64 " are not supported",
                         reader->path, value_length, config->head_dim);
    return st;
}

static enum status read_rope(struct reader *reader, struct error *err)
{
    struct model_config *config = reader->config;
    const char *scaling = "none";
    size_t length = 4;
    uint64_t turned = config->head_dim;
    enum status st = get_f64(reader, "rope.freq_base", CONFIG_MIN_THETA, CONFIG_MAX_THETA, &config->rope_theta, err);

    if (st == STATUS_OK)
        st = get_u64(reader, "rope.dimension_count", 0, UINT64_MAX, &turned, err);
    if (st == STATUS_OK && turned != config->head_dim)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: rotary embedding of %" PRIu64 " of a head's %" PRIu64 " elements is not supported",
                         reader->path, turned, config->head_dim);
    if (st == STATUS_OK && has_key(reader, "rope.scaling.type") &&
        !gguf_get_string(reader->gguf, full_key(reader, "rope.scaling.type"), &scaling, &length))
        return error_set(err, STATUS_MODEL, "%s: %s is no string", reader->path, reader->key);
    if (st == STATUS_OK && (length != 4 || memcmp(scaling, "none", 4)))
        return error_set(err, STATUS_UNSUPPORTED, "%s: rope scaling of type '%.*s' is not supported; known: none",
                         reader->path, (int)(length < 60 ? length : 60), scaling);
    if (st == STATUS_OK && !has_key(reader, "rope.freq_base")) {
        config->rope_theta = CONFIG_DEFAULT_THETA;
        config->rope_theta_default = true;
        text_add(reader->notes, "%s: %s is missing, the default %g is used\n", reader->path,
                 full_key(reader, "rope.freq_base"), CONFIG_DEFAULT_THETA);
    }
    config->rope_freqs = has_tensor(reader, "rope_freqs.weight");
    return st;
}

/* Keys that change what the model computes; each has one value that changes nothing. */
static enum status refuse_unbuilt(struct reader *reader, struct error *err)
{
    static const struct {
        const char *name;
        double neutral;
    } keys[] = {
        {"expert_count", 0},
        {"rope.scale_linear", 1},
        {"rope.scaling.factor", 1},
        {"attention.scale", 0},
        {"attention.clamp_kqv", 0},
        {"attention.max_alibi_bias", 0},
        {"logit_scale", 1},
        {"residual_scale", 1},
        {"embedding_scale", 1},
        {"attn_logit_softcapping", 0},
        {"final_logit_softcapping", 0},
    };
    uint64_t window = 0;
    enum status st = get_u64(reader, "attention.sliding_window", 0, UINT64_MAX, &window, err);

    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && st == STATUS_OK; i++) {
        double number = keys[i].neutral;

        st = get_f64(reader, keys[i].name, -INFINITY, INFINITY, &number, err);
        if (st == STATUS_OK && (number < keys[i].neutral || number > keys[i].neutral))
            return error_set(err, STATUS_UNSUPPORTED, "%s: %s %g is not supported, only %g", reader->path,
                             full_key(reader, keys[i].name), number, keys[i].neutral);
    }
    if (st == STATUS_OK && window && window < reader->config->context_length)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: sliding window of %" PRIu64 " below the context of %" PRIu64 " is not supported",
                         reader->path, window, reader->config->context_length);
    return st;
}

/* Rows of the embedding; without weights, what the keys or the vocabulary say. */
static enum status read_vocabulary(struct reader *reader, struct error *err)
{
    struct model_config *config = reader->config;
    const struct stored_tensor *embedding = checkpoint_find(reader->checkpoint, "token_embd.weight");

    if (embedding) {
        if (embedding->ndim != 2 || embedding->dim[1] != config->hidden_size)
            return error_set(err, STATUS_MODEL,
                             "%s: token_embd.weight has %d dimensions, %" PRIu64
                             " elements a row, expected 2 dimensions and %" PRIu64,
                             reader->path, embedding->ndim, embedding->ndim ? embedding->dim[embedding->ndim - 1] : 1,
                             config->hidden_size);
        config->vocab_size = embedding->dim[0];
    } else if (checkpoint_has_weights(reader->checkpoint)) {
        return error_set(err, STATUS_MODEL, "%s: tensor token_embd.weight is missing", reader->path);
    } else if (has_key(reader, "vocab_size")) {
        return get_u64(reader, "vocab_size", 1, CONFIG_MAX_VOCAB, &config->vocab_size, err);
    } else {
        config->vocab_size = gguf_array_count(reader->gguf, "tokenizer.ggml.tokens");
    }
    if (!config->vocab_size || config->vocab_size > CONFIG_MAX_VOCAB)
        return error_set(err, STATUS_MODEL, "%s: a vocabulary of %" PRIu64 ", expected 1 to %" PRIu64, reader->path,
                         config->vocab_size, CONFIG_MAX_VOCAB);
    return STATUS_OK;
}

static void read_presence(struct reader *reader)
{
    struct model_config *config = reader->config;

    config->gguf = true;
    config->tied = checkpoint_has_weights(reader->checkpoint) && !has_tensor(reader, "output.weight");
    config->attention_bias = has_tensor(reader, "blk.0.attn_q.bias") ||
                             (config->architecture == ARCH_QWEN2 && !checkpoint_has_weights(reader->checkpoint));
    config->attention_output_bias = has_tensor(reader, "blk.0.attn_output.bias");
    config->mlp_bias = has_tensor(reader, "blk.0.ffn_up.bias") || has_tensor(reader, "blk.0.ffn_down.bias");
}

static enum status read_tokens(struct reader *reader, struct error *err)
{
    static const char *const stops[] = {"eos", "eot", "eom"};
    uint64_t token;
    enum status st = STATUS_OK;

    reader->config->bos_token = -1;
    if (gguf_get_u64(reader->gguf, "tokenizer.ggml.bos_token_id", &token) && token <= UINT32_MAX)
        reader->config->bos_token = (int64_t)token;
    for (size_t i = 0; i < sizeof stops / sizeof stops[0] && st == STATUS_OK; i++) {
        (void)snprintf(reader->key, sizeof reader->key, "tokenizer.ggml.%s_token_id", stops[i]);
        if (gguf_value_type(reader->gguf, reader->key) == GGUF_NONE)
            continue;
        if (!gguf_get_u64(reader->gguf, reader->key, &token) || token > UINT32_MAX)
            return error_set(err, STATUS_MODEL, "%s: %s is no token id", reader->path, reader->key);
        st = config_add_stop(reader->path, reader->config, (uint32_t)token, err);
    }
    return st;
}

enum status gguf_config(struct checkpoint *checkpoint, struct error *err)
{
    static enum status (*const steps[])(struct reader *, struct error *) = {
        read_family, read_sizes, read_heads, read_rope, refuse_unbuilt, read_vocabulary, read_tokens,
    };
    struct reader reader = {.checkpoint = checkpoint,
                            .gguf = checkpoint->gguf,
                            .path = checkpoint->path,
                            .config = &checkpoint->config,
                            .notes = &checkpoint->notes};
    enum status st = STATUS_OK;

    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && st == STATUS_OK; i++)
        st = steps[i](&reader, err);
    if (st != STATUS_OK)
        return st;
    read_presence(&reader);
    return config_check(reader.path, &checkpoint->config, err);
}
