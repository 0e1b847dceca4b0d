/* Errors are noted where they are found, sorted by place when they are written, and shown with their line and a caret.
 * Lines and columns count as libyaml counts them: characters, and the line breaks of YAML 1.1 (LF, CR, CRLF, NEL, LS,
 * PS), so that a position of the parser can be found again in the text. */
#include "topology/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_COLUMNS = 100, SHOWN_BEFORE = 60, SHOWN_OVERRIDE = 60 };

/* --------------------------------------------------------------------------------------------- characters, lines */

size_t source_break_bytes(const char *p, const char *end)
{
    const unsigned char *u = (const unsigned char *)p;
    size_t left = (size_t)(end - p);

    if (left >= 1 && u[0] == '\n')
        return 1;
    if (left >= 1 && u[0] == '\r')
        return left >= 2 && u[1] == '\n' ? 2 : 1;
    if (left >= 2 && u[0] == 0xc2 && u[1] == 0x85)
        return 2;
    if (left >= 3 && u[0] == 0xe2 && u[1] == 0x80 && (u[2] == 0xa8 || u[2] == 0xa9))
        return 3;
    return 0;
}

static size_t character_bytes(const char *p, const char *end)
{
    unsigned char lead = (unsigned char)*p;
    size_t bytes = lead < 0x80                   ? 1
                   : lead >= 0xc2 && lead < 0xe0 ? 2
                   : lead >= 0xe0 && lead < 0xf0 ? 3
                   : lead >= 0xf0 && lead < 0xf5 ? 4
                                                 : 0;
    if (bytes > (size_t)(end - p))
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if (((unsigned char)p[i] & 0xc0) != 0x80)
            return 0;
    }
    return bytes;
}

const char *source_next_character(const char *p, const char *end)
{
    size_t bytes = character_bytes(p, end);

    return p + (bytes ? bytes : 1);
}

const char *source_locate(const struct topology_source *source, uint32_t line, uint32_t column)
{
    const char *p = source->bytes;
    const char *end = p + source->byte_count;

    for (uint32_t at = 1; at < line && p < end;) {
        size_t bytes = source_break_bytes(p, end);

        at += bytes > 0;
        p += bytes ? bytes : 1;
    }
    for (uint32_t at = 1; at < column && p < end && !source_break_bytes(p, end); at++)
        p = source_next_character(p, end);
    return p;
}

struct topology_position source_position(const struct topology_source *source, size_t offset)
{
    const char *p = source->bytes;
    const char *end = p + source->byte_count;
    const char *stop = p + (offset < source->byte_count ? offset : source->byte_count);
    struct topology_position at = {.line = 1, .column = 1};

    while (p < stop) {
        size_t bytes = source_break_bytes(p, end);

        if (bytes) {
            at.line++;
            at.column = 1;
            p += bytes;
        } else {
            at.column++;
            p = source_next_character(p, end);
        }
    }
    return at;
}

void source_show(struct text *text, const char *bytes, size_t count, size_t limit)
{
    const char *p = bytes;
    const char *end = bytes + count;

    for (size_t shown = 0; p < end; shown++) {
        size_t length = character_bytes(p, end);
        bool control = (unsigned char)*p < 0x20 || *p == 0x7f ||
                       (length == 2 && (unsigned char)p[0] == 0xc2 && (unsigned char)p[1] < 0xa0);
        if (shown == limit) {
            text_add(text, "...");
            return;
        }
        if (*p == '\t')
            text_add(text, " ");
        else if (!length || control)
            text_add(text, "?");
        else
            text_add_bytes(text, p, length);
        p += length ? length : 1;
    }
}

/* ----------------------------------------------------------------------------------------------------- life */

struct topology_source *source_create(const char *name, const char *bytes, size_t byte_count,
                                      const char *const *overrides, size_t override_count)
{
    struct topology_source *source = calloc(1, sizeof *source);
    const char **copy;

    if (!source)
        return NULL;
    source->name = arena_text(&source->arena, name, strlen(name));
    source->bytes = arena_text(&source->arena, bytes, byte_count);
    source->byte_count = byte_count;
    copy = arena_take(&source->arena, override_count, sizeof *copy);
    for (size_t i = 0; copy && i < override_count; i++)
        copy[i] = arena_text(&source->arena, overrides[i], strlen(overrides[i]));
    source->override = copy;
    source->override_count = override_count;
    if (source->arena.failed) {
        source_destroy(source);
        return NULL;
    }
    return source;
}

void source_destroy(struct topology_source *source)
{
    if (!source)
        return;
    arena_done(&source->arena);
    free(source);
}

/* --------------------------------------------------------------------------------------------------- errors */

static int compare_complaints(const void *a, const void *b)
{
    const struct complaint *left = a;
    const struct complaint *right = b;

    if (left->at.source != right->at.source)
        return left->at.source < right->at.source ? -1 : 1;
    if (left->at.line != right->at.line)
        return left->at.line < right->at.line ? -1 : 1;
    if (left->at.column != right->at.column)
        return left->at.column < right->at.column ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

static void sort_complaints(struct topology_source *source)
{
    qsort(source->complaint, source->complaint_count, sizeof *source->complaint, compare_complaints);
}

/* When the table is full its first half by place is kept, and whatever comes after that half is only counted: the
 * errors that a report shows are the first of all, in whichever order they were found. */
static bool worth_keeping(struct topology_source *source, const struct complaint *complaint)
{
    size_t half = SOURCE_MAX_COMPLAINTS / 2;

    if (source->complaint_more && compare_complaints(complaint, &source->complaint[half - 1]) > 0)
        return false;
    if (source->complaint_count == SOURCE_MAX_COMPLAINTS) {
        sort_complaints(source);
        source->complaint_count = half;
        source->complaint_more += SOURCE_MAX_COMPLAINTS - half;
        return compare_complaints(complaint, &source->complaint[half - 1]) < 0;
    }
    return true;
}

void source_error_list(struct topology_source *source, struct topology_position at, const char *format, va_list args)
{
    struct complaint complaint = {.at = at, .order = source->complaint_order++};
    char text[1024];

    if (!worth_keeping(source, &complaint)) {
        source->complaint_more++;
        return;
    }
    (void)vsnprintf(text, sizeof text, format, args);
    complaint.text = arena_text(&source->arena, text, strlen(text));
    source->complaint[source->complaint_count++] = complaint;
}

void source_error(struct topology_source *source, struct topology_position at, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    source_error_list(source, at, format, args);
    va_end(args);
}

bool source_has_room(const struct topology_source *source)
{
    return source->complaint_count < SOURCE_MAX_SUGGESTIONS;
}

static void show_override(const struct topology_source *source, uint32_t number, struct text *text)
{
    const char *override = source->override[number - 1];

    text_add(text, "--set ");
    source_show(text, override, strlen(override), SHOWN_OVERRIDE);
}

void source_describe(const struct topology_source *source, struct topology_position at, struct text *text)
{
    if (at.source)
        show_override(source, at.source, text);
    else
        text_add(text, "line %u", at.line);
}

/* The line with a caret below the column; of a long line the part around the column, of an empty one nothing. */
static void write_line(const char *line, const char *end, uint32_t column, struct text *text)
{
    const char *from = line;
    const char *stop = line;
    uint32_t skipped = 0;

    while (stop < end && !source_break_bytes(stop, end))
        stop = source_next_character(stop, end);
    if (stop == line)
        return;
    for (; column > SHOWN_COLUMNS && skipped + SHOWN_BEFORE < column; skipped++)
        from = source_next_character(from, stop);
    text_add(text, "  %s", skipped ? "..." : "");
    source_show(text, from, (size_t)(stop - from), SHOWN_COLUMNS + SHOWN_BEFORE);
    text_add(text, "\n  %s%*s^\n", skipped ? "   " : "", (int)(column - 1 - skipped), "");
}

static void write_complaint(const struct topology_source *source, const struct complaint *complaint, struct text *text)
{
    struct topology_position at = complaint->at;
    const char *said = complaint->text ? complaint->text : "(out of memory)";

    if (at.source) {
        const char *override = source->override[at.source - 1];

        show_override(source, at.source, text);
        text_add(text, ": error: %s\n", said);
        write_line(override, override + strlen(override), at.column, text);
    } else if (at.line) {
        text_add(text, "%s:%u:%u: error: %s\n", source->name, at.line, at.column, said);
        write_line(source_locate(source, at.line, 1), source->bytes + source->byte_count, at.column, text);
    } else {
        text_add(text, "%s: error: %s\n", source->name, said);
    }
}

enum status source_report(struct topology_source *source, struct text *messages, struct error *err)
{
    size_t total = source->complaint_count + source->complaint_more;
    size_t shown = source->complaint_count < TOPOLOGY_MAX_ERRORS ? source->complaint_count : TOPOLOGY_MAX_ERRORS;
    struct text first = {0};

    if (!total)
        return STATUS_OK;
    sort_complaints(source);
    for (size_t i = 0; messages && i < shown; i++)
        write_complaint(source, &source->complaint[i], messages);
    if (messages && total > shown)
        text_add(messages, "%s: %zu more errors are not shown\n", source->name, total - shown);
    write_complaint(source, &source->complaint[0], &first);
    if (messages)
        error_set(err, STATUS_TOPOLOGY, "%s: %zu error%s", source->name, total, total == 1 ? "" : "s");
    else
        error_set(err, STATUS_TOPOLOGY, "%.*s", (int)strcspn(text_string(&first), "\n"), text_string(&first));
    text_done(&first);
    return STATUS_TOPOLOGY;
}
