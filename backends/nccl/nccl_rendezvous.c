/* Offsets of the fields, little-endian; what is not named is zero.
 *
 * announcement: 0 magic u64; 8 protocol u16; 10 flags u16 (1 literal, 2 headroom); 12 header bytes u32; 16 number u64;
 * 24 payload bytes u64; 32 XXH3-64 of everything else u64; 40 header.
 * note: 0 magic u64; 8 XXH3-64 of everything behind it u64; 16 protocol u16; 18 kind u16; 20 flags u32 (1 joined);
 * 24 object u32; 28 status u32; 32 number u64; 40 ticket u64; 48 data bytes u32; 64 data. */
#include "backends/nccl/nccl_rendezvous.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/bytes.h"

#define ANNOUNCE_MAGIC UINT64_C(0x4543554e4e415246) /* "FRANNUCE" */
#define NOTE_MAGIC UINT64_C(0x45544f4e4c434e46)     /* "FNCLNOTE" */

enum {
    LITERAL = 1,
    HEADROOM = 2,
    JOINED = 1,
    HEADER_AT = 40,
    SUM_AT = 32,
    NOTE_SUM_AT = 8,
    BODY_AT = 16,
    DATA_AT = 64
};

static uint64_t announcement_sum(const unsigned char *bytes)
{
    unsigned char copy[ANNOUNCE_BYTES];

    memcpy(copy, bytes, sizeof copy);
    put_u64(copy + SUM_AT, 0);
    return XXH3_64bits(copy, sizeof copy);
}

void announcement_seal(unsigned char *bytes)
{
    put_u64(bytes + SUM_AT, announcement_sum(bytes));
}

void announcement_encode(const struct announcement *announcement, unsigned char *bytes)
{
    CHECK(announcement->header_bytes <= ANNOUNCE_HEADER_BYTES);
    memset(bytes, 0, ANNOUNCE_BYTES);
    put_u64(bytes, ANNOUNCE_MAGIC);
    put_u16(bytes + 8, RENDEZVOUS_PROTOCOL);
    put_u16(bytes + 10, (uint16_t)((announcement->literal ? LITERAL : 0) | (announcement->headroom ? HEADROOM : 0)));
    put_u32(bytes + 12, announcement->header_bytes);
    put_u64(bytes + 16, announcement->number);
    put_u64(bytes + 24, announcement->payload_bytes);
    memcpy(bytes + HEADER_AT, announcement->header, announcement->header_bytes);
    announcement_seal(bytes);
}

enum status announcement_decode(const unsigned char *bytes, struct announcement *ret, struct error *err)
{
    uint16_t flags = get_u16(bytes + 10);
    uint32_t header_bytes = get_u32(bytes + 12);

    if (get_u64(bytes) != ANNOUNCE_MAGIC)
        return error_set(err, STATUS_CORRUPT, "announcement of a device message: magic %016" PRIx64, get_u64(bytes));
    if (get_u64(bytes + SUM_AT) != announcement_sum(bytes))
        return error_set(err, STATUS_CORRUPT, "announcement of a device message: its checksum differs");
    if (get_u16(bytes + 8) != RENDEZVOUS_PROTOCOL)
        return error_set(err, STATUS_CORRUPT, "announcement of a device message: protocol %d, expected %d",
                         get_u16(bytes + 8), RENDEZVOUS_PROTOCOL);
    if ((flags & ~(LITERAL | HEADROOM)) || header_bytes > ANNOUNCE_HEADER_BYTES ||
        (!(flags & LITERAL) && !header_bytes))
        return error_set(err, STATUS_CORRUPT, "announcement of a device message: flags %x, header of %" PRIu32 " bytes",
                         flags, header_bytes);
    ret->literal = flags & LITERAL;
    ret->headroom = flags & HEADROOM;
    ret->header_bytes = header_bytes;
    ret->number = get_u64(bytes + 16);
    ret->payload_bytes = get_u64(bytes + 24);
    if (ret->payload_bytes > SIZE_MAX - header_bytes)
        return error_set(err, STATUS_CORRUPT, "announcement of a device message: %" PRIu64 " payload bytes",
                         ret->payload_bytes);
    memset(ret->header, 0, sizeof ret->header);
    memcpy(ret->header, bytes + HEADER_AT, header_bytes);
    return STATUS_OK;
}

void note_seal(unsigned char *bytes)
{
    put_u64(bytes + NOTE_SUM_AT, XXH3_64bits(bytes + BODY_AT, NOTE_BYTES - BODY_AT));
}

void note_encode(const struct note *note, unsigned char *bytes)
{
    CHECK(note->data_bytes <= NOTE_DATA_BYTES);
    memset(bytes, 0, NOTE_BYTES);
    put_u64(bytes, NOTE_MAGIC);
    put_u16(bytes + 16, RENDEZVOUS_PROTOCOL);
    put_u16(bytes + 18, (uint16_t)note->kind);
    put_u32(bytes + 20, note->joined ? JOINED : 0);
    put_u32(bytes + 24, note->object);
    put_u32(bytes + 28, note->status);
    put_u64(bytes + 32, note->number);
    put_u64(bytes + 40, note->ticket);
    put_u32(bytes + 48, note->data_bytes);
    memcpy(bytes + DATA_AT, note->data, note->data_bytes);
    note_seal(bytes);
}

enum status note_decode(const unsigned char *bytes, struct note *ret, bool *ret_ours, struct error *err)
{
    uint16_t kind = get_u16(bytes + 18);
    uint32_t flags = get_u32(bytes + 20);
    uint32_t status = get_u32(bytes + 28);
    uint32_t data_bytes = get_u32(bytes + 48);

    *ret_ours = get_u64(bytes) == NOTE_MAGIC;
    if (!*ret_ours)
        return STATUS_OK;
    if (get_u64(bytes + NOTE_SUM_AT) != XXH3_64bits(bytes + BODY_AT, NOTE_BYTES - BODY_AT))
        return error_set(err, STATUS_CORRUPT, "note of the nccl transport: its checksum differs");
    if (get_u16(bytes + 16) != RENDEZVOUS_PROTOCOL)
        return error_set(err, STATUS_CORRUPT, "note of the nccl transport: protocol %d, expected %d",
                         get_u16(bytes + 16), RENDEZVOUS_PROTOCOL);
    if (kind < NOTE_HELLO || kind >= NOTE_KINDS || (flags & ~(uint32_t)JOINED) || status >= STATUS_COUNT ||
        data_bytes > NOTE_DATA_BYTES)
        return error_set(err, STATUS_CORRUPT,
                         "note of the nccl transport: kind %d, flags %" PRIx32 ", status %" PRIu32 ", %" PRIu32
                         " bytes",
                         kind, flags, status, data_bytes);
    *ret = (struct note){.kind = (enum note_kind)kind,
                         .joined = flags & JOINED,
                         .object = get_u32(bytes + 24),
                         .status = (enum status)status,
                         .number = get_u64(bytes + 32),
                         .ticket = get_u64(bytes + 40),
                         .data_bytes = data_bytes};
    memcpy(ret->data, bytes + DATA_AT, data_bytes);
    return STATUS_OK;
}
