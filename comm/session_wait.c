/* The wait of a session: move everything, sleep in growing steps, and look at the timeout rule. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/completion_private.h"
#include "comm/recorder.h"

enum {
    SPIN_US = 50,           /* of a wait, before it gives the core away */
    YIELD_BYTES_PER_NS = 2, /* then it stays awake for as long as its bytes may take, but lets others run before it; */
    LEAST_YIELD_US = 300,   /* and longer than the shortest sleep of a peer, or two would wake each other in turn */
    SPIN_TURNS = 8,         /* of the lanes, while it spins, for one look at everything else */
    LAST_YIELD_US = 10000,
    FIRST_SLEEP_US = 5, /* then doubled up to */
    LAST_SLEEP_US = 1000,
    LONG_SLEEP_US = 4000, /* of a wait that has lasted LONG_WAIT times as long: it is late by a 64th at most */
    LONG_WAIT = 64,
    PATIENCE_MS = 5,       /* of a wait, before it looks at the timeout rule */
    SHORTEST_GAP_MS = 100, /* between two questions of somebody who still waits; a quarter of the timeout, up to */
    LONGEST_GAP_MS = 2000
};

/* Say what this rank waits for, to whoever asks: the oldest work of the lane, or what that was ordered after. */
static void tell_wait(struct session *session, const struct lane *lane, uint64_t since_ns)
{
    struct wait_state *wait = &session->wait;
    const struct completion *head = lane ? lane->first : NULL;

    wait->waiting = true;
    wait->since_ns = since_ns;
    wait->peer = -1;
    if (!head)
        return;
    head = completion_blocker(head);
    wait->operation = head->operation;
    wait->object_id = head->lane->id;
    (void)memccpy(wait->object_name, head->lane->name, '\0', sizeof wait->object_name - 1);
    wait->peer = head->kind->peer(head);
    if (wait->peer >= 0 && session->ops->awaits)
        wait->peer = session->ops->awaits(session->transport, wait->peer);
    wait->sequence = head->sequence;
}

/* What the work itself knows: in front of the sentence where it waits for no rank, and behind it. */
static void explain(const struct completion *head, bool alone, struct cause *cause)
{
    struct text text = {0};

    if (alone && head->kind->blame)
        cause->rank = head->kind->blame(head, &text);
    text_add(&text, "%s%s", text.length ? "; " : "", cause->text);
    if (head->kind->hint)
        head->kind->hint(head, &text);
    if (!text.failed)
        (void)snprintf(cause->text, sizeof cause->text, "%s", text_string(&text));
    text_done(&text);
}

/* A deadline of the caller's has passed: what he waits for. */
static enum status still_waiting(const struct lane *lane, uint64_t waited_ns, struct error *err)
{
    const struct completion *head = lane->first ? completion_blocker(lane->first) : NULL;
    enum status st = error_set(err, STATUS_TIMEOUT, "still waiting after %" PRIu64 " ms", waited_ns / NS_PER_MS);

    if (!head)
        return st;
    if (head->kind->peer(head) >= 0)
        return error_set(err, st, "still waiting after %" PRIu64 " ms for rank %d: %s on %s %s, sequence %" PRIu64,
                         waited_ns / NS_PER_MS, head->kind->peer(head), operation_name(head->operation),
                         head->lane->kind, head->lane->name, head->sequence);
    return error_set(err, st, "still waiting after %" PRIu64 " ms: %s on %s %s, sequence %" PRIu64,
                     waited_ns / NS_PER_MS, operation_name(head->operation), head->lane->kind, head->lane->name,
                     head->sequence);
}

/* The timeout rule has run out: quarantine the work, or poison the session with the cause. */
static enum status give_up(struct session *session, struct lane *lane, struct cause *cause, struct error *err)
{
    const struct completion *head = lane && lane->first ? completion_blocker(lane->first) : NULL;
    enum status st = STATUS_TIMEOUT;

    if (head)
        explain(head, session->wait.peer < 0, cause);
    if (session->options.on_timeout == ON_TIMEOUT_QUARANTINE && head) {
        /* The work that stands still, and the work that waits behind it. */
        lane->orphan = lane->first;
        head->lane->orphan = head->lane->first;
        return error_set(err, STATUS_TIMEOUT, "%s", cause->text);
    }
    st = session_poison_cause(session, cause);
    (void)session_failed(session, err);
    return st;
}

/* STATUS_OK while the timeout rule lets this rank wait. */
static enum status lose_patience(struct session *session, struct lane *lane, struct error *err)
{
    struct cause cause = {0};

    return control_expired(session->control, &cause) ? give_up(session, lane, &cause, err) : STATUS_OK;
}

/* Whoever has not asked for so long does something else. */
static uint64_t longest_gap(const struct session *session)
{
    uint64_t gap_ns = session->options.timeout_ns / 4;

    if (gap_ns < SHORTEST_GAP_MS * NS_PER_MS)
        gap_ns = SHORTEST_GAP_MS * NS_PER_MS;
    if (gap_ns > LONGEST_GAP_MS * NS_PER_MS)
        gap_ns = LONGEST_GAP_MS * NS_PER_MS;
    return gap_ns;
}

/* Has nobody waited or asked for long?  Then this rank does something else. */
static bool forgotten(const struct session *session, uint64_t now_ns)
{
    return now_ns > session->asking.asked_ns + longest_gap(session);
}

/* Where a new asker is noted: this thread's own place, or the one that asked longest ago. */
static struct asker *asker_of(struct session *session, pthread_t thread)
{
    struct asker *oldest = session->askers;

    for (int i = 0; i < ASKERS; i++) {
        struct asker *asker = &session->askers[i];

        if (asker->asked_ns && pthread_equal(asker->thread, thread))
            return asker;
        if (asker->asked_ns < oldest->asked_ns)
            oldest = asker;
    }
    return oldest;
}

static void note_asker(struct session *session)
{
    *asker_of(session, pthread_self()) = (struct asker){pthread_self(), session->advanced_ns};
}

bool session_asked(const struct session *session, uint64_t now_ns)
{
    for (int i = 0; i < ASKERS; i++) {
        const struct asker *asker = &session->askers[i];

        if (asker->asked_ns && pthread_equal(asker->thread, pthread_self()))
            return now_ns <= asker->asked_ns + longest_gap(session);
    }
    return false;
}

/* Somebody waits for the lane now.  Waits in turns keep the first lane until it has no work or nobody asks for it any
 * more: a rule that went from peer to peer would never run out.  False: it is another's turn. */
static bool ask(struct session *session, const struct lane *lane, uint64_t now_ns)
{
    struct asking *asking = &session->asking;
    bool free = asking->lane != lane && (!asking->lane || !asking->lane->first);

    if (free || forgotten(session, now_ns))
        *asking = (struct asking){.lane = lane, .since_ns = now_ns, .moved = session->moved};
    if (asking->lane != lane)
        return false;
    asking->asked_ns = now_ns;
    if (asking->moved != session->moved) {
        asking->moved = session->moved;
        asking->since_ns = now_ns;
    }
    return true;
}

/* One look of whoever waits for the lane at the timeout rule. */
static enum status judge(struct session *session, struct lane *lane, uint64_t now_ns, struct error *err)
{
    uint64_t since_ns;

    if (!ask(session, lane, now_ns))
        return STATUS_OK;
    since_ns = session->asking.since_ns;
    if (now_ns - since_ns >= SPIN_US * NS_PER_US)
        tell_wait(session, lane, since_ns);
    if (now_ns - since_ns <= PATIENCE_MS * NS_PER_MS)
        return STATUS_OK;
    return lose_patience(session, lane, err);
}

void session_ask(struct session *session, struct lane *lane)
{
    struct error err;

    /* What is quarantined has been judged; another thread's wait looks at the rule. */
    if (lane->orphan)
        return;
    note_asker(session);
    if (session->waiters)
        return;
    error_init(&err);
    (void)judge(session, lane, session->advanced_ns, &err);
    session->asking.between = session->wait.waiting;
}

void session_ask_end(struct session *session)
{
    struct asking *asking = &session->asking;

    if (session->waiters || !asking->between)
        return;
    if (asking->lane && asking->lane->first && !forgotten(session, session->advanced_ns))
        return;
    asking->between = false;
    session->wait.waiting = false;
}

/* A sleep of a few microseconds takes the kernel fifty, on a virtual machine a hundred: too long while a peer copies
 * what it gets from this rank. */
static uint64_t yield_time(const struct lane *lane)
{
    uint64_t ns = lane && lane->first ? lane->first->bytes / YIELD_BYTES_PER_NS : 0;

    if (ns < LEAST_YIELD_US * NS_PER_US)
        return LEAST_YIELD_US * NS_PER_US;
    return ns < LAST_YIELD_US * NS_PER_US ? ns : LAST_YIELD_US * NS_PER_US;
}

/* One turn of a wait without the lock: spin at first, then let others run, then sleep in growing steps. */
static void pause_wait(struct session *session, uint64_t since_ns, uint64_t now_ns, uint64_t deadline_ns,
                       uint64_t yield_ns, uint64_t *sleep_ns)
{
    bool spin = now_ns - since_ns < SPIN_US * NS_PER_US;
    bool yield = now_ns - since_ns < yield_ns;
    uint64_t left = deadline_ns - now_ns;
    uint64_t most_ns = (now_ns - since_ns) / LONG_WAIT;

    if (most_ns < LAST_SLEEP_US * NS_PER_US)
        most_ns = LAST_SLEEP_US * NS_PER_US;
    if (most_ns > LONG_SLEEP_US * NS_PER_US)
        most_ns = LONG_SLEEP_US * NS_PER_US;

    session_unlock(session);
    if (!spin && yield) {
        (void)sched_yield();
    } else if (!spin) {
        clock_sleep_ns(*sleep_ns < left ? *sleep_ns : left);
        *sleep_ns = *sleep_ns * 2 < most_ns ? *sleep_ns * 2 : most_ns;
    }
    session_lock(session);
}

/* Look at the lanes alone while the wait is young: what comes soon is seen soon. */
static bool spin(struct session *session, bool (*over)(void *context), void *context)
{
    for (int turn = 1; turn < SPIN_TURNS && !session->failed; turn++) {
        session_turn(session);
        if (over(context))
            return true;
    }
    return false;
}

static enum status wait_loop(struct session *session, struct lane *lane, bool (*over)(void *context), void *context,
                             uint64_t begun, uint64_t deadline_ns, struct error *err)
{
    uint64_t since = begun;
    uint64_t now = begun;
    uint64_t moved = session->moved;
    uint64_t sleep_ns = FIRST_SLEEP_US * NS_PER_US;

    for (;;) {
        enum status st = STATUS_OK;

        session_advance_at(session, now);
        if (over(context) || (now - since < SPIN_US * NS_PER_US && spin(session, over, context)))
            return STATUS_OK;
        if (session->failed)
            return session_failed(session, err);
        if (now >= deadline_ns)
            return still_waiting(lane, now - begun, err);
        if (session->moved != moved) {
            moved = session->moved;
            since = now;
            sleep_ns = FIRST_SLEEP_US * NS_PER_US;
        }
        st = judge(session, lane, now, err);
        if (st != STATUS_OK)
            return st;
        if (now - session->asking.since_ns >= SPIN_US * NS_PER_US)
            session_tell_waiting(session);
        pause_wait(session, since, now, deadline_ns, yield_time(lane), &sleep_ns);
        now = clock_ns();
    }
}

enum status session_wait(struct session *session, struct lane *lane, bool (*over)(void *context), void *context,
                         uint64_t deadline_ns, struct error *err)
{
    uint64_t begun = clock_ns();
    enum status st;

    session->waiters++;
    session->asking.between = false;
    tell_wait(session, lane, begun);
    if (!session->failed) /* what it waited for then stays written */
        recorder_state(session->recorder, &session->wait);
    st = wait_loop(session, lane, over, context, begun, deadline_ns, err);
    if (st == STATUS_TIMEOUT && !session->failed)
        note_asker(session);
    if (--session->waiters)
        return st;
    /* Whoever did not wait for the end comes back, or is forgotten. */
    session->asking.between = st == STATUS_TIMEOUT && !session->failed;
    session->wait.waiting = session->asking.between;
    return st;
}
