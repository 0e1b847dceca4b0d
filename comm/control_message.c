/* Offsets of the fields, little-endian; what is not named is zero.
 *
 * message: 0 magic u32; 4 protocol u16; 6 kind u16; 8 bytes of the content u32; 12 piece u16; 14 pieces u16; 32 this
 * piece's bytes.
 * cause: 0 status u32; 4 rank i32; 8 reporter i32; 12 bytes of the text u32; 16 time u64; 24 epoch u64; 32 text.
 * claim: 0 rank i32; 8 cause.
 * answer: 0 inquiry u32; 4 waiting u32; 8 operation u32; 12 object u32; 16 peer i32; 24 sequence u64; 32 waited u64;
 * 40 still u64; 48 counter u64; 56 object name [64]; 120 phase [64]. */
#include "comm/control_message.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { CAUSE_TEXT = 32, CLAIM_CAUSE = 8, ANSWER_NAME = 56, ANSWER_PHASE = 120, ANSWER_BYTES = 184, NAME_BYTES = 64 };

#define MAGIC UINT32_C(0x4c544346) /* "FCTL" */

struct partial {
    struct partial *next;
    size_t pieces; /* that have come */
    struct parcel parcel;
};

struct inbox {
    struct partial *partials;
};

size_t control_piece_count(size_t bytes)
{
    return bytes ? (bytes + CONTROL_PIECE_BYTES - 1) / CONTROL_PIECE_BYTES : 1;
}

void control_piece_encode(enum control_kind kind, const unsigned char *data, size_t bytes, size_t piece,
                          unsigned char *message)
{
    size_t start = piece * CONTROL_PIECE_BYTES;
    size_t count = bytes - start < CONTROL_PIECE_BYTES ? bytes - start : CONTROL_PIECE_BYTES;

    CHECK(bytes <= CONTROL_MAX_BYTES && start <= bytes);
    memset(message, 0, CONTROL_BYTES);
    put_u32(message, MAGIC);
    put_u16(message + 4, CONTROL_PROTOCOL);
    put_u16(message + 6, (uint16_t)kind);
    put_u32(message + 8, (uint32_t)bytes);
    put_u16(message + 12, (uint16_t)piece);
    put_u16(message + 14, (uint16_t)control_piece_count(bytes));
    memcpy(message + CONTROL_HEADER_BYTES, data + start, count);
}

size_t cause_encode(const struct cause *cause, unsigned char *data)
{
    size_t length = strnlen(cause->text, sizeof cause->text - 1);

    put_u32(data, cause->status);
    put_u32(data + 4, (uint32_t)cause->rank);
    put_u32(data + 8, (uint32_t)cause->reporter);
    put_u32(data + 12, (uint32_t)length);
    put_u64(data + 16, cause->time_ns);
    put_u64(data + 24, cause->epoch);
    memcpy(data + CAUSE_TEXT, cause->text, length);
    return CAUSE_TEXT + length;
}

enum status cause_decode(const unsigned char *data, size_t bytes, struct cause *ret)
{
    uint32_t status;
    uint32_t length;

    if (bytes < CAUSE_TEXT)
        return STATUS_CORRUPT;
    status = get_u32(data);
    length = get_u32(data + 12);
    if (status == STATUS_OK || status >= STATUS_COUNT || length != bytes - CAUSE_TEXT || length >= sizeof ret->text)
        return STATUS_CORRUPT;
    ret->status = (enum status)status;
    ret->rank = (int)get_u32(data + 4);
    ret->reporter = (int)get_u32(data + 8);
    ret->time_ns = get_u64(data + 16);
    ret->epoch = get_u64(data + 24);
    memcpy(ret->text, data + CAUSE_TEXT, length);
    ret->text[length] = '\0';
    return STATUS_OK;
}

size_t claim_encode(const struct claim *claim, unsigned char *data)
{
    put_u32(data, (uint32_t)claim->rank);
    put_u32(data + 4, 0);
    return CLAIM_CAUSE + cause_encode(&claim->cause, data + CLAIM_CAUSE);
}

enum status claim_decode(const unsigned char *data, size_t bytes, struct claim *ret)
{
    if (bytes < CLAIM_CAUSE)
        return STATUS_CORRUPT;
    ret->rank = (int)get_u32(data);
    return cause_decode(data + CLAIM_CAUSE, bytes - CLAIM_CAUSE, &ret->cause);
}

static void put_name(unsigned char *at, const char *name)
{
    size_t length = strnlen(name, NAME_BYTES - 1);

    memset(at, 0, NAME_BYTES);
    memcpy(at, name, length);
}

size_t answer_encode(const struct answer *answer, unsigned char *data)
{
    const struct wait_state *state = &answer->state;

    memset(data, 0, ANSWER_BYTES);
    put_u32(data, answer->inquiry);
    put_u32(data + 4, state->waiting);
    put_u32(data + 8, state->operation);
    put_u32(data + 12, state->object_id);
    put_u32(data + 16, (uint32_t)state->peer);
    put_u64(data + 24, state->sequence);
    put_u64(data + 32, answer->waited_ns);
    put_u64(data + 40, answer->still_ns);
    put_u64(data + 48, state->counter);
    put_name(data + ANSWER_NAME, state->object_name);
    put_name(data + ANSWER_PHASE, state->phase);
    return ANSWER_BYTES;
}

enum status answer_decode(const unsigned char *data, size_t bytes, struct answer *ret)
{
    struct wait_state *state = &ret->state;

    if (bytes != ANSWER_BYTES || get_u32(data + 8) >= OPERATION_COUNT)
        return STATUS_CORRUPT;
    ret->inquiry = get_u32(data);
    ret->waited_ns = get_u64(data + 32);
    ret->still_ns = get_u64(data + 40);
    state->waiting = get_u32(data + 4) != 0;
    state->operation = (enum operation)get_u32(data + 8);
    state->object_id = get_u32(data + 12);
    state->peer = (int)get_u32(data + 16);
    state->sequence = get_u64(data + 24);
    state->since_ns = 0;
    state->counter = get_u64(data + 48);
    memcpy(state->object_name, data + ANSWER_NAME, NAME_BYTES);
    memcpy(state->phase, data + ANSWER_PHASE, NAME_BYTES);
    state->object_name[NAME_BYTES - 1] = '\0';
    state->phase[NAME_BYTES - 1] = '\0';
    return STATUS_OK;
}

enum status inbox_create(struct inbox **ret, struct error *err)
{
    *ret = calloc(1, sizeof **ret);
    return *ret ? STATUS_OK : error_set(err, STATUS_NOMEM, "control channel");
}

void inbox_destroy(struct inbox *inbox)
{
    while (inbox && inbox->partials) {
        struct partial *partial = inbox->partials;

        inbox->partials = partial->next;
        free(partial);
    }
    free(inbox);
}

static struct partial **find(struct inbox *inbox, int peer, enum control_kind kind)
{
    struct partial **at = &inbox->partials;

    while (*at && ((*at)->parcel.peer != peer || (*at)->parcel.kind != kind))
        at = &(*at)->next;
    return at;
}

static enum status refuse_header(int peer, const unsigned char *message, struct error *err)
{
    uint16_t kind = get_u16(message + 6);
    uint32_t bytes = get_u32(message + 8);

    if (get_u32(message) != MAGIC)
        return error_set(err, STATUS_CORRUPT, "control message from rank %d: bad magic", peer);
    if (get_u16(message + 4) != CONTROL_PROTOCOL)
        return error_set(err, STATUS_MISMATCH, "control channel: rank %d speaks protocol %u, this rank %d", peer,
                         get_u16(message + 4), CONTROL_PROTOCOL);
    if (kind < 1 || kind >= CONTROL_KINDS || bytes > CONTROL_MAX_BYTES ||
        get_u16(message + 14) != control_piece_count(bytes) || get_u16(message + 12) >= get_u16(message + 14))
        return error_set(err, STATUS_CORRUPT, "control message from rank %d: kind %u, %u bytes, piece %u of %u", peer,
                         kind, bytes, get_u16(message + 12), get_u16(message + 14));
    return STATUS_OK;
}

static enum status check_header(int peer, const unsigned char *message, struct error *err)
{
    enum status st = refuse_header(peer, message, err);

    return st == STATUS_OK ? st : error_blame(err, st, peer);
}

/* Put piece where it belongs in parcel. */
static void add_piece(struct parcel *parcel, const unsigned char *message)
{
    size_t start = (size_t)get_u16(message + 12) * CONTROL_PIECE_BYTES;
    size_t count = parcel->bytes - start < CONTROL_PIECE_BYTES ? parcel->bytes - start : CONTROL_PIECE_BYTES;

    memcpy(parcel->data + start, message + CONTROL_HEADER_BYTES, count);
}

static void describe(struct parcel *parcel, int peer, const unsigned char *message)
{
    parcel->peer = peer;
    parcel->kind = (enum control_kind)get_u16(message + 6);
    parcel->bytes = get_u32(message + 8);
}

static enum status take_piece(struct inbox *inbox, int peer, const unsigned char *message, struct parcel *ret,
                              bool *ret_whole, struct error *err)
{
    struct partial **at = find(inbox, peer, (enum control_kind)get_u16(message + 6));
    struct partial *partial = *at;

    if (!partial) {
        partial = calloc(1, sizeof *partial);
        if (!partial)
            return error_set(err, STATUS_NOMEM, "control message from rank %d", peer);
        describe(&partial->parcel, peer, message);
        *at = partial;
    }
    if (get_u16(message + 12) != partial->pieces || get_u32(message + 8) != partial->parcel.bytes)
        return error_blame(err,
                           error_set(err, STATUS_CORRUPT, "control message from rank %d: piece %u, expected %zu", peer,
                                     get_u16(message + 12), partial->pieces),
                           peer);
    add_piece(&partial->parcel, message);
    if (++partial->pieces < get_u16(message + 14))
        return STATUS_OK;
    *ret = partial->parcel;
    *ret_whole = true;
    *at = partial->next;
    free(partial);
    return STATUS_OK;
}

enum status inbox_take(struct inbox *inbox, int peer, const unsigned char *message, struct parcel *ret, bool *ret_whole,
                       struct error *err)
{
    enum status st = check_header(peer, message, err);

    *ret_whole = false;
    if (st)
        return st;
    if (get_u16(message + 14) > 1)
        return take_piece(inbox, peer, message, ret, ret_whole, err);
    describe(ret, peer, message);
    add_piece(ret, message);
    *ret_whole = true;
    return STATUS_OK;
}
