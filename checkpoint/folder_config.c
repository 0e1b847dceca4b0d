/* config.json as transformers writes it, versions 4 (rope_theta, rope_scaling, torch_dtype) and 5 (rope_parameters,
 * dtype).  A key that is absent or null has the default that transformers gives it for this architecture; a key that
 * would change the result and is not built is refused by name. */
#include "checkpoint/folder_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/config_check.h"
#include "checkpoint/file.h"
#include "checkpoint/json.h"

#define CONFIG_LIMIT ((size_t)16 << 20)

static const struct family {
    const char *class_name;
    const char *model_type;
    enum architecture architecture;
    uint64_t kv_heads; /* when the file does not say; 0: as many as query heads */
    uint64_t head_dim; /* 0: hidden_size / heads */
    uint64_t window;   /* sliding_window when the file does not say; 0: none */
} families[] = {
    {"LlamaForCausalLM", "llama", ARCH_LLAMA, 0, 0, 0},
    {"MistralForCausalLM", "mistral", ARCH_MISTRAL, 8, 0, 4096},
    {"Qwen2ForCausalLM", "qwen2", ARCH_QWEN2, 32, 0, 0},
    {"Qwen3ForCausalLM", "qwen3", ARCH_QWEN3, 32, 128, 0},
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

struct reader {
    struct json_section section; /* the whole config.json */
    const struct family *family;
    struct model_config *config;
    struct text *notes;
};

static enum status unknown_architecture(const char *path, const char *name, struct error *err)
{
    struct text known = {0};

    for (int i = 0; i < FAMILY_COUNT; i++)
        text_add(&known, "%s%s", i ? ", " : "", families[i].class_name);
    error_set(err, STATUS_UNSUPPORTED, "%s: architecture '%.100s' is not supported; known: %s", path, name,
              text_string(&known));
    text_done(&known);
    return STATUS_UNSUPPORTED;
}

/* architectures[0] decides; a file without it is known by its model_type. */
static enum status read_family(struct reader *reader, struct error *err)
{
    const json_t *list = json_section_get(&reader->section, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    const char *model_type = NULL;
    enum status st = json_get_string(&reader->section, "model_type", &model_type, err);

    if (st != STATUS_OK)
        return st;
    if (list && !name)
        return error_set(err, STATUS_MODEL, "%s: architectures must be a list of strings", reader->section.path);
    if (!name && !model_type)
        return error_set(err, STATUS_MODEL, "%s: architectures is missing", reader->section.path);
    for (int i = 0; i < FAMILY_COUNT && !reader->family; i++)
        if (!strcmp(name ? name : model_type, name ? families[i].class_name : families[i].model_type))
            reader->family = &families[i];
    if (!reader->family)
        return unknown_architecture(reader->section.path, name ? name : model_type, err);
    reader->config->architecture = reader->family->architecture;
    (void)snprintf(reader->config->architecture_name, sizeof reader->config->architecture_name, "%s",
                   reader->family->class_name);
    return STATUS_OK;
}

static enum status read_sizes(struct reader *reader, struct error *err)
{
    const struct json_section *section = &reader->section;
    struct model_config *config = reader->config;
    const struct {
        const char *key;
        uint64_t max;
        uint64_t *ret;
    } required[] = {
        {"vocab_size", CONFIG_MAX_VOCAB, &config->vocab_size},
        {"hidden_size", CONFIG_MAX_HIDDEN, &config->hidden_size},
        {"intermediate_size", CONFIG_MAX_FFN, &config->ffn_size},
        {"num_hidden_layers", CONFIG_MAX_LAYERS, &config->layer_count},
        {"num_attention_heads", CONFIG_MAX_HEADS, &config->head_count},
        {"max_position_embeddings", CONFIG_MAX_CONTEXT, &config->context_length},
    };
    enum status st = STATUS_OK;

    for (size_t i = 0; i < sizeof required / sizeof required[0] && st == STATUS_OK; i++)
        st = json_require_u64(section, required[i].key, 1, required[i].max, required[i].ret, err);
    return st;
}

static enum status read_heads(struct reader *reader, struct error *err)
{
    const struct json_section *section = &reader->section;
    struct model_config *config = reader->config;
    bool kv_absent = !json_object_get(section->object, "num_key_value_heads");
    enum status st;

    config->kv_head_count = kv_absent && reader->family->kv_heads ? reader->family->kv_heads : config->head_count;
    if (kv_absent)
        text_add(reader->notes, "%s: num_key_value_heads is missing, the architecture's default %" PRIu64 " is used\n",
                 section->path, config->kv_head_count);
    st = json_get_u64(section, "num_key_value_heads", 1, CONFIG_MAX_HEADS, &config->kv_head_count, err);
    if (st == STATUS_OK)
        st = json_get_u64(section, "head_dim", 1, CONFIG_MAX_HEAD_DIM, &config->head_dim, err);
    if (st != STATUS_OK || config->head_dim)
        return st;
    if (reader->family->head_dim) {
        config->head_dim = reader->family->head_dim;
    } else if (config->hidden_size % config->head_count) {
        return error_set(err, STATUS_MODEL,
                         "%s: invalid model: hidden_size %" PRIu64 " is no multiple of num_attention_heads %" PRIu64
                         ", and there is no head_dim",
                         section->path, config->hidden_size, config->head_count);
    } else {
        config->head_dim = config->hidden_size / config->head_count;
    }
    if (config->head_dim > CONFIG_MAX_HEAD_DIM)
        return error_set(err, STATUS_MODEL, "%s: hidden_size / num_attention_heads is %" PRIu64 ", at most %" PRIu64,
                         section->path, config->head_dim, CONFIG_MAX_HEAD_DIM);
    return STATUS_OK;
}

/* The type under either of its two keys; NULL: none. */
static enum status read_rope_type(const struct json_section *rope, const char **ret, struct error *err)
{
    const char *type = NULL;
    const char *rope_type = NULL;
    enum status st = json_get_string(rope, "type", &type, err);

    if (st == STATUS_OK)
        st = json_get_string(rope, "rope_type", &rope_type, err);
    if (st == STATUS_OK && type && rope_type && strcmp(type, rope_type))
        return error_set(err, STATUS_MODEL, "%s: %stype is '%.60s' and %srope_type is '%.60s'", rope->path,
                         rope->prefix, type, rope->prefix, rope_type);
    *ret = rope_type ? rope_type : type;
    return st;
}

static enum status read_llama3(const struct json_section *rope, struct model_config *config, struct error *err)
{
    const struct {
        const char *key;
        double min;
        double max;
        double *ret;
    } numbers[] = {
        {"factor", 1.0, 1e6, &config->rope_scaling.factor},
        {"low_freq_factor", 1e-6, 1e6, &config->rope_scaling.low_freq_factor},
        {"high_freq_factor", 1e-6, 1e6, &config->rope_scaling.high_freq_factor},
        {"original_max_position_embeddings", 1.0, 1e12, &config->rope_scaling.original_context},
    };
    enum status st = STATUS_OK;

    config->rope_scaling.llama3 = true;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && st == STATUS_OK; i++) {
        if (!json_section_get(rope, numbers[i].key))
            return error_set(err, STATUS_MODEL, "%s: %s%s is missing", rope->path, rope->prefix, numbers[i].key);
        st = json_get_f64(rope, numbers[i].key, numbers[i].min, numbers[i].max, numbers[i].ret, err);
    }
    return st;
}

static enum status read_rope_section(const struct json_section *rope, struct model_config *config, struct error *err)
{
    const char *type = NULL;
    const char *key;
    json_t *value;
    enum status st;

    json_object_foreach((json_t *)rope->object, key, value) if (json_is_object(value)) return error_set(
        err, STATUS_UNSUPPORTED, "%s: %s%.60s: rotary embedding that differs by layer is not supported", rope->path,
        rope->prefix, key);
    st = read_rope_type(rope, &type, err);
    if (st == STATUS_OK)
        st = json_get_f64(rope, "rope_theta", CONFIG_MIN_THETA, CONFIG_MAX_THETA, &config->rope_theta, err);
    if (st != STATUS_OK)
        return st;
    if (type && !strcmp(type, "llama3"))
        return read_llama3(rope, config, err);
    if (type && strcmp(type, "default"))
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: rope scaling of type '%.60s' is not supported; known: default, llama3", rope->path, type);
    if (!type && json_section_get(rope, "factor"))
        return error_set(err, STATUS_MODEL, "%s: %sfactor is there, but neither %stype nor %srope_type", rope->path,
                         rope->prefix, rope->prefix, rope->prefix);
    return STATUS_OK;
}

/* Both spellings are read when both are there: what either asks for is done or refused. */
static enum status read_rope(struct reader *reader, struct error *err)
{
    static const struct {
        const char *key;
        const char *prefix;
    } spellings[] = {{"rope_parameters", "rope_parameters."}, {"rope_scaling", "rope_scaling."}};
    struct model_config *config = reader->config;
    struct json_section rope = reader->section;
    double partial = 1.0;
    enum status st =
        json_get_f64(&reader->section, "rope_theta", CONFIG_MIN_THETA, CONFIG_MAX_THETA, &config->rope_theta, err);

    for (size_t i = 0; i < 2 && st == STATUS_OK; i++) {
        rope.object = json_section_get(&reader->section, spellings[i].key);
        rope.prefix = spellings[i].prefix;
        if (!rope.object)
            continue;
        if (!json_is_object(rope.object))
            return error_set(err, STATUS_MODEL, "%s: %s is %s, expected an object or null", rope.path, spellings[i].key,
                             json_kind(rope.object));
        st = read_rope_section(&rope, config, err);
        if (st == STATUS_OK)
            st = json_get_f64(&rope, "partial_rotary_factor", 0, 1, &partial, err);
    }
    if (st == STATUS_OK)
        st = json_get_f64(&reader->section, "partial_rotary_factor", 0, 1, &partial, err);
    if (st == STATUS_OK && partial != 1.0)
        return error_set(err, STATUS_UNSUPPORTED, "%s: partial_rotary_factor %g is not supported, only 1", rope.path,
                         partial);
    if (st == STATUS_OK && !(config->rope_theta > 0)) {
        config->rope_theta = CONFIG_DEFAULT_THETA;
        config->rope_theta_default = true;
        text_add(reader->notes, "%s: rope_theta is missing, the default %g is used\n", rope.path, CONFIG_DEFAULT_THETA);
    }
    return st;
}

static enum status read_window(struct reader *reader, struct error *err)
{
    const struct json_section *section = &reader->section;
    const json_t *layers = json_section_get(section, "layer_types");
    uint64_t window = 0;
    bool used = reader->family->architecture == ARCH_MISTRAL;
    enum status st = STATUS_OK;

    if (!json_object_get(section->object, "sliding_window"))
        window = reader->family->window;
    if (reader->family->architecture == ARCH_QWEN2 || reader->family->architecture == ARCH_QWEN3)
        st = json_get_bool(section, "use_sliding_window", &used, err);
    if (st == STATUS_OK && reader->family->architecture == ARCH_MISTRAL)
        st = json_get_u64(section, "sliding_window", 1, UINT64_MAX >> 1, &window, err);
    if (st != STATUS_OK)
        return st;
    if (used && reader->family->architecture != ARCH_MISTRAL)
        return error_set(err, STATUS_UNSUPPORTED, "%s: use_sliding_window true is not supported", section->path);
    if (used && window && window < reader->config->context_length)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: sliding_window %" PRIu64 " below the context of %" PRIu64
                         " is not supported (null: no window)",
                         section->path, window, reader->config->context_length);
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const char *kind = json_string_value(json_array_get(layers, i));

        if (!kind || (strcmp(kind, "full_attention") && reader->family->architecture != ARCH_MISTRAL))
            return error_set(err, STATUS_UNSUPPORTED, "%s: layer_types[%zu] '%.60s' is not supported", section->path, i,
                             kind ? kind : "not a string");
    }
    return STATUS_OK;
}

static enum status read_switches(struct reader *reader, struct error *err)
{
    const struct json_section *section = &reader->section;
    struct model_config *config = reader->config;
    enum architecture architecture = config->architecture;
    const char *activation = "silu";
    bool bias = false;
    enum status st = json_get_string(section, "hidden_act", &activation, err);

    if (st == STATUS_OK && strcmp(activation, "silu") && strcmp(activation, "swish"))
        return error_set(err, STATUS_UNSUPPORTED, "%s: hidden_act '%.60s' is not supported, only silu", section->path,
                         activation);
    if (st == STATUS_OK && json_section_get(section, "quantization_config"))
        return error_set(err, STATUS_UNSUPPORTED, "%s: quantization_config: packed safetensors are not supported",
                         section->path);
    if (st == STATUS_OK)
        st = json_get_bool(section, "tie_word_embeddings", &config->tied, err);
    if (st == STATUS_OK && (architecture == ARCH_LLAMA || architecture == ARCH_QWEN3))
        st = json_get_bool(section, "attention_bias", &bias, err);
    if (st == STATUS_OK && architecture == ARCH_LLAMA)
        st = json_get_bool(section, "mlp_bias", &config->mlp_bias, err);
    config->attention_bias = bias || architecture == ARCH_QWEN2;
    config->attention_output_bias = bias;
    config->qk_norm = architecture == ARCH_QWEN3;
    return st;
}

static enum status read_dtype(struct reader *reader, struct error *err)
{
    const char *name = "";
    enum status st = json_get_string(&reader->section, "torch_dtype", &name, err);

    if (st == STATUS_OK)
        st = json_get_string(&reader->section, "dtype", &name, err);
    if (st == STATUS_OK)
        (void)snprintf(reader->config->torch_dtype, sizeof reader->config->torch_dtype, "%.15s", name);
    return st;
}

/* A token's id, or a list of them. */
static enum status read_stops(const struct json_section *section, struct model_config *config, struct error *err)
{
    const json_t *value = json_section_get(section, "eos_token_id");
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    char shown[96];
    enum status st = STATUS_OK;

    for (size_t i = 0; i < count && st == STATUS_OK && value; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;

        if (!json_is_integer(item) || json_integer_value(item) < 0 || json_integer_value(item) > UINT32_MAX)
            return error_set(err, STATUS_MODEL, "%s: eos_token_id is %s, expected token ids", section->path,
                             json_show(item, shown, sizeof shown));
        st = config_add_stop(section->path, config, (uint32_t)json_integer_value(item), err);
    }
    return st;
}

static enum status read_bos(const struct json_section *section, struct model_config *config, struct error *err)
{
    uint64_t token = UINT64_MAX;
    enum status st = json_get_u64(section, "bos_token_id", 0, UINT32_MAX, &token, err);

    if (st == STATUS_OK && token <= UINT32_MAX)
        config->bos_token = (int64_t)token;
    return st;
}

/* generation_config.json says where text begins and ends; config.json when that file or its key is not there. */
static enum status read_tokens(struct reader *reader, const char *path, struct error *err)
{
    struct json_section section = {.path = path, .prefix = ""};
    json_t *document = NULL;
    enum status st = STATUS_OK;

    if (!access(path, F_OK))
        st = json_read_object(path, CONFIG_LIMIT, &document, err);
    section.object = document;
    reader->config->bos_token = -1;
    if (st == STATUS_OK)
        st = read_bos(json_section_get(&section, "bos_token_id") ? &section : &reader->section, reader->config, err);
    if (st == STATUS_OK)
        st = read_stops(json_section_get(&section, "eos_token_id") ? &section : &reader->section, reader->config, err);
    json_decref(document);
    return st;
}

static enum status read_facts(struct reader *reader, struct error *err)
{
    static enum status (*const steps[])(struct reader *, struct error *) = {
        read_family, read_sizes, read_heads, read_rope, read_window, read_switches, read_dtype,
    };
    enum status st = STATUS_OK;

    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && st == STATUS_OK; i++)
        st = steps[i](reader, err);
    reader->config->norm_epsilon = 1e-6;
    if (st == STATUS_OK)
        st = json_get_f64(&reader->section, "rms_norm_eps", CONFIG_MIN_EPSILON, CONFIG_MAX_EPSILON,
                          &reader->config->norm_epsilon, err);
    if (st == STATUS_OK)
        st = config_check(reader->section.path, reader->config, err);
    return st;
}

enum status folder_config(const char *folder, struct model_config *ret, struct text *notes, struct error *err)
{
    char *path = file_join(folder, "config.json");
    char *generation_path = file_join(folder, "generation_config.json");
    json_t *document = NULL;
    struct reader reader = {.section = {.path = path, .prefix = ""}, .config = ret, .notes = notes};
    enum status st = STATUS_OK;

    ret->rope_layout = ROPE_HALVES;
    if (!path || !generation_path)
        st = error_set(err, STATUS_NOMEM, "%s", folder);
    if (st == STATUS_OK)
        st = json_read_object(path, CONFIG_LIMIT, &document, err);
    reader.section.object = document;
    if (st == STATUS_OK)
        st = read_facts(&reader, err);
    if (st == STATUS_OK)
        st = read_tokens(&reader, generation_path, err);
    json_decref(document);
    free(path);
    free(generation_path);
    return st;
}
