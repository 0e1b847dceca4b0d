/* The header in front of every payload: fixed little-endian fields, docs/frame.md is the table.
 *
 * Pure functions over bytes.  A receiver builds the header that it expects and compares; it never acts on a field of
 * the header under check. */
#ifndef COMM_FRAME_H
#define COMM_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/tensor.h"
#include "base/text.h"
#include "comm/spec.h"

enum {
    FRAME_MAGIC = 0x59525246, /* "FRRY" in the order of the bytes */
    FRAME_VERSION = 2,
    FRAME_ALIGN = 64,
    FRAME_FIXED_BYTES = 192, /* without a name that is too long to lie beside the extents */
    FRAME_MAX_BYTES = 256,   /* with one; at most TENSOR_HEADROOM */
    FRAME_MIN_BYTES = 192
};

enum frame_kind { FRAME_ROUTE = 1, FRAME_COLLECTIVE = 2 };

enum frame_flag {
    FRAME_PAYLOAD_CHECKED = 1,
    FRAME_DETACHED = 2, /* the payload is the next message of this pair and tag */
    FRAME_DEVICE = 4    /* the payload travels from one device's memory to another's; the header also ahead of it */
};

/* What a header says, in the machine's own form.  role is borrowed; NULL: none. */
struct frame {
    uint16_t flags;
    enum frame_kind kind;
    uint64_t session_digest;
    uint32_t object_id;
    enum operation operation;
    uint32_t from;  /* world rank of the sender */
    uint32_t round; /* of a collective's algorithm */
    uint32_t piece; /* a payload above the transport's limit travels in pieces, each a frame */
    uint32_t piece_count;
    uint32_t root_or_axis; /* member index of a broadcast's root; axis of a gather or an all-to-all */
    uint64_t sequence;
    uint64_t epoch;
    uint64_t send_count; /* the pair's counts along the axis, as the sender sees them */
    uint64_t receive_count;
    uint64_t schema_digest; /* of a route's bundle, or of a collective's counts */
    uint16_t role_ordinal;
    uint16_t role_count;
    enum dtype dtype;
    struct shape shape;
    uint64_t payload_bytes;    /* of this piece */
    uint64_t payload_checksum; /* XXH3-64; 0 without FRAME_PAYLOAD_CHECKED */
    const char *role;          /* a route's tensor; of an uneven gather its counts, "3,0,2" */
};

/* Header bytes on the wire: a multiple of FRAME_ALIGN, FRAME_MIN_BYTES to FRAME_MAX_BYTES. */
size_t frame_bytes(const struct frame *frame);

/* Write frame_bytes(frame) bytes, sealed with the header checksum.  role is at most ROUTE_ROLE_BYTES long (CHECK). */
void frame_encode(const struct frame *frame, unsigned char *bytes);

/* Recompute the header checksum over what stands there. */
void frame_seal(unsigned char *bytes, size_t header_bytes);

/* Compare a message's header with the expected one.  True: every byte is equal.  Otherwise each differing field is
 * added to differences as "field: expected X, got Y", joined by "; ".  Fields come first: the checksum is blamed only
 * when nothing else differs.  Reads at most got_bytes of got, which may be shorter or longer than expected. */
bool frame_compare(const unsigned char *expected, size_t expected_bytes, const unsigned char *got, size_t got_bytes,
                   struct text *differences);

/* What a message's header says, to name it: false when these bytes are no header that its sender has sealed.  role
 * [ROUTE_ROLE_BYTES + 1] gets the role's name with bytes that cannot be printed replaced; ret->role is role.  Numbers
 * are as they came, but ndim, which is at most TENSOR_MAX_NDIM. */
bool frame_read(const unsigned char *bytes, size_t count, struct frame *ret, char *role);

/* Two facts that a caller may look at before (or without) comparing: to name them, or to take an open epoch. */
uint64_t frame_sequence(const unsigned char *bytes);
uint64_t frame_epoch(const unsigned char *bytes);
/* And of a detached header, where only sizes are compared. */
uint64_t frame_payload_bytes(const unsigned char *bytes);
/* And of one that came ahead of its payload, which it is compared with later. */
uint64_t frame_payload_checksum(const unsigned char *bytes);

#endif
