/* Rows on their way between the host, which computes with them, and a device's memory, in which they travel between
 * ranks.
 *
 * Both ways are pieces of work of an executor on the device: each has a completion, under the session's timeout rule.
 * What is ordered after a promotion leaves when the rows are there; nobody waits for that but who wants to write the
 * host's tensor again.  A demotion is waited for, for the host reads at once. */
#ifndef RUNTIME_SHUTTLE_H
#define RUNTIME_SHUTTLE_H

#include <stdint.h>

#include "base/status.h"
#include "base/tensor.h"

struct completion;
struct device;
struct device_ops;
struct session;
struct shuttle;

/* All are borrowed until shuttle_destroy.  Statuses of executor_create_on. */
enum status shuttle_create(struct session *session, const struct device_ops *devices, struct device *device,
                           struct shuttle **ret, struct error *err);
/* Before session_close.  Every promotion has been settled.  NULL is allowed. */
void shuttle_destroy(struct shuttle *shuttle);

/* A tensor at the host's end, which the device reaches without a detour, or at the device's end (returns).
 * STATUS_NOMEM, STATUS_OVERFLOW. */
enum status shuttle_tensor_here(struct shuttle *shuttle, enum dtype dtype, const struct shape *shape,
                                struct tensor **ret, struct error *err);
enum status shuttle_tensor_there(struct shuttle *shuttle, enum dtype dtype, const struct shape *shape,
                                 struct tensor **ret, struct error *err);

/* Queue the copy of here to there, of equal dtype and shape (returns its completion): here must not be written until it
 * is settled, and whoever sends there is ordered after it (group_after, route_after).  Does not block.  Statuses of
 * executor_transfer. */
enum status shuttle_promote(struct shuttle *shuttle, struct tensor *here, struct tensor *there, struct completion **ret,
                            struct error *err);

/* Wait until it is over, and release it; *completion is NULL afterwards, and may be before.  Adds the time to *wait_ns.
 * Statuses of completion_wait. */
enum status shuttle_settle(struct completion **completion, uint64_t *wait_ns, struct error *err);

/* Copy there to here, and wait.  Statuses of both. */
enum status shuttle_demote(struct shuttle *shuttle, struct tensor *there, struct tensor *here, uint64_t *wait_ns,
                           struct error *err);

#endif
