/* Exercises one group or route of the plan with data that every rank can verify. */
#ifndef LAUNCHER_CHECK_PROBE_H
#define LAUNCHER_CHECK_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct group;
struct route;
struct memory;
struct shuttle;

/* Run every operation that the group selects: each of its dtypes, sizes from nothing to about 1 MiB (less where the
 * group is limited), uneven counts with zeros, first and inner axis, in place and not.  Collective over the group;
 * blocks by the session's timeout rule.  Tensors travel where the shuttle leads; NULL: in host memory, of the kind
 * shared; NULL: the process's own.  *ret_cases: operations that were verified here.
 * STATUS_CORRUPT  a byte is wrong though every header was right: group, operation, dtype, shape, byte, expected, found
 * otherwise       of the operations and the shuttle */
enum status probe_group(struct group *group, struct shuttle *shuttle, struct memory *shared, uint64_t *ret_cases,
                        struct error *err);

/* Send its bundle with the smallest, middle and largest extents that the plan allows, several transfers in flight.
 * Collective over its two ends, from where sender tells.  Blocks.  Statuses as above. */
enum status probe_route(struct route *route, struct shuttle *shuttle, bool sender, uint64_t *ret_cases,
                        struct error *err);

#endif
