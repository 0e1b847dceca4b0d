/* One table of fields serves encoding, comparing and naming; docs/frame.md is the same table for people.
 *
 * Fields of equal alignment lie together so that every number stands at a multiple of its size.  The role's name lies
 * where the extents leave room for it, or else behind everything: then the header grows by FRAME_ALIGN, so that the
 * payload behind stays aligned.  (A short header matters: some MPIs send messages up to 256 bytes at half the cost.) */
#include "comm/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/bytes.h"

enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_FLAGS = 6,
    AT_HEADER_BYTES = 8,
    AT_KIND = 12,
    AT_SESSION_DIGEST = 16,
    AT_OBJECT_ID = 24,
    AT_OPERATION = 28,
    AT_FROM = 32,
    AT_ROUND = 36,
    AT_PIECE = 40,
    AT_PIECE_COUNT = 44,
    AT_SEQUENCE = 48,
    AT_EPOCH = 56,
    AT_SEND_COUNT = 64,
    AT_RECEIVE_COUNT = 72,
    AT_SCHEMA_DIGEST = 80,
    AT_ROLE_ORDINAL = 88,
    AT_ROLE_COUNT = 90,
    AT_DTYPE = 92,
    AT_NDIM = 94,
    AT_EXTENT = 96, /* 8 of 8 bytes */
    AT_PAYLOAD_BYTES = 160,
    AT_PAYLOAD_CHECKSUM = 168,
    AT_HEADER_CHECKSUM = 176,
    AT_ROLE_BYTES = 184,
    AT_ROOT = 188,
    AT_TAIL = FRAME_FIXED_BYTES
};

_Static_assert(AT_ROOT + 4 == FRAME_FIXED_BYTES, "a long role's name follows the fixed fields");
_Static_assert(AT_EXTENT + 8 * TENSOR_MAX_NDIM == AT_PAYLOAD_BYTES, "room for all extents, or for fewer and a role");
_Static_assert((int)FRAME_MAX_BYTES <= (int)TENSOR_HEADROOM, "a header fits a tensor's headroom");
_Static_assert(FRAME_FIXED_BYTES + ROUTE_ROLE_BYTES <= FRAME_MAX_BYTES, "the longest role fits");

enum form { FORM_NUMBER, FORM_HEX, FORM_DTYPE, FORM_OPERATION, FORM_KIND };

static const struct field {
    const char *name;
    int at;
    int bytes;
    enum form form;
} fields[] = {
    {"magic", AT_MAGIC, 4, FORM_HEX},
    {"version", AT_VERSION, 2, FORM_NUMBER},
    {"flags", AT_FLAGS, 2, FORM_HEX},
    {"header bytes", AT_HEADER_BYTES, 4, FORM_NUMBER},
    {"kind", AT_KIND, 4, FORM_KIND},
    {"session digest", AT_SESSION_DIGEST, 8, FORM_HEX},
    {"object id", AT_OBJECT_ID, 4, FORM_NUMBER},
    {"operation", AT_OPERATION, 4, FORM_OPERATION},
    {"sender", AT_FROM, 4, FORM_NUMBER},
    {"round", AT_ROUND, 4, FORM_NUMBER},
    {"piece", AT_PIECE, 4, FORM_NUMBER},
    {"piece count", AT_PIECE_COUNT, 4, FORM_NUMBER},
    {"sequence", AT_SEQUENCE, 8, FORM_NUMBER},
    {"epoch", AT_EPOCH, 8, FORM_NUMBER},
    {"send count", AT_SEND_COUNT, 8, FORM_NUMBER},
    {"receive count", AT_RECEIVE_COUNT, 8, FORM_NUMBER},
    {"schema digest", AT_SCHEMA_DIGEST, 8, FORM_HEX},
    {"role ordinal", AT_ROLE_ORDINAL, 2, FORM_NUMBER},
    {"role count", AT_ROLE_COUNT, 2, FORM_NUMBER},
    {"dtype", AT_DTYPE, 2, FORM_DTYPE},
    {"ndim", AT_NDIM, 2, FORM_NUMBER},
    {"extent 0", AT_EXTENT, 8, FORM_NUMBER},
    {"extent 1", AT_EXTENT + 8, 8, FORM_NUMBER},
    {"extent 2", AT_EXTENT + 16, 8, FORM_NUMBER},
    {"extent 3", AT_EXTENT + 24, 8, FORM_NUMBER},
    {"extent 4", AT_EXTENT + 32, 8, FORM_NUMBER},
    {"extent 5", AT_EXTENT + 40, 8, FORM_NUMBER},
    {"extent 6", AT_EXTENT + 48, 8, FORM_NUMBER},
    {"extent 7", AT_EXTENT + 56, 8, FORM_NUMBER},
    {"payload bytes", AT_PAYLOAD_BYTES, 8, FORM_NUMBER},
    {"payload checksum", AT_PAYLOAD_CHECKSUM, 8, FORM_HEX},
    {"role length", AT_ROLE_BYTES, 4, FORM_NUMBER},
    {"root or axis", AT_ROOT, 4, FORM_NUMBER},
};

static size_t role_bytes(const struct frame *frame)
{
    return frame->role ? strlen(frame->role) : 0;
}

/* Where a role of so many bytes stands beside so many extents. */
static size_t role_place(int ndim, size_t role)
{
    size_t behind = AT_EXTENT + 8 * (size_t)ndim;

    return role <= AT_PAYLOAD_BYTES - behind ? behind : AT_TAIL;
}

size_t frame_bytes(const struct frame *frame)
{
    return role_place(frame->shape.ndim, role_bytes(frame)) == AT_TAIL ? FRAME_MAX_BYTES : FRAME_FIXED_BYTES;
}

void frame_seal(unsigned char *bytes, size_t header_bytes)
{
    put_u64(bytes + AT_HEADER_CHECKSUM, 0);
    put_u64(bytes + AT_HEADER_CHECKSUM, XXH3_64bits(bytes, header_bytes));
}

void frame_encode(const struct frame *frame, unsigned char *bytes)
{
    size_t role = role_bytes(frame);
    size_t place = role_place(frame->shape.ndim, role);
    size_t all = place == AT_TAIL ? FRAME_MAX_BYTES : FRAME_FIXED_BYTES;

    CHECK(role <= ROUTE_ROLE_BYTES);
    memset(bytes + AT_EXTENT, 0, AT_PAYLOAD_BYTES - AT_EXTENT); /* all before and behind is written */
    memset(bytes + AT_TAIL, 0, all - AT_TAIL);
    put_u32(bytes + AT_MAGIC, FRAME_MAGIC);
    put_u16(bytes + AT_VERSION, FRAME_VERSION);
    put_u16(bytes + AT_FLAGS, frame->flags);
    put_u32(bytes + AT_HEADER_BYTES, (uint32_t)all);
    put_u32(bytes + AT_KIND, frame->kind);
    put_u64(bytes + AT_SESSION_DIGEST, frame->session_digest);
    put_u32(bytes + AT_OBJECT_ID, frame->object_id);
    put_u32(bytes + AT_OPERATION, frame->operation);
    put_u32(bytes + AT_FROM, frame->from);
    put_u32(bytes + AT_ROUND, frame->round);
    put_u32(bytes + AT_PIECE, frame->piece);
    put_u32(bytes + AT_PIECE_COUNT, frame->piece_count);
    put_u64(bytes + AT_SEQUENCE, frame->sequence);
    put_u64(bytes + AT_EPOCH, frame->epoch);
    put_u64(bytes + AT_SEND_COUNT, frame->send_count);
    put_u64(bytes + AT_RECEIVE_COUNT, frame->receive_count);
    put_u64(bytes + AT_SCHEMA_DIGEST, frame->schema_digest);
    put_u16(bytes + AT_ROLE_ORDINAL, frame->role_ordinal);
    put_u16(bytes + AT_ROLE_COUNT, frame->role_count);
    put_u16(bytes + AT_DTYPE, (uint16_t)frame->dtype);
    put_u16(bytes + AT_NDIM, (uint16_t)frame->shape.ndim);
    for (int i = 0; i < frame->shape.ndim; i++)
        put_u64(bytes + AT_EXTENT + 8 * i, frame->shape.dim[i]);
    put_u64(bytes + AT_PAYLOAD_BYTES, frame->payload_bytes);
    put_u64(bytes + AT_PAYLOAD_CHECKSUM, frame->payload_checksum);
    put_u32(bytes + AT_ROLE_BYTES, (uint32_t)role);
    put_u32(bytes + AT_ROOT, frame->root_or_axis);
    if (role)
        memcpy(bytes + place, frame->role, role);
    frame_seal(bytes, all);
}

static uint64_t field_value(const struct field *field, const unsigned char *bytes)
{
    switch (field->bytes) {
    case 2:
        return get_u16(bytes + field->at);
    case 4:
        return get_u32(bytes + field->at);
    default:
        return get_u64(bytes + field->at);
    }
}

static void value_text(enum form form, uint64_t value, char *text, size_t text_bytes)
{
    const char *word = NULL;

    if (form == FORM_DTYPE && value < DTYPE_COUNT)
        word = dtype_name((enum dtype)value);
    else if (form == FORM_OPERATION && value < OPERATION_COUNT)
        word = operation_name((enum operation)value);
    else if (form == FORM_KIND && (value == FRAME_ROUTE || value == FRAME_COLLECTIVE))
        word = value == FRAME_ROUTE ? "route" : "collective";
    if (word)
        (void)snprintf(text, text_bytes, "%s", word);
    else if (form == FORM_NUMBER)
        (void)snprintf(text, text_bytes, "%" PRIu64, value);
    else
        (void)snprintf(text, text_bytes, "0x%" PRIx64, value);
}

static void difference(struct text *out, const char *name, const char *expected, const char *got)
{
    text_add(out, "%s%s: expected %s, got %s", out->length ? "; " : "", name, expected, got);
}

static void compare_field(const struct field *field, const unsigned char *expected, const unsigned char *got,
                          struct text *out)
{
    char one[32];
    char other[32];

    if (!memcmp(expected + field->at, got + field->at, (size_t)field->bytes))
        return;
    value_text(field->form, field_value(field, expected), one, sizeof one);
    value_text(field->form, field_value(field, got), other, sizeof other);
    difference(out, field->name, one, other);
}

/* Where the role's name stands in these bytes [at least FRAME_MIN_BYTES], and its length, as they say themselves.
 * False: they contradict themselves. */
static bool find_role(const unsigned char *bytes, size_t count, size_t *ret_place, size_t *ret_length)
{
    uint16_t ndim = get_u16(bytes + AT_NDIM);
    uint32_t length = get_u32(bytes + AT_ROLE_BYTES);

    if (ndim > TENSOR_MAX_NDIM || length > ROUTE_ROLE_BYTES)
        return false;
    *ret_place = role_place(ndim, length);
    *ret_length = length;
    return *ret_place + length <= count;
}

/* Bytes from a peer on their way to a terminal: printable ones as they are, the others as ?. */
static void role_text(const unsigned char *role, size_t count, char *text)
{
    size_t n = 0;

    for (; n < count && n < ROUTE_ROLE_BYTES && role[n]; n++)
        text[n] = role[n] >= ' ' && role[n] < 127 ? (char)role[n] : '?';
    text[n] = '\0';
}

/* Two headers that have their names in different places: the names alone. */
static void compare_roles(const unsigned char *expected, size_t place, size_t length, const unsigned char *got,
                          size_t got_place, size_t got_length, struct text *out)
{
    char one[ROUTE_ROLE_BYTES + 1] = "";
    char other[ROUTE_ROLE_BYTES + 1] = "";

    role_text(expected + place, length, one);
    role_text(got + got_place, got_length, other);
    if (strcmp(one, other) != 0)
        difference(out, "role", one, other);
}

/* Zeros from here to there. */
static void compare_padding(const unsigned char *got, size_t from, size_t to, struct text *out)
{
    char name[48];
    char value[32];

    for (size_t at = from; at < to; at++) {
        if (!got[at])
            continue;
        (void)snprintf(name, sizeof name, "padding byte %zu", at);
        (void)snprintf(value, sizeof value, "0x%x", got[at]);
        difference(out, name, "0x0", value);
    }
}

static bool same(const unsigned char *one, const unsigned char *other, size_t from, size_t to)
{
    return from >= to || !memcmp(one + from, other + from, to - from);
}

/* The role's name and the zeros around it. */
static void compare_role(const unsigned char *expected, size_t expected_bytes, const unsigned char *got,
                         size_t got_bytes, struct text *out)
{
    size_t both = expected_bytes < got_bytes ? expected_bytes : got_bytes;
    size_t extents = AT_EXTENT + 8 * (size_t)get_u16(expected + AT_NDIM);
    size_t place = 0;
    size_t length = 0;
    size_t got_place = 0;
    size_t got_length = 0;
    char one[ROUTE_ROLE_BYTES + 1] = "";
    char other[ROUTE_ROLE_BYTES + 1] = "";

    CHECK(find_role(expected, expected_bytes, &place, &length));
    if (both < FRAME_MIN_BYTES ||
        (same(expected, got, AT_EXTENT, AT_PAYLOAD_BYTES) && same(expected, got, AT_TAIL, both)))
        return;
    if (find_role(got, got_bytes, &got_place, &got_length) &&
        (got_place != place || get_u16(got + AT_NDIM) != get_u16(expected + AT_NDIM))) {
        compare_roles(expected, place, length, got, got_place, got_length, out);
        return;
    }
    if (!same(expected, got, place, place + length < both ? place + length : both)) {
        role_text(expected + place, (place == AT_TAIL ? expected_bytes : AT_PAYLOAD_BYTES) - place, one);
        role_text(got + place, (place == AT_TAIL ? both : AT_PAYLOAD_BYTES) - place, other);
        difference(out, "role", one, other);
    }
    compare_padding(got, place == AT_TAIL ? extents : place + length, AT_PAYLOAD_BYTES, out);
    if (place == AT_TAIL)
        compare_padding(got, place + length, both, out);
}

/* The message is another tensor's, or shorter than any header: name what can be named. */
static void compare_sizes(size_t expected_bytes, size_t got_bytes, struct text *out)
{
    char one[32];
    char other[32];

    if (got_bytes >= expected_bytes)
        return;
    (void)snprintf(one, sizeof one, "at least %zu", expected_bytes);
    (void)snprintf(other, sizeof other, "%zu", got_bytes);
    difference(out, "message bytes", one, other);
}

/* Extents that both have: what stands behind the last is a name, or zeros. */
static int extent_count(const unsigned char *expected, const unsigned char *got, size_t got_bytes)
{
    uint16_t ndim = get_u16(expected + AT_NDIM);
    uint16_t other = got_bytes >= AT_NDIM + 2 ? get_u16(got + AT_NDIM) : ndim;

    return other < ndim ? other : ndim;
}

static bool is_extent(const struct field *field)
{
    return field->at >= AT_EXTENT && field->at < AT_PAYLOAD_BYTES;
}

bool frame_compare(const unsigned char *expected, size_t expected_bytes, const unsigned char *got, size_t got_bytes,
                   struct text *differences)
{
    size_t before = differences->length;
    int extents = 0;

    if (got_bytes >= expected_bytes && !memcmp(expected, got, expected_bytes))
        return true;
    compare_sizes(expected_bytes, got_bytes, differences);
    extents = extent_count(expected, got, got_bytes);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (is_extent(&fields[i]) && fields[i].at >= AT_EXTENT + 8 * extents)
            continue;
        if ((size_t)(fields[i].at + fields[i].bytes) <= got_bytes)
            compare_field(&fields[i], expected, got, differences);
    }
    compare_role(expected, expected_bytes, got, got_bytes, differences);
    if (differences->length == before && got_bytes >= expected_bytes) {
        static const struct field checksum = {"header checksum", AT_HEADER_CHECKSUM, 8, FORM_HEX};

        compare_field(&checksum, expected, got, differences);
    }
    return false;
}

/* Is it a header, whole, whose checksum its sender computed over these very bytes? */
static bool is_sealed(const unsigned char *bytes, size_t count)
{
    unsigned char copy[FRAME_MAX_BYTES];
    size_t header;
    size_t place = 0;
    size_t length = 0;

    if (count < FRAME_MIN_BYTES || get_u32(bytes + AT_MAGIC) != FRAME_MAGIC ||
        get_u16(bytes + AT_VERSION) != FRAME_VERSION)
        return false;
    header = get_u32(bytes + AT_HEADER_BYTES);
    if (header < FRAME_MIN_BYTES || header > FRAME_MAX_BYTES || header > count)
        return false;
    memcpy(copy, bytes, header);
    frame_seal(copy, header);
    return !memcmp(copy, bytes, header) && find_role(bytes, header, &place, &length);
}

bool frame_read(const unsigned char *bytes, size_t count, struct frame *ret, char *role)
{
    size_t place = 0;
    size_t length = 0;

    if (!is_sealed(bytes, count))
        return false;
    *ret = (struct frame){.flags = get_u16(bytes + AT_FLAGS),
                          .kind = (enum frame_kind)get_u32(bytes + AT_KIND),
                          .session_digest = get_u64(bytes + AT_SESSION_DIGEST),
                          .object_id = get_u32(bytes + AT_OBJECT_ID),
                          .operation = (enum operation)get_u32(bytes + AT_OPERATION),
                          .from = get_u32(bytes + AT_FROM),
                          .round = get_u32(bytes + AT_ROUND),
                          .piece = get_u32(bytes + AT_PIECE),
                          .piece_count = get_u32(bytes + AT_PIECE_COUNT),
                          .root_or_axis = get_u32(bytes + AT_ROOT),
                          .sequence = get_u64(bytes + AT_SEQUENCE),
                          .epoch = get_u64(bytes + AT_EPOCH),
                          .send_count = get_u64(bytes + AT_SEND_COUNT),
                          .receive_count = get_u64(bytes + AT_RECEIVE_COUNT),
                          .schema_digest = get_u64(bytes + AT_SCHEMA_DIGEST),
                          .role_ordinal = get_u16(bytes + AT_ROLE_ORDINAL),
                          .role_count = get_u16(bytes + AT_ROLE_COUNT),
                          .dtype = (enum dtype)get_u16(bytes + AT_DTYPE),
                          .shape.ndim = get_u16(bytes + AT_NDIM),
                          .payload_bytes = get_u64(bytes + AT_PAYLOAD_BYTES),
                          .payload_checksum = get_u64(bytes + AT_PAYLOAD_CHECKSUM),
                          .role = role};
    for (int i = 0; i < ret->shape.ndim; i++)
        ret->shape.dim[i] = get_u64(bytes + AT_EXTENT + 8 * i);
    if (find_role(bytes, get_u32(bytes + AT_HEADER_BYTES), &place, &length))
        role_text(bytes + place, length, role);
    else
        role[0] = '\0';
    return true;
}

uint64_t frame_sequence(const unsigned char *bytes)
{
    return get_u64(bytes + AT_SEQUENCE);
}

uint64_t frame_payload_bytes(const unsigned char *bytes)
{
    return get_u64(bytes + AT_PAYLOAD_BYTES);
}

uint64_t frame_payload_checksum(const unsigned char *bytes)
{
    return get_u64(bytes + AT_PAYLOAD_CHECKSUM);
}

uint64_t frame_epoch(const unsigned char *bytes)
{
    return get_u64(bytes + AT_EPOCH);
}
