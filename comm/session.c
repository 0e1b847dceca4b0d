/* One lock, one list of active lanes, one first failure. */
#include "comm/session.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/cause.h"
#include "comm/completion_private.h"
#include "comm/executor_private.h"
#include "comm/group_private.h"
#include "comm/recorder.h"
#include "comm/route_private.h"

enum {
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

bool session_hears_failure(struct session *session)
{
    struct error err = {0};
    enum status st = control_poll(session->control, &err);

    adopt(session);
    if (st != STATUS_OK && !session->failed)
        (void)session_poison(session, st, &err);
    return session->failed;
}

static int culprit(const struct session *session, enum status st, const struct error *why)
{
    if (why->blamed)
        return why->blamed - 1;
    return st == STATUS_MISMATCH ? -1 : session->rank;
}

enum status session_poison(struct session *session, enum status st, const struct error *why)
{
    struct cause cause = {.status = st,
                          .rank = culprit(session, st, why),
                          .reporter = session->rank,
                          .time_ns = clock_ns() - session->start_ns,
                          .epoch = session->epoch};

    if (st == STATUS_MISMATCH || st == STATUS_USAGE || session->size == 1)
        (void)snprintf(cause.text, sizeof cause.text, "%.1535s", why->text);
    else
        (void)snprintf(cause.text, sizeof cause.text, "rank %d: %.1500s", session->rank, why->text);
    return session_poison_cause(session, &cause);
}

enum status session_failed(struct session *session, struct error *err)
{
    adopt(session);
    if (!session->failed)
        return STATUS_OK;
    return error_set(err, session->failure.status, "%s", session->failure.text);
}

/* Once; lanes without work leave the list. */
static void step_lanes(struct session *session)
{
    struct lane **link = &session->active;

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

/* Again when work has ended that others were ordered after: their lanes may stand earlier in the list. */
void session_turn(struct session *session)
{
    do {
        session->ended_awaited = false;
        step_lanes(session);
    } while (session->ended_awaited);
}

void session_advance(struct session *session)
{
    session_advance_at(session, clock_ns());
}

void session_advance_at(struct session *session, uint64_t now)
{
    struct error err;
    enum status st = STATUS_OK;

    error_init(&err);
    session->advanced_ns = now;
    if (now - session->polled_ns >= POLL_US * NS_PER_US) {
        session->polled_ns = now;
        st = control_poll(session->control, &err);
    }
    if (st != STATUS_OK)
        (void)session_poison(session, st, &err);
    adopt(session);
    session_turn(session);
}

/* The recorder's file, on a disk that has run full.  From now on cause.json cannot be written by this rank either. */
static enum status fill_disk(struct session *session, struct error *err)
{
    char path[1024];

    if (!session->recorder || recorder_path(session->run_dir, session->rank, path, sizeof path))
        return STATUS_OK;
    session->disk_full = true;
    return error_set(err, STATUS_STORAGE, "rehearsed: %s: %s", path, strerror(ENOSPC));
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
    case FAULT_DISK_FULL:
        return fill_disk(session, err);
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
    /* Who asks for pending work again and again waits for it: between two questions this call is none of progress, or
     * ranks that ask for each other's work would never be found out.  A wait in another thread is that one's, and so
     * are its questions while an executor's work goes on. */
    if (session->waiters || executors_here(session) ? !session_asked(session, now) : !session->asking.between)
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
    struct error own = {0};

    /* What a caller found names no rank, mismatch or not. */
    if (session->size > 1 && st == STATUS_MISMATCH)
        (void)error_set(&own, st, "rank %d: %.2000s", session->rank, why);
    else
        (void)error_set(&own, st, "%s", why);
    session_lock(session);
    adopt(session);
    (void)session_poison(session, st, &own);
    session_unlock(session);
}

void session_set_checks(struct session *session, enum checks checks)
{
    session_lock(session);
    session->options.checks = checks;
    session_unlock(session);
}

enum status session_alone(struct session *session,
                          enum status (*call)(void *context, struct transport *transport, struct error *err),
                          void *context, struct error *err)
{
    enum status st;

    session_lock(session);
    st = session_failed(session, err);
    if (st == STATUS_OK)
        st = call(context, session->transport, err);
    session_unlock(session);
    return st;
}

/* For people and for `ferry doctor`, with what the culprit did last, where its recorder can be read.  False: another
 * cause, of a keeper, was there and has been told. */
static bool save_cause(const struct session *session, const struct cause *cause)
{
    char last[256];
    uint64_t written_ns;
    bool first = true;
    bool known = cause->rank >= 0 && session->run_dir &&
                 recorder_last(session->run_dir, cause->rank, last, sizeof last, &written_ns);

    if (session->run_dir && !session->disk_full)
        (void)cause_save(session->run_dir, cause, known ? last : NULL, &first, NULL); /* it is told anyway */
    return first;
}

void session_speak(void *context, const struct cause *cause)
{
    struct session *session = context;
    struct cause whole = *cause;

    cause_add_hosts(&whole, session->ops, session->transport);
    if (save_cause(session, &whole) && session->options.speak)
        session->options.speak(session->options.speak_context, &whole);
}

void session_miss_end(struct session *session, enum status st, const char *text)
{
    struct cause cause = {.status = st,
                          .rank = -1,
                          .reporter = session->rank,
                          .time_ns = clock_ns() - session->start_ns,
                          .epoch = session->epoch};

    (void)snprintf(cause.text, sizeof cause.text, "rank %d: %.1500s", session->rank, text);
    session->ended = session->failed = session->settled = true;
    (void)error_set(&session->failure, st, "%s", cause.text);
    recorder_leave(session->recorder, st);
    session->speaker = save_cause(session, &cause);
    if (session->speaker && session->options.speak)
        session->options.speak(session->options.speak_context, &cause);
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
        recorder_leave(session->recorder, cause.status);
    }
    *ret_speaker = session->speaker;
    st = session_failed(session, err);
    session_unlock(session);
    return st;
}

void session_tell_waiting(struct session *session)
{
    char line[1024];

    if (session->rank == 0 && session->options.log && control_waiting(session->control, line, sizeof line))
        session->options.log(session->options.log_context, session->rank, line);
}

void session_log(struct session *session, const char *line)
{
    session_lock(session);
    control_log(session->control, line);
    session_unlock(session);
}

void session_phase(struct session *session, const char *phase)
{
    char before[sizeof session->wait.phase];

    session_lock(session);
    memcpy(before, session->wait.phase, sizeof before);
    (void)snprintf(session->wait.phase, sizeof session->wait.phase, "%s", phase);
    if (strcmp(before, session->wait.phase) != 0)
        session->wait.counter++;
    if (session->failed)
        recorder_phase(session->recorder, phase);
    else
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
