/* The table.  Messages in host memory go to the carrier as they are; announcements of device messages travel among
 * them, so that the order of (peer, tag) is the carrier's.  An announcement is known by its size: a message of the
 * caller's that has this size goes behind an announcement that says so. */
#include "backends/nccl/nccl_transport.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backends/nccl/nccl_private.h"

static int nccl_rank(const struct transport *transport)
{
    return transport->rank;
}

static int nccl_size(const struct transport *transport)
{
    return transport->size;
}

static uint32_t nccl_max_tag(const struct transport *transport)
{
    return transport->carrier_ops->max_tag(transport->carrier);
}

static size_t nccl_max_message(const struct transport *transport)
{
    return transport->carrier_ops->max_message(transport->carrier);
}

static const char *nccl_describe(const struct transport *transport)
{
    return transport->about;
}

static const char *nccl_host(const struct transport *transport, int rank)
{
    return transport->carrier_ops->host ? transport->carrier_ops->host(transport->carrier, rank) : NULL;
}

/* Says that the caller's message behind it is no announcement. */
static enum status send_literal(struct transport *transport, struct work *work, int peer, uint32_t tag,
                                struct error *err)
{
    struct announcement announcement = {.literal = true};

    announcement_encode(&announcement, work->announcement);
    return transport->carrier_ops->send(transport->carrier, peer, tag, work->announcement, ANNOUNCE_BYTES,
                                        &work->carried[1], err);
}

static enum status nccl_send(struct transport *transport, int peer, uint32_t tag, const void *bytes, size_t count,
                             struct work **ret, struct error *err)
{
    struct work *work = nccl_work_take(transport, WORK_HOST);
    enum status st = STATUS_OK;

    if (!work)
        return error_set(err, STATUS_NOMEM, "message to rank %d", peer);
    if (count == ANNOUNCE_BYTES)
        st = send_literal(transport, work, peer, tag, err);
    if (st == STATUS_OK)
        st = transport->carrier_ops->send(transport->carrier, peer, tag, bytes, count, &work->carried[0], err);
    if (st != STATUS_OK) {
        if (!work->carried[1]) /* else the carrier still reads the announcement: it stays */
            nccl_work_give(transport, work);
        return st;
    }
    *ret = work;
    return STATUS_OK;
}

static struct arrival *find_arrival(const struct transport *transport, int peer, uint32_t tag)
{
    struct arrival *arrival = transport->peers[peer].arrivals;

    while (arrival && arrival->tag != tag)
        arrival = arrival->next;
    return arrival;
}

static enum status new_message(int peer, struct message *carried, struct message **ret, struct error *err)
{
    *ret = malloc(sizeof **ret);
    if (!*ret)
        return error_set(err, STATUS_NOMEM, "message from rank %d", peer);
    (*ret)->peer = peer;
    (*ret)->carried = carried;
    return STATUS_OK;
}

/* Is the announcement that was being received here?  *ret stays NULL: not yet, or it was a literal's. */
static enum status look_at_arrival(struct transport *transport, struct arrival *arrival, int peer, struct message **ret,
                                   size_t *ret_bytes, struct error *err)
{
    struct announcement announcement;
    bool over = false;
    enum status st = transport->carrier_ops->test(transport->carrier, arrival->carried, &over, err);

    if (st != STATUS_OK || !over)
        return st;
    arrival->carried = NULL;
    st = announcement_decode(arrival->bytes, &announcement, err);
    if (st != STATUS_OK)
        return error_wrap(err, st, "from rank %d, tag %" PRIu32, peer, arrival->tag);
    arrival->literal = announcement.literal;
    if (announcement.literal)
        return STATUS_OK;
    st = new_message(peer, NULL, ret, err);
    if (st != STATUS_OK)
        return st;
    (*ret)->announcement = announcement;
    *ret_bytes = (size_t)announcement.payload_bytes + announcement.header_bytes;
    return STATUS_OK;
}

static enum status begin_arrival(struct transport *transport, int peer, uint32_t tag, struct message *carried,
                                 struct arrival **ret, struct error *err)
{
    struct arrival *arrival = find_arrival(transport, peer, tag);

    if (!arrival) {
        arrival = calloc(1, sizeof *arrival);
        if (!arrival)
            return error_set(err, STATUS_NOMEM, "message from rank %d", peer);
        arrival->tag = tag;
        arrival->next = transport->peers[peer].arrivals;
        transport->peers[peer].arrivals = arrival;
    }
    *ret = arrival;
    return transport->carrier_ops->receive(transport->carrier, carried, arrival->bytes, ANNOUNCE_BYTES,
                                           &arrival->carried, err);
}

static enum status probe(struct transport *transport, int peer, uint32_t tag, struct message **ret, size_t *ret_bytes,
                         struct error *err)
{
    struct arrival *arrival = find_arrival(transport, peer, tag);
    struct message *carried = NULL;
    enum status st = STATUS_OK;

    if (arrival && arrival->carried) {
        st = look_at_arrival(transport, arrival, peer, ret, ret_bytes, err);
        if (st != STATUS_OK || *ret || arrival->carried)
            return st;
    }
    st = transport->carrier_ops->probe(transport->carrier, peer, tag, &carried, ret_bytes, err);
    if (st != STATUS_OK || !carried)
        return st;
    if (*ret_bytes != ANNOUNCE_BYTES || (arrival && arrival->literal)) {
        if (arrival)
            arrival->literal = false;
        return new_message(peer, carried, ret, err);
    }
    st = begin_arrival(transport, peer, tag, carried, &arrival, err);
    return st == STATUS_OK ? look_at_arrival(transport, arrival, peer, ret, ret_bytes, err) : st;
}

static enum status nccl_probe(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                              size_t *ret_bytes, struct error *err)
{
    *ret = NULL;
    if (transport->works || transport->failed)
        nccl_progress(transport);
    return probe(transport, peer, tag, ret, ret_bytes, err);
}

static enum status nccl_receive(struct transport *transport, struct message *message, void *bytes, size_t count,
                                struct work **ret, struct error *err)
{
    struct message *carried = message->carried;
    struct work *work = nccl_work_take(transport, WORK_HOST);
    enum status st = STATUS_OK;

    CHECK(carried);
    free(message);
    if (!work)
        return error_set(err, STATUS_NOMEM, "receiving %zu bytes", count);
    st = transport->carrier_ops->receive(transport->carrier, carried, bytes, count, &work->carried[0], err);
    if (st != STATUS_OK) {
        nccl_work_give(transport, work);
        return st;
    }
    *ret = work;
    return STATUS_OK;
}

/* *ret: the carrier holds nothing of it any more. */
static enum status test_carried(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    *ret = true;
    for (int i = 0; i < 2; i++) {
        bool over = false;
        enum status st = STATUS_OK;

        if (!work->carried[i])
            continue;
        st = transport->carrier_ops->test(transport->carrier, work->carried[i], &over, err);
        if (over)
            work->carried[i] = NULL;
        *ret &= over;
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static enum status nccl_test(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    bool over = false;
    enum status st = test_carried(transport, work, &over, err);

    *ret = false;
    if (st != STATUS_OK)
        return st;
    if (work->kind != WORK_HOST) {
        nccl_progress(transport);
        if (work->state != WORK_OVER && transport->failed)
            return nccl_quiet(transport) ? nccl_failed(transport, err) : STATUS_OK;
        over = over && work->state == WORK_OVER;
    }
    if (!over)
        return STATUS_OK;
    if (work->kind != WORK_HOST) {
        nccl_work_unlink(transport, work);
        nccl_work_release(transport, work);
    }
    nccl_work_give(transport, work);
    *ret = true;
    return STATUS_OK;
}

/* A started work ends with the communicators: the device must have let go of its memory first.  An announcement that
 * the carrier still reads lies in the work, which stays. */
static bool nccl_cancel(struct transport *transport, struct work *work)
{
    if (work->kind == WORK_HOST)
        return false;
    if (!transport->failed)
        nccl_fail(transport, STATUS_LOST, "the session was torn down");
    nccl_progress(transport);
    if (work->state == WORK_STARTED && !nccl_quiet(transport))
        return false;
    queue_remove(&transport->queue, &work->entry);
    work->state = WORK_CANCELLED;
    return true;
}

static enum status nccl_control_send(struct transport *transport, int peer, const void *bytes, struct error *err)
{
    return transport->carrier_ops->control_send(transport->carrier, peer, bytes, err);
}

static void take_letter(struct transport *transport, int *ret_peer, void *bytes)
{
    struct letter *letter = transport->letters;

    transport->letters = letter->next;
    if (!transport->letters)
        transport->letters_end = &transport->letters;
    transport->letter_count--;
    *ret_peer = letter->peer;
    memcpy(bytes, letter->bytes, sizeof letter->bytes);
    free(letter);
}

static enum status nccl_control_receive(struct transport *transport, int *ret_peer, void *bytes, bool *ret,
                                        struct error *err)
{
    bool letter = false;
    enum status st = STATUS_OK;

    if (transport->works || transport->natives)
        nccl_progress(transport);
    *ret = true;
    if (transport->letters) {
        take_letter(transport, ret_peer, bytes);
        return STATUS_OK;
    }
    while (st == STATUS_OK && *ret && !letter)
        st = nccl_hear(transport, ret_peer, bytes, ret, &letter, err);
    return st;
}

/* The ranks that take part in work: may it be that one? */
static bool is_with(const struct work *work, int peer)
{
    return work->kind == WORK_SUM ? nccl_native_member(work->native, peer) : work->peer == peer;
}

/* What stands in front of everything that is not over: started first, or first in the queue without a ticket. */
static size_t first_works(const struct transport *transport, const struct work **works)
{
    const struct launch *launch = transport->launches;
    const struct entry *entry = transport->queue.first;

    for (size_t i = 0; launch && i < launch->count; i++)
        works[i] = launch->works[i];
    if (launch)
        return launch->count;
    if (!entry || entry->final)
        return 0;
    works[0] = (const struct work *)((const char *)entry - offsetof(struct work, entry));
    return 1;
}

static int nccl_awaits(const struct transport *transport, int peer)
{
    const struct work *first[QUEUE_GROUP];
    const struct work *work = transport->works;
    size_t count = first_works(transport, first);

    while (work && !((work->state == WORK_QUEUED || work->state == WORK_STARTED) && is_with(work, peer)))
        work = work->next;
    if (!work || !count)
        return peer;
    for (size_t i = 0; i < count; i++) {
        if (is_with(first[i], peer))
            return peer;
    }
    return first[0]->kind == WORK_SUM ? nccl_native_next(first[0]->native) : first[0]->peer;
}

const struct transport_ops nccl_transport_ops = {
    .name = "nccl",
    .teardown = TEARDOWN_NATIVE,
    .open = nccl_open,
    .close = nccl_close,
    .rank = nccl_rank,
    .size = nccl_size,
    .max_tag = nccl_max_tag,
    .max_message = nccl_max_message,
    .send = nccl_send,
    .probe = nccl_probe,
    .receive = nccl_receive,
    .test = nccl_test,
    .control_send = nccl_control_send,
    .control_receive = nccl_control_receive,
    .cancel = nccl_cancel,
    .awaits = nccl_awaits,
    .describe = nccl_describe,
    .host = nccl_host,
    .raw = &nccl_raw_ops,
    .device = &nccl_device_ops,
    .native = &nccl_native_ops,
};
