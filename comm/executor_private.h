/* The inside of executors: ending them, for the session; queues of devices, for their own file. */
#ifndef COMM_EXECUTOR_PRIVATE_H
#define COMM_EXECUTOR_PRIVATE_H

#include "comm/completion_private.h"
#include "comm/executor.h"
#include "comm/session_private.h"

enum { EXECUTOR_NAME_BYTES = 64 };

struct executor {
    struct lane lane;
    struct executor *next; /* in session->executors */
    char name[EXECUTOR_NAME_BYTES];
    uint32_t capacity;
    uint32_t forks;
    uint64_t sequence;

    /* Of a device: */
    const struct device_ops *devices;
    struct device *device;
    struct memory *queue; /* its own; NULL: a worker runs the work */

    pthread_t thread;
    bool released; /* the caller's end: the worker leaves when nothing is left to do */
    bool closing;  /* the session's: it leaves after the piece that it runs */
    bool ended;    /* it has left, and can be joined */
};

/* Fill in what all pieces of work have in common and queue it.  The lane may take it; wants the session's lock. */
void executor_queue(struct executor *executor, struct completion *completion, const struct work_kind *kind);

/* May one more piece be queued?  Statuses of executor_submit.  Wants the session's lock. */
enum status executor_room(const struct executor *executor, struct error *err);

/* executor_flush of a device's. */
enum status executor_flush_device(struct executor *executor, struct completion **ret, struct error *err);

/* Is something on its queue that has begun and not happened?  Wants the session's lock. */
bool executor_device_busy(const struct executor *executor);

/* Is this thread the worker of one of them?  Wants the session's lock. */
bool executors_here(const struct session *session);

/* Lend the lane of one that has not run all that was submitted to it, until it has; NULL: there is none.  Wants the
 * session's lock. */
struct lane *executors_busy(const struct session *session);
/* Is this the lane of such a one?  Of one that has gone it is not.  Wants the session's lock. */
bool executor_busy(const struct session *session, const struct lane *lane);

/* End and join all workers.  What has not begun never will.  Waits at most within_ns for work that is running; false:
 * some still is, and the session's memory must stay.  Takes the session's lock itself. */
bool executors_close(struct session *session, uint64_t within_ns);

#endif
