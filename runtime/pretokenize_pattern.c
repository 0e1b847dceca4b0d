/* PCRE2 behind limits: each call may start at few enough offsets that even a search to the text's end from each of them
 * takes about WINDOW_WORK steps, and backtrack MATCH_LIMIT times; between calls the clock is read.  So no pattern on no
 * text runs for ever. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/pretokenize_pattern.h"

#include <pcre2.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"
#include "runtime/pretokenize_syntax.h"

enum {
    WINDOW_WORK = 64 << 20,
    MIN_WINDOW = 16,
    MAX_WINDOW = 4096,
    MATCH_LIMIT = 5 * 1000 * 1000,
    HEAP_LIMIT_KIB = 64 * 1024
};

struct pattern {
    pcre2_code *code;
    struct text source; /* as the file has it, for messages */
};

struct pattern_search {
    pcre2_match_data *match;
    pcre2_match_context *context;
    uint64_t deadline_ns;
};

static enum status compile(struct pattern *pattern, const struct text *rewritten, bool literal, struct error *err)
{
    uint32_t options = PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    PCRE2_SIZE offset = 0;
    PCRE2_UCHAR why[256] = "";
    int code = 0;

    if (!context)
        return error_set(err, STATUS_NOMEM, "pattern '%s'", text_string(&pattern->source));
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pattern->code =
        pcre2_compile((PCRE2_SPTR)text_string(rewritten), rewritten->length, options, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (!pattern->code) {
        pcre2_get_error_message(code, why, sizeof why);
        return error_set(err, STATUS_MODEL, "pattern '%.200s' does not compile: %s at offset %zu of '%.200s'",
                         text_string(&pattern->source), (const char *)why, (size_t)offset, text_string(rewritten));
    }
    /* Without JIT on this machine pcre2_match interprets: slower, the same result. */
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return STATUS_OK;
}

enum status pattern_create(const char *source, size_t length, bool literal, struct pattern **ret, struct error *err)
{
    struct pattern *pattern = calloc(1, sizeof *pattern);
    struct text rewritten = {0};
    enum status st = STATUS_OK;

    if (!pattern)
        return error_set(err, STATUS_NOMEM, "a pattern");
    text_add_bytes(&pattern->source, source, length);
    if (literal)
        text_add_bytes(&rewritten, source, length);
    else
        st = pattern_rewrite(source, length, &rewritten, err);
    if (st == STATUS_OK && (rewritten.failed || pattern->source.failed))
        st = error_set(err, STATUS_NOMEM, "a pattern of %zu bytes", length);
    if (st == STATUS_OK)
        st = compile(pattern, &rewritten, literal, err);
    text_done(&rewritten);
    if (st != STATUS_OK) {
        pattern_destroy(pattern);
        return st;
    }
    *ret = pattern;
    return STATUS_OK;
}

void pattern_destroy(struct pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    text_done(&pattern->source);
    free(pattern);
}

enum status pattern_search_create(uint64_t deadline_ns, struct pattern_search **ret, struct error *err)
{
    struct pattern_search *search = calloc(1, sizeof *search);

    if (search) {
        search->deadline_ns = deadline_ns;
        search->match = pcre2_match_data_create(1, NULL);
        search->context = pcre2_match_context_create(NULL);
    }
    if (!search || !search->match || !search->context) {
        pattern_search_destroy(search);
        return error_set(err, STATUS_NOMEM, "memory to split text");
    }
    pcre2_set_match_limit(search->context, MATCH_LIMIT);
    pcre2_set_heap_limit(search->context, HEAP_LIMIT_KIB);
    *ret = search;
    return STATUS_OK;
}

void pattern_search_destroy(struct pattern_search *search)
{
    if (!search)
        return;
    pcre2_match_data_free(search->match);
    pcre2_match_context_free(search->context);
    free(search);
}

/* One call of the engine: matches that start in [from, limit]. */
static int match_window(const struct pattern *pattern, struct pattern_search *search, const char *text, size_t length,
                        size_t from, size_t limit)
{
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc;

    pcre2_set_offset_limit(search->context, limit);
    rc = pcre2_match(pattern->code, (PCRE2_SPTR)text, length, from, options, search->match, search->context);
    /* JIT's own stack is small; the interpreter's frames are on the heap. */
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(pattern->code, (PCRE2_SPTR)text, length, from, options | PCRE2_NO_JIT, search->match,
                         search->context);
    return rc;
}

static enum status search_failed(const struct pattern *pattern, size_t from, const char *why, struct error *err)
{
    return error_set(err, STATUS_MODEL, "pattern '%.200s' at byte %zu of the text: %s", text_string(&pattern->source),
                     from, why);
}

enum status pattern_find(const struct pattern *pattern, struct pattern_search *search, const char *text, size_t length,
                         size_t from, struct pattern_match *ret, struct error *err)
{
    size_t window = WINDOW_WORK / (length + 1);

    window = window < MIN_WINDOW ? MIN_WINDOW : window > MAX_WINDOW ? MAX_WINDOW : window;
    for (;;) {
        if (clock_ns() > search->deadline_ns)
            return search_failed(pattern, from, "takes too long", err);

        size_t limit = length - from > window ? from + window : length;

        while (limit < length && ((unsigned char)text[limit] & 0xc0) == 0x80)
            limit++;

        int rc = match_window(pattern, search, text, length, from, limit);

        if (rc >= 0) {
            const PCRE2_SIZE *range = pcre2_get_ovector_pointer(search->match);

            *ret = (struct pattern_match){true, range[0], range[1]};
            /* \K in a lookahead may put the start behind the end; it was refused, so this cannot be. */
            CHECK(ret->start <= ret->end && ret->start >= from);
            return STATUS_OK;
        }
        if (rc == PCRE2_ERROR_NOMEMORY)
            return error_set(err, STATUS_NOMEM, "splitting %zu bytes of text", length);
        if (rc != PCRE2_ERROR_NOMATCH) {
            PCRE2_UCHAR why[256] = "";

            pcre2_get_error_message(rc, why, sizeof why);
            return search_failed(pattern, from, (const char *)why, err);
        }
        if (limit == length) {
            *ret = (struct pattern_match){0};
            return STATUS_OK;
        }
        from = limit;
    }
}
