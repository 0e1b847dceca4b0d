/* Work on a queue of a device.
 *
 * No thread belongs to it: whoever moves the session's work queues a piece when its turn has come, sets a mark behind
 * it and asks for the mark later.  A piece that has been queued lets the next one start, so that the device finds its
 * work in line.  A piece that was ordered after a piece of another queue is queued as soon as that one is: its queue
 * waits for the other's mark, not the host.  Only a transfer, what stands behind one in its own line, and
 * what was ordered after work of other ranks wait for the host. */
#include <stdlib.h>

#include "comm/executor_private.h"

enum phase { PHASE_QUEUED, PHASE_RUNNING, PHASE_OVER };

/* One piece of work, a flush (neither work nor into), or a transfer (into). */
struct device_task {
    struct completion completion; /* first */
    struct memory *memory;
    executor_device_work *work;
    void *context;
    enum phase phase;
    struct memory_mark *mark; /* while running */

    const struct transfers *transfers;
    struct tensor *from;
    struct tensor *into;
    struct transfer *transfer; /* while running */
};

static enum status wrap(const struct completion *completion, enum status st, struct error *err)
{
    return st == STATUS_OK ? st : error_wrap(err, st, "executor %s", completion->lane->name);
}

/* Running from now on, even where the work says that it failed: what it had queued by then still happens. */
static enum status begin_work(struct device_task *task, struct error *err)
{
    enum status st = task->work ? task->work(task->context, task->memory, err) : STATUS_OK;
    enum status marked = task->memory->ops->mark(task->memory, &task->mark, st == STATUS_OK ? err : NULL);

    task->phase = marked == STATUS_OK ? PHASE_RUNNING : PHASE_OVER;
    return st != STATUS_OK ? st : marked;
}

/* The provider may use another queue of the device: behind it comes only what is submitted after its end. */
static enum status begin_transfer(struct device_task *task, struct error *err)
{
    const struct transfer_request request = {.from = task->from, .to = task->into->memory, .into = task->into};
    enum status st;

    if (task->completion.lane->first != &task->completion)
        return STATUS_OK;
    st = transfer_begin(task->transfers, &request, &task->transfer, err);
    task->phase = st == STATUS_OK ? PHASE_RUNNING : PHASE_OVER;
    return st;
}

/* Has what was begun happened?  A device that failed does nothing any more. */
static enum status look(struct device_task *task, struct error *err)
{
    bool over = false;
    enum status st = task->into ? transfer_test(task->transfer, &over, err)
                                : task->memory->ops->reached(task->memory, task->mark, &over, err);

    if (st != STATUS_OK || over)
        task->phase = PHASE_OVER;
    return st;
}

static enum status step(struct completion *completion, bool *ret_over, struct error *err)
{
    struct device_task *task = (struct device_task *)completion;
    enum status st = STATUS_OK;

    if (task->phase == PHASE_QUEUED)
        st = task->into ? begin_transfer(task, err) : begin_work(task, err);
    if (st == STATUS_OK && task->phase == PHASE_RUNNING)
        st = look(task, err);
    *ret_over = st == STATUS_OK && task->phase == PHASE_OVER;
    if (*ret_over)
        session_moved(completion->session);
    return wrap(completion, st, err);
}

static bool posted(const struct completion *completion)
{
    const struct device_task *task = (const struct device_task *)completion;

    return !task->into && task->phase != PHASE_QUEUED;
}

static bool let_go(struct completion *completion)
{
    struct device_task *task = (struct device_task *)completion;

    if (task->phase == PHASE_RUNNING)
        (void)look(task, NULL);
    return task->phase != PHASE_RUNNING;
}

/* Nobody but this rank. */
static int peer(const struct completion *completion)
{
    (void)completion;
    return -1;
}

static void destroy(struct completion *completion)
{
    struct device_task *task = (struct device_task *)completion;

    transfer_release(task->transfer);
    tensor_release(task->from);
    tensor_release(task->into);
    free(task);
}

static bool chain(struct completion *completion, const struct completion *before);

static const struct work_kind device_kind = {
    .step = step, .chain = chain, .posted = posted, .let_go = let_go, .peer = peer, .destroy = destroy};

/* What fails here fails again when the work is queued.  A transfer may use any queue of the device: that the host waits
 * for what comes before one is all that is sure. */
static bool chain(struct completion *completion, const struct completion *before)
{
    const struct device_task *task = (const struct device_task *)completion;
    const struct device_task *leader = (const struct device_task *)before;
    const struct memory *queue = NULL;
    const struct memory_mark *mark = NULL;

    if (before->kind != &device_kind || leader->phase != PHASE_RUNNING || task->into || !task->memory->ops->follow)
        return false;
    queue = leader->memory;
    mark = leader->into ? transfer_mark(leader->transfer, &queue) : leader->mark;
    return mark && queue->ops == task->memory->ops && task->memory->ops->follow(task->memory, mark, NULL) == STATUS_OK;
}

/* A piece with what model says (takes its tensors on success); limited: it needs a place of the capacity. */
static enum status submit(struct executor *executor, const struct device_task *model, bool limited,
                          struct completion **ret, struct error *err)
{
    struct session *session = executor->lane.session;
    struct device_task *task = NULL;
    enum status st;

    if (!executor->queue)
        return error_set(err, STATUS_INVALID, "executor %s: work of a device for an executor of the host",
                         executor->name);
    task = malloc(sizeof *task);
    if (!task)
        return error_set(err, STATUS_NOMEM, "work for executor %s", executor->name);
    *task = *model;
    task->memory = executor->queue;
    session_lock(session);
    st = limited ? executor_room(executor, err) : lane_check(&executor->lane, err);
    if (st == STATUS_OK) {
        executor_queue(executor, &task->completion, &device_kind);
        *ret = &task->completion;
    }
    session_unlock(session);
    if (st != STATUS_OK)
        free(task);
    return st;
}

enum status executor_submit_on(struct executor *executor, executor_device_work *work, void *context,
                               struct completion **ret, struct error *err)
{
    struct device_task model = {.work = work, .context = context};

    CHECK(work);
    return submit(executor, &model, true, ret, err);
}

enum status executor_flush_device(struct executor *executor, struct completion **ret, struct error *err)
{
    struct device_task model = {0};

    return submit(executor, &model, false, ret, err);
}

enum status executor_transfer(struct executor *executor, const struct transfers *transfers, struct tensor *from,
                              struct tensor *into, struct completion **ret, struct error *err)
{
    struct device_task model = {.transfers = transfers, .from = tensor_retain(from), .into = tensor_retain(into)};
    enum status st = submit(executor, &model, true, ret, err);

    if (st != STATUS_OK) {
        tensor_release(from);
        tensor_release(into);
    }
    return st;
}

bool executor_device_busy(const struct executor *executor)
{
    for (struct completion *completion = executor->lane.first; completion; completion = completion->next) {
        if (!let_go(completion))
            return true;
    }
    return false;
}
