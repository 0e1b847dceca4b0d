/* A lane whose work a thread of its own runs.
 *
 * The worker takes the oldest piece as soon as what it was ordered after is done, runs it without the lock, and then
 * moves the session's work itself: a transfer ordered after the piece starts in that moment.  While the oldest piece
 * must wait for a transfer the worker moves that too, as any waiting thread does. */
#include "comm/executor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/completion_private.h"
#include "comm/executor_private.h"

enum { FIRST_REST_US = 5, LAST_REST_US = 1000, DEVICE_REST_US = 200 };

enum task_phase { TASK_QUEUED, TASK_RUNNING, TASK_RAN };

struct task {
    struct completion completion; /* first */
    executor_work *work;          /* NULL: a flush */
    void *context;
    enum task_phase phase;
    uint64_t begun_ns;
    enum status result;
    char *why;
};

static enum status step(struct completion *completion, bool *ret_over, struct error *err)
{
    const struct task *task = (const struct task *)completion;

    *ret_over = !task->work || task->phase == TASK_RAN;
    if (*ret_over && task->result != STATUS_OK)
        return error_set(err, task->result, "executor %s: %s", completion->lane->name,
                         task->why ? task->why : status_name(task->result));
    return STATUS_OK;
}

static bool task_let_go(struct completion *completion)
{
    return ((const struct task *)completion)->phase != TASK_RUNNING;
}

/* Nobody but this rank. */
static int peer(const struct completion *completion)
{
    (void)completion;
    return -1;
}

static void hint(const struct completion *completion, struct text *out)
{
    const struct task *task = (const struct task *)completion;

    if (task->phase == TASK_RUNNING)
        text_add(out, "; this work has run for %.1f s: between tiles it has to give a sign of life",
                 (double)(clock_ns() - task->begun_ns) / (double)NS_PER_S);
}

static void destroy(struct completion *completion)
{
    struct task *task = (struct task *)completion;

    free(task->why);
    free(task);
}

static const struct work_kind task_kind = {
    .step = step, .let_go = task_let_go, .peer = peer, .hint = hint, .destroy = destroy};

/* The piece to run now; NULL: none yet. */
static struct task *next_task(const struct executor *executor)
{
    struct task *task = (struct task *)executor->lane.first;

    if (!task || !task->work || task->phase != TASK_QUEUED || executor->lane.session->failed ||
        !completion_ready(&task->completion))
        return NULL;
    return task;
}

static void run(struct executor *executor, struct task *task)
{
    struct session *session = executor->lane.session;
    struct error err = {0};

    task->phase = TASK_RUNNING;
    task->begun_ns = clock_ns();
    session_unlock(session);
    enum status st = task->work(task->context, &err);
    session_lock(session);
    task->phase = TASK_RAN;
    task->result = st;
    if (st != STATUS_OK)
        task->why = strdup(err.text);
    session_moved(session);
    session_advance(session);
}

static void wait_ready(struct session *session, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};

    (void)pthread_cond_timedwait(&session->ready, &session->lock, &until);
}

/* Nothing can run: until something is submitted, or, moving it, until what the oldest piece waits for has ended. */
static void rest(struct executor *executor, uint64_t *rest_ns)
{
    struct session *session = executor->lane.session;

    if (!executor->lane.first) {
        *rest_ns = FIRST_REST_US * NS_PER_US;
        (void)pthread_cond_wait(&session->ready, &session->lock);
        return;
    }
    session_advance(session);
    if (next_task(executor) || !executor->lane.first)
        return;
    wait_ready(session, clock_ns() + *rest_ns);
    if (*rest_ns < LAST_REST_US * NS_PER_US)
        *rest_ns *= 2;
}

static void *worker_main(void *context)
{
    struct executor *executor = context;
    struct session *session = executor->lane.session;
    uint64_t rest_ns = FIRST_REST_US * NS_PER_US;

    session_lock(session);
    while (!executor->closing && !(executor->released && !executor->lane.first)) {
        struct task *task = next_task(executor);

        if (!task) {
            rest(executor, &rest_ns);
            continue;
        }
        rest_ns = FIRST_REST_US * NS_PER_US;
        run(executor, task);
    }
    executor->ended = true;
    (void)pthread_cond_broadcast(&session->ready);
    session_unlock(session);
    return NULL;
}

static enum status start_worker(struct executor *executor, struct error *err)
{
    sigset_t all;
    sigset_t old;
    int code;

    /* Signals are for the program's own threads. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    code = pthread_create(&executor->thread, NULL, worker_main, executor);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code ? error_set(err, STATUS_ENVIRONMENT, "executor %s: no thread: %s", executor->name, strerror(code))
                : STATUS_OK;
}

static void join(struct executor *executor)
{
    if (!executor->queue)
        (void)pthread_join(executor->thread, NULL);
    (void)lane_close(&executor->lane);
    if (executor->queue)
        executor->devices->join(executor->device, executor->queue);
    free(executor);
}

/* Has its worker left?  One of a device has none: it goes when nothing of it is left. */
static bool has_left(const struct executor *executor)
{
    return executor->queue ? executor->released && !executor->lane.first : executor->ended;
}

/* Join those that have left. */
static void reap(struct session *session)
{
    struct executor **link = &session->executors;

    while (*link) {
        struct executor *executor = *link;

        if (!has_left(executor) || executor->lane.active) {
            link = &executor->next;
            continue;
        }
        *link = executor->next;
        join(executor);
    }
}

static enum status create(struct session *session, const char *name, const struct executor *model,
                          struct executor **ret, struct error *err)
{
    struct executor *executor = NULL;
    enum status st = session_failed(session, err);

    if (st != STATUS_OK)
        return st;
    if (model->capacity < 1 || model->capacity > EXECUTOR_MAX_CAPACITY)
        return error_set(err, STATUS_INVALID, "executor %s: capacity %u, 1 to %d are allowed", name, model->capacity,
                         EXECUTOR_MAX_CAPACITY);
    executor = calloc(1, sizeof *executor);
    if (!executor)
        return error_set(err, STATUS_NOMEM, "executor %s", name);
    *executor = *model;
    (void)snprintf(executor->name, sizeof executor->name, "%s", name);
    for (char *at = executor->name; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f) /* it stands in sentences of one line */
            *at = ' ';
    }
    executor->lane = (struct lane){.session = session, .kind = "executor", .name = executor->name};
    st = executor->queue ? STATUS_OK : start_worker(executor, err);
    if (st != STATUS_OK) {
        free(executor);
        return st;
    }
    executor->next = session->executors;
    session->executors = executor;
    *ret = executor;
    return STATUS_OK;
}

enum status executor_create(struct session *session, const char *name, uint32_t capacity, struct executor **ret,
                            struct error *err)
{
    struct executor model = {.capacity = capacity};
    enum status st;

    session_lock(session);
    reap(session);
    st = create(session, name, &model, ret, err);
    session_unlock(session);
    return st;
}

/* With a queue of its own, which is named by the device. */
static enum status create_on(struct session *session, const struct executor *model, struct executor **ret,
                             struct error *err)
{
    struct executor own = *model;
    enum status st = own.devices->fork(own.device, &own.queue, err);

    if (st != STATUS_OK)
        return st;
    session_lock(session);
    reap(session);
    st = create(session, own.queue->ops->name(own.queue), &own, ret, err);
    session_unlock(session);
    if (st != STATUS_OK)
        own.devices->join(own.device, own.queue);
    return st;
}

enum status executor_create_on(struct session *session, const struct device_ops *devices, struct device *device,
                               uint32_t capacity, struct executor **ret, struct error *err)
{
    struct executor model = {.capacity = capacity, .devices = devices, .device = device};

    return create_on(session, &model, ret, err);
}

enum status executor_fork(struct executor *executor, struct executor **ret, struct error *err)
{
    struct session *session = executor->lane.session;
    struct executor model = {.capacity = executor->capacity, .devices = executor->devices, .device = executor->device};
    char name[2 * EXECUTOR_NAME_BYTES];
    enum status st;

    if (executor->queue)
        return create_on(session, &model, ret, err);
    session_lock(session);
    (void)snprintf(name, sizeof name, "%s.%u", executor->name, ++executor->forks);
    st = create(session, name, &model, ret, err);
    session_unlock(session);
    return st;
}

void executor_release(struct executor *executor)
{
    struct session *session = NULL;

    if (!executor)
        return;
    session = executor->lane.session;
    session_lock(session);
    CHECK(!executor->released);
    executor->released = true;
    (void)pthread_cond_broadcast(&session->ready);
    session_unlock(session);
}

/* Fill in what all pieces of work have in common, and queue it.  The lane may take it. */
void executor_queue(struct executor *executor, struct completion *completion, const struct work_kind *kind)
{
    completion->kind = kind;
    completion->operation = OPERATION_COMPUTE;
    completion->local = true;
    completion->sequence = executor->sequence++;
    completion->epoch = executor->lane.session->epoch;
    lane_submit(&executor->lane, completion);
}

enum status executor_room(const struct executor *executor, struct error *err)
{
    enum status st = lane_check(&executor->lane, err);

    if (st == STATUS_OK && executor->lane.pending >= executor->capacity)
        st = error_set(err, STATUS_OVERFLOW,
                       "executor %s: %u pieces of work are unfinished, as many as it takes; wait for one of them",
                       executor->name, executor->capacity);
    return st;
}

/* The lane may take it. */
static enum status queue(struct executor *executor, executor_work *work, void *context, struct completion **ret,
                         struct error *err)
{
    struct task *task = calloc(1, sizeof *task);

    if (!task)
        return error_set(err, STATUS_NOMEM, "work for executor %s", executor->name);
    task->work = work;
    task->context = context;
    executor_queue(executor, &task->completion, &task_kind);
    (void)pthread_cond_broadcast(&executor->lane.session->ready);
    *ret = &task->completion;
    return STATUS_OK;
}

enum status executor_submit(struct executor *executor, executor_work *work, void *context, struct completion **ret,
                            struct error *err)
{
    struct session *session = executor->lane.session;
    enum status st;

    CHECK(work);
    if (executor->queue)
        return error_set(err, STATUS_INVALID, "executor %s: work of the host for an executor of a device",
                         executor->name);
    session_lock(session);
    st = executor_room(executor, err);
    if (st == STATUS_OK)
        st = queue(executor, work, context, ret, err);
    session_unlock(session);
    return st;
}

enum status executor_flush(struct executor *executor, struct completion **ret, struct error *err)
{
    struct session *session = executor->lane.session;
    enum status st;

    if (executor->queue)
        return executor_flush_device(executor, ret, err);
    session_lock(session);
    st = lane_check(&executor->lane, err);
    if (st == STATUS_OK)
        st = queue(executor, NULL, NULL, ret, err);
    session_unlock(session);
    return st;
}

enum status executor_after(struct executor *executor, struct completion *completion, struct error *err)
{
    return lane_after(&executor->lane, completion, err);
}

struct load executor_load(const struct executor *executor)
{
    struct load load = {LOAD_UNKNOWN, LOAD_UNKNOWN};

    if (!executor)
        return load;
    session_lock(executor->lane.session);
    load.pending = executor->lane.pending;
    load.capacity = executor->capacity;
    session_unlock(executor->lane.session);
    return load;
}

struct load session_load(const struct session *session)
{
    struct session *self = (struct session *)(uintptr_t)session;
    struct load load = {LOAD_UNKNOWN, LOAD_UNKNOWN};

    session_lock(self);
    for (const struct executor *executor = self->executors; executor; executor = executor->next) {
        if (has_left(executor))
            continue;
        load.pending = (load.pending == LOAD_UNKNOWN ? 0 : load.pending) + executor->lane.pending;
        load.capacity = (load.capacity == LOAD_UNKNOWN ? 0 : load.capacity) + executor->capacity;
    }
    session_unlock(self);
    return load;
}

bool executors_here(const struct session *session)
{
    for (const struct executor *executor = session->executors; executor; executor = executor->next) {
        if (!executor->queue && pthread_equal(executor->thread, pthread_self()))
            return true;
    }
    return false;
}

struct lane *executors_busy(const struct session *session)
{
    for (struct executor *executor = session->executors; executor; executor = executor->next) {
        if (executor->lane.first)
            return &executor->lane;
    }
    return NULL;
}

bool executor_busy(const struct session *session, const struct lane *lane)
{
    for (const struct executor *executor = session->executors; executor; executor = executor->next) {
        if (&executor->lane == lane)
            return lane->first;
    }
    return false;
}

static bool all_ended(const struct session *session)
{
    for (const struct executor *executor = session->executors; executor; executor = executor->next) {
        if (executor->queue ? executor_device_busy(executor) : !executor->ended)
            return false;
    }
    return true;
}

/* Nobody tells when a device is done: it is asked now and then. */
static uint64_t next_look(const struct session *session, uint64_t until_ns)
{
    uint64_t soon_ns = clock_ns() + DEVICE_REST_US * NS_PER_US;

    for (const struct executor *executor = session->executors; executor; executor = executor->next) {
        if (executor->queue && soon_ns < until_ns)
            return soon_ns;
    }
    return until_ns;
}

bool executors_close(struct session *session, uint64_t within_ns)
{
    uint64_t until_ns = clock_ns() + within_ns;
    bool ended = false;

    session_lock(session);
    for (struct executor *executor = session->executors; executor; executor = executor->next)
        executor->closing = true;
    (void)pthread_cond_broadcast(&session->ready);
    while (!(ended = all_ended(session)) && clock_ns() < until_ns)
        wait_ready(session, next_look(session, until_ns));
    /* Nobody will join them: they go by themselves. */
    for (struct executor *executor = session->executors; !ended && executor; executor = executor->next) {
        if (!executor->queue)
            (void)pthread_detach(executor->thread);
    }
    session_unlock(session);
    while (ended && session->executors) {
        struct executor *executor = session->executors;

        session->executors = executor->next;
        join(executor);
    }
    return ended;
}
