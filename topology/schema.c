/* share/topology.schema.json: JSON Schema (draft 7) for editors, from the table of keys.
 *
 * A schema knows less than the parser: it has no durations' ranges and no rule that ties two keys together. */
#include <inttypes.h>
#include <string.h>

#include "topology/keys.h"
#include "topology/topology.h"
#include "topology/value.h"

struct writer {
    struct text *text;
    int depth;
    bool first; /* no comma before the next member */
};

static void write_section(struct writer *writer, const struct key_section *section);

static void write_escaped(struct text *text, const char *string)
{
    text_add(text, "\"");
    for (const char *p = string; *p; p++)
        text_add(text, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    text_add(text, "\"");
}

static void member(struct writer *writer, const char *name)
{
    text_add(writer->text, "%s\n%*s", writer->first ? "" : ",", 2 * writer->depth, "");
    if (name) {
        write_escaped(writer->text, name);
        text_add(writer->text, ": ");
    }
    writer->first = false;
}

static void open_bracket(struct writer *writer, char bracket)
{
    text_add(writer->text, "%c", bracket);
    writer->depth++;
    writer->first = true;
}

static void close_bracket(struct writer *writer, char bracket)
{
    writer->depth--;
    text_add(writer->text, "\n%*s%c", 2 * writer->depth, "", bracket);
    writer->first = false;
}

static void write_string(struct writer *writer, const char *name, const char *value)
{
    member(writer, name);
    write_escaped(writer->text, value);
}

static void write_whole(struct writer *writer, const char *name, uint64_t value)
{
    member(writer, name);
    text_add(writer->text, "%" PRIu64, value);
}

static void write_words(struct writer *writer, const struct key_words *words)
{
    member(writer, "enum");
    text_add(writer->text, "[");
    value_write_words(writer->text, words, "\"");
    text_add(writer->text, "]");
}

static void write_bounds(struct writer *writer, const char *type, uint64_t low, uint64_t high)
{
    write_string(writer, "type", type);
    write_whole(writer, "minimum", low);
    write_whole(writer, "maximum", high);
}

static void write_number(struct writer *writer, const struct key *key)
{
    if (!(key->flags & KEY_AUTO)) {
        write_bounds(writer, "integer", key->low, key->high);
        return;
    }
    member(writer, "oneOf");
    open_bracket(writer, '[');
    member(writer, NULL);
    text_add(writer->text, "{\"const\": \"auto\"}");
    member(writer, NULL);
    open_bracket(writer, '{');
    write_bounds(writer, "integer", key->low, key->high);
    close_bracket(writer, '}');
    close_bracket(writer, ']');
}

/* Unquoted numbers are texts to the parser, so that an editor must not complain about time: 30. */
static void write_styled(struct writer *writer, enum key_style style)
{
    const struct key_style_rule *rule = &key_styles[style];
    struct text pattern = {0};

    member(writer, "type");
    text_add(writer->text, "[\"string\", \"number\", \"boolean\", \"null\"]");
    if (rule->first) {
        text_add(&pattern, "^[%s][%s]{0,%zu}$", rule->first, rule->rest, rule->max_characters - 1);
        write_string(writer, "pattern", text_string(&pattern));
    }
    text_done(&pattern);
}

static void write_pattern(struct writer *writer, const char *pattern)
{
    write_string(writer, "type", "string");
    write_string(writer, "pattern", pattern);
}

/* A range or a plain number; with a name: the name of an extent too. */
static void write_range(struct writer *writer, bool name)
{
    member(writer, "type");
    text_add(writer->text, "[\"string\", \"integer\"]");
    write_string(writer, "pattern",
                 name ? "^([0-9]+(\\.\\.[0-9]+)?|[A-Za-z_][A-Za-z0-9_.-]{0,62})$" : "^[0-9]+(\\.\\.[0-9]+)?$");
}

static void write_rank(struct writer *writer)
{
    write_bounds(writer, "integer", 0, TOPOLOGY_MAX_RANKS - 1);
}

static void write_scalar(struct writer *writer, const struct key *key)
{
    switch (key->type) {
    case KEY_NUMBER:
    case KEY_NUMBERS:
        write_number(writer, key);
        break;
    case KEY_DURATION:
        write_pattern(writer, "^[0-9]+(ms|s|m|h)$");
        break;
    case KEY_SIZE:
        write_pattern(writer, "^[0-9]+(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)$");
        break;
    case KEY_REAL:
        write_bounds(writer, "number", key->low, key->high);
        break;
    case KEY_FLAG:
        write_string(writer, "type", "boolean");
        break;
    case KEY_WORD:
    case KEY_MASK:
        write_words(writer, key->words);
        break;
    case KEY_AXES:
        write_words(writer, &key_axes);
        break;
    case KEY_RANK:
    case KEY_RANKS:
        write_rank(writer);
        break;
    case KEY_SHAPE:
        write_range(writer, true);
        break;
    default:
        write_styled(writer, key->style);
        break;
    }
}

static void write_open(struct writer *writer, const struct key *key)
{
    write_string(writer, "type", "object");
    if (key->type == KEY_OPEN)
        return;
    member(writer, "additionalProperties");
    open_bracket(writer, '{');
    if (key->type == KEY_EXTENTS)
        write_range(writer, false);
    else
        write_styled(writer, STYLE_ANY);
    close_bracket(writer, '}');
}

static void write_list(struct writer *writer, const struct key *key)
{
    write_string(writer, "type", "array");
    if (key->type == KEY_NUMBERS || (key->low && key->type != KEY_TEXTS) || (key->type == KEY_TEXTS && key->low))
        write_whole(writer, "minItems", 1);
    if (key->max_items)
        write_whole(writer, "maxItems", key->max_items);
    member(writer, "items");
    open_bracket(writer, '{');
    if (key->section)
        write_section(writer, key->section);
    else
        write_scalar(writer, key);
    close_bracket(writer, '}');
}

static void write_key(struct writer *writer, const struct key *key)
{
    member(writer, key->name);
    open_bracket(writer, '{');
    write_string(writer, "description", key->doc);
    switch (key->type) {
    case KEY_SECTION:
        write_section(writer, key->section);
        break;
    case KEY_PAIRS:
    case KEY_EXTENTS:
    case KEY_OPEN:
        write_open(writer, key);
        break;
    case KEY_TEXTS:
    case KEY_NUMBERS:
    case KEY_RANKS:
    case KEY_MASK:
    case KEY_AXES:
    case KEY_SHAPE:
    case KEY_ITEMS:
        write_list(writer, key);
        break;
    default:
        write_scalar(writer, key);
        break;
    }
    close_bracket(writer, '}');
}

static void write_mapping(struct writer *writer, const struct key_section *section)
{
    const char *separator = "";

    write_string(writer, "type", "object");
    member(writer, "additionalProperties");
    text_add(writer->text, "false");
    member(writer, "required");
    text_add(writer->text, "[");
    for (size_t i = 0; i < section->count; i++) {
        if (!(section->key[i].flags & KEY_REQUIRED))
            continue;
        text_add(writer->text, "%s\"%s\"", separator, section->key[i].name);
        separator = ", ";
    }
    text_add(writer->text, "]");
    member(writer, "properties");
    open_bracket(writer, '{');
    for (size_t i = 0; i < section->count; i++)
        write_key(writer, &section->key[i]);
    close_bracket(writer, '}');
}

static void write_section(struct writer *writer, const struct key_section *section)
{
    if (!section->shorthand) {
        write_mapping(writer, section);
        return;
    }
    member(writer, "oneOf");
    open_bracket(writer, '[');
    member(writer, NULL);
    open_bracket(writer, '{');
    write_scalar(writer, section->shorthand);
    close_bracket(writer, '}');
    member(writer, NULL);
    open_bracket(writer, '{');
    write_mapping(writer, section);
    close_bracket(writer, '}');
    close_bracket(writer, ']');
}

void topology_schema(struct text *text)
{
    struct writer writer = {.text = text};

    open_bracket(&writer, '{');
    write_string(&writer, "$schema", "http://json-schema.org/draft-07/schema#");
    write_string(&writer, "title", "Ferry topology");
    write_mapping(&writer, &keys_root);
    close_bracket(&writer, '}');
    text_add(text, "\n");
}
