/* The strings lie sorted, so those that agree with the text so far are one range, which each further byte narrows by
 * two binary searches; a table of first bytes skips most of the text.  Cost: the text's length times the longest string
 * that agrees with it, in practice a few bytes. */
#include "runtime/tokenizer_added.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "runtime/utf8.h"

struct added_set {
    struct added_token *tokens; /* sorted by content */
    size_t count;
    char *bytes;
    bool first[256];
};

static int compare_strings(const struct token_string *a, const struct token_string *b)
{
    size_t common = a->length < b->length ? a->length : b->length;
    int order = common ? memcmp(a->bytes, b->bytes, common) : 0;

    return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* Equal strings keep the order of the file, which bytes (laid out in that order) tells. */
static int compare_tokens(const void *a, const void *b)
{
    const struct added_token *left = a;
    const struct added_token *right = b;
    int order = compare_strings(&left->content, &right->content);

    return order ? order : (left->content.bytes > right->content.bytes) - (left->content.bytes < right->content.bytes);
}

static enum status copy_tokens(struct added_set *set, const struct added_token *tokens, size_t count, struct error *err)
{
    size_t total = 0;

    for (size_t i = 0; i < count; i++) {
        if (tokens[i].content.length > ADDED_TOKEN_MAX_BYTES)
            return error_set(err, STATUS_UNSUPPORTED, "added token %u has %zu bytes, more than %d", tokens[i].id,
                             tokens[i].content.length, ADDED_TOKEN_MAX_BYTES);
        total += tokens[i].content.length; /* count is below 2^24, so this is below 2^36 */
    }
    set->tokens = calloc(count + 1, sizeof *set->tokens);
    set->bytes = malloc(total + 1);
    if (!set->tokens || !set->bytes)
        return error_set(err, STATUS_NOMEM, "%zu added tokens", count);
    total = 0;
    for (size_t i = 0; i < count; i++) {
        struct added_token *token = &set->tokens[set->count];

        if (!tokens[i].content.length)
            continue; /* would be found everywhere */
        *token = tokens[i];
        token->content.bytes = memcpy(set->bytes + total, tokens[i].content.bytes, token->content.length);
        total += token->content.length;
        set->first[(unsigned char)token->content.bytes[0]] = true;
        set->count++;
    }
    return STATUS_OK;
}

enum status added_set_create(const struct added_token *tokens, size_t count, struct added_set **ret, struct error *err)
{
    struct added_set *set = calloc(1, sizeof *set);
    enum status st;

    if (!set)
        return error_set(err, STATUS_NOMEM, "added tokens");
    if ((st = copy_tokens(set, tokens, count, err)) != STATUS_OK) {
        added_set_destroy(set);
        return st;
    }
    qsort(set->tokens, set->count, sizeof *set->tokens, compare_tokens);
    *ret = set;
    return STATUS_OK;
}

void added_set_destroy(struct added_set *set)
{
    if (!set)
        return;
    free(set->tokens);
    free(set->bytes);
    free(set);
}

/* The first token of [low, high) whose byte at depth is above byte (above) or at least byte; all agree up to depth. */
static size_t bound(const struct added_set *set, size_t low, size_t high, size_t depth, unsigned char byte, bool above)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct token_string *content = &set->tokens[middle].content;
        int value = depth < content->length ? (unsigned char)content->bytes[depth] : -1;

        if (above ? value <= byte : value < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that text begins with, or NULL. */
static const struct added_token *match_at(const struct added_set *set, const char *text, size_t length)
{
    const struct added_token *found = NULL;
    size_t low = 0;
    size_t high = set->count;

    for (size_t depth = 0; depth < length && low < high; depth++) {
        unsigned char byte = (unsigned char)text[depth];

        low = bound(set, low, high, depth, byte, false);
        high = bound(set, low, high, depth, byte, true);
        /* The shortest of a range that agrees comes first. */
        if (low < high && set->tokens[low].content.length == depth + 1)
            found = &set->tokens[low];
    }
    return found;
}

/* Letters, marks, decimal and letter numbers, connectors, the two joiners, and the symbols that count as alphabetic. */
static bool is_word(uint32_t code)
{
    if (code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
        (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
        (code >= 0x1f170 && code <= 0x1f189))
        return true;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

/* The begin of the character that ends at end (above 0), and its code. */
static size_t step_back(const char *text, size_t end, uint32_t *ret)
{
    size_t begin = end - 1;

    while (begin && ((unsigned char)text[begin] & 0xc0) == 0x80)
        begin--;
    if (!utf8_read(text + begin, end - begin, ret))
        *ret = 0;
    return begin;
}

static bool stands_alone(const char *text, size_t length, size_t start, size_t end)
{
    uint32_t before = 0;
    uint32_t after = 0;

    if (start)
        step_back(text, start, &before);
    if (end < length)
        utf8_read(text + end, length - end, &after);
    return !is_word(before) && !is_word(after);
}

static size_t strip_before(const char *text, size_t floor, size_t start)
{
    uint32_t code = 0;

    while (start > floor) {
        size_t begin = step_back(text, start, &code);

        if (!utf8_is_space(code))
            break;
        start = begin;
    }
    return start;
}

static size_t strip_after(const char *text, size_t length, size_t end)
{
    uint32_t code = 0;
    unsigned count;

    while (end < length && (count = utf8_read(text + end, length - end, &code)) && utf8_is_space(code))
        end += count;
    return end;
}

bool added_set_next(const struct added_set *set, struct added_walk *walk, const char *text, size_t length,
                    struct added_match *ret)
{
    if (!set->count)
        return false;
    for (size_t at = walk->search_from; at < length; at++) {
        const struct added_token *token = NULL;

        if (set->first[(unsigned char)text[at]])
            token = match_at(set, text + at, length - at);
        if (!token)
            continue;

        size_t start = at;
        size_t end = at + token->content.length;

        walk->search_from = end;
        at = end - 1;
        if (token->single_word && !stands_alone(text, length, start, end))
            continue;
        if (token->lstrip)
            start = strip_before(text, walk->plain_from, start);
        /* Inside blanks that the token before took: they end where they ended for it. */
        if (token->rstrip)
            end = end < walk->plain_from ? walk->plain_from : strip_after(text, length, end);
        *ret = (struct added_match){.id = token->id, .start = start};
        walk->plain_from = end;
        return true;
    }
    return false;
}
