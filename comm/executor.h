/* In-order queues of compute work: each has a worker thread of its own, or is a queue of a device.
 *
 * Work submitted to one executor runs in the order of submission, one piece at a time; executors forked from each other
 * share the device (here: this process's cores) and run side by side.  Between tiles the work calls session_progress:
 * that moves the transfers behind it and is its sign of life.  Work that returns anything but STATUS_OK fails the
 * session with its sentence, so that nothing that was ordered after it begins anywhere.
 *
 * None of these functions blocks; all are local.  An executor belongs to its session, which joins its thread at the
 * latest in session_close. */
#ifndef COMM_EXECUTOR_H
#define COMM_EXECUTOR_H

#include <stdint.h>

#include "base/status.h"
#include "base/transfer.h"
#include "comm/completion.h"
#include "comm/device.h"

struct executor;
struct session;

/* One piece of work, called in the executor's thread without any lock.  It may call comm, but must not wait for what
 * was submitted to its own executor behind it, nor return before everything that it started is over. */
typedef enum status executor_work(void *context, struct error *err);

enum { EXECUTOR_MAX_CAPACITY = 65536 };

/* A queue of at most capacity unfinished pieces, 1 to EXECUTOR_MAX_CAPACITY (returns).  name: in errors, the recorder
 * and what the doctor says ("cpu/0"); copied, cut at 63 bytes.
 * STATUS_INVALID (capacity), STATUS_NOMEM, STATUS_ENVIRONMENT (no thread could be started), the session's first
 * failure. */
enum status executor_create(struct session *session, const char *name, uint32_t capacity, struct executor **ret,
                            struct error *err);

/* One whose work is queued on a device instead (returns), with a queue of its own: nothing orders it with comm's copies
 * on the device's memory, or with other executors, but executor_after, group_after and route_after.  The device is open
 * until session_close (borrowed).  Named by its queue ("cuda:0.1").  Statuses as above, and the device's. */
enum status executor_create_on(struct session *session, const struct device_ops *devices, struct device *device,
                               uint32_t capacity, struct executor **ret, struct error *err);

/* One more executor on the same device, with the same capacity, named "cpu/0.1" and so on (returns).  Nothing is
 * ordered between the two but what executor_after orders.  Statuses as above. */
enum status executor_fork(struct executor *executor, struct executor **ret, struct error *err);

/* Give it up.  What was submitted still runs, and keeps it alive until then.  NULL is allowed. */
void executor_release(struct executor *executor);

/* Queue work (returns one completion).  context is borrowed until completion: completion_retain keeps it alive.
 * STATUS_OVERFLOW   capacity pieces are unfinished: nothing was queued; wait for the oldest one
 * STATUS_TIMEOUT    quarantined
 * STATUS_INVALID    the executor is a device's
 * STATUS_NOMEM, the session's first failure */
enum status executor_submit(struct executor *executor, executor_work *work, void *context, struct completion **ret,
                            struct error *err);

/* One piece of a device's work: queue on memory (base/memory.h) what is to be done, and return.  Called under the
 * session's lock by whichever thread moves the session's work: it neither waits nor calls comm.  Pieces follow each
 * other on the queue without the host between them.  What it queues gives no sign of life: it must be over within
 * timeout. */
typedef enum status executor_device_work(void *context, struct memory *memory, struct error *err);

/* Queue such work (returns one completion): done when the device has done all that the work queued.  Statuses of
 * executor_submit; STATUS_INVALID: the executor is no device's. */
enum status executor_submit_on(struct executor *executor, executor_device_work *work, void *context,
                               struct completion **ret, struct error *err);

/* Promote or demote: copy a tensor of the host's memory into one of the device's, or back, by the provider that
 * transfers names for the pair (borrowed until completion; returns one completion).  Begins when everything submitted
 * before it is done.  Retains both tensors until it is over: the caller may release his, but must not write from; into
 * is meaningless before the completion is done.  Statuses of executor_submit; the completion fails with those of
 * transfer_begin: STATUS_UNSUPPORTED names a memory that is not one of transfers'. */
enum status executor_transfer(struct executor *executor, const struct transfers *transfers, struct tensor *from,
                              struct tensor *into, struct completion **ret, struct error *err);

/* A completion that is done when everything submitted so far is: what to wait for before results are looked at.  It
 * takes no place of the capacity.  Statuses of executor_submit but STATUS_OVERFLOW. */
enum status executor_flush(struct executor *executor, struct completion **ret, struct error *err);

/* What is submitted from now on begins when the completion (of any executor, group or route of the session) is done.
 * Between queues of devices the devices see to that, without the host: a piece of work is queued as soon as the work or
 * transfer before it is, and happens behind it.
 * Several calls add up.  The completion may be released or abandoned at once.  The same on a group or a route:
 * group_after, route_after.  STATUS_INVALID (of another session), STATUS_NOMEM, the session's first failure. */
enum status executor_after(struct executor *executor, struct completion *completion, struct error *err);

/* How much is queued.  Unknown is never zero: who has no queue reports LOAD_UNKNOWN, and must not be taken for idle. */
#define LOAD_UNKNOWN UINT64_MAX

struct load {
    uint64_t pending;  /* submitted, neither done nor failed; LOAD_UNKNOWN */
    uint64_t capacity; /* how many may be; LOAD_UNKNOWN */
};

/* Of one executor.  NULL (a backend without queues): unknown. */
struct load executor_load(const struct executor *executor);

/* Of the device: all executors of the session together, while there is any; else unknown. */
struct load session_load(const struct session *session);

#endif
