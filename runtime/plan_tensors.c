/* What a checkpoint's metadata holds, against what the family's table asks for. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "checkpoint/checkpoint.h"
#include "runtime/plan_private.h"

enum { NAME_BYTES = 128, SHOWN = 5 };

static size_t type_index(const struct plan_types *types, const struct parameter_rule *rule, uint64_t layer)
{
    uint64_t row = rule->place == PLACE_LAYER ? layer : types->config->layer_count;

    return (size_t)row * PARAMETER_COUNT + rule->parameter;
}

/* Hugging Face's default when the file names none is float32. */
static enum weight_type declared_type(const struct model_config *config)
{
    if (!strcmp(config->torch_dtype, "bfloat16"))
        return WEIGHT_BF16;
    return strcmp(config->torch_dtype, "float16") ? WEIGHT_F32 : WEIGHT_F16;
}

static enum weight_type stored_type(const struct checkpoint *checkpoint, const struct parameter_rule *rule,
                                    uint64_t layer)
{
    const struct model_config *config = checkpoint_config(checkpoint);
    const struct stored_tensor *tensor;
    char name[NAME_BYTES];

    family_tensor_name(config, rule, layer, name, sizeof name);
    tensor = checkpoint_find(checkpoint, name);
    return tensor && tensor->type != WEIGHT_NONE ? tensor->type : declared_type(config);
}

enum status plan_types_init(struct plan_types *types, const struct checkpoint *checkpoint, struct error *err)
{
    const struct model_config *config = checkpoint_config(checkpoint);
    bool known = checkpoint_has_weights(checkpoint);
    int rule_count;
    const struct parameter_rule *const *rules = family_rules(config, &rule_count);

    types->config = config;
    types->type = calloc((size_t)config->layer_count + 1, PARAMETER_COUNT);
    if (!types->type)
        return error_set(err, STATUS_NOMEM, "the types of %" PRIu64 " layers", config->layer_count);
    for (int r = 0; r < rule_count; r++) {
        uint64_t layers = rules[r]->place == PLACE_LAYER ? config->layer_count : 1;

        for (uint64_t layer = 0; layer < layers; layer++)
            types->type[type_index(types, rules[r], layer)] =
                (signed char)(known ? stored_type(checkpoint, rules[r], layer) : declared_type(config));
    }
    return STATUS_OK;
}

void plan_types_done(struct plan_types *types)
{
    free(types->type);
    types->type = NULL;
}

uint64_t plan_types_bytes(const struct plan_types *types, const struct parameter_rule *rule, uint64_t layer,
                          uint64_t rows, uint64_t cols)
{
    enum weight_type type = (enum weight_type)types->type[type_index(types, rule, layer)];
    size_t bytes = cols / weight_block_length(type);

    if (size_mul(bytes, weight_block_bytes(type), &bytes) || size_mul(bytes, rows, &bytes))
        return UINT64_MAX;
    return bytes;
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

uint64_t plan_types_unit(const struct plan_types *types, enum parameter parameter)
{
    uint64_t unit = 1;

    for (uint64_t layer = 0; layer < types->config->layer_count; layer++) {
        uint64_t length = weight_block_length(types->type[layer * PARAMETER_COUNT + parameter]);

        if (length)
            unit = unit / greatest_common_divisor(unit, length) * length;
    }
    return unit;
}

static void add_shape(struct text *out, const uint64_t *dim, int ndim)
{
    text_add(out, "[");
    for (int i = 0; i < ndim; i++)
        text_add(out, "%s%" PRIu64, i ? ", " : "", dim[i]);
    text_add(out, "]");
}

bool plan_tensor_fault(const struct checkpoint *checkpoint, const struct parameter_rule *rule, const char *name,
                       struct text *out)
{
    const struct model_config *config = checkpoint_config(checkpoint);
    const struct stored_tensor *tensor = checkpoint_find(checkpoint, name);
    int ndim = rule->rows == EXTENT_NONE ? 1 : 2;
    uint64_t rows = family_extent(config, rule->rows);
    uint64_t cols = family_extent(config, rule->cols);
    uint64_t expected[2] = {ndim == 2 ? rows : cols, cols};

    if (!tensor) {
        text_add(out, "tensor %s is missing, expected shape ", name);
        add_shape(out, expected, ndim);
    } else if (tensor->ndim != ndim || memcmp(tensor->dim, expected, (size_t)ndim * sizeof *expected) != 0) {
        text_add(out, "tensor %s has shape ", name);
        add_shape(out, tensor->dim, tensor->ndim);
        text_add(out, ", expected ");
        add_shape(out, expected, ndim);
    } else if (tensor->type == WEIGHT_NONE) {
        text_add(out, "tensor %s has type %s, which is not supported", name, tensor->type_name);
    } else {
        return false;
    }
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Buffers and ties that programs store without need: no reason to worry. */
static bool is_harmless(const struct model_config *config, const char *name)
{
    return strstr(name, "rotary_emb.inv_freq") || strstr(name, ".attn.masked_bias") ||
           (config->tied && !strcmp(name, config->gguf ? "output.weight" : "lm_head.weight"));
}

static void note_extras(const struct checkpoint *checkpoint, const char *const *known, size_t known_count,
                        struct text *notes)
{
    const struct model_config *config = checkpoint_config(checkpoint);
    size_t harmless = 0;
    size_t extra = 0;
    struct text names = {0};

    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const char *name = checkpoint_tensor(checkpoint, i)->name;

        if (known_count && bsearch(&name, known, known_count, sizeof *known, compare_names))
            continue;
        if (is_harmless(config, name))
            harmless++;
        else if (extra++ < SHOWN)
            text_add(&names, "%s%s", names.length ? ", " : "", name);
    }
    if (extra)
        text_add(notes, "warning: %zu tensor%s of the checkpoint belong%s to no parameter of %s and %s ignored: %s%s\n",
                 extra, extra == 1 ? "" : "s", extra == 1 ? "s" : "", config->architecture_name,
                 extra == 1 ? "is" : "are", text_string(&names), extra > SHOWN ? ", ..." : "");
    if (harmless)
        text_add(notes, "%zu stored tensor%s not needed (rotary buffers, or the copy of a tied head)\n", harmless,
                 harmless == 1 ? " is" : "s are");
    text_done(&names);
}

/* What the family asks for: the names that are there, and a report of what is wrong with the rest. */
struct wanted {
    const char **known;
    size_t known_count;
    size_t faults;
    struct text report;
};

static void collect(const struct checkpoint *checkpoint, const struct parameter_rule *rule, struct wanted *wanted)
{
    const struct model_config *config = checkpoint_config(checkpoint);
    uint64_t layers = rule->place == PLACE_LAYER ? config->layer_count : 1;

    for (uint64_t layer = 0; layer < layers; layer++) {
        const struct stored_tensor *tensor;
        char name[NAME_BYTES];
        struct text line = {0};

        family_tensor_name(config, rule, layer, name, sizeof name);
        if (plan_tensor_fault(checkpoint, rule, name, &line) && wanted->faults++ < SHOWN)
            text_add(&wanted->report, "%s%s", wanted->report.length ? "\n" : "", text_string(&line));
        text_done(&line);
        tensor = checkpoint_find(checkpoint, name);
        if (tensor)
            wanted->known[wanted->known_count++] = tensor->name;
    }
}

enum status plan_check_tensors(const struct checkpoint *checkpoint, struct text *notes, struct error *err)
{
    const struct model_config *config = checkpoint_config(checkpoint);
    int rule_count;
    const struct parameter_rule *const *rules = family_rules(config, &rule_count);
    size_t capacity = ((size_t)config->layer_count + 1) * (size_t)rule_count;
    struct wanted wanted = {0};
    enum status st = STATUS_OK;

    if (!checkpoint_has_weights(checkpoint))
        return STATUS_OK;
    wanted.known = calloc(capacity, sizeof *wanted.known);
    if (!wanted.known)
        return error_set(err, STATUS_NOMEM, "the names of %zu tensors", capacity);
    for (int r = 0; r < rule_count; r++)
        collect(checkpoint, rules[r], &wanted);
    if (wanted.known_count)
        qsort(wanted.known, wanted.known_count, sizeof *wanted.known, compare_names);
    if (wanted.faults > SHOWN)
        text_add(&wanted.report, "\nand %zu more", wanted.faults - SHOWN);
    if (wanted.faults)
        st = error_set(err, STATUS_MODEL, "%s: %s", checkpoint_path(checkpoint), text_string(&wanted.report));
    else
        note_extras(checkpoint, wanted.known, wanted.known_count, notes);
    text_done(&wanted.report);
    free(wanted.known);
    return st;
}
