/* The manifest consensus: two exchanges over a binomial tree of all ranks, before any group exists.
 *
 * 1. Records of 64 bytes go up to rank 0 and all of them down again.  2. Rank 0's keys go down, replies (only of ranks
 * that failed or differ) go up, the verdict goes down.  Nobody validates before both are over, so a bad peer strands
 * nobody; only when the records show two protocols does everybody, seeing the same records, leave out the second.
 * Cost on n ranks: 5 log2 n messages in a row, 64 n bytes up and down and at most 64 KiB of keys.
 *
 * In the tree, rank r's parent is r without its lowest set bit, and the subtree of a child covers the ranks from it up
 * to the next child: what comes from below is therefore already in rank order. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/size.h"
#include "comm/manifest.h"
#include "comm/recorder.h"
#include "comm/session_private.h"

enum {
    CONSENSUS_TAG = 0, /* ids of groups and routes begin at 1 */
    VERDICT_BYTES = 4 + sizeof((struct error *)0)->text,
    GRACE_S = 3 /* beyond startup_timeout: the timeout rule has spoken by then */
};

struct consensus {
    struct session *session;
    const struct manifest *manifest;
    uint64_t deadline_ns;
    unsigned char *records; /* [size][MANIFEST_RECORD_BYTES] */
    size_t record_bytes;
    struct text keys;
    struct text replies;
    struct text verdict; /* status u32, the sentence without its NUL */
    bool stuck;          /* a posted send or receive has not ended: its memory stays */
};

/* One message on its way, to or from peer. */
struct move {
    int peer;
    struct work *work;
    bool over;
};

/* Ranks below child, itself included. */
static int subtree_size(int child, int step, int size)
{
    return size - child < step ? size - child : step;
}

/* The first step at which rank has no child any more: its lowest set bit, or more than all ranks for rank 0. */
static int64_t last_step(int rank)
{
    return rank ? rank & -rank : (int64_t)1 << 31;
}

static void tell_wait(struct session *session, int peer, enum operation operation)
{
    struct wait_state *wait = &session->wait;

    wait->waiting = true;
    wait->since_ns = clock_ns();
    wait->peer = peer;
    wait->operation = operation;
    wait->object_id = CONSENSUS_TAG;
    wait->sequence = 0;
    (void)snprintf(wait->object_name, sizeof wait->object_name, "consensus");
}

static enum status late(const struct consensus *consensus, int peer)
{
    struct cause cause = {.status = STATUS_TIMEOUT, .rank = peer, .reporter = consensus->session->rank};

    (void)snprintf(cause.text, sizeof cause.text,
                   "the consensus is not over within startup_timeout (%.1f s): rank %d waits for rank %d",
                   (double)consensus->session->options.startup_timeout_ns / 1e9, cause.reporter, peer);
    return session_poison_cause(consensus->session, &cause);
}

/* One turn of waiting for peer: serve the control channel, ask after peer, sleep without the lock. */
static enum status turn(struct consensus *consensus, int peer, uint64_t *sleep_ns, struct error *err)
{
    struct session *session = consensus->session;
    struct cause cause = {0};
    enum status st;

    session_advance(session);
    st = session_failed(session, err);
    if (st)
        return st;
    if (control_expired(session->control, &cause))
        (void)session_poison_cause(session, &cause);
    else if (clock_ns() > consensus->deadline_ns)
        (void)late(consensus, peer);
    session_tell_waiting(session);
    session_unlock(session);
    clock_sleep_ns(*sleep_ns);
    *sleep_ns = *sleep_ns < 4 * NS_PER_MS ? *sleep_ns * 2 : 4 * NS_PER_MS;
    session_lock(session);
    return session_failed(session, err);
}

/* Until the posted work of move has ended. */
static enum status finish(struct consensus *consensus, struct move *move, struct error *err)
{
    struct session *session = consensus->session;
    uint64_t sleep_ns = 5 * NS_PER_US;
    enum status st = STATUS_OK;

    while (st == STATUS_OK) {
        st = session->ops->test(session->transport, move->work, &move->over, err);
        if (move->over || st)
            break;
        st = turn(consensus, move->peer, &sleep_ns, err);
    }
    consensus->stuck |= !move->over;
    session_moved(session);
    return st;
}

static enum status send(struct consensus *consensus, int peer, const void *bytes, size_t count, struct error *err)
{
    struct session *session = consensus->session;
    struct move move = {.peer = peer};
    enum status st;

    session->wait.peer = peer;
    st = session->ops->send(session->transport, peer, CONSENSUS_TAG, bytes, count, &move.work, err);
    if (st == STATUS_OK)
        st = finish(consensus, &move, err);
    session->counters.bytes_sent += st == STATUS_OK ? count : 0;
    return st;
}

/* Wait for the next message of peer; its size is told before anything is received. */
static enum status await(struct consensus *consensus, int peer, struct message **ret, size_t *ret_bytes,
                         struct error *err)
{
    struct session *session = consensus->session;
    uint64_t sleep_ns = 5 * NS_PER_US;
    enum status st;

    tell_wait(session, peer, session->wait.operation);
    for (;;) {
        st = session->ops->probe(session->transport, peer, CONSENSUS_TAG, ret, ret_bytes, err);
        if (st || *ret)
            return st;
        st = turn(consensus, peer, &sleep_ns, err);
        if (st)
            return st;
    }
}

static enum status take(struct consensus *consensus, int peer, struct message *message, void *bytes, size_t count,
                        struct error *err)
{
    struct session *session = consensus->session;
    struct move move = {.peer = peer};
    enum status st = session->ops->receive(session->transport, message, bytes, count, &move.work, err);

    if (st == STATUS_OK)
        st = finish(consensus, &move, err);
    session->counters.bytes_received += st == STATUS_OK ? count : 0;
    return st;
}

/* A message of a wrong size is taken and thrown away, so that the transport is left whole. */
static enum status refuse(struct consensus *consensus, int peer, struct message *message, size_t count, size_t expected,
                          struct error *err)
{
    void *scratch = count <= MANIFEST_REPLIES_BYTES ? malloc(count ? count : 1) : NULL;

    if (scratch)
        (void)take(consensus, peer, message, scratch, count, NULL);
    if (!consensus->stuck)
        free(scratch);
    return error_blame(
        err, error_set(err, STATUS_MISMATCH, "consensus: rank %d sent %zu bytes, expected %zu", peer, count, expected),
        peer);
}

static enum status receive(struct consensus *consensus, int peer, void *bytes, size_t count, struct error *err)
{
    struct message *message = NULL;
    size_t came = 0;
    enum status st = await(consensus, peer, &message, &came, err);

    if (st)
        return st;
    if (came != count)
        return refuse(consensus, peer, message, came, count, err);
    return take(consensus, peer, message, bytes, count, err);
}

/* Append a message of any size up to limit. */
static enum status receive_text(struct consensus *consensus, int peer, struct text *text, size_t limit,
                                struct error *err)
{
    struct message *message = NULL;
    size_t count = 0;
    enum status st = await(consensus, peer, &message, &count, err);
    unsigned char *bytes;

    if (st)
        return st;
    if (count > limit)
        return refuse(consensus, peer, message, count, limit, err);
    bytes = malloc(count ? count : 1);
    if (!bytes)
        return error_set(err, STATUS_NOMEM, "consensus: %zu bytes", count);
    st = take(consensus, peer, message, bytes, count, err);
    if (st == STATUS_OK)
        text_add_bytes(text, bytes, count);
    if (!consensus->stuck)
        free(bytes);
    return st;
}

static int parent_of(int rank)
{
    return rank & (rank - 1);
}

/* Records of the whole subtree come up, in rank order. */
static enum status gather_records(struct consensus *consensus, struct error *err)
{
    const struct session *session = consensus->session;
    unsigned char *own = consensus->records + (size_t)session->rank * MANIFEST_RECORD_BYTES;
    int64_t step = 1;
    enum status st = STATUS_OK;

    manifest_record(consensus->manifest, own);
    for (; st == STATUS_OK && step < last_step(session->rank) && session->rank + step < session->size; step *= 2) {
        int child = session->rank + (int)step;

        st = receive(consensus, child, consensus->records + (size_t)child * MANIFEST_RECORD_BYTES,
                     (size_t)subtree_size(child, (int)step, session->size) * MANIFEST_RECORD_BYTES, err);
    }
    if (st == STATUS_OK && session->rank) {
        int width = subtree_size(session->rank, (int)last_step(session->rank), session->size);

        st = send(consensus, parent_of(session->rank), own, (size_t)width * MANIFEST_RECORD_BYTES, err);
    }
    return st;
}

/* Send the same bytes to every child, the widest subtree first. */
static enum status send_down(struct consensus *consensus, const void *bytes, size_t count, struct error *err)
{
    const struct session *session = consensus->session;
    int64_t step = 1;
    enum status st = STATUS_OK;

    while (step < last_step(session->rank) && session->rank + step < session->size)
        step *= 2;
    for (step /= 2; st == STATUS_OK && step; step /= 2)
        st = send(consensus, session->rank + (int)step, bytes, count, err);
    return st;
}

static enum status exchange_records(struct consensus *consensus, struct error *err)
{
    enum status st = gather_records(consensus, err);

    if (st == STATUS_OK && consensus->session->rank)
        st = receive(consensus, parent_of(consensus->session->rank), consensus->records, consensus->record_bytes, err);
    return st ? st : send_down(consensus, consensus->records, consensus->record_bytes, err);
}

/* Rank 0's text to everybody. */
static enum status share_text(struct consensus *consensus, struct text *text, size_t limit, struct error *err)
{
    enum status st = STATUS_OK;

    if (consensus->session->rank)
        st = receive_text(consensus, parent_of(consensus->session->rank), text, limit, err);
    if (st == STATUS_OK && text->failed)
        st = error_set(err, STATUS_NOMEM, "consensus");
    return st ? st : send_down(consensus, text_string(text), text->length, err);
}

static enum status gather_replies(struct consensus *consensus, struct error *err)
{
    const struct session *session = consensus->session;
    enum status st =
        manifest_reply(consensus->manifest, session->rank, (const unsigned char *)text_string(&consensus->keys),
                       consensus->keys.length, &consensus->replies, err);

    for (int64_t step = 1; st == STATUS_OK && step < last_step(session->rank) && session->rank + step < session->size;
         step *= 2) {
        struct text more = {0};

        st = receive_text(consensus, session->rank + (int)step, &more, MANIFEST_REPLIES_BYTES, err);
        if (st == STATUS_OK && consensus->replies.length + more.length <= MANIFEST_REPLIES_BYTES)
            text_add_bytes(&consensus->replies, more.bytes, more.length);
        text_done(&more);
    }
    if (st == STATUS_OK && session->rank)
        st =
            send(consensus, parent_of(session->rank), text_string(&consensus->replies), consensus->replies.length, err);
    return st;
}

static void compose_verdict(struct consensus *consensus)
{
    struct error verdict = {0};
    unsigned char status[4];
    enum status st =
        manifest_verdict(consensus->records, consensus->session->size,
                         (const unsigned char *)text_string(&consensus->replies), consensus->replies.length, &verdict);

    put_u32(status, st);
    text_add_bytes(&consensus->verdict, status, sizeof status);
    text_add_bytes(&consensus->verdict, verdict.text, strlen(verdict.text));
}

static enum status exchange_keys(struct consensus *consensus, struct error *err)
{
    enum status st;

    if (!consensus->session->rank)
        manifest_keys(consensus->manifest, &consensus->keys);
    st = share_text(consensus, &consensus->keys, MANIFEST_KEYS_BYTES, err);
    if (st == STATUS_OK)
        st = gather_replies(consensus, err);
    if (st == STATUS_OK && !consensus->session->rank)
        compose_verdict(consensus);
    return st ? st : share_text(consensus, &consensus->verdict, VERDICT_BYTES, err);
}

/* Both exchanges are over and every rank holds the same verdict: none needs to be told. */
static enum status adopt(struct consensus *consensus, enum status st, const char *sentence, struct error *err)
{
    struct session *session = consensus->session;
    struct cause cause = {.status = st, .reporter = 0};

    if (st == STATUS_OK)
        return st;
    cause.rank = manifest_culprit(consensus->records, session->size);
    (void)snprintf(cause.text, sizeof cause.text, "%.1535s", sentence);
    control_adopt(session->control, &cause);
    return session_failed(session, err);
}

static enum status read_verdict(struct consensus *consensus, struct error *err)
{
    const struct text *verdict = &consensus->verdict;
    uint32_t status;

    if (verdict->length < 4 || verdict->failed)
        return error_set(err, STATUS_CORRUPT, "consensus: the verdict is cut");
    status = get_u32((const unsigned char *)verdict->bytes);
    if (status >= STATUS_COUNT)
        return error_set(err, STATUS_CORRUPT, "consensus: status %u", status);
    return adopt(consensus, (enum status)status, verdict->bytes + 4, err);
}

/* Count and record one exchange, and run it unless a rehearsed fault leaves it out. */
static enum status run(struct consensus *consensus, enum operation operation,
                       enum status (*exchange)(struct consensus *consensus, struct error *err), bool *ret_skip,
                       struct error *err)
{
    struct session *session = consensus->session;
    struct record record = {.operation = operation, .object_id = CONSENSUS_TAG, .object_name = "consensus", .peer = -1};
    enum status st = session_admit(session, ret_skip, err);
    uint64_t number;

    if (st || *ret_skip)
        return st;
    session->wait.operation = operation;
    number = recorder_post(session->recorder, &record);
    st = exchange(consensus, err);
    session->wait.waiting = false;
    recorder_end(session->recorder, number, st);
    return st;
}

/* A rehearsed fault kept this rank out: it knows nothing of the others, but of itself. */
static enum status left_out(const struct manifest *manifest, struct error *err)
{
    if (manifest->status == STATUS_OK)
        return STATUS_OK;
    return error_set(err, manifest->status, "%s", manifest->why ? manifest->why : status_name(manifest->status));
}

static enum status agree(struct consensus *consensus, struct error *err)
{
    bool skip = false;
    enum status st = run(consensus, OPERATION_ALL_GATHER_EVEN, exchange_records, &skip, err);
    struct error foreign = {0};

    if (st)
        return st;
    if (skip)
        return left_out(consensus->manifest, err);
    st = manifest_protocols(consensus->records, consensus->session->size, &foreign);
    if (st)
        return adopt(consensus, st, foreign.text, err);
    st = run(consensus, OPERATION_BROADCAST, exchange_keys, &skip, err);
    if (st)
        return st;
    if (skip)
        return left_out(consensus->manifest, err);
    consensus->session->digest = XXH3_64bits(consensus->records, MANIFEST_RECORD_BYTES);
    return read_verdict(consensus, err);
}

static enum status prepare(struct consensus *consensus, struct error *err)
{
    if (size_mul((size_t)consensus->session->size, MANIFEST_RECORD_BYTES, &consensus->record_bytes) ||
        consensus->record_bytes > consensus->session->ops->max_message(consensus->session->transport))
        return error_set(err, STATUS_OVERFLOW, "consensus of %d ranks", consensus->session->size);
    consensus->records = calloc(consensus->record_bytes, 1);
    return consensus->records ? STATUS_OK : error_set(err, STATUS_NOMEM, "consensus: records of all ranks");
}

enum status session_consensus(struct session *session, const struct manifest *manifest, struct error *err)
{
    struct consensus consensus = {.session = session, .manifest = manifest};
    struct error own = {0};
    enum status st;

    session_lock(session);
    consensus.deadline_ns = clock_ns() + session->options.startup_timeout_ns + GRACE_S * NS_PER_S;
    st = prepare(&consensus, &own);
    if (st == STATUS_OK)
        st = agree(&consensus, &own);
    if (st) {
        /* A failure of ours becomes everybody's; one that is everybody's already stays as it is. */
        (void)session_poison(session, st, &own);
        st = session_failed(session, err);
    }
    if (!consensus.stuck) {
        free(consensus.records);
        text_done(&consensus.keys);
        text_done(&consensus.replies);
        text_done(&consensus.verdict);
    }
    session_unlock(session);
    return st;
}
