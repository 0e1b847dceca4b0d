/* What `ferry bench` measures: the plan's groups and routes, with specs of its own that carry any number of bytes. */
#ifndef LAUNCHER_BENCH_TARGET_H
#define LAUNCHER_BENCH_TARGET_H

#include <stdbool.h>

#include "comm/group.h"
#include "comm/route.h"
#include "launcher/bench_options.h"
#include "launcher/job.h"

/* One group or route of the plan, and what the bench has built for it. */
struct bench_target {
    const char *name;
    bool is_route;
    uint32_t operations; /* OPERATION_BIT mask of what is measured */
    enum dtype dtype;
    int size;
    const int *members;  /* [size] world ranks; of a route: from, to */
    int pair[2];         /* members of a route */
    uint32_t group_id;   /* of the members */
    uint32_t route_id;   /* there */
    uint32_t back_id;    /* and back */
    struct group *group; /* once built */
    struct route *route;
    struct route *back;
};

struct bench_targets {
    int count;
    struct bench_target *target;
    struct group *world; /* every rank */

    /* Inside. */
    struct group_spec *groups;
    size_t group_count;
    struct route_spec *routes;
    size_t route_count;
    struct tensor_spec payload; /* what every route carries: bytes */
};

/* Choose targets, and build their groups and routes in the session.  Local, the same on every rank.
 * STATUS_USAGE: options name a target that is not there, or an operation that no target selects; statuses of
 * session_build. */
enum status bench_targets_build(const struct bench_options *options, const struct job_view *view,
                                struct bench_targets *ret, struct error *err);
/* After session_close: the specs are lent to it. */
void bench_targets_done(struct bench_targets *targets);

#endif
