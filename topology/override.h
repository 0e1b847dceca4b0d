/* --set key.path=value: a value grafted onto the document before anybody reads it. */
#ifndef TOPOLOGY_OVERRIDE_H
#define TOPOLOGY_OVERRIDE_H

#include "topology/node.h"
#include "topology/source.h"

/* Put override number (from 1) over the document.  root is a map.  Errors go to the source; STATUS_NOMEM is the only
 * failure. */
enum status override_apply(struct topology_source *source, uint32_t number, struct node *root);

#endif
