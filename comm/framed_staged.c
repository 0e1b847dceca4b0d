/* Payloads in a device's memory that the transport does not reach: through a copy on the host.
 *
 * Sent, the payload is copied to the host, and its frame leaves when the copy is there; received, its frame is compared
 * on the host like any other before the payload goes where it belongs, and the receipt is over when it has got there.
 * One copy more at each end; a payload of no bytes needs none. */
#include "comm/framed_private.h"

enum { STAGED_NEW, STAGED_COPYING, STAGED_MOVING };

/* From now on the payload is a block of the host's. */
static enum status stage(struct framed_memory *way, struct session *session, unsigned char **payload, size_t bytes,
                         struct error *err)
{
    enum status st = framed_take_block(way, session, bytes, err);

    if (st != STATUS_OK)
        return st;
    way->origin = *payload;
    *payload = way->block;
    return STATUS_OK;
}

static void unstage(struct framed_memory *way, unsigned char **payload)
{
    *payload = way->origin;
    way->origin = NULL;
    framed_give_block(way);
}

static enum status copy(struct framed_memory *way, struct session *session, struct memory *device, void *to,
                        const void *from, size_t bytes, struct error *err)
{
    enum status st = memory_copy(device, to, from, bytes, err);

    way->phase = STAGED_COPYING;
    return st == STATUS_OK && bytes ? queued_mark(&way->queued, session, device, err) : st;
}

enum status framed_staged_send_step(struct framed_send *send, struct session *session, struct error *err)
{
    struct framed_memory *way = send->way;
    bool reached = false;
    enum status st = STATUS_OK;

    if (send->over)
        return STATUS_OK;
    if (way->phase == STAGED_NEW) {
        st = stage(way, session, &send->payload, send->payload_bytes, err);
        if (st == STATUS_OK)
            st = copy(way, session, send->device, way->block, way->origin, send->payload_bytes, err);
    }
    if (st == STATUS_OK && way->phase == STAGED_COPYING) {
        st = queued_reached(&way->queued, session, &reached, err);
        if (st == STATUS_OK && reached)
            way->phase = STAGED_MOVING;
    }
    if (st != STATUS_OK || way->phase != STAGED_MOVING)
        return st;
    st = framed_host_send_step(send, session, err);
    if (send->over)
        unstage(way, &send->payload);
    return st;
}

/* The frame was the expected one. */
static enum status deliver(struct framed_receive *receive, struct session *session, struct error *err)
{
    struct framed_memory *way = receive->way;

    receive->over = false;
    return copy(way, session, receive->device, way->origin, way->block, receive->payload_bytes, err);
}

enum status framed_staged_receive_step(struct framed_receive *receive, struct session *session, struct error *err)
{
    struct framed_memory *way = receive->way;
    enum status st = STATUS_OK;

    if (receive->over)
        return STATUS_OK;
    if (way->phase == STAGED_NEW) {
        st = stage(way, session, &receive->payload, receive->payload_bytes, err);
        way->phase = STAGED_MOVING;
    }
    if (st == STATUS_OK && way->phase == STAGED_MOVING) {
        st = framed_host_receive_step(receive, session, err);
        if (st == STATUS_OK && receive->over && !receive->other)
            st = deliver(receive, session, err);
    }
    if (st == STATUS_OK && way->phase == STAGED_COPYING)
        st = queued_reached(&way->queued, session, &receive->over, err);
    if (receive->over)
        unstage(way, &receive->payload);
    return st;
}
