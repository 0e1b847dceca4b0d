/* A session's beginning and end: lock, control thread, groups and routes.
 *
 * Whoever submits or waits moves the work in its own thread; the control thread wakes every few tens of milliseconds,
 * answers the control channel and moves what nobody else moves, so that a computing rank is never taken for dead. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/completion_private.h"
#include "comm/executor_private.h"
#include "comm/group_private.h"
#include "comm/queued.h"
#include "comm/recorder.h"
#include "comm/roll.h"
#include "comm/route_private.h"
#include "comm/staging.h"
#include "comm/stray.h"

enum {
    WAKE_MS = 20,    /* of the control thread */
    CLOSE_MS = 1000, /* how long a session that closes waits for work that is running */
    MISSED_MS = 50   /* of rank 0, for lines about faults that did not happen */
};

/* What this rank waits for now, also while its wait goes from peer to peer; after a failure what it was stays. */
static void record_life(struct session *session)
{
    if (session->failed)
        recorder_alive(session->recorder);
    else
        recorder_state(session->recorder, &session->wait);
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
        if (session->stop)
            break;
        session_advance(session);
        session_ask_end(session);
        record_life(session);
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
        pthread_cond_init(&session->wake, &monotonic) || pthread_cond_init(&session->ready, &monotonic) ||
        pthread_mutex_init(&session->lock, NULL))
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
    (void)pthread_cond_destroy(&session->ready);
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
    if (st == STATUS_OK) {
        control_set_speak(session->control, session_speak, session);
        control_set_roll(session->control, roll_take, session);
        control_set_log(session->control, options->log, options->log_context);
    }
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
        if (groups[i].first_line > groups[i].id)
            return error_set(err, STATUS_INVALID, "group %s: its axis begins with id %" PRIu32 ", behind its own",
                             groups[i].name, groups[i].first_line);
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

void session_end_start(struct session *session)
{
    if (!session->starting)
        return;
    session->starting = false;
    control_set_timeout(session->control, session->options.timeout_ns);
}

void session_started(struct session *session)
{
    session_lock(session);
    session_end_start(session);
    session_unlock(session);
}

/* An executor that has not run all that was submitted to it. */
struct busy {
    struct session *session;
    struct lane *lane;
};

static bool has_run(void *context)
{
    const struct busy *busy = context;

    return !executor_busy(busy->session, busy->lane);
}

/* This rank has computed all that it was asked to.  One executor after the other, so that a wait has a name. */
static enum status compute_all(struct session *session, struct error *err)
{
    struct busy busy = {.session = session};
    enum status st = STATUS_OK;

    session_lock(session);
    while (st == STATUS_OK && (busy.lane = executors_busy(session)))
        st = session_wait(session, busy.lane, has_run, &busy, DEADLINE_NONE, err);
    session_unlock(session);
    return st;
}

/* It has, and every rank has come to its end. */
static enum status meet(struct session *session, const char *what, struct error *err)
{
    struct completion *completion = NULL;
    enum status st = compute_all(session, err);

    if (st == STATUS_OK)
        st = group_barrier(session->world, &completion, err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    completion_abandon(completion);
    return st == STATUS_OK ? st : error_wrap(err, st, "%s", what);
}

enum status session_build(struct session *session, const struct group_spec *groups, size_t group_count,
                          const struct route_spec *routes, size_t route_count, struct error *err)
{
    bool lines = false;
    enum status st;

    session_lock(session);
    st = session_failed(session, err);
    if (st == STATUS_OK && session->groups)
        st = error_set(err, STATUS_INVALID, "groups and routes are built once");
    if (st == STATUS_OK)
        st = build(session, groups, group_count, routes, route_count, err);
    lines = st == STATUS_OK && groups_have_lines(session);
    session_unlock(session);
    if (lines)
        st = meet(session, "building the groups", err);
    if (st != STATUS_OK)
        return st;
    session_lock(session);
    st = groups_open_native(session, err);
    session_unlock(session);
    return st;
}

/* A rehearsal that did not happen must not pass for one that was survived.  All ranks were told of the faults, so rank
 * 0 stays a moment for the others' lines. */
static void tell_missed_faults(struct session *session)
{
    struct fault_run run = {.operations = session_counters(session).operations, .has_recorder = session->recorder};
    char line[256];

    for (int i = 0; i < session->options.fault_count; i++) {
        const struct fault *fault = &session->options.faults[i];

        run.armed = session->damage_armed && session->damage.operation == fault->operation;
        if (fault->rank == session->rank && fault_missed(fault, &run, line, sizeof line))
            session_log(session, line);
    }
    for (int i = 0; session->rank == 0 && session->size > 1 && i < MISSED_MS; i++) {
        clock_sleep_ns(NS_PER_MS);
        session_lock(session);
        session_advance(session);
        session_unlock(session);
    }
}

/* Nobody has sent what nobody received.  Between two meetings: all messages are there, and all ranks still are. */
static enum status clear_up(struct session *session, struct error *err)
{
    struct error stray = {0};
    enum status st;

    if (session->size == 1)
        return STATUS_OK;
    session_lock(session);
    st = stray_check(session, &stray);
    if (st != STATUS_OK) {
        (void)session_poison(session, st, &stray);
        st = session_failed(session, err);
    }
    session_unlock(session);
    return st == STATUS_OK ? meet(session, "closing the session", err) : st;
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
    struct error why = {0};
    enum status st = STATUS_OK;
    bool left = false;

    if (!session)
        return STATUS_OK;
    if (session->ended) {
        release(session);
        return STATUS_OK;
    }
    if (clean)
        st = meet(session, "closing the session", err);
    if (clean && st == STATUS_OK)
        st = clear_up(session, err);
    if (st != STATUS_OK)
        return st;
    if (clean && session->options.fault_count)
        tell_missed_faults(session);
    left = !executors_close(session, CLOSE_MS * NS_PER_MS);
    stop_thread(session);
    recorder_leave(session->recorder, clean ? STATUS_OK : session->failed ? session->failure.status : STATUS_LOST);
    if (left)
        return STATUS_OK;
    session_lock(session);
    queued_end(session, CLOSE_MS * NS_PER_MS);
    session_unlock(session);
    for (size_t i = 0; i < session->group_count; i++)
        (void)lane_close(&session->groups[i]->lane);
    for (size_t i = 0; i < session->route_count; i++)
        route_close(session->routes[i]);
    (void)lane_close(&session->world->lane);
    for (size_t i = 0; i < session->group_count; i++)
        group_close_native(session->groups[i]);
    if (clean && session->options.part)
        session->options.part(session->options.part_context);
    st = session->ops->close(session->transport, clean, &why);
    if (st != STATUS_OK) {
        session_miss_end(session, st, why.text);
        return session_failed(session, err);
    }
    release(session);
    return STATUS_OK;
}
