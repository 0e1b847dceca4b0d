/* Memory that is given back all at once: the tree and the values of one topology live and die together. */
#ifndef TOPOLOGY_ARENA_H
#define TOPOLOGY_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;

/* Zero-initialise.  failed stays set after a refused allocation, so that a long walk checks once at its end. */
struct arena {
    struct arena_chunk *chunk;
    bool failed;
};

/* count zeroed items of item_bytes each, aligned for any type; lent until arena_done.  NULL when refused, or for none.
 */
void *arena_take(struct arena *arena, size_t count, size_t item_bytes);

/* A NUL-terminated copy of length bytes; NULL when refused. */
char *arena_text(struct arena *arena, const char *bytes, size_t length);

void arena_done(struct arena *arena);

#endif
