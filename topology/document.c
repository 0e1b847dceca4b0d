/* libyaml's events to a tree of nodes, with everything that libyaml leaves to its user: duplicate keys, merge keys,
 * cyclic and undefined aliases, second documents, tags, tabs, depth, and the weight of aliases.
 *
 * libyaml is quadratic in the depth of flow collections and in the number of %TAG directives; the tree is refused
 * above 32 levels, as the events come, and directives other than %YAML before libyaml sees them.  It looks at most
 * 1024 characters ahead of an event (its limit for a key on one line), so that a megabyte of brackets ends at once.
 * After the first document it is not asked again: what follows is looked at here. */
#include "topology/document.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/size.h"

struct anchor {
    const char *name;
    struct node *node;
    bool open; /* still being read: an alias to it would be a cycle */
};

struct builder {
    struct topology_source *source;
    uint32_t number; /* 0: the file */
    uint32_t shift;  /* columns before the value of an override */
    yaml_parser_t parser;
    struct node *root;
    struct node *open[TOPOLOGY_MAX_DEPTH + 1];
    struct node *last[TOPOLOGY_MAX_DEPTH + 1]; /* the last child of each open collection */
    struct anchor *open_anchor[TOPOLOGY_MAX_DEPTH + 1];
    size_t depth;
    struct anchor anchor[2 * DOCUMENT_MAX_ANCHORS]; /* a hash table, at most half full */
    size_t anchor_count;
    size_t aliased;
    bool stop; /* an error after which nothing more can be read */
    bool complete;
};

static struct topology_position position(const struct builder *builder, yaml_mark_t mark)
{
    struct topology_position at = {builder->number, (uint32_t)mark.line + 1, (uint32_t)mark.column + 1};

    if (builder->number && !mark.line)
        at.column += builder->shift;
    return at;
}

/* ---------------------------------------------------------------------------------------------------- anchors */

static struct anchor *find_anchor(struct builder *builder, const char *name)
{
    size_t slots = sizeof builder->anchor / sizeof *builder->anchor;
    size_t slot = 5381;

    for (const char *p = name; *p; p++)
        slot = slot * 33 + (unsigned char)*p;
    for (slot %= slots; builder->anchor[slot].name && strcmp(builder->anchor[slot].name, name);)
        slot = (slot + 1) % slots;
    return &builder->anchor[slot];
}

/* A later anchor of the same name takes the place of the earlier one, as YAML says. */
static struct anchor *add_anchor(struct builder *builder, const char *name, struct node *node)
{
    struct anchor *anchor = find_anchor(builder, name);

    if (!anchor->name && builder->anchor_count == DOCUMENT_MAX_ANCHORS) {
        source_error(builder->source, node->at, "more than %d anchors", DOCUMENT_MAX_ANCHORS);
        builder->stop = true;
        return NULL;
    }
    if (!anchor->name) {
        builder->anchor_count++;
        anchor->name = arena_text(&builder->source->arena, name, strlen(name));
    }
    anchor->node = node;
    anchor->open = node->kind != NODE_SCALAR;
    return anchor->name ? anchor : NULL;
}

static void expand_alias(struct builder *builder, const char *name, struct node *node)
{
    struct anchor *anchor = find_anchor(builder, name);
    struct topology_position at = node->at;
    const char *wrong = NULL;

    if (!anchor->name)
        wrong = "no anchor of this name stands before it";
    else if (anchor->open)
        wrong = "it stands inside the value that it names";
    else if (anchor->node->height + builder->depth > TOPOLOGY_MAX_DEPTH)
        wrong = "nested deeper than 32 levels";
    else if ((builder->aliased += anchor->node->weight) > DOCUMENT_MAX_ALIASED)
        wrong = "the aliases of this file stand for more than 65536 values";
    if (wrong) {
        source_error(builder->source, at, "alias `*%.60s`: %s", name, wrong);
        builder->stop = true;
        return;
    }
    *node = *anchor->node;
    node->at = at;
    node->next = NULL;
}

/* ------------------------------------------------------------------------------------------------------- keys */

static int compare_keys(const void *a, const void *b)
{
    const struct node *left = *(const struct node *const *)a;
    const struct node *right = *(const struct node *const *)b;
    size_t shorter = left->length < right->length ? left->length : right->length;
    int order = memcmp(left->text, right->text, shorter);

    if (order || left->length != right->length)
        return order ? order : left->length < right->length ? -1 : 1;
    if (left->at.line != right->at.line)
        return left->at.line < right->at.line ? -1 : 1;
    return left->at.column < right->at.column ? -1 : left->at.column > right->at.column;
}

static void check_key(struct builder *builder, const struct node *key)
{
    if (key->kind != NODE_SCALAR)
        source_error(builder->source, key->at, "a key must be a word, not a %s",
                     key->kind == NODE_LIST ? "list" : "mapping");
    else if (key->plain && node_is(key, "<<"))
        source_error(builder->source, key->at, "merge keys (<<) are not used here: write the keys out");
}

static void repeated_key(struct builder *builder, const struct node *first, const struct node *again)
{
    struct text shown = {0};

    source_show(&shown, again->text, again->length, 60);
    source_error(builder->source, again->at, "`%s` is given twice: first on line %u, again on line %u",
                 text_string(&shown), first->at.line, again->at.line);
    text_done(&shown);
}

/* Sorting finds equal keys in n log n, whatever a hostile file repeats. */
static enum status check_keys(struct builder *builder, const struct node *map)
{
    const struct node **key = calloc(map->count ? map->count : 1, sizeof *key);
    size_t count = 0;

    if (!key)
        return STATUS_NOMEM;
    for (const struct node *name = map->first; name; name = name->next->next) {
        check_key(builder, name);
        if (name->kind == NODE_SCALAR)
            key[count++] = name;
    }
    qsort(key, count, sizeof *key, compare_keys);
    for (size_t i = 1, first = 0; i < count; i++) {
        if (key[i]->length == key[first]->length && !memcmp(key[i]->text, key[first]->text, key[i]->length))
            repeated_key(builder, key[first], key[i]);
        else
            first = i;
    }
    free(key);
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------------- tree */

static void append(struct builder *builder, struct node *node)
{
    struct node *parent;

    if (!builder->depth) {
        builder->root = node;
        return;
    }
    parent = builder->open[builder->depth - 1];
    if (builder->last[builder->depth - 1])
        builder->last[builder->depth - 1]->next = node;
    else
        parent->first = node;
    builder->last[builder->depth - 1] = node;
    parent->count++;
}

static void open_collection(struct builder *builder, struct node *node, const yaml_char_t *anchor)
{
    if (builder->depth == TOPOLOGY_MAX_DEPTH) {
        source_error(builder->source, node->at, "nested deeper than %d levels", TOPOLOGY_MAX_DEPTH);
        builder->stop = true;
        return;
    }
    append(builder, node);
    builder->open[builder->depth] = node;
    builder->last[builder->depth] = NULL;
    builder->open_anchor[builder->depth] = anchor ? add_anchor(builder, (const char *)anchor, node) : NULL;
    builder->depth++;
}

static enum status close_collection(struct builder *builder)
{
    struct node *node = builder->open[--builder->depth];
    struct anchor *anchor = builder->open_anchor[builder->depth];
    uint8_t height = 0;

    if (node->kind == NODE_MAP)
        node->count /= 2;
    for (const struct node *child = node->first; child; child = child->next) {
        node->weight += child->weight;
        if (child->height > height)
            height = child->height;
    }
    node->height = (uint8_t)(height + 1);
    if (anchor && anchor->node == node)
        anchor->open = false;
    return node->kind == NODE_MAP ? check_keys(builder, node) : STATUS_OK;
}

static void check_tag(struct builder *builder, const struct node *node, const yaml_char_t *tag)
{
    if (tag)
        source_error(builder->source, node->at, "tags (`%.60s`) are not used here", (const char *)tag);
}

/* An override is one line's value: a block collection there is a value that wants quotes. */
static bool refuse_block(struct builder *builder, const struct node *node, bool flow)
{
    if (!builder->number || flow)
        return false;
    source_error(builder->source, node->at, "the value reads as a block of YAML: quote it, or use [..] and {..}");
    builder->stop = true;
    return true;
}

static enum status read_scalar(struct builder *builder, struct node *node, const yaml_event_t *event)
{
    node->kind = NODE_SCALAR;
    node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    node->length = event->data.scalar.length;
    node->text = arena_text(&builder->source->arena, (const char *)event->data.scalar.value, node->length);
    if (!node->text)
        return STATUS_NOMEM;
    check_tag(builder, node, event->data.scalar.tag);
    if (event->data.scalar.anchor)
        (void)add_anchor(builder, (const char *)event->data.scalar.anchor, node);
    append(builder, node);
    return STATUS_OK;
}

static enum status read_event(struct builder *builder, const yaml_event_t *event)
{
    struct node *node;

    if (event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT)
        return close_collection(builder);
    node = arena_take(&builder->source->arena, 1, sizeof *node);
    if (!node)
        return STATUS_NOMEM;
    node->at = position(builder, event->start_mark);
    node->weight = 1;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return read_scalar(builder, node, event);
    case YAML_ALIAS_EVENT:
        expand_alias(builder, (const char *)event->data.alias.anchor, node);
        if (!builder->stop)
            append(builder, node);
        return STATUS_OK;
    case YAML_SEQUENCE_START_EVENT:
        node->kind = NODE_LIST;
        check_tag(builder, node, event->data.sequence_start.tag);
        if (!refuse_block(builder, node, event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE))
            open_collection(builder, node, event->data.sequence_start.anchor);
        return STATUS_OK;
    case YAML_MAPPING_START_EVENT:
        node->kind = NODE_MAP;
        check_tag(builder, node, event->data.mapping_start.tag);
        if (!refuse_block(builder, node, event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE))
            open_collection(builder, node, event->data.mapping_start.anchor);
        return STATUS_OK;
    default:
        return STATUS_OK;
    }
}

/* -------------------------------------------------------------------------------------------- what libyaml says */

/* The tab among the spaces that indent this line of the file, or NULL. */
static const char *indenting_tab(const struct topology_source *source, uint32_t line)
{
    const char *p = source_locate(source, line, 1);

    while (*p == ' ')
        p++;
    return *p == '\t' ? p : NULL;
}

static void report_reader(struct builder *builder)
{
    const yaml_parser_t *parser = &builder->parser;
    struct topology_position at = {builder->number, 1, 1 + builder->shift};

    if (!builder->number)
        at = source_position(builder->source, parser->problem_offset);
    source_error(builder->source, at, "%s: the file must be UTF-8 text without control characters",
                 parser->problem ? parser->problem : "unreadable");
}

static enum status report_parser(struct builder *builder)
{
    const yaml_parser_t *parser = &builder->parser;
    struct topology_position at = position(builder, parser->problem_mark);
    const char *tab = builder->number ? NULL : indenting_tab(builder->source, at.line);

    builder->stop = true;
    if (parser->error == YAML_MEMORY_ERROR)
        return STATUS_NOMEM;
    if (parser->error == YAML_READER_ERROR)
        report_reader(builder);
    else if (tab)
        source_error(builder->source, source_position(builder->source, (size_t)(tab - builder->source->bytes)),
                     "a tab may not indent a line: use spaces");
    else if (parser->context)
        source_error(builder->source, at, "YAML: %s, %s that starts on line %zu", parser->problem, parser->context,
                     parser->context_mark.line + 1);
    else
        source_error(builder->source, at, "YAML: %s%s", parser->problem,
                     strstr(parser->problem, "block sequence entries") ? " (the text - alone is written \"-\")" : "");
    return STATUS_OK;
}

/* After the first document only blank lines and comments may follow. */
static void check_rest(struct builder *builder, yaml_mark_t mark)
{
    const struct topology_source *source = builder->source;
    const char *end = source->bytes + source->byte_count;
    const char *p = builder->number ? end : source_locate(source, (uint32_t)mark.line + 1, (uint32_t)mark.column + 1);

    while (p < end) {
        size_t bytes = source_break_bytes(p, end);

        if (*p == '#') {
            while (p < end && !source_break_bytes(p, end))
                p++;
        } else if (bytes || *p == ' ' || *p == '\t') {
            p += bytes ? bytes : 1;
        } else {
            struct topology_position at = source_position(source, (size_t)(p - source->bytes));

            source_error(builder->source, at, "a second document starts at line %u: a topology is one document",
                         at.line);
            return;
        }
    }
}

static enum status read_events(struct builder *builder)
{
    enum status st = STATUS_OK;

    while (st == STATUS_OK && !builder->stop && !builder->complete) {
        yaml_event_t event;

        if (!yaml_parser_parse(&builder->parser, &event))
            return report_parser(builder);
        if (event.type == YAML_STREAM_END_EVENT) {
            builder->complete = true;
        } else if (event.type == YAML_DOCUMENT_END_EVENT) {
            check_rest(builder, event.end_mark);
            builder->complete = true;
        } else {
            st = read_event(builder, &event);
        }
        yaml_event_delete(&event);
    }
    return st;
}

static enum status build(struct builder *builder, const char *bytes, size_t byte_count, struct node **ret)
{
    enum status st;

    if (!yaml_parser_initialize(&builder->parser))
        return STATUS_NOMEM;
    yaml_parser_set_encoding(&builder->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&builder->parser, (const unsigned char *)bytes, byte_count);
    st = read_events(builder);
    yaml_parser_delete(&builder->parser);
    *ret = st == STATUS_OK && builder->complete && !builder->stop ? builder->root : NULL;
    return st;
}

/* Directives stand before the first document only; %YAML is harmless, any other is refused here. */
static bool refuse_directives(struct topology_source *source)
{
    const char *p = source->bytes;
    const char *end = p + source->byte_count;

    while (p < end) {
        size_t bytes = source_break_bytes(p, end);

        if (*p == '%' && strncmp(p, "%YAML ", 6) != 0) {
            source_error(source, source_position(source, (size_t)(p - source->bytes)), "directives are not used here");
            return true;
        }
        if (!bytes && *p != '#' && *p != '%')
            return false;
        while (p < end && !source_break_bytes(p, end))
            p++;
        p += source_break_bytes(p, end);
    }
    return false;
}

enum status document_parse_file(struct topology_source *source, struct node **ret)
{
    struct builder *builder;
    enum status st = STATUS_OK;

    *ret = NULL;
    if (refuse_directives(source))
        return STATUS_OK;
    builder = calloc(1, sizeof *builder);
    if (!builder)
        return STATUS_NOMEM;
    builder->source = source;
    st = build(builder, source->bytes, source->byte_count, ret);
    if (st == STATUS_OK && builder->complete && !*ret)
        source_error(source, (struct topology_position){0, 1, 1},
                     "the top level must be a mapping, and the file is empty");
    free(builder);
    return st;
}

enum status document_parse_override(struct topology_source *source, uint32_t number, size_t offset, struct node **ret)
{
    const char *value = source->override[number - 1] + offset;
    struct builder *builder = calloc(1, sizeof *builder);
    enum status st;

    if (!builder)
        return STATUS_NOMEM;
    builder->source = source;
    builder->number = number;
    builder->shift = (uint32_t)offset;
    st = build(builder, value, strlen(value), ret);
    if (st == STATUS_OK && builder->complete && !*ret)
        source_error(source, (struct topology_position){number, 1, (uint32_t)offset + 1}, "the value is empty");
    free(builder);
    return st;
}
