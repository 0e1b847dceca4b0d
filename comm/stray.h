/* Messages that nobody asked for: at a clean end every message has been received, or members disagreed unseen. */
#ifndef COMM_STRAY_H
#define COMM_STRAY_H

#include "comm/session_private.h"

/* Look for a message on every group and route of this rank that has no work under way; call it when every other rank
 * has come to its end.  Blocks for 1 s at most, where a message is still on its way.  Wants the session's lock.
 * STATUS_MISMATCH names the first one: group or route, sender, and what its header says. */
enum status stray_check(struct session *session, struct error *err);

#endif
