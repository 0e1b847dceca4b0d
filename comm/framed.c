/* Framed messages over the transport's send, probe, receive and test.
 *
 * Cost: one native message a piece, no copy; a receiver writes each payload byte once, where it belongs. */
#include "comm/framed_private.h"

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

enum status framed_piece_fields(const struct session *session, struct frame *frame, size_t all, size_t done,
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
    if (send->own_works && !send->detached) {
        send->works = send->own_works;
        memset(send->works, 0, (size_t)send->peer_count * sizeof *send->works);
        return STATUS_OK;
    }
    send->works = calloc((size_t)work_count(send), sizeof *send->works);
    if (!send->works)
        return error_set(err, STATUS_NOMEM, "messages to %d ranks", send->peer_count);
    return STATUS_OK;
}

bool framed_send_room(struct framed_send *send, struct session *session)
{
    size_t header = frame_bytes(&send->frame);
    size_t bytes = 0;

    if (!session->ops->room || session->options.payload_integrity || send->device || send->detached ||
        send->peer_count != 1 || size_add(header, send->payload_bytes, &bytes))
        return false;
    send->room = session->ops->room(session->transport, send->peers[0], bytes);
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
    send->payload[send->done_bytes + byte] ^= 1;
    if (send->detached)
        send->flipped = send->payload + send->done_bytes + byte;
    return left;
}

void framed_posted_message(struct framed_send *send, struct session *session, size_t bytes)
{
    send->open_works++;
    session->counters.bytes_sent += bytes;
    session_moved(session);
}

/* Do the header's bytes lie over somebody's: of the piece before, or of what is in front of the payload? */
static bool covers(bool headroom, size_t done_bytes)
{
    return !headroom || done_bytes;
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
    else if (!send->room && covers(send->headroom, send->done_bytes))
        memcpy(send->saved, message, header);
    send->frame.from = (uint32_t)session->rank;
    if (session->options.payload_integrity) {
        send->frame.flags = FRAME_PAYLOAD_CHECKED;
        send->frame.payload_checksum = XXH3_64bits(payload, send->frame.payload_bytes);
    }
    frame_encode(&send->frame, message);
    bytes = damage(send, session, message, header + send->frame.payload_bytes);
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
        if (!send->detached && !send->room && covers(send->headroom, send->done_bytes))
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

/* Can the transport fetch and deliver payloads there by itself?  Of no bytes there is nothing to fetch. */
static bool reaches(const struct session *session, const struct memory *device, size_t bytes)
{
    const struct device_message_ops *ops = session->ops->device;

    return bytes && ops && ops->reaches(session->transport, device);
}

static enum status choose_way(struct session *session, const struct memory *device, size_t bytes,
                              struct framed_memory **ret, struct error *err)
{
    *ret = calloc(1, sizeof **ret);
    if (!*ret)
        return error_set(err, STATUS_NOMEM, "a message of %zu bytes", bytes);
    (*ret)->direct = reaches(session, device, bytes);
    return STATUS_OK;
}

enum status framed_take_block(struct framed_memory *way, struct session *session, size_t bytes, struct error *err)
{
    way->lender = staging_in(session->staging, session->options.pinned);
    if (!way->lender)
        return error_set(err, STATUS_NOMEM, "a message of %zu bytes", bytes);
    way->block = staging_take(way->lender, bytes, err);
    return way->block ? STATUS_OK : error_wrap(err, STATUS_NOMEM, "a message of %zu bytes", bytes);
}

void framed_give_block(struct framed_memory *way)
{
    if (way->block)
        staging_give(way->lender, way->block);
    way->block = NULL;
}

/* Nothing of it runs any more: a payload that was staged is where it was. */
static void leave_way(struct framed_memory **way, unsigned char **payload)
{
    if (*way && (*way)->origin)
        *payload = (*way)->origin;
    if (*way)
        framed_give_block(*way);
    free(*way);
    *way = NULL;
}

enum status framed_send_step(struct framed_send *send, struct session *session, struct error *err)
{
    if (!send->device)
        return framed_host_send_step(send, session, err);
    if (!send->way) {
        enum status st = choose_way(session, send->device, send->payload_bytes, &send->way, err);

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

bool framed_let_go(struct session *session, struct work **work, bool device)
{
    bool ended = false;
    enum status st = STATUS_OK;

    if (!*work)
        return true;
    st = session->ops->test(session->transport, *work, &ended, NULL);
    if (!ended && session->ops->teardown == TEARDOWN_NATIVE) {
        if (!session->ops->cancel(session->transport, *work))
            return false;
    } else if (!ended && st == STATUS_OK) {
        return false;
    }
    *work = NULL;
    session->queued -= device;
    return true;
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
    if (send->works != send->own_works)
        free(send->works);
    send->works = NULL;
    leave_way(&send->way, &send->payload);
}

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
    enum status st = framed_piece_fields(session, &receive->frame, receive->payload_bytes, receive->done_bytes, err);
    unsigned char *message = receive->payload + receive->done_bytes - header;

    if (st != STATUS_OK)
        return st;
    if (receive->message_bytes == expected_bytes(receive)) {
        if (!receive->detached && covers(receive->headroom, receive->done_bytes))
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
    if (receive->detached)
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

/* After a failure the transport may be gone, and the message with it. */
static void give_back(struct framed_receive *receive)
{
    if (!receive->lent)
        return;
    if (!receive->lender->failed)
        receive->lender->ops->give_back(receive->lender->transport, receive->lent);
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
    st = place(receive, session, &bytes, err);
    if (st != STATUS_OK && session->ops->give_back)
        session->ops->give_back(session->transport, message);
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

/* Messages of a lane arrive in the order in which they were sent, one for each sequence number: a sealed header of an
 * earlier one was in its place, and this rank has counted one that it did not receive. */
static bool passed_over(const struct framed_receive *receive, const struct session *session, const unsigned char *got,
                        size_t got_bytes)
{
    struct frame frame;
    char role[ROUTE_ROLE_BYTES + 1];

    return frame_read(got, got_bytes, &frame, role) && frame.kind == receive->frame.kind &&
           frame.session_digest == session->digest && frame.object_id == receive->frame.object_id &&
           frame.from == (uint32_t)receive->peer && frame.sequence < receive->frame.sequence;
}

enum status framed_refuse_or_keep(struct framed_receive *receive, const struct session *session,
                                  const unsigned char *got, size_t got_bytes, const struct text *what,
                                  struct error *err)
{
    struct frame frame;
    char role[ROUTE_ROLE_BYTES + 1];
    size_t bytes = got_bytes < sizeof receive->saved ? got_bytes : sizeof receive->saved;
    struct error refusal = {0};

    if (!receive->keep_other || !frame_read(got, got_bytes, &frame, role) || frame.kind != receive->frame.kind ||
        frame.session_digest != session->digest || frame.object_id != receive->frame.object_id ||
        frame.from != (uint32_t)receive->peer) {
        enum status st = framed_refuse(receive, session, text_string(what), err);

        return passed_over(receive, session, got, got_bytes) ? error_blame(err, st, session->rank) : st;
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
        if (receive->detached && !receive->headed) {
            receive->headed = true;
            continue;
        }
        receive->headed = false;
        if (!receive->detached && !receive->lent && covers(receive->headroom, receive->done_bytes))
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
        enum status st = choose_way(session, receive->device, receive->payload_bytes, &receive->way, err);

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
    leave_way(&receive->way, &receive->payload);
}
