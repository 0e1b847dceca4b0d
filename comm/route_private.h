/* Building and closing routes, for the session.  All functions want the session's lock. */
#ifndef COMM_ROUTE_PRIVATE_H
#define COMM_ROUTE_PRIVATE_H

#include "comm/route.h"
#include "comm/session_private.h"

/* The pool of this rank's end is made here; a rank that is neither end gets a route without one.
 * STATUS_INVALID (a schema that breaks its contract), STATUS_OVERFLOW, STATUS_NOMEM. */
enum status route_create(struct session *session, const struct route_spec *spec, struct route **ret, struct error *err);
const struct lane *route_lane(const struct route *route);
void route_close(struct route *route);
void route_destroy(struct route *route);

#endif
