/* One function a type of key. */
#include "topology/reader.h"

#include <string.h>

#include "topology/complaint.h"
#include "topology/keys.h"
#include "topology/source.h"
#include "topology/value.h"

_Static_assert(offsetof(struct topology_groups, count) == offsetof(struct reader_list, count), "lists have one form");
_Static_assert(offsetof(struct topology_groups, at) == offsetof(struct reader_list, at), "lists have one form");

static void read_value(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                       void *base);

/* ----------------------------------------------------------------------------------------------------- scalars */

static void read_number(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                        struct topology_number *ret)
{
    bool (*parse)(const char *, size_t, uint64_t, uint64_t, uint64_t *) = key->type == KEY_DURATION ? value_duration
                                                                          : key->type == KEY_SIZE   ? value_size
                                                                                                    : value_number;
    bool united = key->type == KEY_DURATION || key->type == KEY_SIZE;

    ret->at = node->at;
    if ((key->flags & KEY_AUTO) && node_is(node, "auto"))
        ret->automatic = true;
    else if (node->kind != NODE_SCALAR || !(node->plain || united) ||
             !parse(node->text, node->length, key->low, key->high, &ret->value))
        complain_misfit(reader, path, key, node);
}

static void read_real(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                      struct topology_real *ret)
{
    ret->at = node->at;
    if (node->kind != NODE_SCALAR || !node->plain ||
        !value_real(node->text, node->length, key->low, key->high, &ret->value))
        complain_misfit(reader, path, key, node);
}

static void read_flag(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                      struct topology_flag *ret)
{
    ret->at = node->at;
    ret->value = node_is(node, "true");
    if (!node->plain || !(ret->value || node_is(node, "false")))
        complain_misfit(reader, path, key, node);
}

static void read_word(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                      struct topology_word *ret)
{
    int word = node->kind == NODE_SCALAR ? value_word(key->words, node->text, node->length) : -1;

    ret->at = node->at;
    if (word < 0)
        complain_misfit(reader, path, key, node);
    else
        ret->value = word;
}

static void read_text(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                      struct topology_string *ret)
{
    ret->at = node->at;
    if (node->kind != NODE_SCALAR || node_is_null(node))
        complain_misfit(reader, path, key, node);
    else if (memchr(node->text, '\0', node->length))
        complain_expected(reader, path, node, "a text without a NUL character", "");
    else if (!value_styled(node->text, node->length, key->style))
        complain_misfit(reader, path, key, node);
    else
        ret->value = arena_text(&reader->source->arena, node->text, node->length);
}

static void read_rank(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                      uint32_t *ret)
{
    uint64_t rank = UINT32_MAX;

    if (node->kind != NODE_SCALAR || !node->plain ||
        !value_number(node->text, node->length, 0, reader_world_limit(reader) - 1, &rank))
        complain_misfit(reader, path, key, node);
    *ret = (uint32_t)rank;
}

/* ------------------------------------------------------------------------------------------------------- lists */

/* Whether a list or an open mapping has no fewer and no more items than its key allows. */
static bool fits(struct reader *reader, const struct path *path, const struct key *key, const struct node *node)
{
    uint64_t fewest = node->kind == NODE_MAP ? 0 : key->type == KEY_NUMBERS ? 1 : key->low;
    struct text text = {0};

    if (node->count >= fewest && (!key->max_items || node->count <= key->max_items))
        return true;
    complaint_path(path, &text);
    if (node->count < fewest)
        source_error(reader->source, node->at, "%s: at least one item is needed", text_string(&text));
    else
        source_error(reader->source, node->at, "%s: %u items are more than the limit of %llu", text_string(&text),
                     node->count, (unsigned long long)key->max_items);
    text_done(&text);
    return false;
}

static bool wants_list(struct reader *reader, const struct path *path, const struct key *key, const struct node *node)
{
    if (node->kind == NODE_LIST)
        return fits(reader, path, key, node);
    complain_expected(reader, path, node, "a list",
                      node->kind == NODE_SCALAR && !node_is_null(node) ? ": write [..]" : "");
    return false;
}

/* Room for the items of a list that is well formed, or NULL. */
static char *start_list(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                        size_t item_bytes, struct reader_list *ret)
{
    ret->at = node->at;
    if (!wants_list(reader, path, key, node))
        return NULL;
    ret->item = arena_take(&reader->source->arena, node->count, item_bytes);
    ret->count = ret->item ? node->count : 0;
    return ret->item;
}

static size_t item_bytes(const struct key *key)
{
    switch (key->type) {
    case KEY_NUMBERS:
        return sizeof(struct topology_number);
    case KEY_RANKS:
        return sizeof(struct topology_rank);
    case KEY_SHAPE:
        return sizeof(struct topology_dim);
    case KEY_ITEMS:
        return key->section->bytes;
    default:
        return sizeof(struct topology_string);
    }
}

static void read_dim(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                     struct topology_dim *ret)
{
    ret->at = node->at;
    ret->extent = -1;
    if (node->kind == NODE_SCALAR && value_range(node->text, node->length, UINT64_C(1) << 48, &ret->low, &ret->high))
        return;
    if (node->kind == NODE_SCALAR && value_styled(node->text, node->length, STYLE_ROLE))
        ret->name = (struct topology_string){arena_text(&reader->source->arena, node->text, node->length), node->at};
    else
        complain_misfit(reader, path, key, node);
}

static void read_section(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                         char *base);

static void read_item(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                      char *item)
{
    struct topology_rank *rank = (struct topology_rank *)(void *)item;

    switch (key->type) {
    case KEY_NUMBERS:
        read_number(reader, path, key, node, (struct topology_number *)(void *)item);
        break;
    case KEY_RANKS:
        rank->at = node->at;
        read_rank(reader, path, key, node, &rank->value);
        break;
    case KEY_SHAPE:
        read_dim(reader, path, key, node, (struct topology_dim *)(void *)item);
        break;
    case KEY_ITEMS:
        read_section(reader, path, key, node, item);
        break;
    default:
        read_text(reader, path, key, node, (struct topology_string *)(void *)item);
        break;
    }
}

static void read_list(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                      struct reader_list *ret)
{
    size_t bytes = item_bytes(key);
    char *item = start_list(reader, path, key, node, bytes, ret);
    size_t index = 0;

    if (!item)
        return;
    for (const struct node *child = node->first; child; child = child->next, index++) {
        struct path frame = {path, NULL, index, child};

        read_item(reader, &frame, key, child, item + index * bytes);
    }
}

/* The words of a list into order (or NULL) and a mask of them. */
static size_t read_words(struct reader *reader, const struct path *path, const struct key *key,
                         const struct key_words *words, const struct node *node, uint32_t *mask,
                         enum topology_axis *order)
{
    size_t used = 0;
    size_t index = 0;

    *mask = 0;
    if (!wants_list(reader, path, key, node))
        return 0;
    for (const struct node *child = node->first; child; child = child->next, index++) {
        struct path frame = {path, NULL, index, NULL};
        int word = child->kind == NODE_SCALAR ? value_word(words, child->text, child->length) : -1;

        if (word < 0) {
            complain_misfit(reader, &frame, key, child);
        } else if (*mask & 1u << word) {
            complain_repeated(reader, &frame, child);
        } else {
            *mask |= 1u << word;
            if (order)
                order[used++] = (enum topology_axis)word;
        }
    }
    return used;
}

/* Axes that are left out follow in the order of ranks: the expert axis varies fastest. */
static void read_axes(struct reader *reader, const struct path *path, const struct key *key, const struct node *node)
{
    enum topology_axis *axis = reader->topology->placement.order.axis;
    uint32_t mask;
    size_t used = read_words(reader, path, key, &key_axes, node, &mask, axis);

    reader->topology->placement.order.at = node->at;
    for (int next = TOPOLOGY_AXIS_COUNT - 1; next >= 0; next--) {
        if (!(mask & 1u << next))
            axis[used++] = (enum topology_axis)next;
    }
}

static uint32_t every_word(const struct key_words *words)
{
    uint32_t mask = 0;

    for (size_t i = 0; i < words->count; i++)
        mask |= words->word[i] ? 1u << i : 0;
    return mask;
}

/* ---------------------------------------------------------------------------------------------------- mappings */

static bool wants_map(struct reader *reader, const struct path *path, const struct key *key, const struct node *node)
{
    struct text expectation = {0};

    if (node->kind == NODE_MAP)
        return true;
    value_expectation(key, reader_world_limit(reader), &expectation);
    complain_expected(reader, path, node, text_string(&expectation), "");
    text_done(&expectation);
    return false;
}

/* The name of an entry of an open mapping. */
static void read_entry_name(struct reader *reader, const struct path *path, const struct key *key,
                            const struct node *name, struct topology_string *ret)
{
    ret->at = name->at;
    if (name->kind != NODE_SCALAR)
        return; /* the document has said so */
    if (value_styled(name->text, name->length, key->style))
        ret->value = arena_text(&reader->source->arena, name->text, name->length);
    else
        complain_expected(reader, path, name, key_styles[key->style].says, "");
}

static void read_pairs(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                       struct topology_pairs *ret)
{
    static const struct key any = {.name = "value", .type = KEY_TEXT, .style = STYLE_ANY};
    size_t index = 0;

    ret->at = node->at;
    if (!wants_map(reader, path, key, node))
        return;
    ret->item = arena_take(&reader->source->arena, node->count, sizeof *ret->item);
    ret->count = ret->item ? node->count : 0;
    for (const struct node *name = node->first; ret->item && name; name = name->next->next, index++) {
        struct topology_pair *pair = &ret->item[index];
        struct path frame = {path, NULL, 0, NULL};

        read_entry_name(reader, path, key, name, &pair->name);
        frame.name = pair->name.value ? pair->name.value : "?";
        read_text(reader, &frame, &any, name->next, &pair->value);
        if (pair->value.value && strchr(pair->value.value, '\n')) /* a starter cuts it there */
            complain_expected(reader, &frame, name->next, "a text without a line break", "");
    }
}

static void read_extents(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                         struct topology_extents *ret)
{
    size_t index = 0;

    ret->at = node->at;
    if (!wants_map(reader, path, key, node))
        return;
    if (!fits(reader, path, key, node))
        return;
    ret->item = arena_take(&reader->source->arena, node->count, sizeof *ret->item);
    ret->count = ret->item ? node->count : 0;
    for (const struct node *name = node->first; ret->item && name; name = name->next->next, index++) {
        struct topology_extent *extent = &ret->item[index];
        const struct node *range = name->next;
        struct path frame = {path, NULL, 0, NULL};

        extent->at = range->at;
        read_entry_name(reader, path, key, name, &extent->name);
        frame.name = extent->name.value ? extent->name.value : "?";
        if (range->kind != NODE_SCALAR ||
            !value_range(range->text, range->length, key->high, &extent->low, &extent->high))
            complain_misfit(reader, &frame, key, range);
    }
}

/* The default is read as if the file had said it, but nowhere. */
static void read_default(struct reader *reader, const struct key *key, char *base)
{
    struct node node = {.kind = NODE_SCALAR, .plain = true};
    struct topology_mask *mask = (struct topology_mask *)(void *)(base + key->offset);

    if (key->type == KEY_MASK) {
        mask->value = every_word(key->words);
    } else if (key->type == KEY_AXES) {
        read_axes(reader, NULL, &(struct key){.type = KEY_AXES}, &(struct node){.kind = NODE_LIST});
    } else if (key->initial) {
        node.text = key->initial;
        node.length = strlen(key->initial);
        read_value(reader, NULL, key, &node, base);
    }
}

/* False when the mapping has keys that are not the section's. */
static bool read_keys(struct reader *reader, const struct path *path, const struct key_section *section,
                      const struct node *node, char *base)
{
    const struct topology_position at = node ? node->at : reader->nowhere;
    bool known = true;

    for (const struct node *name = node ? node->first : NULL; name; name = name->next->next) {
        if (name->kind != NODE_SCALAR || keys_find(section, name->text, name->length))
            continue;
        complain_unknown_key(reader, path, section, name);
        known = false;
    }
    for (size_t i = 0; i < section->count; i++) {
        const struct key *key = &section->key[i];
        const struct node *value = node ? node_get(node, key->name) : NULL;
        struct path frame = {path, key->name, 0, NULL};

        if (value)
            read_value(reader, &frame, key, value, base);
        else if (key->type == KEY_SECTION && !key->section->shorthand)
            (void)read_keys(reader, &frame, key->section, NULL, base + key->offset);
        else
            read_default(reader, key, base);
        if (!value && node && (key->flags & KEY_REQUIRED))
            complain_missing_key(reader, path, key, at);
    }
    return known;
}

static void read_section(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                         char *base)
{
    const struct key_section *section = key->section;
    struct topology_position *at = (struct topology_position *)(void *)(base + section->at_offset);

    *at = node->at;
    if (section->shorthand && section->shorthand->type == KEY_RANK)
        *(uint32_t *)(void *)(base + section->shorthand->offset) = UINT32_MAX;
    if (section->shorthand && node->kind == NODE_SCALAR && !node_is_null(node)) {
        read_value(reader, path, section->shorthand, node, base);
    } else if (wants_map(reader, path, key, node) && !read_keys(reader, path, section, node, base)) {
        if (section->shorthand && section->shorthand->type == KEY_TEXT)
            *at = (struct topology_position){0}; /* a text without its quotes: one complaint is enough */
    }
}

static void read_value(struct reader *reader, const struct path *path, const struct key *key, const struct node *node,
                       void *base)
{
    void *field = (char *)base + key->offset;
    struct topology_mask *mask = field;

    switch (key->type) {
    case KEY_NUMBER:
    case KEY_DURATION:
    case KEY_SIZE:
        read_number(reader, path, key, node, field);
        break;
    case KEY_REAL:
        read_real(reader, path, key, node, field);
        break;
    case KEY_FLAG:
        read_flag(reader, path, key, node, field);
        break;
    case KEY_WORD:
        read_word(reader, path, key, node, field);
        break;
    case KEY_MASK:
        mask->at = node->at;
        (void)read_words(reader, path, key, key->words, node, &mask->value, NULL);
        break;
    case KEY_TEXT:
        read_text(reader, path, key, node, field);
        break;
    case KEY_RANK:
        read_rank(reader, path, key, node, field);
        break;
    case KEY_AXES:
        read_axes(reader, path, key, node);
        break;
    case KEY_PAIRS:
        read_pairs(reader, path, key, node, field);
        break;
    case KEY_EXTENTS:
        read_extents(reader, path, key, node, field);
        break;
    case KEY_SECTION:
        read_section(reader, path, key, node, field);
        break;
    case KEY_OPEN:
        *(struct topology_position *)field = node->at;
        (void)wants_map(reader, path, key, node);
        break;
    case KEY_TEXTS:
    case KEY_NUMBERS:
    case KEY_RANKS:
    case KEY_SHAPE:
    case KEY_ITEMS:
        read_list(reader, path, key, node, field);
        break;
    }
}

uint64_t reader_world(const struct topology *topology)
{
    uint64_t world = 1;

    if (!topology->mesh.at.line)
        return topology->world.value;
    for (int axis = 0; axis < TOPOLOGY_AXIS_COUNT; axis++) {
        if (__builtin_mul_overflow(world, topology->mesh.axis[axis].value, &world))
            return UINT64_MAX;
    }
    return world;
}

enum status reader_fill(struct topology *topology, const struct node *root)
{
    struct reader reader = {.topology = topology, .source = topology->source};

    if (root->kind == NODE_MAP) {
        (void)read_keys(&reader, NULL, &keys_root, root, (char *)topology);
    } else {
        source_error(reader.source, root->at, "the top level must be a mapping of keys to values, not %s",
                     root->kind == NODE_LIST ? "a list"
                     : node_is_null(root)    ? "nothing (null)"
                                             : "a text");
    }
    return reader.source->arena.failed ? STATUS_NOMEM : STATUS_OK;
}
