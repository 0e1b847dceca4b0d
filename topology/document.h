/* YAML bytes to a tree.  The one place that knows libyaml. */
#ifndef TOPOLOGY_DOCUMENT_H
#define TOPOLOGY_DOCUMENT_H

#include "topology/node.h"
#include "topology/source.h"

enum {
    DOCUMENT_MAX_ANCHORS = 1024,
    DOCUMENT_MAX_ALIASED = 65536 /* values that all aliases together stand for */
};

/* Parse the source's file.  Errors go to the source; *ret is the root, or NULL when it could not be read to its end.
 * STATUS_NOMEM is the only failure. */
enum status document_parse_file(struct topology_source *source, struct node **ret);

/* Parse the value of override number (from 1), which starts at byte offset: a flow collection or a scalar. */
enum status document_parse_override(struct topology_source *source, uint32_t number, size_t offset, struct node **ret);

#endif
