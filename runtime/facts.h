/* What a rank brings to the consensus: every key of the topology as it was understood, the plan, and the versions,
 * variables and options that change what a run does. */
#ifndef RUNTIME_FACTS_H
#define RUNTIME_FACTS_H

#include <stddef.h>

#include "base/status.h"

struct plan;
struct session;
struct topology;

/* One thing more that all ranks must be told alike ("option.top-logits", "5"). */
struct fact {
    const char *key;
    const char *value;
};

struct facts {
    enum status prepared; /* of everything that this rank has done alone; its sentence is in why */
    const char *why;
    const struct topology *topology; /* NULL: could not be read here */
    const struct plan *plan;         /* NULL: could not be made here */
    const char *transport;           /* "mpi" */
    size_t count;
    const struct fact *more; /* [count] */
};

/* Compare with every other rank (session_consensus, with its statuses).  Collective over the world; blocks, at most
 * startup_timeout.  facts is borrowed for the call. */
enum status facts_agree(const struct facts *facts, struct session *session, struct error *err);

#endif
