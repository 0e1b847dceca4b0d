/* tokenizer.json of the Hugging Face library `tokenizers`, as far as byte-level BPE uses it.  Every other type, and
 * every option that would change an id, is refused by its key and its name. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/json.h"
#include "runtime/tokenizer_private.h"

struct reader {
    const char *path;
    struct tokenizer_parts parts;
    const json_t *vocab;
    bool byte_level; /* a pre-tokenizer ByteLevel was read: nothing may follow it */
    bool templated;  /* a post-processor TemplateProcessing was read */
    struct error *err;
};

typedef enum status read_component(struct reader *reader, const json_t *component, const char *type);

static enum status refuse(struct reader *reader, const char *key, const char *what)
{
    return error_set(reader->err, STATUS_UNSUPPORTED, "%s: %s '%.64s' is not supported (byte-level BPE is)",
                     reader->path, key, what);
}

static enum status wrong_kind(struct reader *reader, const char *key, const char *expected, const json_t *value)
{
    return error_set(reader->err, STATUS_MODEL, "%s: %s: expected %s, found %s", reader->path, key, expected,
                     json_kind(value));
}

static struct json_section section_of(const struct reader *reader, const json_t *object, const char *prefix)
{
    return (struct json_section){.path = reader->path, .prefix = prefix, .object = object};
}

/* Read a component, or each member of a Sequence in turn (kept under list).  Null and absent: nothing. */
static enum status read_components(struct reader *reader, const json_t *component, const char *key, const char *list,
                                   int depth, read_component *read)
{
    const json_t *members = json_object_get(component, list);
    const char *type = json_string_value(json_object_get(component, "type"));
    enum status st = STATUS_OK;

    if (!component || json_is_null(component))
        return STATUS_OK;
    if (!json_is_object(component))
        return wrong_kind(reader, key, "an object", component);
    if (!type)
        return wrong_kind(reader, key, "a type", json_object_get(component, "type"));
    if (strcmp(type, "Sequence") != 0)
        return read(reader, component, type);
    if (!json_is_array(members))
        return wrong_kind(reader, key, "a list of members", members);
    if (depth == 8)
        return refuse(reader, key, "Sequence within 8 Sequences");
    for (size_t i = 0; st == STATUS_OK && i < json_array_size(members); i++) {
        if (json_is_null(json_array_get(members, i)))
            return wrong_kind(reader, key, "an object", json_array_get(members, i));
        st = read_components(reader, json_array_get(members, i), key, list, depth + 1, read);
    }
    return st;
}

static enum status read_normalizer(struct reader *reader, const json_t *component, const char *type)
{
    (void)component;
    if (strcmp(type, "NFC") != 0)
        return refuse(reader, "normalizer", type);
    reader->parts.nfc = true;
    return STATUS_OK;
}

static enum status read_behavior(struct reader *reader, const json_t *component, enum split_behavior *ret)
{
    static const char *const words[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const json_t *value = json_object_get(component, "behavior");

    if (!json_is_string(value))
        return wrong_kind(reader, "pre_tokenizer.behavior", "a string", value);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(json_string_value(value), words[i]) == 0) {
            *ret = (enum split_behavior)i;
            return STATUS_OK;
        }
    }
    return refuse(reader, "pre_tokenizer.behavior", json_string_value(value));
}

static enum status read_split(struct reader *reader, const json_t *component)
{
    struct json_section section = section_of(reader, component, "pre_tokenizer.");
    const json_t *pattern = json_object_get(component, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *literal = json_object_get(pattern, "String");
    const json_t *chosen = regex ? regex : literal;
    enum split_behavior behavior = SPLIT_ISOLATED;
    bool invert = false;
    enum status st;

    if (!json_is_string(chosen))
        return wrong_kind(reader, "pre_tokenizer.pattern", "a Regex or a String", chosen ? chosen : pattern);
    if ((st = read_behavior(reader, component, &behavior)) != STATUS_OK ||
        (st = json_get_bool(&section, "invert", &invert, reader->err)) != STATUS_OK)
        return st;
    st = pretokenizer_add_split(reader->parts.pretokenizer, json_string_value(chosen), json_string_length(chosen),
                                !regex, behavior, invert, reader->err);
    return st == STATUS_OK ? st : error_wrap(reader->err, st, "%s: pre_tokenizer", reader->path);
}

static enum status read_byte_level(struct reader *reader, const json_t *component)
{
    struct json_section section = section_of(reader, component, "pre_tokenizer.");
    const char *pattern = pretokenizer_gpt2_pattern();
    bool prefix_space = true;
    bool use_regex = true;
    enum status st;

    if ((st = json_get_bool(&section, "add_prefix_space", &prefix_space, reader->err)) != STATUS_OK ||
        (st = json_get_bool(&section, "use_regex", &use_regex, reader->err)) != STATUS_OK)
        return st;
    if (prefix_space)
        st = pretokenizer_add_prefix_space(reader->parts.pretokenizer, reader->err);
    if (st == STATUS_OK && use_regex)
        st = pretokenizer_add_split(reader->parts.pretokenizer, pattern, strlen(pattern), false, SPLIT_ISOLATED, false,
                                    reader->err);
    reader->byte_level = true;
    return st == STATUS_OK ? st : error_wrap(reader->err, st, "%s: pre_tokenizer", reader->path);
}

static enum status read_digits(struct reader *reader, const json_t *component)
{
    struct json_section section = section_of(reader, component, "pre_tokenizer.");
    bool individual = false;
    enum status st = json_get_bool(&section, "individual_digits", &individual, reader->err);

    if (st != STATUS_OK)
        return st;
    st = pretokenizer_add_split(reader->parts.pretokenizer, "\\p{N}", 5, false,
                                individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false, reader->err);
    return st == STATUS_OK ? st : error_wrap(reader->err, st, "%s: pre_tokenizer", reader->path);
}

static enum status read_pretokenizer(struct reader *reader, const json_t *component, const char *type)
{
    /* Behind ByteLevel a pattern would see the byte alphabet instead of the text. */
    if (reader->byte_level)
        return error_set(reader->err, STATUS_UNSUPPORTED,
                         "%s: pre_tokenizer: '%.64s' behind ByteLevel is not supported", reader->path, type);
    if (strcmp(type, "Split") == 0)
        return read_split(reader, component);
    if (strcmp(type, "Digits") == 0)
        return read_digits(reader, component);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(reader, component);
    return refuse(reader, "pre_tokenizer", type);
}

/* Append the ids of a special token of the template. */
static enum status read_template_token(struct reader *reader, const json_t *special, const json_t *named, uint32_t *ids,
                                       size_t *count)
{
    const char *name = json_string_value(json_object_get(named, "id"));
    const json_t *list = name ? json_object_get(json_object_get(special, name), "ids") : NULL;

    if (!json_is_array(list))
        return wrong_kind(reader, "post_processor.special_tokens", "ids of each token of the template", list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= TOKEN_ID_LIMIT)
            return wrong_kind(reader, "post_processor.special_tokens", "a token id below 2^24", id);
        if (*count == TOKENIZER_MAX_AROUND)
            return refuse(reader, "post_processor", "TemplateProcessing with more than 16 tokens");
        ids[(*count)++] = (uint32_t)json_integer_value(id);
    }
    return STATUS_OK;
}

static enum status read_template(struct reader *reader, const json_t *component)
{
    const json_t *single = json_object_get(component, "single");
    const json_t *special = json_object_get(component, "special_tokens");
    struct tokenizer_parts *parts = &reader->parts;
    int texts = 0;
    enum status st = STATUS_OK;

    if (reader->templated)
        return refuse(reader, "post_processor", "a second TemplateProcessing");
    if (!json_is_array(single))
        return wrong_kind(reader, "post_processor.single", "a list", single);
    reader->templated = true;
    for (size_t i = 0; st == STATUS_OK && i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const json_t *token = json_object_get(part, "SpecialToken");

        if (token)
            st = texts ? read_template_token(reader, special, token, parts->suffix, &parts->suffix_count)
                       : read_template_token(reader, special, token, parts->prefix, &parts->prefix_count);
        else if (json_object_get(part, "Sequence"))
            texts++;
        else
            st = wrong_kind(reader, "post_processor.single", "a SpecialToken or a Sequence", part);
    }
    if (st == STATUS_OK && texts != 1)
        return refuse(reader, "post_processor", "TemplateProcessing that repeats or drops the text");
    return st;
}

static enum status read_postprocessor(struct reader *reader, const json_t *component, const char *type)
{
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(reader, component);
    /* ByteLevel trims offsets; ids stay. */
    return strcmp(type, "ByteLevel") == 0 ? STATUS_OK : refuse(reader, "post_processor", type);
}

static enum status read_decoder(struct reader *reader, const json_t *component, const char *type)
{
    (void)component;
    return strcmp(type, "ByteLevel") == 0 || strcmp(type, "Fuse") == 0 ? STATUS_OK : refuse(reader, "decoder", type);
}

static bool is_token_id(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < TOKEN_ID_LIMIT;
}

/* How many ids there are: the highest + 1. */
static enum status measure_vocab(struct reader *reader, json_t *vocab, size_t *ret)
{
    const char *key;
    json_t *value;

    *ret = 0;
    json_object_foreach(vocab, key, value)
    {
        if (!is_token_id(value)) {
            char shown[64];

            return error_set(reader->err, STATUS_MODEL, "%s: model.vocab: the id of '%.64s' is %s, expected 0 to %d",
                             reader->path, key, json_show(value, shown, sizeof shown), TOKEN_ID_LIMIT - 1);
        }
        if ((size_t)json_integer_value(value) >= *ret)
            *ret = (size_t)json_integer_value(value) + 1;
    }
    return STATUS_OK;
}

static enum status read_vocab(struct reader *reader, json_t *vocab)
{
    struct tokenizer_parts *parts = &reader->parts;
    const char *key;
    json_t *value;
    enum status st;

    if (!json_is_object(vocab))
        return wrong_kind(reader, "model.vocab", "an object", vocab);
    if ((st = measure_vocab(reader, vocab, &parts->token_count)) != STATUS_OK)
        return st;
    if (!(parts->tokens = calloc(parts->token_count + 1, sizeof *parts->tokens)))
        return error_set(reader->err, STATUS_NOMEM, "%s: %zu tokens", reader->path, parts->token_count);
    reader->vocab = vocab;
    json_object_foreach(vocab, key, value)
    {
        struct token_string *token = &parts->tokens[json_integer_value(value)];

        if (token->bytes)
            return error_set(reader->err, STATUS_MODEL, "%s: model.vocab: '%.64s' and '%.64s' have the same id %lld",
                             reader->path, token->bytes, key, (long long)json_integer_value(value));
        *token = (struct token_string){key, strlen(key)};
    }
    return STATUS_OK;
}

static enum status read_merge(struct reader *reader, const json_t *merge, size_t index, struct token_pair *ret)
{
    const json_t *left = json_array_get(merge, 0);
    const json_t *right = json_array_get(merge, 1);

    if (json_is_string(merge)) {
        enum status st = token_pair_parse(json_string_value(merge), json_string_length(merge), index, ret, reader->err);

        return st == STATUS_OK ? st : error_wrap(reader->err, st, "%s: model.merges", reader->path);
    }
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
        return error_set(reader->err, STATUS_MODEL, "%s: model.merges: merge %zu: expected two strings", reader->path,
                         index);
    *ret = (struct token_pair){{json_string_value(left), json_string_length(left)},
                               {json_string_value(right), json_string_length(right)}};
    return STATUS_OK;
}

static enum status read_merges(struct reader *reader, const json_t *merges)
{
    struct tokenizer_parts *parts = &reader->parts;
    enum status st = STATUS_OK;

    if (!json_is_array(merges))
        return wrong_kind(reader, "model.merges", "a list", merges);
    parts->merge_count = json_array_size(merges);
    if (!(parts->merges = calloc(parts->merge_count + 1, sizeof *parts->merges)))
        return error_set(reader->err, STATUS_NOMEM, "%s: %zu merges", reader->path, parts->merge_count);
    for (size_t i = 0; st == STATUS_OK && i < parts->merge_count; i++)
        st = read_merge(reader, json_array_get(merges, i), i, &parts->merges[i]);
    return st;
}

/* Options that change ids unless they are at rest. */
static enum status read_model_options(struct reader *reader, const json_t *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    struct json_section section = section_of(reader, model, "model.");
    const char *unknown = NULL;
    double dropout = 0;
    bool fallback = false;
    enum status st;

    if ((st = json_get_f64(&section, "dropout", 0, 1, &dropout, reader->err)) != STATUS_OK ||
        (st = json_get_string(&section, "unk_token", &unknown, reader->err)) != STATUS_OK ||
        (st = json_get_bool(&section, "byte_fallback", &fallback, reader->err)) != STATUS_OK ||
        (st = json_get_bool(&section, "ignore_merges", &reader->parts.ignore_merges, reader->err)) != STATUS_OK)
        return st;
    if (dropout > 0)
        return error_set(reader->err, STATUS_UNSUPPORTED, "%s: model.dropout %g is not supported", reader->path,
                         dropout);
    for (size_t i = 0; i < 2; i++) {
        const char *affix = NULL;

        if ((st = json_get_string(&section, affixes[i], &affix, reader->err)) != STATUS_OK)
            return st;
        if (affix && *affix)
            return error_set(reader->err, STATUS_UNSUPPORTED, "%s: model.%s '%.64s' is not supported", reader->path,
                             affixes[i], affix);
    }
    reader->parts.all_bytes = unknown || fallback;
    return STATUS_OK;
}

static enum status read_model(struct reader *reader, const json_t *model)
{
    const json_t *type = json_object_get(model, "type");
    enum status st;

    if (!json_is_object(model))
        return wrong_kind(reader, "model", "an object", model);
    /* Old files name no type; only BPE has merges. */
    if (type && !json_is_string(type))
        return wrong_kind(reader, "model.type", "a string", type);
    if (type && strcmp(json_string_value(type), "BPE") != 0)
        return refuse(reader, "model.type", json_string_value(type));
    if ((st = read_model_options(reader, model)) != STATUS_OK ||
        (st = read_vocab(reader, json_object_get(model, "vocab"))) != STATUS_OK)
        return st;
    return read_merges(reader, json_object_get(model, "merges"));
}

static enum status read_added_token(struct reader *reader, const json_t *entry, json_t *seen, struct added_token *ret)
{
    struct json_section section = section_of(reader, entry, "added_tokens.");
    const char *content = NULL;
    const json_t *id = json_object_get(entry, "id");
    const json_t *same;
    enum status st;

    if (!json_is_object(entry))
        return wrong_kind(reader, "added_tokens", "objects", entry);
    if ((st = json_get_string(&section, "content", &content, reader->err)) != STATUS_OK)
        return st;
    if (!content)
        return wrong_kind(reader, "added_tokens.content", "a string", NULL);
    if (!is_token_id(id))
        return wrong_kind(reader, "added_tokens.id", "a token id below 2^24", id);
    *ret = (struct added_token){.content = {content, strlen(content)}, .id = (uint32_t)json_integer_value(id)};
    if (((same = json_object_get(reader->vocab, content)) && !json_equal(same, id)) ||
        ((same = json_object_get(seen, content)) && !json_equal(same, id)))
        return error_set(reader->err, STATUS_MODEL, "%s: added_tokens: '%.64s' has id %u here and %lld elsewhere",
                         reader->path, content, ret->id, (long long)json_integer_value(same));
    if (ret->id < reader->parts.token_count) {
        struct token_string token = reader->parts.tokens[ret->id];

        if (token.bytes && (token.length != ret->content.length || memcmp(token.bytes, content, token.length) != 0))
            return error_set(reader->err, STATUS_MODEL, "%s: added_tokens: '%.64s' has id %u, which is '%.64s'",
                             reader->path, content, ret->id, token.bytes);
    }
    if (json_object_set_new(seen, content, json_integer(ret->id)) != 0)
        return error_set(reader->err, STATUS_NOMEM, "%s: added tokens", reader->path);
    if ((st = json_get_bool(&section, "special", &ret->special, reader->err)) != STATUS_OK ||
        (st = json_get_bool(&section, "normalized", &ret->normalized, reader->err)) != STATUS_OK ||
        (st = json_get_bool(&section, "single_word", &ret->single_word, reader->err)) != STATUS_OK ||
        (st = json_get_bool(&section, "lstrip", &ret->lstrip, reader->err)) != STATUS_OK)
        return st;
    return json_get_bool(&section, "rstrip", &ret->rstrip, reader->err);
}

static enum status read_added_tokens(struct reader *reader, const json_t *list)
{
    struct tokenizer_parts *parts = &reader->parts;
    json_t *seen;
    enum status st = STATUS_OK;

    if (!list || json_is_null(list))
        return STATUS_OK;
    if (!json_is_array(list))
        return wrong_kind(reader, "added_tokens", "a list", list);
    seen = json_object();
    parts->added_count = json_array_size(list);
    parts->added = calloc(parts->added_count + 1, sizeof *parts->added);
    if (!seen || !parts->added)
        st = error_set(reader->err, STATUS_NOMEM, "%s: added tokens", reader->path);
    for (size_t i = 0; st == STATUS_OK && i < parts->added_count; i++)
        st = read_added_token(reader, json_array_get(list, i), seen, &parts->added[i]);
    json_decref(seen);
    return st;
}

static enum status read_root(struct reader *reader, const json_t *root)
{
    const json_t *decoder = json_object_get(root, "decoder");
    enum status st;

    if ((st = read_components(reader, json_object_get(root, "normalizer"), "normalizer", "normalizers", 0,
                              read_normalizer)) != STATUS_OK ||
        (st = read_components(reader, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers", 0,
                              read_pretokenizer)) != STATUS_OK ||
        (st = read_components(reader, json_object_get(root, "post_processor"), "post_processor", "processors", 0,
                              read_postprocessor)) != STATUS_OK ||
        (st = read_components(reader, decoder, "decoder", "decoders", 0, read_decoder)) != STATUS_OK ||
        (st = read_model(reader, json_object_get(root, "model"))) != STATUS_OK)
        return st;
    if (!reader->byte_level)
        return refuse(reader, "pre_tokenizer", "without ByteLevel");
    if (!json_is_object(decoder))
        return refuse(reader, "decoder", "null");
    return read_added_tokens(reader, json_object_get(root, "added_tokens"));
}

enum status tokenizer_create_from_json(const char *bytes, size_t length, const char *name, struct tokenizer **ret,
                                       struct error *err)
{
    struct reader reader = {.path = name, .err = err};
    json_t *root = NULL;
    enum status st = json_parse_object(name, bytes, length, &root, err);

    if (st == STATUS_OK)
        st = pretokenizer_create(&reader.parts.pretokenizer, err);
    if (st == STATUS_OK)
        st = read_root(&reader, root);
    if (st == STATUS_OK && (st = tokenizer_create(&reader.parts, ret, err)) != STATUS_OK)
        st = error_wrap(err, st, "%s", name);
    tokenizer_parts_done(&reader.parts);
    json_decref(root);
    return st;
}
