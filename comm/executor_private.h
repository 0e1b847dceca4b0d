/* Ending executors, for the session alone. */
#ifndef COMM_EXECUTOR_PRIVATE_H
#define COMM_EXECUTOR_PRIVATE_H

#include "comm/executor.h"
#include "comm/session_private.h"

/* Has every executor run all that was submitted to it?  Wants the session's lock. */
bool executors_idle(const struct session *session);

/* End and join all workers.  What has not begun never will.  Waits at most within_ns for work that is running; false:
 * some still is, and the session's memory must stay.  Takes the session's lock itself. */
bool executors_close(struct session *session, uint64_t within_ns);

#endif
