/* The world of an mpirun for the programs here: a session over the plugin, and a suite that keeps every rank in step.
 */
#ifndef TESTS_MPI_WORLD_H
#define TESTS_MPI_WORLD_H

#include <check.h>

#include "comm/session.h"
#include "comm/spec.h"
#include "comm/transport.h"

struct world {
    const struct transport_ops *ops;
    struct transport *transport;
    struct session *session; /* NULL after world_open alone */
    int rank;
    int size;
    int members[64]; /* the ranks in reverse */
    struct group_spec group;
    struct memory *shared; /* set before world_open: what this rank shares with its host; NULL: nothing */
    bool lend_all;         /* set before world_open: it is lent to every rank there */
};

/* MPI, and this rank's place.  Collective.  Statuses of the plugin. */
enum status world_open(struct world *world, struct error *err);

/* The same with a session over it: full checks, 30 s. */
enum status world_start(struct world *world, struct error *err);

/* Agree on nothing in particular; build the group of all, in reverse order, with id 1 and every operation, and the
 * routes, which are borrowed.  Collective. */
enum status world_build(struct world *world, const struct route_spec *routes, size_t route_count, struct error *err);

/* Run the suite without forking, with results told by rank 0, and close.  Returns the program's exit code.  st, err:
 * what the start came to; anything but STATUS_OK is told, and nothing runs. */
int world_run(struct world *world, Suite *suite, enum status st, struct error *err);

#endif
