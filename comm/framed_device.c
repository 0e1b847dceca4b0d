/* Payloads in a device's memory that the transport reaches: device messages.
 *
 * A message's header travels twice: ahead of it on the host, where it is compared with the expected one before anything
 * is received (a message that is refused never leaves its sender), and in band with the payload, which is compared with
 * what was announced once it is here.  One native message a piece and no copy, but with payload checksums one to the
 * host at each end, since that is where they are computed. */
#include "comm/framed_private.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A piece goes from the first to the last and begins again. */
enum { SEND_NEW, SEND_SUMMING, SEND_READY, SEND_FLIPPING, SEND_MOVING, SEND_RESTORING };
enum { RECEIVE_NEW, RECEIVE_MOVING, RECEIVE_SUMMING, RECEIVE_FOREIGN };

/* Bytes of the piece to the host, for its checksum. */
static enum status fetch(struct framed_memory *way, struct session *session, struct memory *device,
                         const unsigned char *payload, size_t bytes, struct error *err)
{
    enum status st = framed_take_block(way, session, bytes, err);

    if (st == STATUS_OK)
        st = memory_copy(device, way->block, payload, bytes, err);
    return st == STATUS_OK ? queued_mark(&way->queued, session, device, err) : st;
}

static enum status begin_piece(struct framed_send *send, struct session *session, struct error *err)
{
    enum status st = framed_piece_fields(session, &send->frame, send->payload_bytes, send->done_bytes, err);

    if (st != STATUS_OK)
        return st;
    send->frame.from = (uint32_t)session->rank;
    send->frame.flags = FRAME_DEVICE;
    send->way->phase = SEND_READY;
    if (!session->options.payload_integrity)
        return STATUS_OK;
    send->frame.flags |= FRAME_PAYLOAD_CHECKED;
    send->way->phase = SEND_SUMMING;
    return fetch(send->way, session, send->device, send->payload + send->done_bytes, (size_t)send->frame.payload_bytes,
                 err);
}

static void sum(struct framed_send *send)
{
    send->frame.payload_checksum = XXH3_64bits(send->way->block, (size_t)send->frame.payload_bytes);
    framed_give_block(send->way);
    send->way->phase = SEND_READY;
}

/* bytes: of the payload, that leave.  The headroom is one message's, and lies in front of the first piece alone. */
static enum status post(struct framed_send *send, struct session *session, size_t bytes, struct error *err)
{
    size_t header = frame_bytes(&send->frame);
    bool headroom = send->headroom && send->peer_count == 1 && !send->done_bytes;
    enum status st = STATUS_OK;

    send->started = true;
    send->way->phase = SEND_MOVING;
    for (int i = 0; i < send->peer_count && st == STATUS_OK; i++) {
        session->counters.frames_sent++;
        st =
            session->ops->device->send(session->transport, send->peers[i], send->tag, send->saved, header, send->device,
                                       send->payload + send->done_bytes, bytes, headroom, &send->works[i], err);
        if (st != STATUS_OK)
            break;
        session->queued++;
        framed_posted_message(send, session, header + bytes);
    }
    return st;
}

/* The header is written; what a rehearsed fault does to the payload comes first, behind what was queued before. */
static enum status seal(struct framed_send *send, struct session *session, struct error *err)
{
    struct framed_memory *way = send->way;
    size_t header = frame_bytes(&send->frame);
    size_t bytes = header + (size_t)send->frame.payload_bytes;
    enum status st = STATUS_OK;

    frame_encode(&send->frame, send->saved);
    bytes = framed_damage(session, send->saved, header, bytes, &way->byte_at);
    if (way->byte_at == SIZE_MAX)
        return post(send, session, bytes - header, err);
    way->phase = SEND_FLIPPING;
    way->byte_at += send->done_bytes;
    st = memory_copy(send->device, &way->byte, send->payload + way->byte_at, 1, err);
    return st == STATUS_OK ? queued_mark(&way->queued, session, send->device, err) : st;
}

static enum status put_byte(struct framed_send *send, struct error *err)
{
    send->way->byte ^= 1;
    return memory_copy(send->device, send->payload + send->way->byte_at, &send->way->byte, 1, err);
}

static enum status flip(struct framed_send *send, struct session *session, struct error *err)
{
    enum status st = put_byte(send, err);

    send->way->flipped = true;
    return st == STATUS_OK ? post(send, session, (size_t)send->frame.payload_bytes, err) : st;
}

/* The piece has left. */
static enum status end_piece(struct framed_send *send, struct session *session, struct error *err)
{
    struct framed_memory *way = send->way;

    if (way->flipped) {
        enum status st = put_byte(send, err);

        way->flipped = false;
        way->phase = SEND_RESTORING;
        return st == STATUS_OK ? queued_mark(&way->queued, session, send->device, err) : st;
    }
    way->phase = SEND_NEW;
    send->started = false;
    send->done_bytes += (size_t)send->frame.payload_bytes;
    send->over = send->done_bytes == send->payload_bytes;
    return STATUS_OK;
}

enum status framed_device_send_step(struct framed_send *send, struct session *session, struct error *err)
{
    while (!send->over) {
        bool reached = false;
        enum status st = queued_reached(&send->way->queued, session, &reached, err);

        if (st == STATUS_OK && reached && send->way->phase == SEND_MOVING)
            st = framed_test_works(send, session, err);
        if (st != STATUS_OK || !reached || (send->way->phase == SEND_MOVING && send->open_works))
            return st;
        switch (send->way->phase) {
        case SEND_NEW:
            st = begin_piece(send, session, err);
            break;
        case SEND_SUMMING:
            sum(send);
            break;
        case SEND_READY:
            st = seal(send, session, err);
            break;
        case SEND_FLIPPING:
            st = flip(send, session, err);
            break;
        default:
            st = end_piece(send, session, err);
            break;
        }
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

enum status framed_device_refuse(struct framed_receive *receive, struct session *session, struct message *message,
                                 const unsigned char *ahead, size_t ahead_bytes, struct error *err)
{
    unsigned char expected[FRAME_MAX_BYTES];
    unsigned char got[FRAME_MAX_BYTES] = {0};
    struct text what = {0};
    size_t bytes = ahead_bytes < sizeof got ? ahead_bytes : sizeof got;
    enum status st = framed_piece_fields(session, &receive->frame, receive->payload_bytes, receive->done_bytes, err);
    size_t planned = frame_bytes(&receive->frame) + (size_t)receive->frame.payload_bytes;

    memcpy(got, ahead, bytes);
    session->ops->device->refuse(session->transport, message);
    if (st != STATUS_OK)
        return st;
    if (bytes >= FRAME_MIN_BYTES) /* of a payload that nobody has looked at */
        receive->frame.payload_checksum = frame_payload_checksum(got);
    framed_expect(receive, got, expected);
    if (receive->message_bytes != planned)
        text_add(&what, "message bytes: expected %zu, got %zu", planned, receive->message_bytes);
    if (bytes >= FRAME_MIN_BYTES)
        (void)frame_compare(expected, frame_bytes(&receive->frame), got, bytes, &what);
    st = framed_refuse_or_keep(receive, session, got, bytes, &what, err);
    text_done(&what);
    return st;
}

/* The header ahead, but for the checksum of a payload that is still with its sender.  True: receive it. */
static bool agrees(struct framed_receive *receive, struct session *session, const unsigned char *ahead,
                   size_t ahead_bytes)
{
    unsigned char expected[FRAME_MAX_BYTES];
    size_t header = frame_bytes(&receive->frame);

    if (ahead_bytes >= FRAME_MIN_BYTES) {
        receive->seen = true;
        receive->last_sequence = frame_sequence(ahead);
        receive->frame.payload_checksum = session->options.payload_integrity ? frame_payload_checksum(ahead) : 0;
    }
    if (ahead_bytes != header || receive->message_bytes != header + receive->frame.payload_bytes)
        return false;
    if (receive->sizes_only)
        return true;
    framed_expect(receive, ahead, expected);
    session->counters.frames_checked++;
    return !memcmp(expected, ahead, header);
}

/* A message that lies in host memory: it comes, so that it can be named. */
static enum status receive_foreign(struct framed_receive *receive, struct session *session, struct message *message,
                                   struct error *err)
{
    receive->way->phase = RECEIVE_FOREIGN;
    if (receive->message_bytes <= FRAMED_SCRATCH_BYTES)
        receive->scratch = malloc(receive->message_bytes + FRAME_MAX_BYTES);
    if (!receive->scratch)
        return framed_refuse(receive, session, "a message in host memory, expected one of a device", err);
    return session->ops->receive(session->transport, message, receive->scratch, receive->message_bytes, &receive->work,
                                 err);
}

static enum status accept(struct framed_receive *receive, struct session *session, struct message *message,
                          struct error *err)
{
    enum status st = STATUS_OK;

    receive->way->phase = RECEIVE_MOVING;
    st = session->ops->device->receive(session->transport, message, receive->device,
                                       receive->payload + receive->done_bytes, (size_t)receive->frame.payload_bytes,
                                       receive->headroom && !receive->done_bytes, receive->way->in_band, &receive->work,
                                       err);
    receive->device_work = st == STATUS_OK;
    session->queued += receive->device_work;
    return st;
}

/* *ret: a message has come and is being received, or has been let go. */
static enum status catch_message(struct framed_receive *receive, struct session *session, bool *ret, struct error *err)
{
    struct message *message = NULL;
    const unsigned char *ahead = NULL;
    size_t ahead_bytes = 0;
    enum status st =
        session->ops->probe(session->transport, receive->peer, receive->tag, &message, &receive->message_bytes, err);

    *ret = message != NULL;
    if (st == STATUS_OK && message)
        st = framed_piece_fields(session, &receive->frame, receive->payload_bytes, receive->done_bytes, err);
    if (st != STATUS_OK || !message)
        return st;
    receive->frame.flags = FRAME_DEVICE | (session->options.payload_integrity ? FRAME_PAYLOAD_CHECKED : 0);
    ahead = session->ops->device->ahead(message, &ahead_bytes);
    if (!ahead)
        return receive_foreign(receive, session, message, err);
    if (!agrees(receive, session, ahead, ahead_bytes))
        return framed_device_refuse(receive, session, message, ahead, ahead_bytes, err);
    memcpy(receive->saved, ahead, ahead_bytes);
    return accept(receive, session, message, err);
}

/* The payload is here, and must be what was announced. */
static enum status check_in_band(struct framed_receive *receive, struct session *session, struct error *err)
{
    size_t header = frame_bytes(&receive->frame);
    struct text differences = {0};
    struct text what = {0};
    enum status st = STATUS_OK;

    if (receive->sizes_only || frame_compare(receive->saved, header, receive->way->in_band, header, &differences))
        return STATUS_OK;
    text_add(&what, "in band: %s", text_string(&differences));
    st = framed_refuse(receive, session, text_string(&what), err);
    text_done(&differences);
    text_done(&what);
    return st;
}

static void end_receipt(struct framed_receive *receive)
{
    receive->way->phase = RECEIVE_NEW;
    receive->done_bytes += (size_t)receive->frame.payload_bytes;
    receive->over = receive->done_bytes == receive->payload_bytes;
}

static enum status check_sum(struct framed_receive *receive, struct session *session, struct error *err)
{
    unsigned char computed[FRAME_MAX_BYTES];
    struct text what = {0};
    enum status st = STATUS_OK;

    receive->frame.payload_checksum = XXH3_64bits(receive->way->block, (size_t)receive->frame.payload_bytes);
    framed_give_block(receive->way);
    framed_expect(receive, receive->saved, computed);
    if (!receive->sizes_only &&
        !frame_compare(computed, frame_bytes(&receive->frame), receive->saved, frame_bytes(&receive->frame), &what))
        st = framed_refuse(receive, session, text_string(&what), err);
    text_done(&what);
    if (st == STATUS_OK)
        end_receipt(receive);
    return st;
}

static enum status arrived(struct framed_receive *receive, struct session *session, struct error *err)
{
    enum status st = STATUS_OK;

    receive->work = NULL;
    session->queued -= receive->device_work;
    receive->device_work = false;
    session->counters.bytes_received += receive->message_bytes;
    session_moved(session);
    if (receive->way->phase == RECEIVE_FOREIGN) {
        if (receive->message_bytes >= FRAME_MIN_BYTES)
            receive->frame.payload_checksum = frame_payload_checksum(receive->scratch);
        return framed_refuse_scratch(receive, session, err);
    }
    st = check_in_band(receive, session, err);
    if (st != STATUS_OK)
        return st;
    if (!session->options.payload_integrity) {
        end_receipt(receive);
        return STATUS_OK;
    }
    receive->way->phase = RECEIVE_SUMMING;
    return fetch(receive->way, session, receive->device, receive->payload + receive->done_bytes,
                 (size_t)receive->frame.payload_bytes, err);
}

enum status framed_device_receive_step(struct framed_receive *receive, struct session *session, struct error *err)
{
    while (!receive->over) {
        bool moved = false;
        enum status st = STATUS_OK;

        if (receive->way->phase == RECEIVE_NEW) {
            st = catch_message(receive, session, &moved, err);
        } else if (receive->way->phase == RECEIVE_SUMMING) {
            st = queued_reached(&receive->way->queued, session, &moved, err);
            if (st == STATUS_OK && moved)
                st = check_sum(receive, session, err);
        } else {
            st = session->ops->test(session->transport, receive->work, &moved, err);
            if (st == STATUS_OK && moved)
                st = arrived(receive, session, err);
        }
        if (st != STATUS_OK || !moved)
            return st;
    }
    return STATUS_OK;
}
