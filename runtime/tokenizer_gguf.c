/* The tokenizer in a GGUF file's metadata (keys tokenizer.ggml.*): model gpt2, which is byte-level BPE.  The file keeps
 * no patterns, only the name of their list, and no options of added tokens: control tokens and user-defined tokens are
 * found wherever they stand in a text. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/gguf.h"
#include "runtime/tokenizer_private.h"

#define KEY(name) "tokenizer.ggml." name

/* The numbers are the file format's. */
enum token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

struct reader {
    const struct gguf *gguf;
    const char *path;
    struct tokenizer_parts parts;
    struct pretokenizer_traits traits;
    struct error *err;
};

static enum status missing(struct reader *reader, const char *key, const char *expected)
{
    bool absent = gguf_value_type(reader->gguf, key) == GGUF_NONE;

    return error_set(reader->err, STATUS_MODEL, "%s: %s: expected %s, found %s", reader->path, key, expected,
                     absent ? "nothing" : gguf_type_name(gguf_value_type(reader->gguf, key)));
}

static enum status check_model(struct reader *reader)
{
    const char *model;
    size_t length;

    if (!gguf_get_string(reader->gguf, KEY("model"), &model, &length))
        return missing(reader, KEY("model"), "a string");
    if (length == 4 && memcmp(model, "gpt2", 4) == 0)
        return STATUS_OK;
    return error_set(reader->err, STATUS_UNSUPPORTED, "%s: " KEY("model") " '%.*s'%s is not supported (gpt2 is)",
                     reader->path, (int)(length < 64 ? length : 64), model,
                     length == 5 && memcmp(model, "llama", 5) == 0 ? " (SentencePiece)" : "");
}

static enum status read_pretokenizer(struct reader *reader)
{
    const char *name;
    size_t length;
    bool prefix_space = false;
    enum status st = pretokenizer_create(&reader->parts.pretokenizer, reader->err);

    if (st != STATUS_OK)
        return st;
    if (!gguf_get_string(reader->gguf, KEY("pre"), &name, &length))
        return missing(reader, KEY("pre"), "the name of a pre-tokenizer");
    if (gguf_get_bool(reader->gguf, KEY("add_space_prefix"), &prefix_space) && prefix_space)
        st = pretokenizer_add_prefix_space(reader->parts.pretokenizer, reader->err);
    if (st == STATUS_OK)
        st = pretokenizer_add_named(reader->parts.pretokenizer, name, length, &reader->traits, reader->err);
    if (st != STATUS_OK)
        return error_wrap(reader->err, st, "%s: " KEY("pre"), reader->path);
    reader->parts.nfc = reader->traits.nfc;
    reader->parts.ignore_merges = reader->traits.ignore_merges;
    return STATUS_OK;
}

static enum status read_token(struct reader *reader, size_t id)
{
    struct tokenizer_parts *parts = &reader->parts;
    struct token_string *token = &parts->tokens[id];
    int64_t type = TOKEN_NORMAL;

    token->bytes = gguf_array_string(reader->gguf, KEY("tokens"), id, &token->length);
    gguf_array_i64(reader->gguf, KEY("token_type"), id, &type);
    switch (type) {
    case TOKEN_NORMAL:
        return STATUS_OK;
    case TOKEN_UNKNOWN:
    case TOKEN_CONTROL:
    case TOKEN_USER_DEFINED:
        parts->added[parts->added_count++] =
            (struct added_token){.content = *token, .id = (uint32_t)id, .special = type != TOKEN_USER_DEFINED};
        return STATUS_OK;
    case TOKEN_UNUSED:
        /* A filler: never found in a text, nothing when decoded. */
        parts->added[parts->added_count++] = (struct added_token){.id = (uint32_t)id, .special = true};
        return STATUS_OK;
    default:
        return error_set(reader->err, type == TOKEN_BYTE ? STATUS_UNSUPPORTED : STATUS_MODEL,
                         "%s: " KEY("token_type") ": token %zu has type %lld%s", reader->path, id, (long long)type,
                         type == TOKEN_BYTE ? " (a byte), which belongs to SentencePiece" : "");
    }
}

static enum status read_tokens(struct reader *reader)
{
    struct tokenizer_parts *parts = &reader->parts;
    size_t types = gguf_array_count(reader->gguf, KEY("token_type"));
    enum status st = STATUS_OK;

    parts->token_count = gguf_array_count(reader->gguf, KEY("tokens"));
    if (!parts->token_count || gguf_array_type(reader->gguf, KEY("tokens")) != GGUF_STRING)
        return missing(reader, KEY("tokens"), "a list of strings");
    if (parts->token_count > TOKEN_ID_LIMIT)
        return error_set(reader->err, STATUS_OVERFLOW, "%s: " KEY("tokens") ": %zu tokens, more than the limit of %d",
                         reader->path, parts->token_count, TOKEN_ID_LIMIT);
    if (types && types != parts->token_count)
        return error_set(reader->err, STATUS_MODEL, "%s: " KEY("token_type") " has %zu entries, " KEY("tokens") " %zu",
                         reader->path, types, parts->token_count);
    parts->tokens = calloc(parts->token_count, sizeof *parts->tokens);
    parts->added = calloc(parts->token_count, sizeof *parts->added);
    if (!parts->tokens || !parts->added)
        return error_set(reader->err, STATUS_NOMEM, "%s: %zu tokens", reader->path, parts->token_count);
    for (size_t id = 0; st == STATUS_OK && id < parts->token_count; id++)
        st = read_token(reader, id);
    return st;
}

static enum status read_merges(struct reader *reader)
{
    struct tokenizer_parts *parts = &reader->parts;
    enum status st = STATUS_OK;

    parts->merge_count = gguf_array_count(reader->gguf, KEY("merges"));
    if (gguf_value_type(reader->gguf, KEY("merges")) != GGUF_ARRAY ||
        (parts->merge_count && gguf_array_type(reader->gguf, KEY("merges")) != GGUF_STRING))
        return missing(reader, KEY("merges"), "a list of strings");
    if (parts->merge_count > TOKEN_ID_LIMIT)
        return error_set(reader->err, STATUS_OVERFLOW, "%s: " KEY("merges") ": %zu merges, more than the limit of %d",
                         reader->path, parts->merge_count, TOKEN_ID_LIMIT);
    if (!(parts->merges = calloc(parts->merge_count + 1, sizeof *parts->merges)))
        return error_set(reader->err, STATUS_NOMEM, "%s: %zu merges", reader->path, parts->merge_count);
    for (size_t i = 0; st == STATUS_OK && i < parts->merge_count; i++) {
        size_t length = 0;
        const char *text = gguf_array_string(reader->gguf, KEY("merges"), i, &length);

        st = token_pair_parse(text, length, i, &parts->merges[i], reader->err);
    }
    return st == STATUS_OK ? st : error_wrap(reader->err, st, "%s: " KEY("merges"), reader->path);
}

/* One of the two tokens that may stand around a text. */
static enum status read_around(struct reader *reader, const char *add_key, const char *id_key, bool add, uint32_t *ids,
                               size_t *count)
{
    uint64_t id;

    gguf_get_bool(reader->gguf, add_key, &add);
    if (!add)
        return STATUS_OK;
    if (!gguf_get_u64(reader->gguf, id_key, &id))
        return missing(reader, id_key, "the id of the token that is to be added");
    if (id >= reader->parts.token_count)
        return error_set(reader->err, STATUS_MODEL, "%s: %s is %llu, there are %zu tokens", reader->path, id_key,
                         (unsigned long long)id, reader->parts.token_count);
    ids[(*count)++] = (uint32_t)id;
    return STATUS_OK;
}

static enum status read_all(struct reader *reader)
{
    struct tokenizer_parts *parts = &reader->parts;
    enum status st;

    if ((st = check_model(reader)) != STATUS_OK || (st = read_pretokenizer(reader)) != STATUS_OK ||
        (st = read_tokens(reader)) != STATUS_OK || (st = read_merges(reader)) != STATUS_OK ||
        (st = read_around(reader, KEY("add_bos_token"), KEY("bos_token_id"), reader->traits.add_bos, parts->prefix,
                          &parts->prefix_count)) != STATUS_OK)
        return st;
    return read_around(reader, KEY("add_eos_token"), KEY("eos_token_id"), false, parts->suffix, &parts->suffix_count);
}

enum status tokenizer_create_from_gguf(const struct gguf *gguf, const char *name, struct tokenizer **ret,
                                       struct error *err)
{
    struct reader reader = {.gguf = gguf, .path = name, .err = err};
    enum status st = read_all(&reader);

    if (st == STATUS_OK && (st = tokenizer_create(&reader.parts, ret, err)) != STATUS_OK)
        st = error_wrap(err, st, "%s", name);
    tokenizer_parts_done(&reader.parts);
    return st;
}
