/* Messages between the memories of two ranks' devices: out of one into a buffer on the host, and from there into the
 * other.
 *
 * The copy into the buffer is queued on the sender's memory when the message is sent, the copy out of it on the
 * receiver's when that has happened.  Where both ends have headroom the header is written in front of the payload and
 * both are one copy, as they would be one message of a library that takes one address. */
#include <stdlib.h>
#include <string.h>

#include "backends/loopback/loopback_private.h"
#include "base/clock.h"

#define PATIENCE_NS NS_PER_S /* for a queue whose message nobody wants any more */

struct device_message {
    struct memory *memory; /* the sender's; NULL: nothing of it is used any more */
    struct memory_mark *mark;
    bool headroom;
    size_t header_bytes;
    size_t bytes;
    unsigned char *buffer;  /* header, payload; NULL: lost with a queue that did not end */
    unsigned char header[]; /* as it came from the sender */
};

struct device_receipt {
    struct message *message;
    struct memory *memory;
    unsigned char *payload;
    unsigned char *in_band;
    bool whole; /* header and payload are one copy */
    bool copying;
    struct memory_mark *mark;
};

static bool reaches(const struct transport *transport, const struct memory *memory)
{
    (void)transport;
    return !memory_host_view(memory);
}

/* Header and payload to the buffer, behind what is queued. */
static enum status queue_out(struct device_message *device, unsigned char *payload, struct error *err)
{
    struct memory *memory = device->memory;
    enum status st = STATUS_OK;

    memcpy(device->buffer, device->header, device->header_bytes);
    if (device->headroom) {
        st = memory_copy(memory, payload - device->header_bytes, device->header, device->header_bytes, err);
        if (st == STATUS_OK)
            st = memory_copy(memory, device->buffer, payload - device->header_bytes,
                             device->header_bytes + device->bytes, err);
    } else {
        st = memory_copy(memory, device->buffer + device->header_bytes, payload, device->bytes, err);
    }
    return st == STATUS_OK ? memory->ops->mark(memory, &device->mark, err) : st;
}

static struct device_message *create(const void *header, size_t header_bytes, struct memory *memory, size_t bytes,
                                     bool headroom)
{
    struct device_message *device = calloc(1, sizeof *device + header_bytes);
    unsigned char *buffer = malloc(header_bytes + bytes);

    if (!device || !buffer) {
        free(device);
        free(buffer);
        return NULL;
    }
    device->memory = memory;
    device->headroom = headroom;
    device->header_bytes = header_bytes;
    device->bytes = bytes;
    device->buffer = buffer;
    memcpy(device->header, header, header_bytes);
    return device;
}

static enum status device_send(struct transport *transport, int peer, uint32_t tag, const void *header,
                               size_t header_bytes, struct memory *memory, void *payload, size_t bytes, bool headroom,
                               struct work **ret, struct error *err)
{
    struct loopback_world *world = transport->world;
    struct inbox *inbox = &world->inboxes[peer];
    struct message *message = calloc(1, sizeof *message);
    struct work *work = calloc(1, sizeof *work);
    enum status st = STATUS_OK;

    if (!message || !work || !(message->device = create(header, header_bytes, memory, bytes, headroom)))
        st = error_set(err, STATUS_NOMEM, "a message of %zu bytes", bytes);
    if (st == STATUS_OK)
        st = queue_out(message->device, payload, err);
    if (st != STATUS_OK) {
        loopback_free_message(message);
        free(work);
        return st;
    }
    message->from = transport->rank;
    message->tag = tag;
    message->bytes = header_bytes + bytes;
    message->work = work;
    *work = (struct work){.to = peer, .message = message};
    loopback_lock(world);
    /* A rank that has left matches nothing any more; the message stays until the sender's device has read its payload.
     */
    message->matched = inbox->closed;
    *inbox->end = message;
    inbox->end = &message->next;
    loopback_unlock(world);
    *ret = work;
    return STATUS_OK;
}

static const void *ahead(const struct message *message, size_t *ret_header_bytes)
{
    if (!message->device)
        return NULL;
    *ret_header_bytes = message->device->header_bytes;
    return message->device->header;
}

/* *ret: the payload is in the buffer. */
static enum status has_left(struct device_message *device, bool *ret, struct error *err)
{
    struct memory *memory = device->memory;
    enum status st = STATUS_OK;

    *ret = true;
    if (!memory)
        return STATUS_OK;
    st = memory->ops->reached(memory, device->mark, ret, err);
    if (st != STATUS_OK || *ret)
        device->memory = NULL;
    return st;
}

/* Nobody waits for it: let what is queued end; a buffer that the queue may still use is left. */
static bool settle(struct memory *memory, struct memory_mark *mark)
{
    uint64_t until_ns = clock_ns() + PATIENCE_NS;
    bool reached = false;

    while (memory->ops->reached(memory, mark, &reached, NULL) == STATUS_OK && !reached) {
        if (clock_ns() > until_ns) {
            memory->ops->forget(memory, mark);
            return false;
        }
        clock_sleep_ns(20 * NS_PER_US);
    }
    return true;
}

bool loopback_device_left(struct device_message *device)
{
    bool left = false;

    return has_left(device, &left, NULL) != STATUS_OK || left;
}

void loopback_device_leave(struct device_message *device)
{
    if (device->memory && device->mark && !settle(device->memory, device->mark))
        device->buffer = NULL;
    device->memory = NULL;
}

void loopback_device_free(struct device_message *device)
{
    loopback_device_leave(device);
    free(device->buffer);
    free(device);
}

static enum status device_receive(struct transport *transport, struct message *message, struct memory *memory,
                                  void *payload, size_t bytes, bool headroom, void *in_band, struct work **ret,
                                  struct error *err)
{
    struct work *work = calloc(1, sizeof *work);
    struct device_receipt *receipt = calloc(1, sizeof *receipt);

    (void)transport;
    CHECK(message->device && message->device->bytes == bytes);
    if (!work || !receipt) {
        free(work);
        free(receipt);
        return error_set(err, STATUS_NOMEM, "a receipt of %zu bytes", bytes);
    }
    *receipt = (struct device_receipt){.message = message,
                                       .memory = memory,
                                       .payload = payload,
                                       .in_band = in_band,
                                       .whole = headroom && message->device->headroom};
    work->receipt = receipt;
    *ret = work;
    return STATUS_OK;
}

/* Out of the buffer, behind what is queued. */
static enum status queue_in(struct device_receipt *receipt, struct error *err)
{
    const struct device_message *device = receipt->message->device;
    struct memory *memory = receipt->memory;
    unsigned char *front = receipt->payload - device->header_bytes;
    enum status st = STATUS_OK;

    if (!device->buffer)
        return error_set(err, STATUS_LOST, "the sender's device did not give the payload");
    if (receipt->whole) {
        st = memory_copy(memory, front, device->buffer, device->header_bytes + device->bytes, err);
        if (st == STATUS_OK)
            st = memory_copy(memory, receipt->in_band, front, device->header_bytes, err);
    } else {
        memcpy(receipt->in_band, device->buffer, device->header_bytes);
        st = memory_copy(memory, receipt->payload, device->buffer + device->header_bytes, device->bytes, err);
    }
    receipt->copying = st == STATUS_OK;
    return st == STATUS_OK ? memory->ops->mark(memory, &receipt->mark, err) : st;
}

/* Its sender's work is over, and the message is gone. */
static void drop(struct transport *transport, struct message *message)
{
    if (message->work) {
        message->work->over = true;
        message->work->message = NULL;
    }
    loopback_unlink(&transport->world->inboxes[transport->rank], message);
    loopback_free_message(message);
}

static void refuse(struct transport *transport, struct message *message)
{
    loopback_lock(transport->world);
    drop(transport, message);
    loopback_unlock(transport->world);
}

static void end_receipt(struct transport *transport, struct work *work)
{
    drop(transport, work->receipt->message);
    free(work->receipt);
    work->receipt = NULL;
}

static enum status move_receipt(struct transport *transport, struct work *work, struct error *err)
{
    struct device_receipt *receipt = work->receipt;
    bool reached = false;
    enum status st = STATUS_OK;

    if (!receipt->copying) {
        st = has_left(receipt->message->device, &reached, err);
        return st == STATUS_OK && reached ? queue_in(receipt, err) : st;
    }
    st = receipt->memory->ops->reached(receipt->memory, receipt->mark, &reached, err);
    receipt->copying = st == STATUS_OK && !reached; /* the mark is gone */
    if (st != STATUS_OK || !reached)
        return st;
    end_receipt(transport, work);
    work->over = true;
    return STATUS_OK;
}

/* A send up to eager_bytes is over when its payload has left, a larger one when it has been taken or nobody will. */
static enum status move_send(const struct transport *transport, struct work *work, struct error *err)
{
    const struct loopback_world *world = transport->world;
    struct message *message = work->message;
    bool left = false;
    enum status st = has_left(message->device, &left, err);

    if (st != STATUS_OK || !left)
        return st;
    if (message->bytes > world->options.eager_bytes && !world->inboxes[work->to].closed)
        return STATUS_OK;
    message->work = NULL;
    work->message = NULL;
    work->over = true;
    return STATUS_OK;
}

enum status loopback_device_move(struct transport *transport, struct work *work, struct error *err)
{
    if (work->receipt)
        return move_receipt(transport, work, err);
    return work->message && work->message->device ? move_send(transport, work, err) : STATUS_OK;
}

/* A queue that fails runs nothing any more. */
bool loopback_device_quiet(struct work *work)
{
    struct device_receipt *receipt = work->receipt;
    bool quiet = true;

    if (work->message && work->message->device)
        return has_left(work->message->device, &quiet, NULL) != STATUS_OK || quiet;
    if (!receipt || !receipt->copying)
        return true;
    if (receipt->memory->ops->reached(receipt->memory, receipt->mark, &quiet, NULL) == STATUS_OK && !quiet)
        return false;
    receipt->copying = false;
    return true;
}

/* A payload that its sender's device still reads stays in the inbox, matched: to wait for that device here would hold
 * the lock that its owner needs. */
void loopback_device_give_up(struct transport *transport, struct work *work)
{
    if (loopback_device_left(work->receipt->message->device)) {
        end_receipt(transport, work);
        return;
    }
    free(work->receipt);
    work->receipt = NULL;
}

const struct device_message_ops loopback_device_messages = {
    .reaches = reaches, .send = device_send, .ahead = ahead, .receive = device_receive, .refuse = refuse};
