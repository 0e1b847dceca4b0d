/* Rows on their way between the host, which computes with them, and a device's memory, in which they travel between
 * ranks.
 *
 * Both ways are copies in the device's queue.  What is sent from the device leaves behind what was promoted before, so
 * nobody waits for that; the host's tensor stays as it is until the promotion is settled.  A demotion is waited for,
 * for the host reads at once.  While it waits, a rank moves its session and answers the others. */
#ifndef RUNTIME_SHUTTLE_H
#define RUNTIME_SHUTTLE_H

#include <stdint.h>

#include "base/status.h"
#include "base/tensor.h"
#include "base/transfer.h"

struct session;
struct shuttle;

/* session and memories are borrowed until shuttle_destroy.  pinned NULL: the device has none.  timeout_ns: how long one
 * copy may take.  STATUS_NOMEM. */
enum status shuttle_create(struct session *session, struct memory *device, struct memory *pinned, uint64_t timeout_ns,
                           struct shuttle **ret, struct error *err);
/* Every transfer has been settled or released.  NULL is allowed. */
void shuttle_destroy(struct shuttle *shuttle);

/* A tensor at the host's end, which the device reaches without a detour, or at the device's end (returns).
 * STATUS_NOMEM, STATUS_OVERFLOW. */
enum status shuttle_tensor_here(struct shuttle *shuttle, enum dtype dtype, const struct shape *shape,
                                struct tensor **ret, struct error *err);
enum status shuttle_tensor_there(struct shuttle *shuttle, enum dtype dtype, const struct shape *shape,
                                 struct tensor **ret, struct error *err);

/* Queue the copy of here to there, of equal dtype and shape; here must not be written until the transfer (returns) is
 * settled.  Does not block.  Statuses of transfer_begin. */
enum status shuttle_promote(struct shuttle *shuttle, struct tensor *here, struct tensor *there, struct transfer **ret,
                            struct error *err);

/* Wait until it is over, and release it; *transfer is NULL afterwards, and may be before.  Adds the time to *wait_ns.
 * STATUS_TIMEOUT (not within timeout_ns), STATUS_LOST (the device failed), the session's first failure. */
enum status shuttle_settle(struct shuttle *shuttle, struct transfer **transfer, uint64_t *wait_ns, struct error *err);

/* Copy there to here, and wait.  Statuses of both. */
enum status shuttle_demote(struct shuttle *shuttle, struct tensor *there, struct tensor *here, uint64_t *wait_ns,
                           struct error *err);

#endif
