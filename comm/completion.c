/* Lanes of pending work, and what a caller may ask of one piece of it.
 *
 * A lane's work starts in order; a kind whose messages are all posted lets the next one start.  After a failure each
 * pending completion fails as soon as the transport holds nothing of it; until then it keeps its buffers. */
#include "comm/completion_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/queued.h"
#include "comm/recorder.h"

enum { QUEUE_MS = 1000 }; /* for what runs on a device when its session has failed */

/* One holder less; the last one frees it. */
static void drop(struct completion *completion)
{
    if (--completion->references)
        return;
    free(completion->text);
    completion->kind->destroy(completion);
}

static void drop_after(struct completion *completion)
{
    while (completion->after_count)
        drop(completion->after[--completion->after_count]);
    free(completion->after);
    completion->after = NULL;
}

static void give_retained(struct completion *completion)
{
    while (completion->retained) {
        struct retained *retained = completion->retained;

        completion->retained = retained->next;
        retained->release(retained->value);
        free(retained);
    }
}

/* Tensors that pending work goes by: by is 1 or -1. */
static void count_tensors(const struct completion *completion, int by)
{
    for (int i = 0; i < 2; i++) {
        if (completion->tensors[i])
            (void)atomic_fetch_add(&completion->tensors[i]->pending, by);
    }
}

/* It leaves pending, exactly once. */
static void finish(struct completion *completion, enum status st)
{
    struct session *session = completion->session;

    CHECK(completion->state == COMPLETION_PENDING);
    completion->status = st;
    completion->state = st == STATUS_OK ? COMPLETION_DONE : COMPLETION_FAILED;
    recorder_end(session->recorder, completion->record, st);
    session->moved++;
    if (completion->lane->orphan == completion)
        completion->lane->orphan = NULL;
    drop_after(completion);
    count_tensors(completion, -1);
    give_retained(completion);
    if (completion->awaited) {
        session->ended_awaited = true;
        (void)pthread_cond_broadcast(&session->ready);
    }
    drop(completion);
}

enum status lane_check(const struct lane *lane, struct error *err)
{
    const struct completion *orphan = lane->orphan;
    enum status st = session_failed(lane->session, err);

    if (st != STATUS_OK || !orphan)
        return st;
    return error_set(err, STATUS_TIMEOUT, "%s %s is quarantined: %s, sequence %llu, has not ended", lane->kind,
                     lane->name, operation_name(orphan->operation), (unsigned long long)orphan->sequence);
}

static void record(struct completion *completion)
{
    struct record record = {.operation = completion->operation,
                            .object_id = completion->lane->id,
                            .peer = completion->kind->peer(completion),
                            .sequence = completion->sequence,
                            .epoch = completion->epoch,
                            .bytes = completion->bytes,
                            .state = RECORD_POSTED};

    if (!completion->session->recorder)
        return;
    (void)memccpy(record.object_name, completion->lane->name, '\0', sizeof record.object_name - 1);
    completion->record = recorder_post(completion->session->recorder, &record);
}

/* Two hold it: the caller, and the lane until it has ended. */
static void begin(struct lane *lane, struct completion *completion)
{
    completion->session = lane->session;
    completion->lane = lane;
    completion->state = COMPLETION_PENDING;
    completion->references = 2;
    completion->next = NULL;
    count_tensors(completion, 1);
    record(completion);
}

void lane_submit(struct lane *lane, struct completion *completion)
{
    struct session *session = lane->session;

    begin(lane, completion);
    completion->after = lane->after;
    completion->after_count = lane->after_count;
    lane->after = NULL;
    lane->after_count = 0;
    if (lane->last)
        lane->last->next = completion;
    else
        lane->first = completion;
    lane->last = completion;
    lane->pending++;
    if (!lane->active) {
        lane->active = true;
        lane->next_active = session->active;
        session->active = lane;
    }
    lane_step(lane);
}

void lane_skip(struct lane *lane, struct completion *completion)
{
    begin(lane, completion);
    finish(completion, STATUS_OK);
}

bool completion_ready(struct completion *completion)
{
    while (completion->after_count) {
        struct completion *last = completion->after[completion->after_count - 1];

        if (last->state == COMPLETION_PENDING &&
            !(completion->kind->chain && completion->kind->chain(completion, last)))
            return false;
        completion->after_count--;
        drop(last);
    }
    return true;
}

/* Ends, because work is only ever ordered after work that was submitted before it. */
const struct completion *completion_blocker(const struct completion *completion)
{
    int i = 0;

    while (i < completion->after_count) {
        const struct completion *after = completion->after[i++];

        if (after->state == COMPLETION_PENDING) {
            completion = after->lane->first;
            i = 0;
        }
    }
    return completion;
}

static enum status add_after(struct lane *lane, struct completion *completion, struct error *err)
{
    struct completion **after = NULL;

    if (completion->session != lane->session)
        return error_set(err, STATUS_INVALID, "%s %s: ordered after work of another session", lane->kind, lane->name);
    if (completion->state != COMPLETION_PENDING)
        return STATUS_OK;
    after = realloc(lane->after, ((size_t)lane->after_count + 1) * sizeof *after);
    if (!after)
        return error_set(err, STATUS_NOMEM, "%s %s: an order after other work", lane->kind, lane->name);
    lane->after = after;
    lane->after[lane->after_count++] = completion;
    completion->references++;
    completion->awaited = true;
    return STATUS_OK;
}

enum status lane_after(struct lane *lane, struct completion *completion, struct error *err)
{
    struct session *session = lane->session;
    enum status st;

    session_lock(session);
    st = session_failed(session, err);
    if (st == STATUS_OK)
        st = add_after(lane, completion, err);
    session_unlock(session);
    return st;
}

static void unlink_from(struct lane *lane, struct completion *before, struct completion *completion)
{
    if (before)
        before->next = completion->next;
    else
        lane->first = completion->next;
    if (lane->last == completion)
        lane->last = before;
    lane->pending--;
    completion->next = NULL;
}

/* Timeouts count with the short timeout once ranks have met. */
static void met(struct completion *completion)
{
    struct session *session = completion->session;

    if (completion->lane->id == session->world_spec.id || completion->kind->posted || completion->local)
        return;
    session_end_start(session);
}

/* What torn-down work ends with.  A timeout would look like a deadline of the caller's, which tears nothing down. */
static enum status torn_down(const struct session *session)
{
    return session->failure.status == STATUS_TIMEOUT ? STATUS_LOST : session->failure.status;
}

/* STATUS_OK with *ret_over, or why it failed; both only when its native work is over. */
static enum status move(struct completion *completion, bool *ret_over)
{
    struct session *session = completion->session;
    struct error err;
    enum status st = STATUS_OK;

    error_init(&err);
    if (!session->failed && !completion_ready(completion))
        return STATUS_OK;
    if (!session->failed) {
        st = completion->kind->step(completion, ret_over, &err);
        if (st == STATUS_OK)
            return STATUS_OK;
        if (session_hears_failure(session)) {
            st = STATUS_OK; /* what was found may come of that */
        } else {
            completion->text = strdup(err.text);
            (void)session_poison(session, st, &err);
        }
    }
    *ret_over = completion->kind->let_go(completion);
    return st != STATUS_OK ? st : torn_down(session);
}

void lane_step(struct lane *lane)
{
    struct completion *before = NULL;
    struct completion *completion = lane->first;

    while (completion) {
        struct completion *next = completion->next;
        bool over = false;
        enum status st = move(completion, &over);

        if (over) {
            unlink_from(lane, before, completion);
            if (st == STATUS_OK)
                met(completion);
            finish(completion, st);
        } else {
            before = completion;
            if (st == STATUS_OK && !(completion->kind->posted && completion->kind->posted(completion)))
                break;
        }
        completion = next;
    }
}

bool lane_close(struct lane *lane)
{
    bool all = true;

    while (lane->after_count)
        drop(lane->after[--lane->after_count]);
    free(lane->after);
    lane->after = NULL;
    if (lane->session->asking.lane == lane)
        lane->session->asking.lane = NULL;
    while (lane->first) {
        struct completion *completion = lane->first;
        bool over = completion->kind->let_go(completion);

        unlink_from(lane, NULL, completion);
        all = all && over;
        if (over)
            finish(completion, lane->session->failed ? torn_down(lane->session) : STATUS_LOST);
    }
    return all;
}

enum completion_state completion_test(struct completion *completion)
{
    struct session *session = completion->session;
    enum completion_state state;

    session_lock(session);
    if (completion->state == COMPLETION_PENDING)
        session_advance(session);
    if (completion->state == COMPLETION_PENDING && !session->failed) {
        session_ask(session, completion->lane);
        if (session->failed) /* by the timeout rule */
            session_advance(session);
    }
    if (completion->state != COMPLETION_PENDING)
        session_ask_end(session);
    state = completion->state;
    session_unlock(session);
    return state;
}

bool completion_quarantined(const struct completion *completion)
{
    struct session *session = completion->session;
    bool quarantined;

    session_lock(session);
    quarantined = completion->state == COMPLETION_PENDING && completion->lane->orphan;
    session_unlock(session);
    return quarantined;
}

static bool ended(void *context)
{
    const struct completion *completion = context;

    return completion->state != COMPLETION_PENDING;
}

enum status completion_wait(struct completion *completion, uint64_t deadline_ns, struct error *err)
{
    struct session *session = completion->session;
    bool quarantined;
    enum status st = STATUS_OK;

    session_lock(session);
    quarantined = completion->state == COMPLETION_PENDING && completion->lane->orphan;
    if (completion->state == COMPLETION_PENDING)
        st = session_wait(session, completion->lane, ended, completion, deadline_ns, err);
    /* Has the wait itself failed the session?  Then what can be given back is, before it returns. */
    if (completion->state == COMPLETION_PENDING && session->failed) {
        session_advance(session);
        queued_end(session, QUEUE_MS * NS_PER_MS);
    }
    if (completion->state == COMPLETION_DONE)
        st = STATUS_OK;
    else if (completion->state == COMPLETION_FAILED)
        st = error_set(err, completion->status, "%s", completion->text ? completion->text : session->failure.text);
    else if (st == STATUS_TIMEOUT && quarantined && deadline_ns != DEADLINE_NONE)
        (void)lane_check(completion->lane, err); /* explains more than the caller's deadline */
    session_unlock(session);
    return st;
}

void completion_release(struct completion *completion)
{
    struct session *session = NULL;

    if (!completion)
        return;
    session = completion->session;
    session_lock(session);
    REQUIRE(completion->state != COMPLETION_PENDING,
            "a completion is released while it is pending: wait for it, or abandon it");
    drop(completion);
    session_unlock(session);
}

void completion_abandon(struct completion *completion)
{
    struct session *session = NULL;

    if (!completion)
        return;
    session = completion->session;
    session_lock(session);
    drop(completion);
    session_unlock(session);
}

enum status completion_retain(struct completion *completion, void *value, completion_retained *release,
                              struct error *err)
{
    struct session *session = completion->session;
    struct retained *retained = malloc(sizeof *retained);

    if (!retained)
        return error_set(err, STATUS_NOMEM, "a retained value");
    *retained = (struct retained){.value = value, .release = release};
    session_lock(session);
    retained->next = completion->retained;
    completion->retained = retained;
    if (completion->state != COMPLETION_PENDING)
        give_retained(completion);
    session_unlock(session);
    return STATUS_OK;
}

uint32_t completion_flags(const struct completion *completion)
{
    struct session *session = completion->session;
    uint32_t flags;

    session_lock(session);
    REQUIRE(completion->state == COMPLETION_DONE, "flags are asked for before their agreement is done");
    flags = completion->flags;
    session_unlock(session);
    return flags;
}
