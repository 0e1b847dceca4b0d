/* Framed messages over the transport's send, probe, receive and test.
 *
 * Cost: one native message a piece, no copy; a receiver writes each payload byte once, where it belongs. */
#include "comm/framed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/size.h"

/* Payload bytes of a full piece. */
static size_t piece_limit(const struct session *session, size_t header_bytes)
{
    size_t limit = session->ops->max_message(session->transport);

    CHECK(limit > FRAME_MAX_BYTES);
    limit -= header_bytes;
    return limit > FRAME_ALIGN ? limit & ~(size_t)(FRAME_ALIGN - 1) : limit;
}

static size_t piece_bytes(const struct session *session, size_t header_bytes, size_t all, size_t done)
{
    size_t limit = piece_limit(session, header_bytes);

    return all - done < limit ? all - done : limit;
}

static enum status piece_fields(const struct session *session, struct frame *frame, size_t all, size_t done,
                                struct error *err)
{
    size_t limit = piece_limit(session, frame_bytes(frame));
    size_t count = all ? (all - 1) / limit + 1 : 1;

    if (count > UINT32_MAX)
        return error_set(err, STATUS_OVERFLOW, "%zu bytes in pieces of %zu", all, limit);
    frame->piece = (uint32_t)(done / limit);
    frame->piece_count = (uint32_t)count;
    frame->payload_bytes = piece_bytes(session, frame_bytes(frame), all, done);
    frame->session_digest = session->digest;
    return STATUS_OK;
}

/* Payloads (with their headers in front) first, then detached headers. */
static int work_count(const struct framed_send *send)
{
    return send->detached ? 2 * send->peer_count : send->peer_count;
}

enum status framed_send_init(struct framed_send *send, struct error *err)
{
    send->works = calloc((size_t)work_count(send), sizeof *send->works);
    if (!send->works)
        return error_set(err, STATUS_NOMEM, "messages to %d ranks", send->peer_count);
    return STATUS_OK;
}

/* A rehearsed flip or short of the frame that is about to leave; returns how many bytes leave. */
static size_t damage(struct framed_send *send, struct session *session, unsigned char *message, size_t header_bytes,
                     size_t bytes)
{
    const struct fault *fault = &session->damage;

    if (!session->damage_armed || (fault->kind == FAULT_FLIP && fault->byte >= bytes))
        return bytes;
    session->damage_armed = false;
    if (fault->kind == FAULT_SHORT)
        return bytes - (bytes > header_bytes ? (bytes - header_bytes + 1) / 2 : 1);
    if (send->detached && fault->byte >= header_bytes) {
        send->flipped = send->payload + send->done_bytes + (fault->byte - header_bytes);
        *send->flipped ^= 1;
        return bytes;
    }
    message[fault->byte] ^= 1;
    if (fault->resealed)
        frame_seal(message, header_bytes);
    return bytes;
}

/* One message to one peer; *ret: its work. */
static enum status post(struct framed_send *send, struct session *session, int peer, const unsigned char *bytes,
                        size_t count, struct work **ret, struct error *err)
{
    enum status st = session->ops->send(session->transport, send->peers[peer], send->tag, bytes, count, ret, err);

    if (st != STATUS_OK)
        return st;
    send->open_works++;
    session->counters.bytes_sent += count;
    session_moved(session);
    return STATUS_OK;
}

static enum status post_piece(struct framed_send *send, struct session *session, struct error *err)
{
    size_t header = frame_bytes(&send->frame);
    unsigned char *payload = send->payload + send->done_bytes;
    unsigned char *message = send->detached ? send->saved : payload - header;
    enum status st = piece_fields(session, &send->frame, send->payload_bytes, send->done_bytes, err);
    size_t bytes = 0;

    if (st != STATUS_OK)
        return st;
    if (send->detached)
        send->frame.flags = FRAME_DETACHED;
    else
        memcpy(send->saved, message, header);
    send->frame.from = (uint32_t)session->rank;
    if (session->options.payload_integrity) {
        send->frame.flags = FRAME_PAYLOAD_CHECKED;
        send->frame.payload_checksum = XXH3_64bits(payload, send->frame.payload_bytes);
    }
    frame_encode(&send->frame, message);
    bytes = damage(send, session, message, header, header + send->frame.payload_bytes);
    send->started = true;
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

static enum status test_works(struct framed_send *send, struct session *session, struct error *err)
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
        session_moved(session);
    }
    return STATUS_OK;
}

enum status framed_send_step(struct framed_send *send, struct session *session, struct error *err)
{
    enum status st = STATUS_OK;

    while (!send->over) {
        if (!send->started && (st = post_piece(send, session, err)) != STATUS_OK)
            return st;
        st = test_works(send, session, err);
        if (st != STATUS_OK || send->open_works)
            return st;
        if (!send->detached)
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

bool framed_send_posted(const struct framed_send *send)
{
    return send->over || (send->started && send->done_bytes + send->frame.payload_bytes == send->payload_bytes);
}

/* After a failure: true once the transport holds nothing of this work. */
static bool let_go(struct session *session, struct work **work)
{
    bool ended = false;

    if (!*work)
        return true;
    if (session->ops->test(session->transport, *work, &ended, NULL) == STATUS_OK && !ended) {
        if (session->ops->teardown != TEARDOWN_NATIVE || !session->ops->cancel(session->transport, *work))
            return false;
    }
    *work = NULL;
    return true;
}

bool framed_send_let_go(struct framed_send *send, struct session *session)
{
    bool all = true;

    for (int i = 0; send->works && i < work_count(send); i++)
        all = let_go(session, &send->works[i]) && all;
    return all;
}

void framed_send_done(struct framed_send *send)
{
    free(send->works);
    send->works = NULL;
}

/* 'route forward/0-2 (rank 0 to rank 2), step 3, send_receive, sequence 5, tensor hidden: ' and what differs. */
static enum status refuse(const struct framed_receive *receive, const struct session *session, const char *what,
                          struct error *err)
{
    const struct frame *frame = &receive->frame;
    struct text text = {0};
    enum status st;

    text_add(&text, "%s %s (rank %d to rank %d), ", receive->lane->kind, receive->lane->name, receive->peer,
             session->rank);
    if (session->wait.phase[0])
        text_add(&text, "%s, ", session->wait.phase);
    text_add(&text, "%s, sequence %" PRIu64, operation_name(frame->operation), frame->sequence);
    if (frame->role)
        text_add(&text, ", tensor %s", frame->role);
    st = error_set(err, STATUS_MISMATCH, "%s: %.1200s", text_string(&text), what);
    text_done(&text);
    return st;
}

/* Of the next message of the piece under way. */
static size_t expected_bytes(const struct framed_receive *receive)
{
    size_t header = frame_bytes(&receive->frame);
    size_t payload = (size_t)receive->frame.payload_bytes;

    return !receive->detached ? header + payload : receive->headed ? payload : header;
}

/* Where the next message goes: in front of its payload, or to scratch when its size is not the planned one. */
static enum status place(struct framed_receive *receive, struct session *session, unsigned char **ret,
                         struct error *err)
{
    size_t header = frame_bytes(&receive->frame);
    enum status st = piece_fields(session, &receive->frame, receive->payload_bytes, receive->done_bytes, err);
    unsigned char *message = receive->payload + receive->done_bytes - header;

    if (st != STATUS_OK)
        return st;
    if (receive->message_bytes == expected_bytes(receive)) {
        if (!receive->detached)
            memcpy(receive->saved, message, header);
        *ret = !receive->detached ? message : receive->headed ? message + header : receive->saved;
        return STATUS_OK;
    }
    if (receive->headed || receive->message_bytes > FRAMED_SCRATCH_BYTES ||
        !(receive->scratch = malloc(receive->message_bytes + FRAME_MAX_BYTES))) {
        struct text what = {0};

        text_add(&what, "message bytes: expected %zu, got %zu", expected_bytes(receive), receive->message_bytes);
        st = refuse(receive, session, text_string(&what), err);
        text_done(&what);
        return st;
    }
    *ret = receive->scratch;
    return STATUS_OK;
}

static enum status catch_message(struct framed_receive *receive, struct session *session, bool *ret, struct error *err)
{
    struct message *message = NULL;
    unsigned char *bytes = NULL;
    enum status st =
        session->ops->probe(session->transport, receive->peer, receive->tag, &message, &receive->message_bytes, err);

    *ret = message != NULL;
    if (st != STATUS_OK || !message)
        return st;
    st = place(receive, session, &bytes, err);
    if (st != STATUS_OK)
        return st;
    return session->ops->receive(session->transport, message, bytes, receive->message_bytes, &receive->work, err);
}

/* The header that must have come, now that the payload is here. */
static void expect(struct framed_receive *receive, struct session *session, const unsigned char *got,
                   unsigned char *expected)
{
    struct frame *frame = &receive->frame;

    frame->from = (uint32_t)receive->peer;
    if (receive->detached)
        frame->flags = FRAME_DETACHED;
    if (session->options.payload_integrity) {
        frame->flags = FRAME_PAYLOAD_CHECKED;
        frame->payload_checksum = XXH3_64bits(got, 0);
        if (receive->message_bytes > frame_bytes(frame))
            frame->payload_checksum =
                XXH3_64bits(got + frame_bytes(frame), receive->message_bytes - frame_bytes(frame));
    }
    if (receive->any_epoch && !receive->scratch && frame_epoch(got) >= frame->epoch)
        frame->epoch = frame_epoch(got);
    frame_encode(frame, expected);
}

/* Not the expected header.  One that its sender meant as it is, for this group, is kept where the caller asked so. */
static enum status refuse_or_keep(struct framed_receive *receive, const struct session *session,
                                  const unsigned char *got, const struct text *what, struct error *err)
{
    struct frame frame;
    char role[ROUTE_ROLE_BYTES + 1];
    size_t bytes = receive->message_bytes < sizeof receive->saved ? receive->message_bytes : sizeof receive->saved;
    struct error refusal = {0};

    if (!receive->keep_other || !frame_read(got, receive->message_bytes, &frame, role) ||
        frame.kind != receive->frame.kind || frame.session_digest != session->digest ||
        frame.object_id != receive->frame.object_id || frame.from != (uint32_t)receive->peer)
        return refuse(receive, session, text_string(what), err);
    (void)refuse(receive, session, text_string(what), &refusal);
    receive->refusal = strdup(refusal.text);
    if (got != receive->saved) {
        memset(receive->saved, 0, sizeof receive->saved);
        memcpy(receive->saved, got, bytes);
    }
    receive->other = receive->over = true;
    return STATUS_OK;
}

/* A message of another size: every field that it got wrong, or at least its size. */
static enum status refuse_size(struct framed_receive *receive, struct session *session, struct error *err)
{
    unsigned char expected[FRAME_MAX_BYTES];
    struct text what = {0};
    size_t header = frame_bytes(&receive->frame);
    enum status st;

    expect(receive, session, receive->scratch, expected);
    text_add(&what, "message bytes: expected %zu, got %zu", expected_bytes(receive), receive->message_bytes);
    if (receive->message_bytes >= FRAME_MIN_BYTES)
        (void)frame_compare(expected, header, receive->scratch, receive->message_bytes, &what);
    st = refuse_or_keep(receive, session, receive->scratch, &what, err);
    text_done(&what);
    return st;
}

static enum status check(struct framed_receive *receive, struct session *session, struct error *err)
{
    unsigned char expected[FRAME_MAX_BYTES];
    size_t header = frame_bytes(&receive->frame);
    const unsigned char *got = receive->scratch    ? receive->scratch
                               : receive->detached ? receive->saved
                                                   : receive->payload + receive->done_bytes - header;
    struct text what = {0};
    enum status st = STATUS_OK;

    if (receive->message_bytes >= FRAME_MIN_BYTES) {
        receive->seen = true;
        receive->last_sequence = frame_sequence(got);
    }
    if (receive->scratch)
        return refuse_size(receive, session, err);
    if (receive->sizes_only && (!receive->detached || frame_payload_bytes(got) == receive->frame.payload_bytes))
        return STATUS_OK;
    expect(receive, session, got, expected);
    session->counters.frames_checked++;
    if (frame_compare(expected, header, got, receive->message_bytes, &what))
        return STATUS_OK;
    st = refuse_or_keep(receive, session, got, &what, err);
    text_done(&what);
    return st;
}

enum status framed_receive_step(struct framed_receive *receive, struct session *session, struct error *err)
{
    while (!receive->over) {
        bool ended = false;
        enum status st = STATUS_OK;

        if (!receive->work) {
            bool came = false;

            st = catch_message(receive, session, &came, err);
            if (st != STATUS_OK || !came)
                return st;
        }
        st = session->ops->test(session->transport, receive->work, &ended, err);
        if (st != STATUS_OK || !ended)
            return st;
        receive->work = NULL;
        session->counters.bytes_received += receive->message_bytes;
        session_moved(session);
        if (!receive->headed)
            st = check(receive, session, err);
        if (st != STATUS_OK || receive->other)
            return st;
        if (receive->detached && !receive->headed) {
            receive->headed = true;
            continue;
        }
        receive->headed = false;
        if (!receive->detached)
            memcpy(receive->payload + receive->done_bytes - frame_bytes(&receive->frame), receive->saved,
                   frame_bytes(&receive->frame));
        receive->done_bytes += receive->frame.payload_bytes;
        receive->over = receive->done_bytes == receive->payload_bytes;
    }
    return STATUS_OK;
}

bool framed_receive_let_go(struct framed_receive *receive, struct session *session)
{
    return let_go(session, &receive->work);
}

void framed_receive_done(struct framed_receive *receive)
{
    free(receive->scratch);
    free(receive->refusal);
    receive->scratch = NULL;
    receive->refusal = NULL;
}
