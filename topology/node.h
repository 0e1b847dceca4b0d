/* The document as a tree with positions: what YAML says, before anybody asks what it means. */
#ifndef TOPOLOGY_NODE_H
#define TOPOLOGY_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "topology/topology.h"

enum node_kind { NODE_SCALAR, NODE_LIST, NODE_MAP };

/* Lives in the source's arena.  An alias is a shallow copy of what it stands for: children may be shared. */
struct node {
    enum node_kind kind;
    bool plain;      /* a scalar without quotes */
    uint8_t height;  /* levels of collections below and including this one */
    uint32_t count;  /* items of a list, pairs of a map */
    uint32_t weight; /* values in it with every alias written out, itself included */
    struct topology_position at;
    struct node *next; /* in the parent; a map's children alternate key, value */
    union {
        struct node *first;
        const char *text; /* terminated; may hold NULs */
    };
    size_t length;
};

/* Absent on purpose: a plain empty scalar or a plain ~.  (The word null is a word: names such as null stay names.) */
static inline bool node_is_null(const struct node *node)
{
    return node->kind == NODE_SCALAR && node->plain && (!node->length || (node->length == 1 && node->text[0] == '~'));
}

static inline bool node_is(const struct node *node, const char *word)
{
    return node->kind == NODE_SCALAR && node->length == strlen(word) && !memcmp(node->text, word, node->length);
}

/* The value of a key of a map, or NULL. */
static inline struct node *node_get(const struct node *map, const char *key)
{
    if (!map || map->kind != NODE_MAP)
        return NULL;
    for (struct node *name = map->first; name; name = name->next->next) {
        if (node_is(name, key))
            return name->next;
    }
    return NULL;
}

#endif
