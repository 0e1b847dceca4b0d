/* Receiving framed messages over the transport's probe, receive and test: where they go, and what must have come.
 *
 * Cost: one native message a piece, no copy; each payload byte is written once, where it belongs. */
#include "comm/framed_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* 'route forward/0-2 (rank 0 to rank 2), step 3, send_receive, sequence 5, tensor hidden: ' and what differs. */
enum status framed_refuse(const struct framed_receive *receive, const struct session *session, const char *what,
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
    return error_blame(err, st, receive->peer);
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
    unsigned char *message = receive->payload + receive->done_bytes - header;
    enum status st = STATUS_OK;

    if (!receive->ready)
        st = framed_piece_fields(session, &receive->frame, receive->payload_bytes, receive->done_bytes, err);
    if (st != STATUS_OK)
        return st;
    if (receive->message_bytes == expected_bytes(receive)) {
        if (!receive->detached && framed_covers(receive->headroom, receive->done_bytes))
            memcpy(receive->saved, message, header);
        *ret = !receive->detached ? message : receive->headed ? message + header : receive->saved;
        return STATUS_OK;
    }
    if (receive->headed || receive->message_bytes > FRAMED_SCRATCH_BYTES ||
        !(receive->scratch = malloc(receive->message_bytes + FRAME_MAX_BYTES))) {
        struct text what = {0};

        text_add(&what, "message bytes: expected %zu, got %zu", expected_bytes(receive), receive->message_bytes);
        st = framed_refuse(receive, session, text_string(&what), err);
        text_done(&what);
        return st;
    }
    *ret = receive->scratch;
    return STATUS_OK;
}

/* Of a frame that travels through the host. */
static void set_flags(struct framed_receive *receive, const struct session *session)
{
    if (receive->detached || receive->runs.rows)
        receive->frame.flags = FRAME_DETACHED;
    if (session->options.payload_integrity)
        receive->frame.flags = FRAME_PAYLOAD_CHECKED;
}

/* A device's, for memory of the host. */
static enum status refuse_device(struct framed_receive *receive, struct session *session, struct message *message,
                                 const unsigned char *ahead, size_t ahead_bytes, struct error *err)
{
    set_flags(receive, session);
    return framed_device_refuse(receive, session, message, ahead, ahead_bytes, err);
}

/* Is the whole payload in this message, and can it be read where it is?  A peer could still write there: what is to be
 * compared, the header, is copied, and payloads whose checksum is taken are received. */
static bool borrow(struct framed_receive *receive, struct session *session, struct message *message)
{
    size_t header = receive->detached ? 0 : frame_bytes(&receive->frame);
    unsigned char *bytes = NULL;

    if (!receive->in_place || receive->device || !session->ops->lend || session->options.payload_integrity ||
        receive->scratch || (receive->detached && !receive->headed) ||
        receive->frame.payload_bytes != receive->payload_bytes)
        return false;
    bytes = session->ops->lend(session->transport, message);
    if (!bytes)
        return false;
    receive->lent = message;
    receive->lender = session;
    receive->room = receive->payload;
    receive->payload = bytes + header;
    memcpy(receive->saved, bytes, header);
    return true;
}

/* Does the message bring all that may come lent, with a header that can be the expected one? */
static bool borrow_lent(struct framed_receive *receive, struct session *session, struct message *message)
{
    const unsigned char *header = NULL;
    size_t header_bytes = 0;
    struct runs runs = {0};

    if (!receive->lent_bytes || receive->headed || receive->done_bytes || !session->ops->look)
        return false;
    header = session->ops->look(session->transport, message, &header_bytes, &runs);
    if (!header || header_bytes != frame_bytes(&receive->frame) || runs.run * runs.rows != receive->lent_bytes)
        return false;
    memcpy(receive->saved, header, header_bytes);
    receive->ready = receive->ready && receive->detached && receive->payload_bytes == receive->lent_bytes;
    receive->payload_bytes = receive->lent_bytes;
    receive->lent = message;
    receive->lender = session;
    receive->room = receive->payload;
    receive->payload = (unsigned char *)(uintptr_t)runs.bytes;
    receive->runs = runs;
    return framed_piece_fields(session, &receive->frame, receive->payload_bytes, 0, NULL) == STATUS_OK;
}

/* After a failure the transport may be gone, and the message with it. */
static void give_back(struct framed_receive *receive)
{
    if (!receive->lent)
        return;
    if (!receive->lender->failed)
        receive->lender->ops->give_back(receive->lender->transport, receive->lent, receive->read_ns);
    receive->lent = NULL;
    receive->payload = receive->room;
}

/* While nothing has come: the header that must come, where nothing of it is left to what comes. */
static enum status get_ready(struct framed_receive *receive, struct session *session, struct error *err)
{
    enum status st = STATUS_OK;

    if (receive->ready || receive->headed || receive->any_epoch || receive->sizes_only ||
        session->options.payload_integrity)
        return STATUS_OK;
    st = framed_piece_fields(session, &receive->frame, receive->payload_bytes, receive->done_bytes, err);
    if (st != STATUS_OK)
        return st;
    set_flags(receive, session);
    framed_expect(receive, NULL, receive->expected);
    receive->ready = true;
    return STATUS_OK;
}

static enum status catch_message(struct framed_receive *receive, struct session *session, bool *ret, struct error *err)
{
    struct message *message = NULL;
    unsigned char *bytes = NULL;
    const unsigned char *ahead = NULL;
    size_t ahead_bytes = 0;
    enum status st =
        session->ops->probe(session->transport, receive->peer, receive->tag, &message, &receive->message_bytes, err);

    *ret = message != NULL;
    if (st == STATUS_OK && !message)
        st = get_ready(receive, session, err);
    if (st != STATUS_OK || !message)
        return st;
    if (session->ops->device && (ahead = session->ops->device->ahead(message, &ahead_bytes)))
        return refuse_device(receive, session, message, ahead, ahead_bytes, err);
    if (borrow_lent(receive, session, message))
        return STATUS_OK;
    st = place(receive, session, &bytes, err);
    if (st != STATUS_OK && session->ops->give_back)
        session->ops->give_back(session->transport, message, 0);
    if (st != STATUS_OK || borrow(receive, session, message))
        return st;
    return session->ops->receive(session->transport, message, bytes, receive->message_bytes, &receive->work, err);
}

void framed_expect(struct framed_receive *receive, const unsigned char *got, unsigned char *expected)
{
    struct frame *frame = &receive->frame;

    frame->from = (uint32_t)receive->peer;
    if (receive->any_epoch && !receive->scratch && frame_epoch(got) >= frame->epoch)
        frame->epoch = frame_epoch(got);
    frame_encode(frame, expected);
}

/* The header that must have come, now that the payload is here. */
static void expect(struct framed_receive *receive, struct session *session, const unsigned char *got,
                   unsigned char *expected)
{
    struct frame *frame = &receive->frame;

    set_flags(receive, session);
    if (session->options.payload_integrity) {
        frame->payload_checksum = XXH3_64bits(got, 0);
        if (receive->message_bytes > frame_bytes(frame))
            frame->payload_checksum =
                XXH3_64bits(got + frame_bytes(frame), receive->message_bytes - frame_bytes(frame));
    }
    framed_expect(receive, got, expected);
}

/* A sealed header that this sender meant as it is, about this object.  *ret_sequence: its number. */
static bool is_of_lane(const struct framed_receive *receive, const struct session *session, const unsigned char *got,
                       size_t got_bytes, uint64_t *ret_sequence)
{
    struct frame frame;
    char role[ROUTE_ROLE_BYTES + 1];

    if (!frame_read(got, got_bytes, &frame, role) || frame.kind != receive->frame.kind ||
        frame.session_digest != session->digest || frame.object_id != receive->frame.object_id ||
        frame.from != (uint32_t)receive->peer)
        return false;
    *ret_sequence = frame.sequence;
    return true;
}

enum status framed_refuse_or_keep(struct framed_receive *receive, const struct session *session,
                                  const unsigned char *got, size_t got_bytes, const struct text *what,
                                  struct error *err)
{
    size_t bytes = got_bytes < sizeof receive->saved ? got_bytes : sizeof receive->saved;
    uint64_t sequence = UINT64_MAX;
    bool of_lane = is_of_lane(receive, session, got, got_bytes, &sequence);
    struct error refusal = {0};

    if (!receive->keep_other || !of_lane) {
        enum status st = framed_refuse(receive, session, text_string(what), err);

        /* Messages of a lane arrive in the order in which they were sent, one for each sequence number: with an earlier
         * one in its place this rank has counted one that it did not receive. */
        return sequence < receive->frame.sequence ? error_blame(err, st, session->rank) : st;
    }
    (void)framed_refuse(receive, session, text_string(what), &refusal);
    receive->refusal = strdup(refusal.text);
    if (got != receive->saved) {
        memset(receive->saved, 0, sizeof receive->saved);
        memcpy(receive->saved, got, bytes);
    }
    receive->other = receive->over = true;
    return STATUS_OK;
}

/* Every field that it got wrong, or at least its size. */
enum status framed_refuse_scratch(struct framed_receive *receive, struct session *session, struct error *err)
{
    unsigned char expected[FRAME_MAX_BYTES];
    struct text what = {0};
    size_t header = frame_bytes(&receive->frame);
    enum status st;

    if (receive->way && receive->way->direct)
        framed_expect(receive, receive->scratch, expected);
    else
        expect(receive, session, receive->scratch, expected);
    if (receive->message_bytes != expected_bytes(receive))
        text_add(&what, "message bytes: expected %zu, got %zu", expected_bytes(receive), receive->message_bytes);
    if (receive->message_bytes >= FRAME_MIN_BYTES)
        (void)frame_compare(expected, header, receive->scratch, receive->message_bytes, &what);
    st = framed_refuse_or_keep(receive, session, receive->scratch, receive->message_bytes, &what, err);
    text_done(&what);
    return st;
}

static enum status check(struct framed_receive *receive, struct session *session, struct error *err)
{
    size_t header = frame_bytes(&receive->frame);
    const unsigned char *got = receive->scratch                     ? receive->scratch
                               : receive->detached || receive->lent ? receive->saved
                                                                    : receive->payload + receive->done_bytes - header;
    struct text what = {0};
    enum status st = STATUS_OK;

    if (receive->message_bytes >= FRAME_MIN_BYTES) {
        receive->seen = true;
        receive->last_sequence = frame_sequence(got);
    }
    if (receive->scratch)
        return framed_refuse_scratch(receive, session, err);
    if (receive->sizes_only && (!receive->detached || frame_payload_bytes(got) == receive->frame.payload_bytes))
        return STATUS_OK;
    if (!receive->ready)
        expect(receive, session, got, receive->expected);
    receive->ready = false;
    session->counters.frames_checked++;
    if (frame_compare(receive->expected, header, got, receive->message_bytes, &what))
        return STATUS_OK;
    st = framed_refuse_or_keep(receive, session, got, receive->message_bytes, &what, err);
    text_done(&what);
    return st;
}

enum status framed_host_receive_step(struct framed_receive *receive, struct session *session, struct error *err)
{
    while (!receive->over) {
        bool ended = false;
        enum status st = STATUS_OK;

        if (!receive->work) {
            bool came = false;

            st = catch_message(receive, session, &came, err);
            if (st != STATUS_OK || !came || receive->other)
                return st;
        }
        if (receive->work)
            st = session->ops->test(session->transport, receive->work, &ended, err);
        if (st != STATUS_OK || (!ended && !receive->lent))
            return st;
        receive->work = NULL;
        session->counters.bytes_received += receive->message_bytes;
        session_moved(session);
        if (!receive->headed)
            st = check(receive, session, err);
        if (st != STATUS_OK || receive->other)
            return st;
        if (receive->detached && !receive->headed && !receive->runs.rows) {
            receive->headed = true;
            continue;
        }
        receive->headed = false;
        if (!receive->detached && !receive->lent && framed_covers(receive->headroom, receive->done_bytes))
            memcpy(receive->payload + receive->done_bytes - frame_bytes(&receive->frame), receive->saved,
                   frame_bytes(&receive->frame));
        receive->done_bytes += receive->frame.payload_bytes;
        receive->over = receive->done_bytes == receive->payload_bytes;
    }
    return STATUS_OK;
}

enum status framed_receive_step(struct framed_receive *receive, struct session *session, struct error *err)
{
    if (!receive->device)
        return framed_host_receive_step(receive, session, err);
    if (!receive->way) {
        enum status st = framed_choose_way(session, receive->device, receive->payload_bytes, &receive->way, err);

        if (st != STATUS_OK)
            return st;
    }
    return receive->way->direct ? framed_device_receive_step(receive, session, err)
                                : framed_staged_receive_step(receive, session, err);
}

bool framed_receive_let_go(struct framed_receive *receive, struct session *session)
{
    bool gone = framed_let_go(session, &receive->work, receive->device_work);

    return (!receive->way || queued_let_go(&receive->way->queued, session)) && gone;
}

void framed_receive_done(struct framed_receive *receive)
{
    give_back(receive);
    free(receive->scratch);
    free(receive->refusal);
    receive->scratch = NULL;
    receive->refusal = NULL;
    framed_leave_way(&receive->way, &receive->payload);
}
