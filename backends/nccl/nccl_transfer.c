/* Messages in device memory: announced over the carrier, moved by NCCL in the order of tickets. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda_stream.h"
#include "backends/nccl/nccl_private.h"

static bool device_reaches(const struct transport *transport, const struct memory *memory)
{
    return memory && memory->kind == MEMORY_DEVICE && cuda_memory_device(memory) == transport->device;
}

/* What a work of either side holds from the start: a header's slot, and its place behind the memory's queue. */
static enum status outfit(struct transport *transport, struct work *work, struct memory *memory, struct error *err)
{
    enum status st = nccl_use_device(transport, err);

    if (st == STATUS_OK)
        st = nccl_slot_take(transport, &work->slot, err);
    if (st == STATUS_OK)
        st = nccl_event_behind(transport, memory, &work->before, err);
    return st;
}

static enum status announce(struct transport *transport, struct work *work, uint32_t tag, const void *header,
                            struct error *err)
{
    struct announcement announcement = {.headroom = work->headroom,
                                        .number = work->number,
                                        .payload_bytes = work->bytes,
                                        .header_bytes = (uint32_t)work->header_bytes};

    memcpy(announcement.header, header, work->header_bytes);
    announcement_encode(&announcement, work->announcement);
    return transport->carrier_ops->send(transport->carrier, work->peer, tag, work->announcement, ANNOUNCE_BYTES,
                                        &work->carried[0], err);
}

static enum status device_send(struct transport *transport, int peer, uint32_t tag, const void *header,
                               size_t header_bytes, struct memory *memory, void *payload, size_t bytes, bool headroom,
                               struct work **ret, struct error *err)
{
    struct work *work = NULL;
    enum status st = nccl_failed(transport, err);

    if (st != STATUS_OK)
        return st;
    if (header_bytes == 0 || header_bytes > ANNOUNCE_HEADER_BYTES)
        return error_set(err, STATUS_OVERFLOW, "header of %zu bytes to rank %d", header_bytes, peer);
    work = nccl_work_take(transport, WORK_SEND);
    if (!work)
        return error_set(err, STATUS_NOMEM, "message to rank %d", peer);
    work->peer = peer;
    work->payload = payload;
    work->bytes = bytes;
    work->header_bytes = header_bytes;
    work->headroom = headroom && bytes;
    work->number = transport->peers[peer].sent + 1;
    st = outfit(transport, work, memory, err);
    if (st == STATUS_OK) {
        memcpy(work->slot, header, header_bytes);
        st = announce(transport, work, tag, header, err);
    }
    if (st != STATUS_OK) {
        nccl_work_release(transport, work);
        nccl_work_give(transport, work);
        return st;
    }
    transport->peers[peer].sent++;
    nccl_work_link(transport, work);
    *ret = work;
    return STATUS_OK;
}

static const void *device_ahead(const struct message *message, size_t *ret_header_bytes)
{
    if (message->carried)
        return NULL;
    *ret_header_bytes = message->announcement.header_bytes;
    return message->announcement.header;
}

static struct work *find(struct transport *transport, enum work_kind kind, enum work_state state, int peer,
                         uint64_t number)
{
    struct work *work = transport->works;

    while (work && !(work->kind == kind && work->state == state && work->peer == peer && work->number == number))
        work = work->next;
    return work;
}

static void set_entry(struct transport *transport, struct work *work)
{
    const struct peer *peer = &transport->peers[work->peer];
    bool sends = work->kind == WORK_SEND;

    work->entry.ticket = (struct ticket){.kind = ENTRY_TRANSFER,
                                         .from = (uint32_t)(sends ? transport->rank : work->peer),
                                         .to = (uint32_t)(sends ? work->peer : transport->rank),
                                         .number = work->number};
    work->entry.peer = work->peer;
    work->entry.sends = sends;
    /* Two ranks' first transfer connects them, in which each waits for the other; and two native messages of one group
     * are not run side by side (docs/nccl.md). */
    work->entry.alone = !(sends ? peer->sends_connected : peer->receives_connected) || (work->bytes && !work->joined) ||
                        work->peer == transport->rank;
}

/* A message to this rank itself: no other rank's order matters. */
static enum status meet_itself(struct transport *transport, struct work *work, struct error *err)
{
    struct work *other = find(transport, WORK_SEND, WORK_POSTED, transport->rank, work->number);
    uint64_t clock = 0;

    if (!other)
        return error_set(err, STATUS_CORRUPT, "message %" PRIu64 " of rank %d to itself was never sent", work->number,
                         transport->rank);
    other->state = WORK_STARTED;
    work->joined = false;
    return queue_decide(&transport->queue, &work->entry, transport->queue.clock + 1, &clock);
}

static enum status ask_for(struct transport *transport, struct work *work, struct error *err)
{
    struct note note = {.kind = NOTE_READY, .joined = work->joined, .number = work->number};
    enum status st;

    set_entry(transport, work);
    if (work->peer == transport->rank)
        return meet_itself(transport, work, err);
    note.ticket = queue_propose(&transport->queue, &work->entry);
    st = nccl_tell(transport, work->peer, &note, err);
    if (st != STATUS_OK)
        queue_remove(&transport->queue, &work->entry);
    return st;
}

static enum status device_receive(struct transport *transport, struct message *message, struct memory *memory,
                                  void *payload, size_t bytes, bool headroom, void *in_band, struct work **ret,
                                  struct error *err)
{
    const struct announcement *announcement = &message->announcement;
    struct work *work = nccl_work_take(transport, WORK_RECEIVE);
    enum status st = nccl_failed(transport, err);

    CHECK(!message->carried && bytes == announcement->payload_bytes);
    if (!work)
        st = error_set(err, STATUS_NOMEM, "message from rank %d", message->peer);
    if (st != STATUS_OK) {
        free(message);
        if (work)
            nccl_work_give(transport, work);
        return st;
    }
    work->peer = message->peer;
    work->payload = payload;
    work->bytes = bytes;
    work->header_bytes = announcement->header_bytes;
    work->headroom = headroom;
    work->joined = headroom && announcement->headroom;
    work->number = announcement->number;
    work->in_band = in_band;
    work->state = WORK_QUEUED;
    free(message);
    st = outfit(transport, work, memory, err);
    if (st == STATUS_OK)
        st = ask_for(transport, work, err);
    if (st != STATUS_OK) {
        nccl_work_release(transport, work);
        nccl_work_give(transport, work);
        return st;
    }
    nccl_work_link(transport, work);
    *ret = work;
    return STATUS_OK;
}

static void device_refuse(struct transport *transport, struct message *message)
{
    (void)transport;
    CHECK(!message->carried);
    free(message);
}

static enum status unknown(int peer, const struct note *note, struct error *err)
{
    return error_set(err, STATUS_CORRUPT,
                     "rank %d answers about device message %" PRIu64 ", which is not waited for: %s", peer,
                     note->number, note->kind == NOTE_READY ? "it is wanted" : "its ticket");
}

/* The receiver wants it: decide when. */
static enum status take_ready(struct transport *transport, int peer, const struct note *note, struct error *err)
{
    struct work *work = find(transport, WORK_SEND, WORK_POSTED, peer, note->number);
    struct note go = {.kind = NOTE_GO, .number = note->number, .joined = note->joined};

    if (!work)
        return find(transport, WORK_SEND, WORK_CANCELLED, peer, note->number) ? STATUS_OK : unknown(peer, note, err);
    if (note->joined && !work->headroom)
        return error_set(err, STATUS_CORRUPT,
                         "rank %d wants device message %" PRIu64 " in one, for which it has no room", peer,
                         note->number);
    work->joined = note->joined;
    set_entry(transport, work);
    if (queue_decide(&transport->queue, &work->entry, note->ticket, &go.ticket) != STATUS_OK)
        return error_set(err, STATUS_CORRUPT, "rank %d proposes %" PRIu64 " as ticket of device message %" PRIu64, peer,
                         note->ticket, note->number);
    work->state = WORK_QUEUED;
    return nccl_tell(transport, peer, &go, err);
}

enum status nccl_transfer_note(struct transport *transport, int peer, const struct note *note, struct error *err)
{
    struct work *work;

    if (note->kind == NOTE_READY)
        return take_ready(transport, peer, note, err);
    work = find(transport, WORK_RECEIVE, WORK_QUEUED, peer, note->number);
    if (!work)
        return find(transport, WORK_RECEIVE, WORK_CANCELLED, peer, note->number) ? STATUS_OK : unknown(peer, note, err);
    if (note->joined != work->joined || queue_settle(&transport->queue, &work->entry, note->ticket) != STATUS_OK)
        return error_set(err, STATUS_CORRUPT, "rank %d answers %" PRIu64 " as ticket of device message %" PRIu64, peer,
                         note->ticket, note->number);
    return STATUS_OK;
}

const struct device_message_ops nccl_device_ops = {
    .reaches = device_reaches,
    .send = device_send,
    .ahead = device_ahead,
    .receive = device_receive,
    .refuse = device_refuse,
};
