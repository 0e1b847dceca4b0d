/* The tree to the typed struct, by the table of keys. */
#ifndef TOPOLOGY_READER_H
#define TOPOLOGY_READER_H

#include "topology/node.h"
#include "topology/topology.h"

/* Fill topology (zeroed but for its source) from the root of a document.  Errors go to the source; a wrong value leaves
 * a position and a value that rules recognise: numbers and texts 0 and NULL, ranks UINT32_MAX.
 * STATUS_NOMEM is the only failure. */
enum status reader_fill(struct topology *topology, const struct node *root);

/* The number of ranks that mesh and world say, 0 when they say none that counts.  Above TOPOLOGY_MAX_RANKS: too many.
 */
uint64_t reader_world(const struct topology *topology);

/* Which place of the lists of a topology a table row means: all lists have this form. */
struct reader_list {
    void *item;
    size_t count;
    struct topology_position at;
};

#endif
