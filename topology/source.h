/* The text that a topology was read from, and the errors found in it: what a message needs to point at a place. */
#ifndef TOPOLOGY_SOURCE_H
#define TOPOLOGY_SOURCE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "topology/arena.h"
#include "topology/topology.h"

/* Errors kept for one report; a hostile file may cause more, and they are counted. */
enum { SOURCE_MAX_COMPLAINTS = 1024, SOURCE_MAX_SUGGESTIONS = 64 };

struct complaint {
    struct topology_position at;
    uint32_t order; /* in which they were found: keeps the sort stable */
    const char *text;
};

struct topology_source {
    const char *name;
    const char *bytes; /* without a byte order mark, terminated */
    size_t byte_count;
    const char *const *override; /* "key.path=value" */
    size_t override_count;
    struct arena arena; /* holds all of it, the tree and the topology's values */
    struct complaint complaint[SOURCE_MAX_COMPLAINTS];
    size_t complaint_count;
    uint32_t complaint_order; /* of the next one */
    size_t complaint_more; /* counted, not kept */
};

/* Returns a source with copies of everything, NULL when memory is refused.  source_destroy accepts NULL. */
struct topology_source *source_create(const char *name, const char *bytes, size_t byte_count,
                                      const char *const *overrides, size_t override_count);
void source_destroy(struct topology_source *source);

/* Note an error at a place. */
void source_error(struct topology_source *source, struct topology_position at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void source_error_list(struct topology_source *source, struct topology_position at, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Whether one more error may still be among those that are shown: suggestions are looked up only then, so that a file
 * of nothing but mistakes costs no more than another. */
bool source_has_room(const struct topology_source *source);

/* "line 7" or "--set a=b". */
void source_describe(const struct topology_source *source, struct topology_position at, struct text *text);

/* See topology_report. */
enum status source_report(struct topology_source *source, struct text *messages, struct error *err);

/* The byte at this place of the file, or the end of the file.  Line breaks are those of YAML 1.1. */
const char *source_locate(const struct topology_source *source, uint32_t line, uint32_t column);

/* The place of a byte of the file. */
struct topology_position source_position(const struct topology_source *source, size_t offset);

/* Bytes of the line break at p, 0 when there is none. */
size_t source_break_bytes(const char *p, const char *end);

/* Append up to limit characters as a person may see them on a terminal: control bytes and broken UTF-8 become '?'. */
void source_show(struct text *text, const char *bytes, size_t count, size_t limit);

/* The start of the next character of well-formed UTF-8, or p + 1 where it is broken. */
const char *source_next_character(const char *p, const char *end);

#endif
