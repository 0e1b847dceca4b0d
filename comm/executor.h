/* In-order queues of compute work, each with a worker thread of its own.
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
#include "comm/completion.h"

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

/* One more executor on the same device, with the same capacity, named "cpu/0.1" and so on (returns).  Nothing is
 * ordered between the two but what executor_after orders.  Statuses as above. */
enum status executor_fork(struct executor *executor, struct executor **ret, struct error *err);

/* Give it up.  What was submitted still runs, and keeps it alive until then.  NULL is allowed. */
void executor_release(struct executor *executor);

/* Queue work (returns one completion).  context is borrowed until completion: completion_retain keeps it alive.
 * STATUS_OVERFLOW   capacity pieces are unfinished: nothing was queued; wait for the oldest one
 * STATUS_TIMEOUT    quarantined
 * STATUS_NOMEM, the session's first failure */
enum status executor_submit(struct executor *executor, executor_work *work, void *context, struct completion **ret,
                            struct error *err);

/* A completion that is done when everything submitted so far is: what to wait for before results are looked at.  It
 * takes no place of the capacity.  Statuses of executor_submit but STATUS_OVERFLOW. */
enum status executor_flush(struct executor *executor, struct completion **ret, struct error *err);

/* What is submitted from now on begins when the completion (of any executor, group or route of the session) is done.
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
