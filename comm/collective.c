/* The engine of rounds: post all sends, take each peer's messages in order, then let the algorithm use them. */
#include "comm/collective.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/roll.h"
#include "comm/native.h"
#include "comm/staging.h"

enum {
    HEARING_MS = 2000,  /* of a member's other header, until the cause is told without those not heard; half of the
                         * timeout at most */
    DOUBT_MS = 250,     /* of a round without an end, before its peers are asked what they were called with */
    SPARE_CAPACITY = 32 /* messages that the record kept for a group's next operation has room for at most */
};

/* Every header of the round was the expected one: what lies in staging memory goes where it belongs. */
static enum status deliver(struct collective *work, struct error *err)
{
    enum status st = STATUS_OK;

    for (int i = 0; i < work->receive_count && st == STATUS_OK; i++) {
        struct framed_receive *receive = &work->receives[i];

        if (receive->target && receive->payload != receive->target && !receive->runs.rows)
            st = collective_copy(work, receive->target, receive->payload, receive->payload_bytes, err);
    }
    return st;
}

static void clear_round(struct collective *work)
{
    struct staging *staging = collective_staging(work);

    for (int i = 0; i < work->send_count; i++) {
        framed_send_done(&work->sends[i]);
        if (!work->sends[i].borrowed)
            staging_give(staging, work->sends[i].payload);
    }
    for (int i = 0; i < work->receive_count; i++) {
        framed_receive_done(&work->receives[i]);
        if (work->receives[i].payload != work->receives[i].target)
            staging_give(staging, work->receives[i].payload);
    }
    work->send_count = work->receive_count = work->peer_count = 0;
    work->doubt_ns = 0;
    work->open = work->alone = work->used = false;
}

/* Whom the library's sum waits for: one that has not built the communicator (nobody where it does not end on this
 * rank), else the next member.  Whoever asks in a ring comes to a member that is silent, or does something else; a
 * whole ring waits for the library. */
static int native_peer(const struct collective *work)
{
    const struct session *session = work->completion.session;
    int rank = session->ops->native->awaits(session->transport, work->group->native);

    if (rank < 0)
        return work->group->spec.members[(work->rank + 1) % work->size];
    return rank == session->rank ? -1 : rank;
}

static int peer(const struct completion *completion)
{
    const struct collective *work = (const struct collective *)completion;

    if (work->native)
        return native_peer(work);
    for (int i = 0; i < work->receive_count; i++) {
        if (!work->receives[i].over)
            return work->receives[i].peer;
    }
    for (int i = 0; i < work->send_count; i++) {
        for (int k = 0; work->sends[i].works && k < work->sends[i].peer_count; k++) {
            if (work->sends[i].works[k])
                return work->sends[i].peers[k];
        }
    }
    return -1;
}

static uint64_t at_most_half_the_timeout(const struct collective *work, uint64_t ns)
{
    uint64_t half_ns = work->completion.session->options.timeout_ns / 2;

    return ns < half_ns ? ns : half_ns;
}

/* A member disagrees: wait a little for the others, so that the cause names everybody. */
static enum status disagree(struct collective *work, struct error *err)
{
    uint64_t now = clock_ns();
    uint64_t hearing_ns = at_most_half_the_timeout(work, HEARING_MS * NS_PER_MS);

    if (!work->disagreed_ns)
        work->disagreed_ns = now;
    if (!collective_heard(work) && now - work->disagreed_ns < hearing_ns)
        return STATUS_OK;
    return collective_disagree(work, err);
}

/* A round that does not end: perhaps those that it waits for were called with something else, in which they owe this
 * rank nothing.  Without checks only what would end as a timeout is looked at. */
static void doubt(struct collective *work)
{
    struct session *session = work->completion.session;
    bool off = session->options.checks == CHECKS_OFF;

    if (!work->doubt_ns) {
        work->doubt_ns = clock_ns() + at_most_half_the_timeout(work, off ? UINT64_MAX : DOUBT_MS * NS_PER_MS);
        return;
    }
    if (session->advanced_ns < work->doubt_ns)
        return;
    work->doubt_ns = session->advanced_ns + DOUBT_MS * NS_PER_MS;
    for (int i = 0; i < work->size; i++) {
        int rank = work->group->spec.members[i];
        bool awaited = rank == peer(&work->completion);

        for (int k = 0; k < work->receive_count && !awaited; k++)
            awaited = !work->receives[k].over && work->receives[k].peer == rank;
        if (awaited)
            roll_ask(work, i, DOUBT_MS * NS_PER_MS);
    }
}

/* Post what is not yet posted, or look whether all has left.  While a receive is awaited nobody asks what has left:
 * that would be a call into the transport for nothing. */
static enum status move_sends(struct collective *work, bool ask, bool *ret_over, struct error *err)
{
    *ret_over = true;
    for (int i = 0; i < work->send_count; i++) {
        struct framed_send *send = &work->sends[i];
        enum status st = STATUS_OK;

        if (!send->over && (ask || !framed_send_posted(send)))
            st = framed_send_step(send, work->completion.session, err);
        if (st != STATUS_OK)
            return st;
        *ret_over = *ret_over && send->over;
    }
    return STATUS_OK;
}

/* What the transport's library adds. */
static enum status move_native(struct collective *work, bool *ret_over, struct error *err)
{
    struct session *session = work->completion.session;
    enum status st = STATUS_OK;

    *ret_over = true;
    if (!work->native)
        return STATUS_OK;
    st = session->ops->test(session->transport, work->native, ret_over, err);
    if (st != STATUS_OK || !*ret_over)
        return st;
    work->native = NULL;
    session->queued--;
    session_moved(session);
    return STATUS_OK;
}

static const struct algorithm *current(const struct collective *work)
{
    return work->voting ? work->vote : work->algorithm;
}

/* Everything has come: use it, and give back what was lent. */
static enum status use_round(struct collective *work, struct error *err)
{
    enum status st = deliver(work, err);

    work->used = true;
    if (st == STATUS_OK && current(work)->end)
        st = current(work)->end(work, work->round, err);
    for (int i = 0; i < work->receive_count; i++)
        framed_receive_done(&work->receives[i]);
    return st;
}

static enum status move_alone(struct collective *work, struct error *err)
{
    if (work->alone)
        return STATUS_OK;
    work->alone = true;
    return current(work)->meanwhile ? current(work)->meanwhile(work, work->round, err) : STATUS_OK;
}

/* Has the round ended?  Receives of one peer are taken in order; those of different peers in any. */
static enum status move_round(struct collective *work, bool *ret, struct error *err)
{
    bool came = true;
    bool left = true;
    bool other = false;
    enum status st = move_sends(work, false, &left, err);

    if (st == STATUS_OK)
        st = move_alone(work, err);

    for (int i = 0; i < work->receive_count && st == STATUS_OK; i++) {
        struct framed_receive *receive = &work->receives[i];

        if (!receive->over)
            st = framed_receive_step(receive, work->completion.session, err);
        other = other || receive->other;
        came = came && receive->over && !receive->other;
    }
    if (st == STATUS_OK && came && !left)
        st = move_sends(work, true, &left, err);
    *ret = came && left;
    if (st == STATUS_OK && *ret)
        st = move_native(work, ret, err);
    if (st == STATUS_OK && came && !work->used && (*ret || current(work)->apart))
        st = use_round(work, err);
    if (st != STATUS_OK)
        return st;
    if (other || roll_differs(work))
        return disagree(work, err);
    if (!*ret)
        doubt(work);
    return STATUS_OK;
}

/* All rounds are over.  What they queued on a device is waited for: the tensors are the caller's only then. */
static enum status end_work(struct collective *work, bool *ret_over, struct error *err)
{
    struct session *session = work->completion.session;
    enum status st = STATUS_OK;

    if (work->device && !work->ending) {
        work->ending = true;
        st = queued_mark(&work->queued, session, work->device, err);
    }
    return st == STATUS_OK ? queued_reached(&work->queued, session, ret_over, err) : st;
}

static enum status step(struct completion *completion, bool *ret_over, struct error *err)
{
    struct collective *work = (struct collective *)completion;

    if (work->ending)
        return end_work(work, ret_over, err);
    for (;;) {
        bool more = true;
        bool ended = false;
        enum status st = STATUS_OK;

        if (!work->open) {
            st = current(work)->begin(work, work->round, &more, err);
            if (st != STATUS_OK)
                return st;
            if (!more && !work->voting) {
                if (!completion->local)
                    past_keep(work->group, work);
                return end_work(work, ret_over, err);
            }
            if (!more) {
                work->voting = false;
                work->round = 0;
                continue;
            }
            work->open = true;
        }
        st = move_round(work, &ended, err);
        if (st != STATUS_OK || !ended)
            return st;
        clear_round(work);
        work->round++;
    }
}

/* After a failure: behind whatever its rounds have queued. */
static bool device_let_go(struct collective *work)
{
    struct session *session = work->completion.session;

    if (work->device && !work->ending) {
        work->ending = true;
        (void)queued_mark(&work->queued, session, work->device, NULL); /* a device that fails runs nothing any more */
    }
    return queued_let_go(&work->queued, session);
}

static bool collective_let_go(struct completion *completion)
{
    struct collective *work = (struct collective *)completion;
    bool all = true;

    for (int i = 0; i < work->send_count; i++)
        all = framed_send_let_go(&work->sends[i], completion->session) && all;
    for (int i = 0; i < work->receive_count; i++)
        all = framed_receive_let_go(&work->receives[i], completion->session) && all;
    all = framed_let_go(completion->session, &work->native, true) && all;
    return device_let_go(work) && all;
}

static bool make_lists(struct collective *work, size_t members)
{
    work->peers = calloc(2 * members, sizeof *work->peers);
    work->works = calloc(4 * members, sizeof(struct work *));
    work->even = calloc(members, sizeof *work->even);
    work->words = calloc(members, 8);
    return work->peers && work->works && work->even && work->words;
}

struct collective *collective_take(struct group *group)
{
    struct collective *work = atomic_exchange(&group->spare, NULL);

    if (!work) {
        work = calloc(1, sizeof *work);
        if (!work || !make_lists(work, (size_t)group->spec.size)) {
            collective_free(work);
            return NULL;
        }
    } else {
        *work = (struct collective){.sends = work->sends,
                                    .receives = work->receives,
                                    .capacity = work->capacity,
                                    .peers = work->peers,
                                    .works = work->works,
                                    .even = work->even,
                                    .words = work->words,
                                    .from = work->from,
                                    .to = work->to};
    }
    work->group = group;
    work->size = group->spec.size;
    work->rank = group->rank;
    return work;
}

void collective_free(struct collective *work)
{
    if (!work)
        return;
    free(work->sends);
    free(work->receives);
    free(work->peers);
    free(work->works);
    free(work->even);
    free(work->words);
    layout_done(&work->from);
    layout_done(&work->to);
    free(work);
}

static void destroy(struct completion *completion)
{
    struct collective *work = (struct collective *)completion;

    clear_round(work);
    if (work->scratch)
        staging_give(work->scratch_lender, work->scratch);
    tensor_release(work->send);
    tensor_release(work->recv);
    roll_destroy(work->roll);
    if (work->capacity > SPARE_CAPACITY) {
        collective_free(work);
        return;
    }
    collective_free(atomic_exchange(&work->group->spare, work));
}

/* Of the library's sum: what it says itself. */
static void hint(const struct completion *completion, struct text *out)
{
    const struct collective *work = (const struct collective *)completion;
    const struct session *session = completion->session;

    if (work->native && session->ops->native->tell)
        session->ops->native->tell(session->transport, work->native, out);
}

/* The library builds its communicator, and does not end: whose is not built. */
static int blame(const struct completion *completion, struct text *out)
{
    enum { NAMED = 8 };
    const struct collective *work = (const struct collective *)completion;
    const struct session *session = completion->session;
    int ranks[NAMED];
    int count = work->native ? session->ops->native->missing(session->transport, work->group->native, ranks, NAMED) : 0;

    if (!count)
        return session->rank;
    text_add(out, "the communicator of %s is not built on rank%s ", completion->lane->name, count == 1 ? "" : "s");
    for (int i = 0; i < count && i < NAMED; i++)
        text_add(out, "%s%d", i ? ", " : "", ranks[i]);
    if (count > NAMED)
        text_add(out, " and %d more", count - NAMED);
    return count == 1 ? ranks[0] : -1;
}

const struct work_kind collective_kind = {
    .step = step, .let_go = collective_let_go, .peer = peer, .hint = hint, .blame = blame, .destroy = destroy};
