/* The steps of one text share one list of pieces: each step reads the list that the step before it wrote.  A piece is
 * cut in two moves: its spans (matches and the gaps between them, in order), then the rule of the step's behaviour
 * folds spans to pieces.  Empty pieces are dropped.  Linear in the text for patterns that are. */
#include "runtime/pretokenize.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "runtime/pretokenize_pattern.h"
#include "runtime/utf8.h"

enum { MAX_STEPS = 64 };

struct step {
    struct pattern *pattern; /* NULL: the prefix blank */
    enum split_behavior behavior;
    bool invert;
};

struct pretokenizer {
    struct step steps[MAX_STEPS];
    size_t count;
};

struct span {
    struct piece range;
    bool match;
};

/* Memory that the pieces of one call share. */
struct cutter {
    struct pattern_search *search;
    struct span *spans;
    size_t count;
    size_t capacity;
};

enum status pretokenizer_create(struct pretokenizer **ret, struct error *err)
{
    struct pretokenizer *pretokenizer = calloc(1, sizeof *pretokenizer);

    if (!pretokenizer)
        return error_set(err, STATUS_NOMEM, "a pre-tokenizer");
    *ret = pretokenizer;
    return STATUS_OK;
}

void pretokenizer_destroy(struct pretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    for (size_t i = 0; i < pretokenizer->count; i++)
        pattern_destroy(pretokenizer->steps[i].pattern);
    free(pretokenizer);
}

static enum status add_step(struct pretokenizer *pretokenizer, struct step step, struct error *err)
{
    if (pretokenizer->count == MAX_STEPS) {
        pattern_destroy(step.pattern);
        return error_set(err, STATUS_UNSUPPORTED, "more than %d steps", MAX_STEPS);
    }
    pretokenizer->steps[pretokenizer->count++] = step;
    return STATUS_OK;
}

enum status pretokenizer_add_split(struct pretokenizer *pretokenizer, const char *pattern, size_t length, bool literal,
                                   enum split_behavior behavior, bool invert, struct error *err)
{
    struct step step = {.behavior = behavior, .invert = invert};
    enum status st = pattern_create(pattern, length, literal, &step.pattern, err);

    return st == STATUS_OK ? add_step(pretokenizer, step, err) : st;
}

enum status pretokenizer_add_prefix_space(struct pretokenizer *pretokenizer, struct error *err)
{
    return add_step(pretokenizer, (struct step){0}, err);
}

void piece_list_done(struct piece_list *list)
{
    free(list->pieces);
    free(list->own);
    *list = (struct piece_list){0};
}

/* Room for one more element of bytes each. */
static enum status grow(void **memory, size_t count, size_t *capacity, size_t bytes, struct error *err)
{
    size_t more = *capacity ? *capacity : 16;
    size_t total;
    void *grown;

    if (count < *capacity)
        return STATUS_OK;
    if (size_add(more, *capacity, &more) != STATUS_OK || size_mul(more, bytes, &total) != STATUS_OK ||
        !(grown = realloc(*memory, total)))
        return error_set(err, STATUS_NOMEM, "%zu pieces of text", count);
    *memory = grown;
    *capacity = more;
    return STATUS_OK;
}

static enum status add_piece(struct piece_list *list, struct piece piece, struct error *err)
{
    void *memory = list->pieces;
    enum status st;

    if (piece.start == piece.end)
        return STATUS_OK;
    st = grow(&memory, list->count, &list->capacity, sizeof *list->pieces, err);
    list->pieces = memory;
    if (st == STATUS_OK)
        list->pieces[list->count++] = piece;
    return st;
}

static enum status add_span(struct cutter *cutter, size_t start, size_t end, bool match, struct error *err)
{
    void *memory = cutter->spans;
    enum status st = grow(&memory, cutter->count, &cutter->capacity, sizeof *cutter->spans, err);

    cutter->spans = memory;
    if (st == STATUS_OK)
        cutter->spans[cutter->count++] = (struct span){{start, end}, match};
    return st;
}

/* The spans of one piece.  An empty match right behind a match does not count, and the search goes on one character
 * later; other empty matches cut. */
static enum status find_spans(const struct step *step, struct cutter *cutter, const char *text, struct piece piece,
                              struct error *err)
{
    const char *base = text + piece.start;
    size_t length = piece.end - piece.start;
    struct pattern_match match = {0};
    size_t done = 0;
    bool any = false;
    enum status st = STATUS_OK;
    uint32_t code;

    cutter->count = 0;
    for (size_t from = 0; st == STATUS_OK && from <= length;) {
        if ((st = pattern_find(step->pattern, cutter->search, base, length, from, &match, err)) != STATUS_OK)
            return st;
        if (!match.found)
            break;
        if (match.end == match.start && any && match.end == done) {
            from += from < length ? utf8_read(base + from, length - from, &code) : 1;
            continue;
        }
        if (done != match.start)
            st = add_span(cutter, piece.start + done, piece.start + match.start, step->invert, err);
        if (st == STATUS_OK)
            st = add_span(cutter, piece.start + match.start, piece.start + match.end, !step->invert, err);
        done = from = match.end;
        any = true;
    }
    if (st == STATUS_OK && done != length)
        st = add_span(cutter, piece.start + done, piece.end, step->invert, err);
    return st;
}

/* Whether span i starts a piece of its own, rather than joining the one before it. */
static bool starts_piece(const struct cutter *cutter, size_t i, enum split_behavior behavior)
{
    const struct span *spans = cutter->spans;

    switch (behavior) {
    case SPLIT_CONTIGUOUS:
        return spans[i].match != spans[i - 1].match;
    case SPLIT_MERGED_WITH_PREVIOUS:
        return !spans[i].match || spans[i - 1].match;
    case SPLIT_MERGED_WITH_NEXT:
        return !spans[i - 1].match || spans[i].match;
    default:
        return true;
    }
}

static enum status fold_spans(const struct cutter *cutter, enum split_behavior behavior, struct piece_list *ret,
                              struct error *err)
{
    struct piece open = {0};
    enum status st = STATUS_OK;

    for (size_t i = 0; st == STATUS_OK && i < cutter->count; i++) {
        const struct span *span = &cutter->spans[i];

        if (behavior == SPLIT_REMOVED && span->match)
            continue;
        if (i && behavior != SPLIT_REMOVED && !starts_piece(cutter, i, behavior)) {
            open.end = span->range.end;
            continue;
        }
        st = add_piece(ret, open, err);
        open = span->range;
    }
    return st == STATUS_OK ? add_piece(ret, open, err) : st;
}

static enum status run_split(const struct step *step, struct cutter *cutter, struct piece_list *list, struct error *err)
{
    struct piece_list cut = {.bytes = list->bytes};
    enum status st = STATUS_OK;

    for (size_t i = 0; st == STATUS_OK && i < list->count; i++) {
        st = find_spans(step, cutter, list->bytes, list->pieces[i], err);
        if (st == STATUS_OK)
            st = fold_spans(cutter, step->behavior, &cut, err);
    }
    if (st != STATUS_OK) {
        piece_list_done(&cut);
        return st;
    }
    free(list->pieces);
    list->pieces = cut.pieces;
    list->count = cut.count;
    list->capacity = cut.capacity;
    return STATUS_OK;
}

/* The pieces are laid out anew, one after the other, with their blanks. */
static enum status run_prefix_space(struct piece_list *list, struct error *err)
{
    size_t total = 0;
    char *bytes;

    for (size_t i = 0; i < list->count; i++)
        total += list->pieces[i].end - list->pieces[i].start + 1; /* pieces do not overlap: at most twice the text */
    if (!(bytes = malloc(total + 1)))
        return error_set(err, STATUS_NOMEM, "%zu bytes of text", total);

    char *to = bytes;

    for (size_t i = 0; i < list->count; i++) {
        struct piece *piece = &list->pieces[i];
        const char *from = list->bytes + piece->start;
        size_t count = piece->end - piece->start;

        piece->start = (size_t)(to - bytes);
        if (*from != ' ')
            *to++ = ' ';
        memcpy(to, from, count);
        to += count;
        piece->end = (size_t)(to - bytes);
    }
    free(list->own);
    list->bytes = list->own = bytes;
    return STATUS_OK;
}

enum status pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t length,
                               uint64_t deadline_ns, struct piece_list *ret, struct error *err)
{
    struct cutter cutter = {0};
    enum status st;

    ret->bytes = text;
    ret->count = 0;
    st = add_piece(ret, (struct piece){0, length}, err);
    if (st == STATUS_OK)
        st = pattern_search_create(deadline_ns, &cutter.search, err);
    for (size_t i = 0; st == STATUS_OK && i < pretokenizer->count; i++) {
        const struct step *step = &pretokenizer->steps[i];

        st = step->pattern ? run_split(step, &cutter, ret, err) : run_prefix_space(ret, err);
    }
    pattern_search_destroy(cutter.search);
    free(cutter.spans);
    return st;
}
