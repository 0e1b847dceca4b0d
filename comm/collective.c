/* The engine of rounds: post all sends, take each peer's messages in order, then let the algorithm use them. */
#include "comm/collective.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/roll.h"
#include "comm/native.h"
#include "comm/reduce.h"
#include "comm/staging.h"

enum {
    HEARING_MS = 2000,   /* of a member's other header, until the cause is told without those not heard; half of the
                          * timeout at most */
    DOUBT_MS = 250,      /* of a round without an end, before its peers are asked what they were called with */
    FIRST_CAPACITY = 8,  /* messages of a round */
    SPARE_CAPACITY = 32, /* that the record kept for a group's next operation has room for at most */
    DETACH_BYTES = 16384 /* payloads of the caller's memory travel from there from this size on */
};

struct part collective_part(const struct collective *work)
{
    return (struct part){.dtype = work->dtype, .shape = work->shape, .receive_count = work->extent};
}

static void fill_frame(const struct collective *work, const struct part *part, struct frame *frame)
{
    *frame = (struct frame){.kind = FRAME_COLLECTIVE,
                            .object_id = work->group->spec.id,
                            .operation = work->completion.operation,
                            .round = (uint32_t)work->round | (work->voting ? UINT32_C(1) << 31 : 0),
                            .root_or_axis = (uint32_t)(work->root + work->axis),
                            .sequence = work->completion.sequence,
                            .send_count = part->send_count,
                            .receive_count = part->receive_count,
                            .schema_digest = work->count_digest,
                            .dtype = part->dtype,
                            .shape = part->shape,
                            .role = work->counts[0] ? work->counts : NULL};
}

/* Room for one more message of the round. */
static enum status grow(struct collective *work, int count, struct error *err)
{
    int capacity = work->capacity ? 2 * work->capacity : FIRST_CAPACITY;
    struct framed_send *sends = NULL;
    struct framed_receive *receives = NULL;

    if (count < work->capacity)
        return STATUS_OK;
    sends = realloc(work->sends, (size_t)capacity * sizeof *sends);
    if (sends)
        work->sends = sends;
    receives = realloc(work->receives, (size_t)capacity * sizeof *receives);
    if (receives)
        work->receives = receives;
    if (!sends || !receives)
        return error_set(err, STATUS_NOMEM, "%d messages", capacity);
    work->capacity = capacity;
    return STATUS_OK;
}

/* Large payloads travel out of and into the caller's memory, where no header may stand in front of them.  Below, a copy
 * costs less than a second message. */
static bool detaches(const struct collective *work, const struct part *part)
{
    return part->bytes >= DETACH_BYTES && !work->completion.session->options.payload_integrity;
}

struct staging *collective_staging(const struct collective *work)
{
    return staging_in(work->completion.session->staging, collective_device(work));
}

static unsigned char *take(const struct collective *work, size_t bytes, struct error *err)
{
    struct staging *staging = collective_staging(work);

    if (staging)
        return staging_take(staging, bytes, err);
    (void)error_set(err, STATUS_NOMEM, "a list of free blocks");
    return NULL;
}

/* How a payload is to lie. */
enum lie {
    LIE_TOGETHER, /* behind its header */
    LIE_APART,    /* if it is large, its header is a message of its own */
    LIE_WRITTEN   /* behind its header, and once it is written nobody here reads it */
};

/* A send to members [count] out of bytes; NULL: out of memory that is still to be filled. */
static enum status open_send(struct collective *work, const int *members, int count, const struct part *part,
                             enum lie lie, const unsigned char *bytes, struct error *err)
{
    enum status st = grow(work, work->send_count, err);
    struct framed_send *send = NULL;
    struct memory *device = collective_device(work);

    if (st != STATUS_OK)
        return st;
    CHECK(work->peer_count + count <= 2 * work->size);
    send = &work->sends[work->send_count];
    memset(send, 0, sizeof *send);
    fill_frame(work, part, &send->frame);
    send->tag = work->group->spec.id;
    send->peers = work->peers + work->peer_count;
    send->peer_count = count;
    for (int i = 0; i < count; i++)
        work->peers[work->peer_count + i] = work->group->spec.members[members[i]];
    send->detached = lie == LIE_APART && detaches(work, part);
    send->payload_bytes = part->bytes;
    send->device = device;
    if ((send->detached || device) && bytes)
        send->payload = (unsigned char *)(uintptr_t)bytes;
    else if (lie != LIE_WRITTEN || !framed_send_room(send, work->completion.session))
        send->payload = take(work, part->bytes, err);
    if (!send->payload)
        return error_wrap(err, STATUS_NOMEM, "a message of %zu bytes", part->bytes);
    send->borrowed = send->room || send->payload == bytes;
    send->headroom = !send->borrowed;
    if (bytes && !send->borrowed && part->bytes)
        memcpy(send->payload, bytes, part->bytes);
    work->peer_count += count;
    work->send_count++;
    return framed_send_init(send, err);
}

enum status collective_send(struct collective *work, const int *members, int count, const struct part *part,
                            unsigned char **ret, struct error *err)
{
    enum status st = open_send(work, members, count, part, LIE_TOGETHER, NULL, err);

    if (st == STATUS_OK)
        *ret = work->sends[work->send_count - 1].payload;
    return st;
}

enum status collective_send_from(struct collective *work, const int *members, int count, const struct part *part,
                                 const unsigned char *bytes, struct error *err)
{
    return open_send(work, members, count, part, LIE_APART, bytes, err);
}

enum status collective_send_packed(struct collective *work, int member, const struct part *part,
                                   const struct slab *slab, const unsigned char *tensor, uint64_t start,
                                   struct rows rows, struct error *err)
{
    enum status st = open_send(work, &member, 1, part, LIE_WRITTEN, NULL, err);
    const struct framed_send *send = NULL;

    if (st != STATUS_OK)
        return st;
    send = &work->sends[work->send_count - 1];
    if (send->room && !send->near) {
        slab_stream(slab, tensor, start, part->send_count, rows, send->payload);
        return STATUS_OK;
    }
    return slab_pack(send->device, slab, tensor, start, part->send_count, rows, send->payload, err);
}

static enum status open_send_all(struct collective *work, const struct part *part, enum lie lie,
                                 const unsigned char *bytes, struct error *err)
{
    int *members = calloc((size_t)work->size, sizeof *members);
    int count = 0;
    enum status st;

    if (!members)
        return error_set(err, STATUS_NOMEM, "a list of %d members", work->size);
    /* Start behind oneself, so that not everybody sends to the first member first. */
    for (int i = 1; i < work->size; i++) {
        int member = (work->rank + i) % work->size;

        if (!collective_is_in(work->lent_to, member))
            members[count++] = member;
    }
    st = open_send(work, members, count, part, lie, bytes, err);
    free(members);
    return st;
}

enum status collective_send_all(struct collective *work, const struct part *part, unsigned char **ret,
                                struct error *err)
{
    enum status st = open_send_all(work, part, LIE_TOGETHER, NULL, err);

    if (st == STATUS_OK)
        *ret = work->sends[work->send_count - 1].payload;
    return st;
}

enum status collective_send_all_from(struct collective *work, const struct part *part, const unsigned char *bytes,
                                     struct error *err)
{
    return open_send_all(work, part, LIE_APART, bytes, err);
}

enum status collective_send_all_apart(struct collective *work, const struct part *part, unsigned char **ret,
                                      struct error *err)
{
    enum status st = open_send_all(work, part, LIE_APART, NULL, err);

    if (st == STATUS_OK)
        *ret = work->sends[work->send_count - 1].payload;
    return st;
}

bool collective_all_in(const struct collective *work, uint64_t members)
{
    for (int i = 0; i < work->size; i++) {
        if (i != work->rank && !collective_is_in(members, i))
            return false;
    }
    return true;
}

/* Whole payloads that are worth it, and that are one message. */
static bool is_lendable(const struct collective *work, const struct part *whole)
{
    const struct session *session = work->completion.session;

    return detaches(work, whole) && !work->device && session->ops->reach &&
           whole->bytes <= session->ops->max_message(session->transport) - FRAME_MAX_BYTES;
}

enum status collective_lend(struct collective *work, int member, const struct part *whole, const struct slab *slab,
                            const unsigned char *tensor, uint64_t start, bool *ret, struct error *err)
{
    const struct session *session = work->completion.session;
    int peer = work->group->spec.members[member];
    struct runs runs = slab_runs(slab, tensor, start, whole->send_count);
    struct framed_send *send = NULL;
    struct work *lent = NULL;
    enum status st = STATUS_OK;

    *ret = member < 64 && is_lendable(work, whole) &&
           (lent = session->ops->reach(session->transport, peer, &runs)) != NULL;
    if (!*ret)
        return STATUS_OK;
    st = open_send(work, &member, 1, whole, LIE_APART, runs.bytes, err);
    if (st != STATUS_OK)
        return st;
    send = &work->sends[work->send_count - 1];
    send->lent = runs;
    send->lent_work = lent;
    work->lent_to |= UINT64_C(1) << member;
    return STATUS_OK;
}

static enum status open_receive(struct collective *work, int member, const struct part *part, bool detached,
                                unsigned char *target, struct error *err)
{
    enum status st = grow(work, work->receive_count, err);
    struct framed_receive *receive = NULL;

    if (st != STATUS_OK)
        return st;
    receive = &work->receives[work->receive_count];
    memset(receive, 0, sizeof *receive);
    fill_frame(work, part, &receive->frame);
    receive->tag = work->group->spec.id;
    receive->peer = work->group->spec.members[member];
    receive->keep_other = true;
    receive->sizes_only = work->completion.session->options.checks == CHECKS_OFF;
    receive->lane = &work->group->lane;
    receive->detached = detached;
    receive->target = target;
    receive->payload_bytes = part->bytes;
    receive->device = collective_device(work);
    receive->payload = (detached || receive->device) && target && !work->folded ? target : take(work, part->bytes, err);
    receive->headroom = receive->payload != target;
    receive->in_place = receive->payload != target;
    if (!receive->payload)
        return error_wrap(err, STATUS_NOMEM, "a message of %zu bytes", part->bytes);
    work->receive_count++;
    return STATUS_OK;
}

enum status collective_receive(struct collective *work, int member, const struct part *part, struct error *err)
{
    return open_receive(work, member, part, false, NULL, err);
}

enum status collective_receive_from(struct collective *work, int member, const struct part *part, unsigned char *target,
                                    struct error *err)
{
    return open_receive(work, member, part, detaches(work, part), target, err);
}

void collective_may_be_lent(struct collective *work, const struct part *whole)
{
    if (is_lendable(work, whole))
        work->receives[work->receive_count - 1].lent_bytes = whole->bytes;
}

/* Runs of another length than this member's: what was agreed on was not all that matters. */
static enum status unpack_other(struct collective *work, const struct runs *runs, const struct slab *slab,
                                unsigned char *tensor, uint64_t start, uint64_t count, struct error *err)
{
    unsigned char *packed = take(work, runs->run * runs->rows, err);
    enum status st = packed ? STATUS_OK : STATUS_NOMEM;

    if (st != STATUS_OK)
        return st;
    runs_copy(packed, runs->run, runs->bytes, runs->stride, runs->run, runs->rows);
    st = slab_unpack(NULL, slab, tensor, start, count, slab_rows(slab), packed, err);
    staging_give(collective_staging(work), packed);
    return st;
}

enum status collective_unpack(struct collective *work, int member, const struct framed_receive *receive,
                              const struct slab *slab, unsigned char *tensor, uint64_t start, uint64_t count,
                              struct rows rows, struct error *err)
{
    const struct runs *runs = &receive->runs;

    if (!runs->rows)
        return slab_unpack(work->device, slab, tensor, start, count, rows, receive->payload, err);
    work->lent_from |= UINT64_C(1) << member;
    if (runs->rows != 1 && runs->run != (size_t)count * slab->inner_bytes)
        return unpack_other(work, runs, slab, tensor, start, count, err);
    slab_put(slab, tensor, start, count, runs);
    return STATUS_OK;
}

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

enum status collective_sum(const struct collective *work, const void *const *in, size_t count, void *out,
                           struct error *err)
{
    if (work->device)
        return reduce_tree_on(work->device, collective_staging(work), work->dtype, in, work->size, count, out, err);
    reduce_tree(work->dtype, in, work->size, count, out);
    return STATUS_OK;
}

enum status collective_scratch(struct collective *work, size_t bytes, struct error *err)
{
    CHECK(!work->scratch);
    work->scratch_lender = collective_staging(work);
    work->scratch = take(work, bytes, err);
    if (!work->scratch)
        return error_wrap(err, STATUS_NOMEM, "%zu bytes of partial results", bytes);
    return STATUS_OK;
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

struct collective *collective_take(struct group *group)
{
    struct collective *work = atomic_exchange(&group->spare, NULL);

    if (!work) {
        work = calloc(1, sizeof *work);
        if (work)
            work->peers = calloc(2 * (size_t)group->spec.size, sizeof *work->peers);
        if (!work || !work->peers) {
            free(work);
            return NULL;
        }
    } else {
        *work = (struct collective){
            .sends = work->sends, .receives = work->receives, .capacity = work->capacity, .peers = work->peers};
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
    free(work);
}

static void destroy(struct completion *completion)
{
    struct collective *work = (struct collective *)completion;

    clear_round(work);
    if (work->scratch)
        staging_give(work->scratch_lender, work->scratch);
    layout_done(&work->from);
    layout_done(&work->to);
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
