/* Sending framed messages over the transport's send and test.
 *
 * Cost: one native message a piece, no copy. */
#include "comm/framed_private.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/size.h"

/* Payloads (with their headers in front) first, then detached headers. */
static int work_count(const struct framed_send *send)
{
    return send->detached && !send->lent.rows ? 2 * send->peer_count : send->peer_count;
}

bool framed_send_room(struct framed_send *send, struct session *session)
{
    size_t header = frame_bytes(&send->frame);
    size_t bytes = 0;

    if (!session->ops->room || session->options.payload_integrity || send->device || send->detached ||
        send->peer_count != 1 || size_add(header, send->payload_bytes, &bytes))
        return false;
    send->room = session->ops->room(session->transport, send->peers[0], bytes, &send->near);
    if (!send->room)
        return false;
    send->payload = send->room + header;
    return true;
}

size_t framed_damage(struct session *session, unsigned char *header, size_t header_bytes, size_t bytes,
                     size_t *ret_byte)
{
    const struct fault *fault = &session->damage;

    *ret_byte = SIZE_MAX;
    if (!session->damage_armed || (fault->kind == FAULT_FLIP && fault->byte >= bytes))
        return bytes;
    session->damage_armed = false;
    if (fault->kind == FAULT_SHORT)
        return bytes - (bytes > header_bytes ? (bytes - header_bytes + 1) / 2 : 1);
    if (fault->byte >= header_bytes) {
        *ret_byte = (size_t)fault->byte - header_bytes;
        return bytes;
    }
    header[fault->byte] ^= 1;
    if (fault->resealed)
        frame_seal(header, header_bytes);
    return bytes;
}

/* The same, of a payload that the host may touch. */
static size_t damage(struct framed_send *send, struct session *session, unsigned char *header, size_t bytes)
{
    size_t byte = SIZE_MAX;
    size_t left = framed_damage(session, header, frame_bytes(&send->frame), bytes, &byte);

    if (byte == SIZE_MAX)
        return left;
    byte += send->done_bytes;
    if (send->lent.rows)
        byte = byte / send->lent.run * send->lent.stride + byte % send->lent.run;
    send->payload[byte] ^= 1;
    if (send->detached)
        send->flipped = send->payload + byte;
    return left;
}

void framed_posted_message(struct framed_send *send, struct session *session, size_t bytes)
{
    send->open_works++;
    session->counters.bytes_sent += bytes;
    session_moved(session);
}

/* One message to one peer; *ret: its work. */
static enum status post(struct framed_send *send, struct session *session, int peer, const unsigned char *bytes,
                        size_t count, struct work **ret, struct error *err)
{
    enum status st = session->ops->send(session->transport, send->peers[peer], send->tag, bytes, count, ret, err);

    if (st == STATUS_OK)
        framed_posted_message(send, session, count);
    return st;
}

/* A header, whose payload stays where it is.  A rehearsed short one is shorter by some of its runs, or of its run. */
static enum status post_lent(struct framed_send *send, struct session *session, size_t bytes, struct error *err)
{
    size_t header = frame_bytes(&send->frame);
    struct runs runs = send->lent;
    enum status st = STATUS_OK;

    if (bytes < header + send->payload_bytes && runs.rows > 1)
        runs.rows /= 2;
    else if (bytes < header + send->payload_bytes)
        runs.run = bytes - header;
    st = session->ops->send_lent(session->transport, send->lent_work, send->tag, send->saved, header, &runs, err);
    if (st != STATUS_OK)
        return st;
    send->works[0] = send->lent_work;
    session->counters.frames_sent++;
    framed_posted_message(send, session, header + runs.run * runs.rows);
    return STATUS_OK;
}

static enum status post_piece(struct framed_send *send, struct session *session, struct error *err)
{
    size_t header = frame_bytes(&send->frame);
    unsigned char *payload = send->payload + send->done_bytes;
    unsigned char *message = send->detached ? send->saved : payload - header;
    enum status st = framed_piece_fields(session, &send->frame, send->payload_bytes, send->done_bytes, err);
    size_t bytes = 0;

    if (st != STATUS_OK)
        return st;
    if (send->detached)
        send->frame.flags = FRAME_DETACHED;
    else if (!send->room && framed_covers(send->headroom, send->done_bytes))
        memcpy(send->saved, message, header);
    send->frame.from = (uint32_t)session->rank;
    if (session->options.payload_integrity) {
        send->frame.flags = FRAME_PAYLOAD_CHECKED;
        send->frame.payload_checksum = XXH3_64bits(payload, send->frame.payload_bytes);
    }
    frame_encode(&send->frame, message);
    bytes = damage(send, session, message, header + send->frame.payload_bytes);
    send->started = true;
    if (send->lent.rows)
        return post_lent(send, session, bytes, err);
    for (int i = 0; i < send->peer_count && st == STATUS_OK; i++) {
        session->counters.frames_sent++;
        if (!send->detached) {
            st = post(send, session, i, message, bytes, &send->works[i], err);
            continue;
        }
        st = post(send, session, i, message, header, &send->works[send->peer_count + i], err);
        if (st == STATUS_OK)
            st = post(send, session, i, payload, bytes - header, &send->works[i], err);
    }
    return st;
}

enum status framed_test_works(struct framed_send *send, struct session *session, struct error *err)
{
    for (int i = 0; i < work_count(send) && send->open_works; i++) {
        bool ended = false;
        enum status st = STATUS_OK;

        if (!send->works[i])
            continue;
        st = session->ops->test(session->transport, send->works[i], &ended, err);
        if (st != STATUS_OK)
            return st;
        if (!ended)
            continue;
        send->works[i] = NULL;
        send->open_works--;
        session->queued -= send->way && send->way->direct;
        session_moved(session);
    }
    return STATUS_OK;
}

enum status framed_host_send_step(struct framed_send *send, struct session *session, struct error *err)
{
    enum status st = STATUS_OK;

    while (!send->over) {
        if (!send->started && (st = post_piece(send, session, err)) != STATUS_OK)
            return st;
        st = framed_test_works(send, session, err);
        if (st != STATUS_OK || send->open_works)
            return st;
        if (!send->detached && !send->room && framed_covers(send->headroom, send->done_bytes))
            memcpy(send->payload + send->done_bytes - frame_bytes(&send->frame), send->saved,
                   frame_bytes(&send->frame));
        if (send->flipped)
            *send->flipped ^= 1;
        send->flipped = NULL;
        send->done_bytes += send->frame.payload_bytes;
        send->started = false;
        send->over = send->done_bytes == send->payload_bytes;
    }
    return STATUS_OK;
}

enum status framed_send_step(struct framed_send *send, struct session *session, struct error *err)
{
    if (!send->device)
        return framed_host_send_step(send, session, err);
    if (!send->way) {
        enum status st = framed_choose_way(session, send->device, send->payload_bytes, &send->way, err);

        if (st != STATUS_OK)
            return st;
    }
    return send->way->direct ? framed_device_send_step(send, session, err)
                             : framed_staged_send_step(send, session, err);
}

bool framed_send_posted(const struct framed_send *send)
{
    return send->over || (send->started && send->done_bytes + send->frame.payload_bytes == send->payload_bytes);
}

bool framed_send_let_go(struct framed_send *send, struct session *session)
{
    bool all = true;

    for (int i = 0; send->works && i < work_count(send); i++)
        all = framed_let_go(session, &send->works[i], send->way && send->way->direct) && all;
    return (!send->way || queued_let_go(&send->way->queued, session)) && all;
}

void framed_send_done(struct framed_send *send)
{
    send->works = NULL;
    framed_leave_way(&send->way, &send->payload);
}
