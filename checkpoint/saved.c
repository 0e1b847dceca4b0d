/* The saved output of `ferry inspect --json` as a model: one object of kind checkpoint, then one a tensor.
 *
 * It says all that a plan needs, and holds no byte of the weights.  A file is taken for one when it begins with a
 * brace, which no GGUF file does. */
#include "checkpoint/saved.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "checkpoint/config_check.h"
#include "checkpoint/file.h"
#include "checkpoint/json.h"

#define SAVED_LIMIT ((size_t)256 << 20)

static const struct {
    const char *name;
    enum architecture architecture;
} families[] = {{"llama", ARCH_LLAMA}, {"mistral", ARCH_MISTRAL}, {"qwen2", ARCH_QWEN2}, {"qwen3", ARCH_QWEN3}};

const char *checkpoint_family(enum architecture architecture)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i].architecture == architecture)
            return families[i].name;
    return "unknown";
}

bool saved_begins(const char *path)
{
    FILE *file = fopen(path, "rb");
    int first = file ? getc(file) : EOF;

    if (file)
        (void)fclose(file);
    return first == '{';
}

static enum status require_string(const struct json_section *section, const char *key, const char **ret,
                                  struct error *err)
{
    enum status st = json_get_string(section, key, ret, err);

    if (st == STATUS_OK && !*ret)
        st = error_set(err, STATUS_MODEL, "%s: %s%s is missing", section->path, section->prefix, key);
    return st;
}

static enum status read_family(const struct json_section *section, struct model_config *config, struct error *err)
{
    const char *family = NULL;
    const char *name = NULL;
    const char *format = NULL;
    enum status st = require_string(section, "family", &family, err);

    if (st == STATUS_OK)
        st = require_string(section, "architecture", &name, err);
    if (st == STATUS_OK)
        st = require_string(section, "format", &format, err);
    if (st != STATUS_OK)
        return st;
    (void)snprintf(config->architecture_name, sizeof config->architecture_name, "%s", name);
    config->gguf = !strcmp(format, "gguf");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(family, families[i].name) != 0)
            continue;
        config->architecture = families[i].architecture;
        return STATUS_OK;
    }
    return error_set(err, STATUS_UNSUPPORTED, "%s: the family '%.100s' is not supported", section->path, family);
}

static enum status read_sizes(const struct json_section *section, struct model_config *config, struct error *err)
{
    const struct {
        const char *key;
        uint64_t max;
        uint64_t *ret;
    } required[] = {
        {"layers", CONFIG_MAX_LAYERS, &config->layer_count},
        {"hidden", CONFIG_MAX_HIDDEN, &config->hidden_size},
        {"ffn", CONFIG_MAX_FFN, &config->ffn_size},
        {"heads", CONFIG_MAX_HEADS, &config->head_count},
        {"kv_heads", CONFIG_MAX_HEADS, &config->kv_head_count},
        {"head_dim", CONFIG_MAX_HEAD_DIM, &config->head_dim},
        {"vocab", CONFIG_MAX_VOCAB, &config->vocab_size},
        {"context", CONFIG_MAX_CONTEXT, &config->context_length},
    };
    enum status st = STATUS_OK;

    for (size_t i = 0; i < sizeof required / sizeof required[0] && st == STATUS_OK; i++)
        st = json_require_u64(section, required[i].key, 1, required[i].max, required[i].ret, err);
    return st;
}

static enum status read_config(const struct json_section *section, struct model_config *config, struct error *err)
{
    const struct {
        const char *key;
        bool *ret;
    } flags[] = {
        {"tied", &config->tied},
        {"attention_bias", &config->attention_bias},
        {"attention_output_bias", &config->attention_output_bias},
        {"mlp_bias", &config->mlp_bias},
        {"qk_norm", &config->qk_norm},
        {"rope_freqs", &config->rope_freqs},
    };
    const char *dtype = "";
    enum status st = read_family(section, config, err);

    if (st == STATUS_OK)
        st = read_sizes(section, config, err);
    if (st == STATUS_OK)
        st = json_get_f64(section, "rope_theta", CONFIG_MIN_THETA, CONFIG_MAX_THETA, &config->rope_theta, err);
    if (st == STATUS_OK)
        st = json_get_f64(section, "norm_epsilon", CONFIG_MIN_EPSILON, CONFIG_MAX_EPSILON, &config->norm_epsilon, err);
    if (st == STATUS_OK)
        st = json_get_string(section, "torch_dtype", &dtype, err);
    for (size_t i = 0; i < sizeof flags / sizeof *flags && st == STATUS_OK; i++)
        st = json_get_bool(section, flags[i].key, flags[i].ret, err);
    (void)snprintf(config->torch_dtype, sizeof config->torch_dtype, "%s", dtype);
    config->bos_token = -1;
    return st == STATUS_OK ? config_check(section->path, config, err) : st;
}

/* The type by its name; bytes must be what the shape gives, so that a line that was edited is noticed. */
static enum status read_type(const struct json_section *section, const char *name, struct stored_tensor *tensor,
                             struct error *err)
{
    uint64_t bytes = 0;
    size_t expected = 1;

    for (int t = 0; t < WEIGHT_TYPE_COUNT; t++)
        if (!strcmp(name, weight_type_name((enum weight_type)t)))
            tensor->type = (enum weight_type)t;
    tensor->type_name = tensor->type == WEIGHT_NONE ? "of another type" : weight_type_name(tensor->type);
    if (json_require_u64(section, "bytes", 0, INT64_MAX, &bytes, err) != STATUS_OK)
        return STATUS_MODEL;
    tensor->bytes = bytes;
    if (tensor->type == WEIGHT_NONE)
        return STATUS_OK;
    for (int d = 0; d < tensor->ndim; d++) {
        uint64_t dim = tensor->dim[d];

        if (d == tensor->ndim - 1)
            dim = dim / weight_block_length(tensor->type) * weight_block_bytes(tensor->type);
        if (d == tensor->ndim - 1)
            tensor->row_bytes = dim;
        if (size_mul(expected, dim, &expected))
            expected = SIZE_MAX;
    }
    if (tensor->ndim && expected != bytes)
        return error_set(err, STATUS_MODEL, "%s: %" PRIu64 " bytes, but %s of this shape has %zu", section->path, bytes,
                         name, expected);
    return STATUS_OK;
}

static enum status add_tensor(struct checkpoint *checkpoint, const struct json_section *section, struct error *err)
{
    struct stored_tensor tensor = {.type = WEIGHT_NONE, .shard = -1};
    const json_t *shape = json_section_get(section, "shape");
    const char *name = NULL;
    const char *type = NULL;
    enum status st = require_string(section, "name", &name, err);

    if (st == STATUS_OK)
        st = require_string(section, "type", &type, err);
    if (st != STATUS_OK)
        return st;
    if (!json_is_array(shape) || json_array_size(shape) > STORED_MAX_NDIM)
        return error_set(err, STATUS_MODEL, "%s: shape must be a list of at most %d numbers", section->path,
                         STORED_MAX_NDIM);
    tensor.ndim = (int)json_array_size(shape);
    for (int d = 0; d < tensor.ndim; d++) {
        const json_t *dim = json_array_get(shape, (size_t)d);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return error_set(err, STATUS_MODEL, "%s: shape[%d] is no whole number", section->path, d);
        tensor.dim[d] = (uint64_t)json_integer_value(dim);
    }
    st = read_type(section, type, &tensor, err);
    return st == STATUS_OK ? checkpoint_add_tensor(checkpoint, name, strlen(name), &tensor, err) : st;
}

static enum status read_line(struct checkpoint *checkpoint, const char *place, const char *line, size_t length,
                             bool first, struct error *err)
{
    json_t *object = NULL;
    const char *kind = "";
    enum status st = json_parse_object(place, line, length, &object, err);
    const struct json_section section = {place, "", object};

    if (st == STATUS_OK)
        st = require_string(&section, "kind", &kind, err);
    if (st == STATUS_OK && strcmp(kind, first ? "checkpoint" : "tensor") != 0)
        st = error_set(err, STATUS_MODEL,
                       "%s: an object of kind '%.40s', expected '%s', as `ferry inspect --json` writes", place, kind,
                       first ? "checkpoint" : "tensor");
    if (st == STATUS_OK)
        st = first ? read_config(&section, &checkpoint->config, err) : add_tensor(checkpoint, &section, err);
    json_decref(object);
    return st;
}

/* A JSON file that is none of ours is mostly one of a folder's. */
static enum status refuse_other(const char *path, const struct error *why, struct error *err)
{
    return error_set(err, STATUS_MODEL,
                     "%s is not the saved output of `ferry inspect --json` (a Hugging Face model is opened by its "
                     "folder): %s",
                     path, why->text);
}

/* As many tensors as the first line announced: a file that was cut says so. */
static enum status check_count(const struct checkpoint *checkpoint, const char *line, size_t length, struct error *err)
{
    json_t *object = NULL;
    uint64_t count = 0;
    enum status st = json_parse_object(checkpoint->path, line, length, &object, err);
    const struct json_section section = {checkpoint->path, "", object};

    if (st == STATUS_OK)
        st = json_require_u64(&section, "tensors", 0, INT64_MAX, &count, err);
    if (st == STATUS_OK && count != checkpoint->count)
        st = error_set(err, STATUS_MODEL, "%s: %zu tensors, announced %" PRIu64, checkpoint->path, checkpoint->count,
                       count);
    json_decref(object);
    return st;
}

enum status saved_open(struct checkpoint *checkpoint, struct error *err)
{
    char *bytes = NULL;
    size_t length = 0;
    size_t number = 0;
    size_t head = 0;
    struct error why = {0};
    enum status st = file_read_all(checkpoint->path, SAVED_LIMIT, &bytes, &length, err);

    checkpoint->saved = true;
    for (size_t begin = 0; st == STATUS_OK && begin < length; number++) {
        const char *end = memchr(bytes + begin, '\n', length - begin);
        size_t line = end ? (size_t)(end - bytes) - begin : length - begin;
        struct text place = {0};

        text_add(&place, "%s:%zu", checkpoint->path, number + 1);
        if (!number)
            head = line;
        st = read_line(checkpoint, text_string(&place), bytes + begin, line, !number, &why);
        if (st != STATUS_OK)
            st = st == STATUS_MODEL && !number ? refuse_other(checkpoint->path, &why, err)
                                               : error_set(err, st, "%s", why.text);
        text_done(&place);
        begin += line + 1;
    }
    if (st == STATUS_OK)
        st = check_count(checkpoint, bytes, head, err);
    if (st == STATUS_OK)
        st = checkpoint_index_names(checkpoint, err);
    if (st == STATUS_OK)
        text_add(&checkpoint->notes, "not checked: the model's files (their saved description stands for them)\n");
    free(bytes);
    return st;
}
