/* Something queued on a memory that is waited for: a mark behind it, set once, until it is reached.
 *
 * Zero-initialise.  All functions want the session's lock; none but queued_end waits. */
#ifndef COMM_QUEUED_H
#define COMM_QUEUED_H

#include "comm/session_private.h"

struct queued {
    struct memory *memory; /* NULL: nothing is waited for */
    struct memory_mark *mark;
};

/* Wait for everything queued on the memory so far.  In memory that the host may touch it has happened. */
enum status queued_mark(struct queued *queued, struct session *session, struct memory *memory, struct error *err);

/* *ret: nothing is waited for any more.  STATUS_ENVIRONMENT: the device failed; then nothing is, either. */
enum status queued_reached(struct queued *queued, struct session *session, bool *ret, struct error *err);

/* After a failure: true once nothing of it runs any more, so that its memory can be given back. */
bool queued_let_go(struct queued *queued, struct session *session);

/* After a failure: what runs on a device's queue ends by itself, and soon.  Move the session until nothing of it is
 * waited for any more, or for this long.  Sleeps without the lock. */
void queued_end(struct session *session, uint64_t patience_ns);

#endif
