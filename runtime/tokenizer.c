/* Encoding, outside in: added tokens that match the text as it stands; NFC of what lies between them; added tokens that
 * match the normalised text; words; merges.  Decoding is a table of byte strings, made once. */
#include "runtime/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/clock.h"
#include "base/size.h"
#include "runtime/byte_alphabet.h"
#include "runtime/tokenizer_private.h"
#include "runtime/utf8.h"

struct tokenizer {
    struct vocabulary *vocabulary;
    struct bpe *bpe;
    struct pretokenizer *pretokenizer;
    struct added_set *raw;        /* found in the text as it stands */
    struct added_set *normalized; /* found in the normalised text */
    bool nfc;
    uint32_t size;
    char *pieces; /* the bytes of every token */
    uint32_t *piece_start;
    bool *special;
    uint32_t prefix[TOKENIZER_MAX_AROUND];
    size_t prefix_count;
    uint32_t suffix[TOKENIZER_MAX_AROUND];
    size_t suffix_count;
};

/* One text on its way to ids. */
struct encoding {
    const struct tokenizer *tokenizer;
    struct bpe_work work;
    uint64_t deadline_ns;
    struct token_list *ret;
    struct error *err;
};

enum status token_list_add(struct token_list *list, uint32_t id, struct error *err)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity : 32;
        size_t bytes;
        uint32_t *ids;

        if (size_mul(capacity, 2, &capacity) != STATUS_OK || size_mul(capacity, sizeof *ids, &bytes) != STATUS_OK ||
            !(ids = realloc(list->ids, bytes)))
            return error_set(err, STATUS_NOMEM, "%zu tokens", list->count);
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return STATUS_OK;
}

void token_list_done(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

enum status token_pair_parse(const char *text, size_t length, size_t index, struct token_pair *ret, struct error *err)
{
    const char *blank = length ? memchr(text, ' ', length) : NULL;
    size_t left = blank ? (size_t)(blank - text) : 0;

    if (!blank || !left || left + 1 == length || memchr(blank + 1, ' ', length - left - 1))
        return error_set(err, STATUS_MODEL, "merge %zu: '%.*s' is not two tokens with one blank between", index,
                         (int)(length < 64 ? length : 64), text ? text : "");
    *ret = (struct token_pair){{text, left}, {blank + 1, length - left - 1}};
    return STATUS_OK;
}

void tokenizer_parts_done(struct tokenizer_parts *parts)
{
    free(parts->tokens);
    free(parts->merges);
    free(parts->added);
    pretokenizer_destroy(parts->pretokenizer);
    *parts = (struct tokenizer_parts){0};
}

/* NFC of length bytes; the caller frees *ret. */
static enum status normalize(const char *text, size_t length, char **ret, size_t *ret_length, struct error *err)
{
    utf8proc_uint8_t *result = NULL;
    utf8proc_ssize_t count = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &result,
                                          UTF8PROC_STABLE | UTF8PROC_COMPOSE);

    if (count < 0)
        return error_set(err, count == UTF8PROC_ERROR_NOMEM ? STATUS_NOMEM : STATUS_MODEL, "NFC: %s",
                         utf8proc_errmsg(count));
    *ret = (char *)result;
    *ret_length = (size_t)count;
    return STATUS_OK;
}

static bool is_ascii(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] >= 0x80)
            return false;
    }
    return true;
}

/* Split the added tokens by where they are looked for; those of the second set are normalised as the text will be. */
static enum status create_added_sets(struct tokenizer *tokenizer, const struct tokenizer_parts *parts,
                                     struct error *err)
{
    struct added_token *chosen = calloc(parts->added_count + 1, sizeof *chosen);
    char **owned = calloc(parts->added_count + 1, sizeof *owned);
    size_t raw_count = 0;
    size_t count = 0;
    enum status st = STATUS_OK;

    if (!chosen || !owned)
        st = error_set(err, STATUS_NOMEM, "%zu added tokens", parts->added_count);
    for (size_t i = 0; st == STATUS_OK && i < parts->added_count; i++) {
        if (!parts->added[i].normalized)
            chosen[raw_count++] = parts->added[i];
    }
    if (st == STATUS_OK)
        st = added_set_create(chosen, raw_count, &tokenizer->raw, err);
    for (size_t i = 0; st == STATUS_OK && i < parts->added_count; i++) {
        struct added_token *token = &chosen[count];

        if (!parts->added[i].normalized)
            continue;
        *token = parts->added[i];
        if (tokenizer->nfc && token->content.length) {
            st = normalize(token->content.bytes, token->content.length, &owned[count], &token->content.length, err);
            token->content.bytes = owned[count];
        }
        count++;
    }
    if (st == STATUS_OK)
        st = added_set_create(chosen, count, &tokenizer->normalized, err);
    for (size_t i = 0; owned && i < count; i++)
        free(owned[i]);
    free(owned);
    free(chosen);
    return st;
}

/* Bytes of each id: an added token is its own text, a token of the vocabulary what its characters stand for. */
static enum status create_pieces(struct tokenizer *tokenizer, const struct tokenizer_parts *parts,
                                 const struct token_string *shown, const bool *added, struct error *err)
{
    struct byte_alphabet alphabet;
    size_t total = 0;

    byte_alphabet_init(&alphabet);
    for (uint32_t id = 0; id < tokenizer->size; id++) {
        if (size_add(total, shown[id].length, &total) != STATUS_OK || total > INT32_MAX)
            return error_set(err, STATUS_OVERFLOW, "the tokens have more than 2^31 bytes");
    }
    tokenizer->pieces = malloc(total + 1);
    tokenizer->piece_start = malloc(((size_t)tokenizer->size + 1) * sizeof *tokenizer->piece_start);
    tokenizer->special = calloc((size_t)tokenizer->size + 1, sizeof *tokenizer->special);
    if (!tokenizer->pieces || !tokenizer->piece_start || !tokenizer->special)
        return error_set(err, STATUS_NOMEM, "%u tokens", tokenizer->size);
    for (size_t i = 0; i < parts->added_count; i++)
        tokenizer->special[parts->added[i].id] = parts->added[i].special;

    size_t at = 0;

    for (uint32_t id = 0; id < tokenizer->size; id++) {
        size_t count = shown[id].length;

        tokenizer->piece_start[id] = (uint32_t)at;
        if (count && (added[id] || !byte_alphabet_decode(&alphabet, shown[id].bytes, shown[id].length,
                                                         tokenizer->pieces + at, &count)))
            memcpy(tokenizer->pieces + at, shown[id].bytes, count);
        at += count;
    }
    tokenizer->piece_start[tokenizer->size] = (uint32_t)at;
    return STATUS_OK;
}

/* Lay the added tokens over the vocabulary, and make the table of pieces. */
static enum status create_table(struct tokenizer *tokenizer, const struct tokenizer_parts *parts, struct error *err)
{
    size_t size = parts->token_count;
    struct token_string *shown;
    bool *added;
    enum status st;

    for (size_t i = 0; i < parts->added_count; i++)
        size = parts->added[i].id >= size ? (size_t)parts->added[i].id + 1 : size;
    if (size > TOKEN_ID_LIMIT)
        return error_set(err, STATUS_OVERFLOW, "token id %zu is beyond the limit of %d", size - 1, TOKEN_ID_LIMIT);
    for (size_t i = 0; i < parts->prefix_count + parts->suffix_count; i++) {
        uint32_t id = i < parts->prefix_count ? parts->prefix[i] : parts->suffix[i - parts->prefix_count];

        if (id >= size)
            return error_set(err, STATUS_MODEL, "token id %u that is put around a text is not below %zu", id, size);
    }
    shown = calloc(size + 1, sizeof *shown);
    added = calloc(size + 1, sizeof *added);
    tokenizer->size = (uint32_t)size;
    if (!shown || !added) {
        st = error_set(err, STATUS_NOMEM, "%zu tokens", size);
    } else {
        if (parts->token_count)
            memcpy(shown, parts->tokens, parts->token_count * sizeof *shown);
        for (size_t i = 0; i < parts->added_count; i++) {
            shown[parts->added[i].id] = parts->added[i].content;
            added[parts->added[i].id] = true;
        }
        st = create_pieces(tokenizer, parts, shown, added, err);
    }
    free(shown);
    free(added);
    return st;
}

enum status tokenizer_create(struct tokenizer_parts *parts, struct tokenizer **ret, struct error *err)
{
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    enum status st;

    if (!tokenizer)
        return error_set(err, STATUS_NOMEM, "a tokenizer");
    tokenizer->pretokenizer = parts->pretokenizer;
    parts->pretokenizer = NULL;
    tokenizer->nfc = parts->nfc;
    memcpy(tokenizer->prefix, parts->prefix, sizeof tokenizer->prefix);
    memcpy(tokenizer->suffix, parts->suffix, sizeof tokenizer->suffix);
    tokenizer->prefix_count = parts->prefix_count;
    tokenizer->suffix_count = parts->suffix_count;
    if ((st = vocabulary_create(parts->tokens, parts->token_count, &tokenizer->vocabulary, err)) != STATUS_OK ||
        (st = bpe_create(tokenizer->vocabulary, parts->merges, parts->merge_count, parts->ignore_merges,
                         &tokenizer->bpe, err)) != STATUS_OK ||
        (st = create_table(tokenizer, parts, err)) != STATUS_OK ||
        (st = create_added_sets(tokenizer, parts, err)) != STATUS_OK)
        goto fail;
    if (parts->all_bytes && bpe_missing_byte(tokenizer->bpe) >= 0) {
        st = error_set(err, STATUS_UNSUPPORTED, "unk_token or byte_fallback, and no token for byte 0x%02x",
                       (unsigned)bpe_missing_byte(tokenizer->bpe));
        goto fail;
    }
    *ret = tokenizer;
    return STATUS_OK;
fail:
    tokenizer_close(tokenizer);
    return st;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    bpe_destroy(tokenizer->bpe);
    vocabulary_destroy(tokenizer->vocabulary);
    pretokenizer_destroy(tokenizer->pretokenizer);
    added_set_destroy(tokenizer->raw);
    added_set_destroy(tokenizer->normalized);
    free(tokenizer->pieces);
    free(tokenizer->piece_start);
    free(tokenizer->special);
    free(tokenizer);
}

uint32_t tokenizer_size(const struct tokenizer *tokenizer)
{
    return tokenizer->size;
}

const char *tokenizer_piece(const struct tokenizer *tokenizer, uint32_t id, bool skip_special, size_t *ret_length)
{
    *ret_length = 0;
    if (id >= tokenizer->size || (skip_special && tokenizer->special[id]))
        return "";
    *ret_length = tokenizer->piece_start[id + 1] - tokenizer->piece_start[id];
    return tokenizer->pieces + tokenizer->piece_start[id];
}

static enum status encode_words(struct encoding *encoding, const char *text, size_t length)
{
    struct piece_list words = {0};
    enum status st = pretokenizer_split(encoding->tokenizer->pretokenizer, text, length, encoding->deadline_ns, &words,
                                        encoding->err);

    for (size_t i = 0; st == STATUS_OK && i < words.count; i++)
        st = bpe_encode(encoding->tokenizer->bpe, &encoding->work, words.bytes + words.pieces[i].start,
                        words.pieces[i].end - words.pieces[i].start, encoding->ret, encoding->err);
    piece_list_done(&words);
    return st;
}

/* Cut text at a set's tokens and encode what lies between them by encode_plain. */
static enum status encode_between(struct encoding *encoding, const struct added_set *set, const char *text,
                                  size_t length, enum status (*encode_plain)(struct encoding *, const char *, size_t))
{
    struct added_walk walk = {0};
    struct added_match match;
    size_t plain = 0;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && added_set_next(set, &walk, text, length, &match)) {
        if (match.start > plain)
            st = encode_plain(encoding, text + plain, match.start - plain);
        if (st == STATUS_OK)
            st = token_list_add(encoding->ret, match.id, encoding->err);
        plain = walk.plain_from;
    }
    if (st == STATUS_OK && plain < length)
        st = encode_plain(encoding, text + plain, length - plain);
    return st;
}

static enum status encode_plain_text(struct encoding *encoding, const char *text, size_t length)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    char *normal = NULL;
    enum status st = STATUS_OK;

    if (tokenizer->nfc && !is_ascii(text, length)) {
        if ((st = normalize(text, length, &normal, &length, encoding->err)) != STATUS_OK)
            return st;
        text = normal;
    }
    st = encode_between(encoding, tokenizer->normalized, text, length, encode_words);
    free(normal);
    return st;
}

/* Whether the ids from first on begin with the prefix. */
static bool has_prefix(const struct tokenizer *tokenizer, const struct token_list *list, size_t first)
{
    size_t count = tokenizer->prefix_count;

    return list->count - first >= count && memcmp(list->ids + first, tokenizer->prefix, count * sizeof *list->ids) == 0;
}

static enum status add_around(const struct tokenizer *tokenizer, size_t first, struct token_list *ret,
                              struct error *err)
{
    size_t count = tokenizer->prefix_count;
    enum status st = STATUS_OK;

    if (count && !has_prefix(tokenizer, ret, first)) {
        for (size_t i = 0; st == STATUS_OK && i < count; i++)
            st = token_list_add(ret, 0, err);
        if (st == STATUS_OK) {
            memmove(ret->ids + first + count, ret->ids + first, (ret->count - first - count) * sizeof *ret->ids);
            memcpy(ret->ids + first, tokenizer->prefix, count * sizeof *ret->ids);
        }
    }
    for (size_t i = 0; st == STATUS_OK && i < tokenizer->suffix_count; i++)
        st = token_list_add(ret, tokenizer->suffix[i], err);
    return st;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, bool add_special,
                             struct token_list *ret, struct error *err)
{
    /* Generous for every real pattern, and an end for every other. */
    uint64_t deadline_ns = clock_ns() + 20 * NS_PER_S + (uint64_t)length * 10 * NS_PER_US;
    struct encoding encoding = {.tokenizer = tokenizer, .deadline_ns = deadline_ns, .ret = ret, .err = err};
    size_t first = ret->count;
    size_t wrong = utf8_check(text, length);
    enum status st;

    if (wrong < length)
        return error_set(err, STATUS_MODEL, "the text is not UTF-8: byte 0x%02x at offset %zu",
                         (unsigned char)text[wrong], wrong);
    st = encode_between(&encoding, tokenizer->raw, text, length, encode_plain_text);
    if (st == STATUS_OK && add_special)
        st = add_around(tokenizer, first, ret, err);
    bpe_work_done(&encoding.work);
    if (st != STATUS_OK)
        ret->count = first;
    return st;
}
