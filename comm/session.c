/* One lock, one control thread, one list of active lanes.
 *
 * Whoever submits or waits moves the work in its own thread; the control thread wakes every few tens of milliseconds,
 * answers the control channel and moves what nobody else moves, so that a computing rank is never taken for dead. */
#include "comm/session.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "comm/cause.h"
#include "comm/completion_private.h"
#include "comm/group_private.h"
#include "comm/recorder.h"
#include "comm/route_private.h"
#include "comm/staging.h"

enum {
    WAKE_MS = 20,       /* of the control thread */
    SPIN_US = 50,       /* of a wait, before it sleeps */
    FIRST_SLEEP_US = 5, /* then doubled up to */
    LAST_SLEEP_US = 1000,
    LONG_SLEEP_US = 4000, /* of a wait that has lasted LONG_WAIT times as long: it is late by a 64th at most */
    LONG_WAIT = 64,
    PATIENCE_MS = 5, /* of a wait, before it looks at the timeout rule */
    POLL_US = 100,   /* between two looks at the control channel: each is a call into MPI */
    PROGRESS_US = 50 /* between two turns of session_progress that do something */
};

int session_rank(const struct session *session)
{
    return session->rank;
}

int session_size(const struct session *session)
{
    return session->size;
}

void session_lock(struct session *session)
{
    (void)pthread_mutex_lock(&session->lock);
}

void session_unlock(struct session *session)
{
    (void)pthread_mutex_unlock(&session->lock);
}

/* Take over a failure that control knows of, own or heard; the first wins. */
static void adopt(struct session *session)
{
    const struct cause *cause = session->failed ? NULL : control_poisoned(session->control);

    if (!cause)
        return;
    session->failed = true;
    (void)error_set(&session->failure, cause->status, "%s", cause->text);
}

enum status session_poison_cause(struct session *session, const struct cause *cause)
{
    if (!session->failed) {
        session->failed = true;
        (void)error_set(&session->failure, cause->status, "%s", cause->text);
        control_poison(session->control, cause);
    }
    return session->failure.status;
}

enum status session_poison(struct session *session, enum status st, const char *text)
{
    struct cause cause = {.status = st,
                          .rank = session->rank,
                          .reporter = session->rank,
                          .time_ns = clock_ns() - session->start_ns,
                          .epoch = session->epoch};

    if (st == STATUS_MISMATCH || session->size == 1)
        (void)snprintf(cause.text, sizeof cause.text, "%s", text);
    else
        (void)snprintf(cause.text, sizeof cause.text, "rank %d: %.1500s", session->rank, text);
    return session_poison_cause(session, &cause);
}

enum status session_failed(struct session *session, struct error *err)
{
    adopt(session);
    if (!session->failed)
        return STATUS_OK;
    return error_set(err, session->failure.status, "%s", session->failure.text);
}

void session_advance(struct session *session)
{
    struct error err = {0};
    struct lane **link = &session->active;
    uint64_t now = clock_ns();
    enum status st = STATUS_OK;

    if (now - session->polled_ns >= POLL_US * NS_PER_US) {
        session->polled_ns = now;
        st = control_poll(session->control, &err);
    }
    if (st != STATUS_OK)
        (void)session_poison(session, st, err.text);
    adopt(session);
    while (*link) {
        struct lane *lane = *link;

        lane_step(lane);
        if (lane->first) {
            link = &lane->next_active;
        } else {
            *link = lane->next_active;
            lane->active = false;
        }
    }
}

/* Say what this rank waits for, to whoever asks: the oldest work of the lane. */
static void tell_wait(struct session *session, const struct lane *lane, uint64_t since_ns)
{
    struct wait_state *wait = &session->wait;
    const struct completion *head = lane ? lane->first : NULL;

    wait->waiting = true;
    wait->since_ns = since_ns;
    wait->peer = -1;
    if (!head)
        return;
    wait->operation = head->operation;
    wait->object_id = lane->id;
    (void)snprintf(wait->object_name, sizeof wait->object_name, "%s", lane->name);
    wait->peer = head->kind->peer(head);
    wait->sequence = head->sequence;
}

/* The timeout rule has run out: quarantine the work, or poison the session with the cause. */
static enum status give_up(struct session *session, struct lane *lane, struct cause *cause, struct error *err)
{
    struct completion *head = lane ? lane->first : NULL;
    struct text text = {0};
    enum status st = STATUS_TIMEOUT;

    if (head && head->kind->hint) {
        size_t used = strlen(cause->text);

        head->kind->hint(head, &text);
        (void)snprintf(cause->text + used, sizeof cause->text - used, "%s", text_string(&text));
        text_done(&text);
    }
    if (session->options.on_timeout == ON_TIMEOUT_QUARANTINE && head) {
        lane->orphan = head;
        return error_set(err, STATUS_TIMEOUT, "%s", cause->text);
    }
    st = session_poison_cause(session, cause);
    (void)session_failed(session, err);
    return st;
}

/* One turn of a wait without the lock: spin at first, then sleep in growing steps. */
static void pause_wait(struct session *session, uint64_t since_ns, uint64_t now_ns, uint64_t deadline_ns,
                       uint64_t *sleep_ns)
{
    bool spin = now_ns - since_ns < SPIN_US * NS_PER_US;
    uint64_t left = deadline_ns - now_ns;
    uint64_t most_ns = (now_ns - since_ns) / LONG_WAIT;

    if (most_ns < LAST_SLEEP_US * NS_PER_US)
        most_ns = LAST_SLEEP_US * NS_PER_US;
    if (most_ns > LONG_SLEEP_US * NS_PER_US)
        most_ns = LONG_SLEEP_US * NS_PER_US;

    session_unlock(session);
    if (!spin) {
        clock_sleep_ns(*sleep_ns < left ? *sleep_ns : left);
        *sleep_ns = *sleep_ns * 2 < most_ns ? *sleep_ns * 2 : most_ns;
    }
    session_lock(session);
}

static enum status wait_loop(struct session *session, struct lane *lane, bool (*over)(void *context), void *context,
                             uint64_t deadline_ns, struct error *err)
{
    uint64_t begun = clock_ns();
    uint64_t since = begun;
    uint64_t moved = session->moved;
    uint64_t sleep_ns = FIRST_SLEEP_US * NS_PER_US;

    for (;;) {
        uint64_t now = 0;
        struct cause cause = {0};

        session_advance(session);
        if (over(context))
            return STATUS_OK;
        if (session->failed)
            return session_failed(session, err);
        now = clock_ns();
        if (now >= deadline_ns)
            return error_set(err, STATUS_TIMEOUT, "still waiting after %" PRIu64 " ms", (now - begun) / NS_PER_MS);
        if (session->moved != moved) {
            moved = session->moved;
            since = now;
            sleep_ns = FIRST_SLEEP_US * NS_PER_US;
        }
        tell_wait(session, lane, since);
        if (now - since > PATIENCE_MS * NS_PER_MS && control_expired(session->control, &cause))
            return give_up(session, lane, &cause, err);
        pause_wait(session, since, now, deadline_ns, &sleep_ns);
    }
}

enum status session_wait(struct session *session, struct lane *lane, bool (*over)(void *context), void *context,
                         uint64_t deadline_ns, struct error *err)
{
    enum status st;

    session->waiters++;
    tell_wait(session, lane, clock_ns());
    recorder_state(session->recorder, &session->wait);
    st = wait_loop(session, lane, over, context, deadline_ns, err);
    if (!--session->waiters)
        session->wait.waiting = false;
    return st;
}

/* A fault whose hour has come; what remains for the caller is oom and skip. */
static enum status act(struct session *session, const struct fault *fault, bool *ret_skip, struct error *err)
{
    switch (fault->kind) {
    case FAULT_KILL:
        (void)raise(SIGKILL);
        break;
    case FAULT_STOP:
        (void)raise(SIGSTOP);
        break;
    case FAULT_DELAY:
        session_unlock(session);
        clock_sleep_ns(fault->delay_ns);
        session_lock(session);
        break;
    case FAULT_SKIP:
        *ret_skip = true;
        break;
    case FAULT_FLIP:
    case FAULT_SHORT:
        session->damage = *fault;
        session->damage_armed = true;
        break;
    case FAULT_OOM:
        return error_set(err, STATUS_NOMEM, "rehearsed: no memory for operation %" PRIu64, fault->operation);
    }
    return STATUS_OK;
}

enum status session_admit(struct session *session, bool *ret_skip, struct error *err)
{
    enum status st = session_failed(session, err);
    uint64_t operation = session->counters.operations;

    *ret_skip = false;
    if (st != STATUS_OK)
        return st;
    session->counters.operations++;
    for (int i = 0; i < session->options.fault_count; i++) {
        const struct fault *fault = &session->options.faults[i];

        if (fault->rank != session->rank || fault->operation != operation)
            continue;
        st = act(session, fault, ret_skip, err);
        if (st != STATUS_OK)
            return st;
    }
    return session_failed(session, err);
}

static void *control_main(void *context)
{
    struct session *session = context;
    struct timespec until;

    session_lock(session);
    while (!session->stop) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(WAKE_MS * NS_PER_MS);
        if (until.tv_nsec >= (long)NS_PER_S) {
            until.tv_nsec -= (long)NS_PER_S;
            until.tv_sec++;
        }
        (void)pthread_cond_timedwait(&session->wake, &session->lock, &until);
        if (!session->stop)
            session_advance(session);
    }
    session_unlock(session);
    return NULL;
}

/* The group of all ranks, for consensus and close. */
static enum status create_world(struct session *session, struct error *err)
{
    session->world_members = calloc((size_t)session->size, sizeof *session->world_members);
    if (!session->world_members)
        return error_set(err, STATUS_NOMEM, "a list of %d ranks", session->size);
    for (int i = 0; i < session->size; i++)
        session->world_members[i] = i;
    session->world_spec = (struct group_spec){.id = session->ops->max_tag(session->transport),
                                              .name = "session",
                                              .size = session->size,
                                              .members = session->world_members,
                                              .operations = OPERATIONS_ALL,
                                              .dtypes = DTYPES_ALL,
                                              .max_bytes = UINT64_C(1) << 32};
    return group_create(session, &session->world_spec, &session->world, err);
}

static enum status start_thread(struct session *session, struct error *err)
{
    sigset_t all;
    sigset_t old;
    int failed;

    /* Signals are for the program's own threads. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&session->thread, NULL, control_main, session);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        return error_set(err, STATUS_ENVIRONMENT, "control thread: %s", strerror(failed));
    session->thread_started = true;
    return STATUS_OK;
}

static enum status init_lock(struct session *session, struct error *err)
{
    pthread_condattr_t monotonic;

    if (pthread_condattr_init(&monotonic) || pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) ||
        pthread_cond_init(&session->wake, &monotonic) || pthread_mutex_init(&session->lock, NULL))
        return error_set(err, STATUS_ENVIRONMENT, "a lock could not be made");
    (void)pthread_condattr_destroy(&monotonic);
    return STATUS_OK;
}

/* Release all but the transport; what it still holds stays. */
static void release(struct session *session)
{
    for (size_t i = 0; i < session->group_count; i++)
        group_destroy(session->groups[i]);
    for (size_t i = 0; i < session->route_count; i++)
        route_destroy(session->routes[i]);
    group_destroy(session->world);
    free(session->groups);
    free(session->routes);
    free(session->world_members);
    control_close(session->control);
    recorder_close(session->recorder);
    free(session->run_dir);
    staging_destroy(session->staging);
    (void)pthread_cond_destroy(&session->wake);
    (void)pthread_mutex_destroy(&session->lock);
    free(session);
}

enum status session_create(const struct transport_ops *ops, struct transport *transport,
                           const struct session_options *options, struct session **ret, struct error *err)
{
    struct session *session = calloc(1, sizeof *session);
    enum status st = STATUS_OK;

    if (!session)
        return error_set(err, STATUS_NOMEM, "a session");
    session->ops = ops;
    session->transport = transport;
    session->options = *options;
    session->options.run_dir = session->run_dir = options->run_dir ? strdup(options->run_dir) : NULL;
    session->rank = ops->rank(transport);
    session->size = ops->size(transport);
    session->start_ns = clock_ns();
    session->starting = true;
    session->wait.peer = -1;
    st = init_lock(session, err);
    if (st != STATUS_OK) {
        free(session);
        return st;
    }
    session->staging = staging_create();
    if (!session->staging)
        st = error_set(err, STATUS_NOMEM, "a session");
    if (st == STATUS_OK && options->run_dir)
        st = recorder_open(options->run_dir, session->rank, session->size, &session->recorder, err);
    if (st == STATUS_OK)
        st = control_open(ops, transport, &session->wait, options->startup_timeout_ns, &session->control, err);
    if (st == STATUS_OK)
        control_set_speak(session->control, options->speak, options->speak_context);
    if (st == STATUS_OK)
        st = create_world(session, err);
    if (st == STATUS_OK)
        st = start_thread(session, err);
    if (st != STATUS_OK) {
        release(session);
        return st;
    }
    *ret = session;
    return STATUS_OK;
}

/* Sorted by id; two of one id, or one that is no tag, are refused. */
static enum status check_ids(const struct session *session, const struct group_spec *groups, size_t group_count,
                             const struct route_spec *routes, size_t route_count, struct error *err)
{
    for (size_t i = 0; i < group_count; i++) {
        if (groups[i].id >= session->world_spec.id)
            return error_set(err, STATUS_OVERFLOW,
                             "group %s: id %" PRIu32 " is above the transport's largest, %" PRIu32, groups[i].name,
                             groups[i].id, session->world_spec.id - 1);
        if (i && groups[i].id <= groups[i - 1].id)
            return error_set(err, STATUS_INVALID, "group %s: ids must rise", groups[i].name);
    }
    for (size_t i = 0; i < route_count; i++) {
        if (routes[i].id >= session->world_spec.id)
            return error_set(err, STATUS_OVERFLOW,
                             "route %s: id %" PRIu32 " is above the transport's largest, %" PRIu32, routes[i].name,
                             routes[i].id, session->world_spec.id - 1);
        if ((i && routes[i].id <= routes[i - 1].id) ||
            (!i && group_count && routes[i].id <= groups[group_count - 1].id))
            return error_set(err, STATUS_INVALID, "route %s: ids must rise, groups first", routes[i].name);
    }
    return STATUS_OK;
}

static enum status build(struct session *session, const struct group_spec *groups, size_t group_count,
                         const struct route_spec *routes, size_t route_count, struct error *err)
{
    enum status st = check_ids(session, groups, group_count, routes, route_count, err);

    if (st != STATUS_OK)
        return st;
    session->groups = calloc(group_count + 1, sizeof *session->groups);
    session->routes = calloc(route_count + 1, sizeof *session->routes);
    if (!session->groups || !session->routes)
        return error_set(err, STATUS_NOMEM, "%zu groups, %zu routes", group_count, route_count);
    for (size_t i = 0; i < group_count && st == STATUS_OK; i++) {
        st = group_create(session, &groups[i], &session->groups[i], err);
        if (st == STATUS_OK)
            session->group_count++;
    }
    for (size_t i = 0; i < route_count && st == STATUS_OK; i++) {
        st = route_create(session, &routes[i], &session->routes[i], err);
        if (st == STATUS_OK)
            session->route_count++;
    }
    return st;
}

enum status session_build(struct session *session, const struct group_spec *groups, size_t group_count,
                          const struct route_spec *routes, size_t route_count, struct error *err)
{
    enum status st;

    session_lock(session);
    st = session_failed(session, err);
    if (st == STATUS_OK && session->groups)
        st = error_set(err, STATUS_INVALID, "groups and routes are built once");
    if (st == STATUS_OK)
        st = build(session, groups, group_count, routes, route_count, err);
    session_unlock(session);
    return st;
}

struct group *session_group(struct session *session, uint32_t id)
{
    size_t low = 0;
    size_t high = session->group_count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        uint32_t at = group_spec(session->groups[mid])->id;

        if (at == id)
            return session->groups[mid];
        if (at < id)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

struct route *session_route(struct session *session, uint32_t id)
{
    size_t low = 0;
    size_t high = session->route_count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        uint32_t at = route_spec(session->routes[mid])->id;

        if (at == id)
            return session->routes[mid];
        if (at < id)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

void session_progress(struct session *session)
{
    uint64_t now = clock_ns();

    /* Called between tiles, every few microseconds: too often for a lock and a call into MPI. */
    if (now - atomic_load_explicit(&session->progress_ns, memory_order_relaxed) < PROGRESS_US * NS_PER_US)
        return;
    atomic_store_explicit(&session->progress_ns, now, memory_order_relaxed);
    session_lock(session);
    session->wait.counter++;
    session_advance(session);
    session_unlock(session);
}

enum status session_check(struct session *session, struct error *err)
{
    enum status st;

    session_lock(session);
    session_advance(session);
    st = session_failed(session, err);
    session_unlock(session);
    return st;
}

void session_fail(struct session *session, enum status st, const char *why)
{
    char text[sizeof session->failure.text];

    /* What a caller found names no rank, mismatch or not. */
    if (session->size > 1 && st == STATUS_MISMATCH)
        (void)snprintf(text, sizeof text, "rank %d: %.2000s", session->rank, why);
    else
        (void)snprintf(text, sizeof text, "%s", why);
    session_lock(session);
    adopt(session);
    (void)session_poison(session, st, text);
    session_unlock(session);
}

/* For people and for `ferry doctor`, with what the culprit did last, where its recorder can be read. */
static void save_cause(const struct session *session, const struct cause *cause)
{
    char last[256];
    uint64_t written_ns;
    bool known = cause->rank >= 0 && session->run_dir &&
                 recorder_last(session->run_dir, cause->rank, last, sizeof last, &written_ns);

    if (session->run_dir)
        (void)cause_save(session->run_dir, cause, known ? last : NULL, NULL); /* the cause itself is told anyway */
}

enum status session_settle(struct session *session, struct error *err, bool *ret_speaker)
{
    struct cause cause = {0};
    enum status st;

    session_lock(session);
    if (!session->settled) {
        session->settled = true;
        control_settle(session->control, &cause, &session->speaker);
        session->failed = true;
        (void)error_set(&session->failure, cause.status, "%s", cause.text);
        if (session->speaker)
            save_cause(session, &cause);
    }
    *ret_speaker = session->speaker;
    st = session_failed(session, err);
    session_unlock(session);
    return st;
}

void session_phase(struct session *session, const char *phase)
{
    session_lock(session);
    (void)snprintf(session->wait.phase, sizeof session->wait.phase, "%s", phase);
    recorder_state(session->recorder, &session->wait);
    session_unlock(session);
}

struct session_counters session_counters(const struct session *session)
{
    struct session *self = (struct session *)(uintptr_t)session;
    struct session_counters counters;

    session_lock(self);
    counters = self->counters;
    session_unlock(self);
    return counters;
}

/* Every rank has come to its end. */
static enum status meet(struct session *session, struct error *err)
{
    struct completion *completion = NULL;
    enum status st = group_barrier(session->world, &completion, err);

    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    completion_abandon(completion);
    return st == STATUS_OK ? st : error_wrap(err, st, "closing the session");
}

static void stop_thread(struct session *session)
{
    session_lock(session);
    session->stop = true;
    (void)pthread_cond_signal(&session->wake);
    session_unlock(session);
    if (session->thread_started)
        (void)pthread_join(session->thread, NULL);
}

enum status session_close(struct session *session, bool clean, struct error *err)
{
    enum status st = STATUS_OK;

    if (!session)
        return STATUS_OK;
    if (clean)
        st = meet(session, err);
    if (st != STATUS_OK)
        return st;
    stop_thread(session);
    for (size_t i = 0; i < session->group_count; i++)
        (void)lane_close(&session->groups[i]->lane);
    for (size_t i = 0; i < session->route_count; i++)
        route_close(session->routes[i]);
    (void)lane_close(&session->world->lane);
    session->ops->close(session->transport, clean);
    release(session);
    return STATUS_OK;
}
