#include "topology/complaint.h"

#include <string.h>

#include "topology/reader.h"
#include "topology/source.h"
#include "topology/suggestion.h"
#include "topology/value.h"

enum { SHOWN_CHARACTERS = 40 };

/* An item with a name is called by it, as --set may: groups[evaluators].members[0]. */
void complaint_path(const struct path *path, struct text *text)
{
    const struct node *name;

    if (!path)
        return;
    complaint_path(path->up, text);
    if (path->name) {
        text_add(text, "%s%s", path->up ? "." : "", path->name);
        return;
    }
    name = path->node ? node_get(path->node, "name") : NULL;
    text_add(text, "[");
    if (name && name->kind == NODE_SCALAR && name->length)
        source_show(text, name->text, name->length, SHOWN_CHARACTERS);
    else
        text_add(text, "%zu", path->index);
    text_add(text, "]");
}

static void write_node(const struct node *node, struct text *text)
{
    if (node_is_null(node)) {
        text_add(text, "nothing (null)");
    } else if (node->kind != NODE_SCALAR) {
        text_add(text, "a %s", node->kind == NODE_LIST ? "list" : "mapping");
    } else {
        text_add(text, node->plain ? "`" : "\"");
        source_show(text, node->text, node->length, SHOWN_CHARACTERS);
        text_add(text, node->plain ? "`" : "\"");
    }
}

/* Why a number that a person can read is none here. */
static const char *number_hint(const struct key *key, const struct node *node)
{
    const char *digits = "0123456789";
    size_t span;

    if (node->kind != NODE_SCALAR || !node->length)
        return "";
    span = strspn(node->text, digits);
    if (!node->plain && span == node->length)
        return ": quotes make it a text";
    if (span == node->length && span > 1 && node->text[0] == '0')
        return ": a leading zero could mean octal";
    if (span == node->length && (key->type == KEY_DURATION || key->type == KEY_SIZE))
        return ": the unit is missing";
    return "";
}

static const char *word_hint(const struct key *key, const struct node *node)
{
    const struct key_words *words = key->type == KEY_AXES ? &key_axes : key->words;

    if (node->kind != NODE_SCALAR || !words || !node->text)
        return NULL;
    return topology_nearest(node->text, words->word, words->count);
}

void complain_expected(struct reader *reader, const struct path *path, const struct node *node, const char *expectation,
                       const char *hint)
{
    struct text text = {0};

    complaint_path(path, &text);
    text_add(&text, ": expected %s, got ", expectation);
    write_node(node, &text);
    text_add(&text, "%s", hint);
    source_error(reader->source, node->at, "%s", text_string(&text));
    text_done(&text);
}

uint64_t reader_world_limit(const struct reader *reader)
{
    uint64_t world = reader_world(reader->topology);

    return world && world <= TOPOLOGY_MAX_RANKS ? world : TOPOLOGY_MAX_RANKS;
}

/* The value does not fit its key. */
void complain_misfit(struct reader *reader, const struct path *path, const struct key *key, const struct node *node)
{
    struct text expectation = {0};
    struct text hint = {0};
    const char *word = source_has_room(reader->source) ? word_hint(key, node) : NULL;

    value_expectation(key, reader_world_limit(reader), &expectation);
    text_add(&hint, "%s", number_hint(key, node));
    if (word)
        text_add(&hint, "; did you mean `%s`?", word);
    complain_expected(reader, path, node, text_string(&expectation), text_string(&hint));
    text_done(&expectation);
    text_done(&hint);
}

void complain_repeated(struct reader *reader, const struct path *path, const struct node *node)
{
    struct text text = {0};

    complaint_path(path, &text);
    text_add(&text, ": ");
    write_node(node, &text);
    source_error(reader->source, node->at, "%s stands in the list twice", text_string(&text));
    text_done(&text);
}

void complain_unknown_key(struct reader *reader, const struct path *path, const struct key_section *section,
                          const struct node *name)
{
    struct text text = {0};

    if (!node_is(name, "<<")) {
        complaint_path(path, &text);
        text_add(&text, "%sunknown key `", path ? ": " : "");
        source_show(&text, name->text, name->length, SHOWN_CHARACTERS);
        text_add(&text, "`");
        if (source_has_room(reader->source))
            suggestion_for_key(section, name->text, name->length, &text);
        if (section->shorthand && section->shorthand->type == KEY_TEXT)
            text_add(&text, "; a text that holds `: ` needs quotes");
        source_error(reader->source, name->at, "%s", text_string(&text));
    }
    text_done(&text);
}

void complain_missing_key(struct reader *reader, const struct path *path, const struct key *key,
                          struct topology_position at)
{
    struct text text = {0};

    if (path) {
        complaint_path(path, &text);
        text_add(&text, ": ");
    }
    source_error(reader->source, at, "%sthe key `%s` is missing", text_string(&text), key->name);
    text_done(&text);
}
