/* The topology as sorted lines: the struct is walked by the table, so that a key cannot be forgotten. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "topology/keys.h"
#include "topology/reader.h"
#include "topology/topology.h"
#include "topology/value.h"

struct lines {
    struct text bytes; /* every line, terminated */
    struct text path;  /* of the key in hand */
};

static void write_keys(struct lines *lines, const struct key_section *section, const char *base);

/* Bytes as they are, but one line: backslash, quote and control bytes escaped. */
static void write_string(struct text *text, const struct topology_string *string)
{
    text_add(text, "\"");
    for (const char *p = string->value ? string->value : ""; *p; p++) {
        if (*p == '"' || *p == '\\')
            text_add(text, "\\%c", *p);
        else if ((unsigned char)*p < 0x20 || *p == 0x7f)
            text_add(text, "\\x%02x", (unsigned)(unsigned char)*p);
        else
            text_add_bytes(text, p, 1);
    }
    text_add(text, "\"");
}

static void write_range(struct text *text, uint64_t low, uint64_t high)
{
    text_add(text, low == high ? "%" PRIu64 : "%" PRIu64 "..%" PRIu64, low, high);
}

static void write_number(struct text *text, const struct key *key, const struct topology_number *number)
{
    if (number->automatic)
        text_add(text, "auto");
    else if (key->type == KEY_DURATION)
        value_write_duration(text, number->value);
    else if (key->type == KEY_SIZE)
        value_write_size(text, number->value);
    else
        text_add(text, "%" PRIu64, number->value);
}

static void write_mask(struct text *text, const struct key_words *words, uint32_t mask)
{
    const char *separator = "";

    text_add(text, "[");
    for (size_t i = 0; i < words->count; i++) {
        if (!(mask & 1u << i))
            continue;
        text_add(text, "%s%s", separator, words->word[i]);
        separator = ",";
    }
    text_add(text, "]");
}

/* Lists of plain values stand on one line. */
static void write_items(struct text *text, const struct key *key, const struct reader_list *list)
{
    text_add(text, "[");
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            text_add(text, ",");
        if (key->type == KEY_RANKS)
            text_add(text, "%u", ((const struct topology_rank *)list->item)[i].value);
        else if (key->type == KEY_NUMBERS)
            write_number(text, key, &((const struct topology_number *)list->item)[i]);
        else
            write_string(text, &((const struct topology_string *)list->item)[i]);
    }
    text_add(text, "]");
}

static void write_shape(struct text *text, const struct topology_shape *shape)
{
    text_add(text, "[");
    for (size_t i = 0; i < shape->count; i++) {
        text_add(text, i ? "," : "");
        if (shape->item[i].extent >= 0)
            text_add(text, "%s", shape->item[i].name.value);
        else
            write_range(text, shape->item[i].low, shape->item[i].high);
    }
    text_add(text, "]");
}

static void write_axes(struct text *text, const enum topology_axis *axis)
{
    for (int i = 0; i < TOPOLOGY_AXIS_COUNT; i++)
        text_add(text, "%s%s", i ? "," : "[", topology_axis_name(axis[i]));
    text_add(text, "]");
}

static void cut_path(struct lines *lines, size_t length)
{
    lines->path.length = length;
    if (lines->path.bytes)
        lines->path.bytes[length] = '\0';
}

static void start_line(struct lines *lines)
{
    text_add(&lines->bytes, "%s=", text_string(&lines->path));
}

static void end_line(struct lines *lines)
{
    text_add_bytes(&lines->bytes, "", 1);
}

static void write_pairs(struct lines *lines, const struct topology_pairs *pairs)
{
    for (size_t i = 0; i < pairs->count; i++) {
        text_add(&lines->bytes, "%s.%s=", text_string(&lines->path), pairs->item[i].name.value);
        write_string(&lines->bytes, &pairs->item[i].value);
        end_line(lines);
    }
}

static void write_extents(struct lines *lines, const struct topology_extents *extents)
{
    for (size_t i = 0; i < extents->count; i++) {
        text_add(&lines->bytes, "%s.%s=", text_string(&lines->path), extents->item[i].name.value);
        write_range(&lines->bytes, extents->item[i].low, extents->item[i].high);
        end_line(lines);
    }
}

static void write_item_sections(struct lines *lines, const struct key *key, const struct reader_list *list)
{
    size_t length = lines->path.length;

    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->item + i * key->section->bytes;

        text_add(&lines->path, "[%zu]", i);
        write_keys(lines, key->section, item);
        cut_path(lines, length);
    }
}

/* Whether a key has something to say: it was given or it has a default. */
static bool present(const struct key *key, struct topology_position at)
{
    return at.line || key->initial;
}

/* Keys whose value stands on one line; false: the key is absent. */
static bool write_scalar(struct text *text, const struct key *key, const void *field)
{
    const struct topology_number *number = field;
    const struct topology_real *real = field;
    const struct topology_flag *flag = field;
    const struct topology_word *word = field;
    const struct topology_mask *mask = field;
    const struct topology_string *string = field;

    switch (key->type) {
    case KEY_NUMBER:
    case KEY_DURATION:
    case KEY_SIZE:
        write_number(text, key, number);
        return present(key, number->at);
    case KEY_REAL:
        text_add(text, "%.17g", real->value);
        return true;
    case KEY_FLAG:
        text_add(text, flag->value ? "true" : "false");
        return true;
    case KEY_WORD:
        text_add(text, "%s", key->words->word[word->value]);
        return true;
    case KEY_MASK:
        write_mask(text, key->words, mask->value);
        return true;
    case KEY_AXES:
        write_axes(text, field);
        return true;
    case KEY_RANK:
        text_add(text, "%u", *(const uint32_t *)field);
        return true;
    case KEY_TEXT:
        write_string(text, string);
        return string->value != NULL;
    case KEY_SHAPE:
        write_shape(text, field);
        return true;
    default:
        write_items(text, key, field);
        return ((const struct reader_list *)field)->at.line != 0;
    }
}

/* A workload that is absent says nothing, not even its defaults; every other section always stands. */
static void write_section(struct lines *lines, const struct key *key, const char *base)
{
    const struct key *shorthand = key->section->shorthand;
    const struct topology_position *at = (const void *)(base + key->section->at_offset);

    if ((key->flags & KEY_OPTIONAL) && !at->line)
        return;

    if (shorthand) {
        start_line(lines);
        (void)write_scalar(&lines->bytes, shorthand, base + shorthand->offset);
        end_line(lines);
    } else {
        write_keys(lines, key->section, base);
    }
}

static void write_key(struct lines *lines, const struct key *key, const char *base)
{
    const void *field = base + key->offset;
    size_t start = lines->bytes.length;

    if (key->flags & KEY_DERIVED)
        return;
    switch (key->type) {
    case KEY_PAIRS:
        write_pairs(lines, field);
        return;
    case KEY_EXTENTS:
        write_extents(lines, field);
        return;
    case KEY_ITEMS:
        write_item_sections(lines, key, field);
        return;
    case KEY_SECTION:
        write_section(lines, key, base + key->offset);
        return;
    case KEY_OPEN:
        return;
    default:
        start_line(lines);
        if (write_scalar(&lines->bytes, key, field))
            end_line(lines);
        else
            lines->bytes.length = start;
        return;
    }
}

/* A prompt is written by its text where it has one, by its keys otherwise. */
static bool write_shorthand(struct lines *lines, const struct key *shorthand, const char *base)
{
    const struct topology_string *string;

    if (!shorthand || shorthand->type != KEY_TEXT)
        return false;
    string = (const void *)(base + shorthand->offset);
    if (!string->value)
        return false;
    start_line(lines);
    write_string(&lines->bytes, string);
    end_line(lines);
    return true;
}

static void write_keys(struct lines *lines, const struct key_section *section, const char *base)
{
    size_t length = lines->path.length;

    if (write_shorthand(lines, section->shorthand, base))
        return;
    for (size_t i = 0; i < section->count; i++) {
        text_add(&lines->path, "%s%s", length ? "." : "", section->key[i].name);
        write_key(lines, &section->key[i], base);
        cut_path(lines, length);
    }
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void write_sorted(const struct text *lines, struct text *text)
{
    size_t count = 0;
    const char **line;

    for (size_t i = 0; i < lines->length; i++)
        count += !lines->bytes[i];
    line = calloc(count ? count : 1, sizeof *line);
    if (!line || lines->failed) {
        free(line);
        text->failed = true;
        return;
    }
    for (size_t i = 0, start = 0; i < count; i++) {
        line[i] = lines->bytes + start;
        start += strlen(line[i]) + 1;
    }
    qsort(line, count, sizeof *line, compare_lines);
    for (size_t i = 0; i < count; i++)
        text_add(text, "%s\n", line[i]);
    free(line);
}

void topology_canonical(const struct topology *topology, struct text *text)
{
    struct lines lines = {0};

    write_keys(&lines, &keys_root, (const char *)topology);
    text_add(&lines.bytes, "world=%u", topology->world_size);
    end_line(&lines);
    if (lines.path.failed)
        lines.bytes.failed = true;
    write_sorted(&lines.bytes, text);
    text_done(&lines.bytes);
    text_done(&lines.path);
}

bool topology_canonical_next(const char **cursor, const char **key, size_t *key_length, const char **value,
                             size_t *value_length)
{
    const char *line = *cursor;
    size_t length = strcspn(line, "\n");
    const char *sign = memchr(line, '=', length);

    if (!sign)
        return false;
    *key = line;
    *key_length = (size_t)(sign - line);
    *value = sign + 1;
    *value_length = length - *key_length - 1;
    *cursor = line + length + (line[length] == '\n');
    return true;
}
