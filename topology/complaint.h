/* What the reader says when a value does not fit its key: the way to it, what was expected, what stands there.  Each
 * goes to the source as one error at the value's position. */
#ifndef TOPOLOGY_COMPLAINT_H
#define TOPOLOGY_COMPLAINT_H

#include <stddef.h>

#include "base/text.h"
#include "topology/keys.h"
#include "topology/node.h"
#include "topology/topology.h"

/* The way from the root to a value: a chain of frames on the stack, NULL at the root. */
struct path {
    const struct path *up;
    const char *name;        /* of a key, or NULL: an item */
    size_t index;            /* of an item */
    const struct node *node; /* of an item: its name is shown when it has one */
};

struct reader {
    struct topology *topology;
    struct topology_source *source;
    struct topology_position nowhere;
};

/* The number of ranks that a rank must be below, as far as the file has said it. */
uint64_t reader_world_limit(const struct reader *reader);

/* mesh.tensor, groups[evaluators].members[0]: an item with a name is called by it, as --set may. */
void complaint_path(const struct path *path, struct text *text);

/* "PATH: expected EXPECTATION, got `VALUE`HINT" */
void complain_expected(struct reader *reader, const struct path *path, const struct node *node, const char *expectation,
                       const char *hint);
/* The same, with what the table says of the key. */
void complain_misfit(struct reader *reader, const struct path *path, const struct key *key, const struct node *node);
/* The value stands in its list twice. */
void complain_repeated(struct reader *reader, const struct path *path, const struct node *node);
/* With the nearest key of the section.  A merge key is not spoken of here: the document has refused it. */
void complain_unknown_key(struct reader *reader, const struct path *path, const struct key_section *section,
                          const struct node *name);
void complain_missing_key(struct reader *reader, const struct path *path, const struct key *key,
                          struct topology_position at);

#endif
