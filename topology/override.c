/* The path is walked from the root; maps on the way are made where they are missing, so that the reader finds an
 * unknown key at its place in the override.  A map may be shared by aliases: its children are copied before one of them
 * is replaced. */
#include "topology/override.h"

#include <string.h>

#include "topology/document.h"
#include "topology/value.h"

struct walk {
    struct topology_source *source;
    uint32_t number;
    const char *text; /* the whole override */
    size_t offset;    /* of what is read next */
};

static struct topology_position here(const struct walk *walk, size_t offset)
{
    return (struct topology_position){walk->number, 1, (uint32_t)offset + 1};
}

static struct node *new_node(struct walk *walk, enum node_kind kind, size_t offset)
{
    struct node *node = arena_take(&walk->source->arena, 1, sizeof *node);

    if (node) {
        node->kind = kind;
        node->plain = true;
        node->weight = 1;
        node->at = here(walk, offset);
    }
    return node;
}

static bool unshare(struct walk *walk, struct node *parent)
{
    struct node **link = &parent->first;

    for (const struct node *child = parent->first; child; child = child->next) {
        struct node *copy = arena_take(&walk->source->arena, 1, sizeof *copy);

        if (!copy)
            return false;
        *copy = *child;
        *link = copy;
        link = &copy->next;
    }
    return true;
}

static struct node *add_pair(struct walk *walk, struct node *map, const char *name, size_t length, size_t offset)
{
    struct node *key = new_node(walk, NODE_SCALAR, offset);
    struct node *value = new_node(walk, NODE_MAP, offset);
    struct node **link = &map->first;

    if (!key || !value || !(key->text = arena_text(&walk->source->arena, name, length)))
        return NULL;
    key->length = length;
    key->next = value;
    while (*link)
        link = &(*link)->next;
    *link = key;
    map->count++;
    return value;
}

/* The value of the key that starts here, made when it is missing; NULL after an error. */
static struct node *step_key(struct walk *walk, struct node *map)
{
    const char *name = walk->text + walk->offset;
    size_t length = strcspn(name, ".[=");
    size_t offset = walk->offset;

    if (!length) {
        source_error(walk->source, here(walk, offset), "expected key.path=value");
        return NULL;
    }
    if (map->kind != NODE_MAP && !node_is_null(map)) {
        source_error(walk->source, here(walk, offset), "`%.*s` has no keys in the file", (int)(offset ? offset - 1 : 0),
                     walk->text);
        return NULL;
    }
    if (map->kind != NODE_MAP) {
        map->kind = NODE_MAP;
        map->first = NULL;
        map->count = 0;
        map->at = here(walk, 0);
    }
    if (!unshare(walk, map))
        return NULL;
    walk->offset += length;
    for (struct node *key = map->first; key; key = key->next->next) {
        if (key->kind == NODE_SCALAR && key->length == length && !memcmp(key->text, name, length))
            return key->next;
    }
    return add_pair(walk, map, name, length, offset);
}

/* The item that [index] or [name] means. */
static struct node *step_item(struct walk *walk, struct node *list)
{
    const char *word = walk->text + walk->offset + 1;
    size_t length = strcspn(word, "]=");
    uint64_t index = UINT64_MAX;
    uint64_t at = 0;

    if (!length || word[length] != ']') {
        source_error(walk->source, here(walk, walk->offset), "expected [index] or [name]");
        return NULL;
    }
    if (list->kind == NODE_LIST && !unshare(walk, list))
        return NULL;
    (void)value_number(word, length, 0, UINT32_MAX, &index);
    for (struct node *item = list->kind == NODE_LIST ? list->first : NULL; item; item = item->next, at++) {
        const struct node *name = node_get(item, "name");

        if (at == index ||
            (name && name->kind == NODE_SCALAR && name->length == length && !memcmp(name->text, word, length))) {
            walk->offset += length + 2;
            return item;
        }
    }
    source_error(walk->source, here(walk, walk->offset), "`%.*s` has no item `%.*s`: %llu items, from 0",
                 (int)walk->offset, walk->text, (int)(length < 60 ? length : 60), word, (unsigned long long)at);
    return NULL;
}

/* From the root to the place that the path names; NULL after an error. */
static struct node *walk_path(struct walk *walk, struct node *root)
{
    struct node *place = step_key(walk, root);

    while (place && walk->text[walk->offset] != '=') {
        bool item = walk->text[walk->offset] == '[';

        if (!item && walk->text[walk->offset] != '.') {
            source_error(walk->source, here(walk, walk->offset), "expected ., [ or = after ]");
            return NULL;
        }
        walk->offset += !item;
        place = item ? step_item(walk, place) : step_key(walk, place);
    }
    return place;
}

/* The value behind the =.  A lone - is a text here (a file by that name is standard input), while YAML begins a list
 * with it. */
static enum status read_value(struct walk *walk, const char *value, struct node **ret)
{
    size_t offset = (size_t)(value - walk->text);

    if (strcmp(value, "-") != 0)
        return document_parse_override(walk->source, walk->number, offset, ret);
    *ret = new_node(walk, NODE_SCALAR, offset);
    if (!*ret || !((*ret)->text = arena_text(&walk->source->arena, value, 1)))
        return STATUS_NOMEM;
    (*ret)->length = 1;
    return STATUS_OK;
}

enum status override_apply(struct topology_source *source, uint32_t number, struct node *root)
{
    struct walk walk = {source, number, source->override[number - 1], 0};
    const char *sign = strchr(walk.text, '=');
    struct node *place;
    struct node *value;
    struct node *next;
    enum status st;

    if (!sign) {
        source_error(source, here(&walk, 0), "expected key.path=value");
        return STATUS_OK;
    }
    st = read_value(&walk, sign + 1, &value);
    if (st != STATUS_OK || !value)
        return st;
    place = walk_path(&walk, root);
    if (!place)
        return source->arena.failed ? STATUS_NOMEM : STATUS_OK;
    next = place->next;
    *place = *value;
    place->next = next;
    return STATUS_OK;
}
