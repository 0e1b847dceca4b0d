/* The reader of GGUF's metadata.
 *
 * The file's first bytes are read into one growing buffer, in pieces, only as far as the counts and lengths already
 * checked against the file's size demand: a file that lies about a count costs no more memory than it has bytes.
 * Values stay where they lie in that buffer; arrays of strings get a table of offsets, so that the vocabulary is
 * reached in constant time.  Keys are sorted once for a binary search. */
#include "checkpoint/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "checkpoint/file.h"
#include "checkpoint/gguf_private.h"

/* Make header[position .. position + bytes) readable. */
static enum status need(struct gguf *gguf, const char *what, uint64_t bytes, struct error *err)
{
    uint64_t left = gguf->file_bytes - gguf->position;
    uint64_t end = gguf->position + bytes;
    size_t target;
    enum status st;

    if (bytes > left)
        return error_set(err, STATUS_MODEL,
                         "%s: %s needs %" PRIu64 " bytes at offset %" PRIu64 ", the file has %" PRIu64, gguf->path,
                         what, bytes, gguf->position, gguf->file_bytes);
    if (end <= gguf->header_bytes)
        return STATUS_OK;
    if (end > GGUF_HEADER_LIMIT)
        return error_set(err, STATUS_MODEL, "%s: %s: more than %" PRIu64 " bytes of metadata", gguf->path, what,
                         GGUF_HEADER_LIMIT);
    if (end > gguf->header_capacity) {
        size_t capacity = end + FILE_PIECE_BYTES < 2 * gguf->header_capacity ? 2 * gguf->header_capacity
                                                                             : (size_t)end + FILE_PIECE_BYTES;
        unsigned char *header;

        if (capacity > gguf->file_bytes)
            capacity = gguf->file_bytes;
        header = realloc(gguf->header, capacity);
        if (!header)
            return error_set(err, STATUS_NOMEM, "%s: %zu bytes of metadata", gguf->path, capacity);
        gguf->header = header;
        gguf->header_capacity = capacity;
    }
    target = gguf->header_capacity - gguf->header_bytes < FILE_PIECE_BYTES ? gguf->header_capacity
                                                                           : gguf->header_bytes + FILE_PIECE_BYTES;
    if (target < end)
        target = end;
    st = file_read(gguf->descriptor, gguf->path, gguf->header_bytes, target - gguf->header_bytes,
                   gguf->header + gguf->header_bytes, err);
    if (st == STATUS_OK)
        gguf->header_bytes = target;
    return st;
}

static enum status read_number(struct gguf *gguf, const char *what, unsigned bytes, uint64_t *ret, struct error *err)
{
    enum status st = need(gguf, what, bytes, err);

    if (st != STATUS_OK)
        return st;
    *ret = gguf_load(gguf->header + gguf->position, bytes);
    gguf->position += bytes;
    return STATUS_OK;
}

enum status gguf_read_u32(struct gguf *gguf, const char *what, uint32_t *ret, struct error *err)
{
    uint64_t number;
    enum status st = read_number(gguf, what, 4, &number, err);

    if (st == STATUS_OK)
        *ret = (uint32_t)number;
    return st;
}

enum status gguf_read_u64(struct gguf *gguf, const char *what, uint64_t *ret, struct error *err)
{
    return read_number(gguf, what, 8, ret, err);
}

enum status gguf_read_string(struct gguf *gguf, const char *what, uint64_t limit, uint64_t *ret_offset,
                             uint64_t *ret_length, struct error *err)
{
    uint64_t length;
    enum status st = read_number(gguf, what, 8, &length, err);

    if (st == STATUS_OK && length > limit)
        return error_set(err, STATUS_MODEL, "%s: %s at offset %" PRIu64 " is %" PRIu64 " bytes long, at most %" PRIu64,
                         gguf->path, what, gguf->position, length, limit);
    if (st == STATUS_OK)
        st = need(gguf, what, length, err);
    if (st != STATUS_OK)
        return st;
    *ret_offset = gguf->position;
    *ret_length = length;
    gguf->position += length;
    return STATUS_OK;
}

static enum status read_type(struct gguf *gguf, const char *what, enum gguf_type *ret, struct error *err)
{
    uint32_t type;
    enum status st = gguf_read_u32(gguf, what, &type, err);

    if (st == STATUS_OK && type >= GGUF_TYPE_COUNT)
        return error_set(err, STATUS_MODEL, "%s: %s has the unknown value type %" PRIu32 " (known: 0 to %d)",
                         gguf->path, what, type, GGUF_TYPE_COUNT - 1);
    if (st == STATUS_OK)
        *ret = (enum gguf_type)type;
    return st;
}

/* The fewest bytes that an item of this type takes: bounds every count. */
static unsigned least_bytes(enum gguf_type type)
{
    if (type == GGUF_STRING)
        return 8;
    return type == GGUF_ARRAY ? 12 : gguf_type_bytes(type);
}

static enum status read_array_head(struct gguf *gguf, const char *what, enum gguf_type *ret_type, uint64_t *ret_count,
                                   struct error *err)
{
    enum status st = read_type(gguf, what, ret_type, err);

    if (st == STATUS_OK)
        st = gguf_read_u64(gguf, what, ret_count, err);
    if (st == STATUS_OK && *ret_count > (gguf->file_bytes - gguf->position) / least_bytes(*ret_type))
        return error_set(err, STATUS_MODEL, "%s: %s says %" PRIu64 " items of type %s, the file has %" PRIu64 " bytes",
                         gguf->path, what, *ret_count, gguf_type_name(*ret_type), gguf->file_bytes);
    return st;
}

static enum status skip_bytes(struct gguf *gguf, const char *what, uint64_t count, unsigned each, struct error *err)
{
    enum status st = need(gguf, what, count * each, err); /* count is bounded by the file's bytes / each */

    if (st == STATUS_OK)
        gguf->position += count * each;
    return st;
}

/* Walk over count items, so that a damaged array is found now; nested ones are not kept. */
static enum status skip_items(struct gguf *gguf, const char *what, enum gguf_type type, uint64_t count, int depth,
                              struct error *err)
{
    enum gguf_type item_type = GGUF_U8;
    uint64_t offset;
    uint64_t item_count = 0;
    enum status st = STATUS_OK;

    if (gguf_type_bytes(type))
        return skip_bytes(gguf, what, count, gguf_type_bytes(type), err);
    if (type == GGUF_ARRAY && depth == GGUF_NESTING_LIMIT)
        return error_set(err, STATUS_MODEL, "%s: %s: arrays nested deeper than %d", gguf->path, what,
                         GGUF_NESTING_LIMIT);
    for (uint64_t i = 0; i < count && st == STATUS_OK; i++) {
        if (type == GGUF_STRING) {
            st = gguf_read_string(gguf, what, GGUF_HEADER_LIMIT, &offset, &item_count, err);
        } else {
            st = read_array_head(gguf, what, &item_type, &item_count, err);
            if (st == STATUS_OK)
                st = skip_items(gguf, what, item_type, item_count, depth + 1, err);
        }
    }
    return st;
}

/* The table of offsets grows with the strings really found, not with the count that the file claims. */
static enum status read_strings(struct gguf *gguf, struct gguf_value *value, struct error *err)
{
    uint64_t capacity = 0;
    enum status st = STATUS_OK;

    for (uint64_t i = 0; i < value->count && st == STATUS_OK; i++) {
        uint64_t offset;
        uint64_t length;

        if (i == capacity) {
            uint64_t more = capacity ? 2 * capacity : 1024;
            uint64_t *offsets =
                reallocarray(value->item_offset, more < value->count ? more : value->count, sizeof *offsets);

            if (!offsets)
                return error_set(err, STATUS_NOMEM, "%s: %s", gguf->path, value->key);
            value->item_offset = offsets;
            capacity = more < value->count ? more : value->count;
        }
        value->item_offset[i] = gguf->position;
        st = gguf_read_string(gguf, value->key, GGUF_HEADER_LIMIT, &offset, &length, err);
    }
    return st;
}

static enum status read_array(struct gguf *gguf, struct gguf_value *value, struct error *err)
{
    enum status st = read_array_head(gguf, value->key, &value->item_type, &value->count, err);

    if (st != STATUS_OK)
        return st;
    value->offset = gguf->position;
    if (value->item_type == GGUF_STRING)
        return read_strings(gguf, value, err);
    return skip_items(gguf, value->key, value->item_type, value->count, 1, err);
}

static enum status read_key(struct gguf *gguf, char **ret, struct error *err)
{
    uint64_t offset;
    uint64_t length;
    const unsigned char *bytes;
    enum status st = gguf_read_string(gguf, "a key", GGUF_KEY_LIMIT, &offset, &length, err);

    if (st != STATUS_OK)
        return st;
    bytes = gguf->header + offset;
    if (!length)
        return error_set(err, STATUS_MODEL, "%s: an empty key at offset %" PRIu64, gguf->path, offset);
    for (uint64_t i = 0; i < length; i++)
        if (bytes[i] < 0x20 || bytes[i] == 0x7f)
            return error_set(err, STATUS_MODEL, "%s: the key at offset %" PRIu64 " holds the control character %u",
                             gguf->path, offset, bytes[i]);
    *ret = strndup((const char *)bytes, length);
    return *ret ? STATUS_OK : error_set(err, STATUS_NOMEM, "%s: keys", gguf->path);
}

static enum status read_value(struct gguf *gguf, struct gguf_value *value, struct error *err)
{
    enum status st = read_key(gguf, &value->key, err);

    value->item_type = GGUF_NONE;
    if (st == STATUS_OK)
        st = read_type(gguf, value->key, &value->type, err);
    if (st != STATUS_OK)
        return st;
    if (value->type == GGUF_ARRAY)
        return read_array(gguf, value, err);
    if (value->type == GGUF_STRING)
        return gguf_read_string(gguf, value->key, GGUF_HEADER_LIMIT, &value->offset, &value->count, err);
    value->offset = gguf->position;
    st = skip_bytes(gguf, value->key, 1, gguf_type_bytes(value->type), err);
    if (st == STATUS_OK && value->type == GGUF_BOOL && gguf->header[value->offset] > 1)
        return error_set(err, STATUS_MODEL, "%s: %s is a bool of value %u", gguf->path, value->key,
                         gguf->header[value->offset]);
    return st;
}

static enum status read_values(struct gguf *gguf, uint64_t count, struct error *err)
{
    size_t capacity = 0;
    enum status st = STATUS_OK;

    if (count > GGUF_KEY_COUNT_LIMIT)
        return error_set(err, STATUS_MODEL, "%s: %" PRIu64 " keys, at most %d are read", gguf->path, count,
                         GGUF_KEY_COUNT_LIMIT);
    while (gguf->value_count < count && st == STATUS_OK) {
        if (gguf->value_count == capacity) {
            struct gguf_value *values;

            capacity = capacity ? 2 * capacity : 64;
            values = reallocarray(gguf->values, capacity, sizeof *values);
            if (!values)
                return error_set(err, STATUS_NOMEM, "%s: %zu keys", gguf->path, capacity);
            gguf->values = values;
        }
        gguf->values[gguf->value_count] = (struct gguf_value){0};
        st = read_value(gguf, &gguf->values[gguf->value_count++], err);
    }
    return st;
}

static int compare_keys(const void *a, const void *b, void *values)
{
    const struct gguf_value *list = values;

    return strcmp(list[*(const size_t *)a].key, list[*(const size_t *)b].key);
}

static enum status sort_keys(struct gguf *gguf, struct error *err)
{
    gguf->by_key = calloc(gguf->value_count + 1, sizeof *gguf->by_key);
    if (!gguf->by_key)
        return error_set(err, STATUS_NOMEM, "%s: %zu keys", gguf->path, gguf->value_count);
    for (size_t i = 0; i < gguf->value_count; i++)
        gguf->by_key[i] = i;
    qsort_r(gguf->by_key, gguf->value_count, sizeof *gguf->by_key, compare_keys, gguf->values);
    for (size_t i = 1; i < gguf->value_count; i++)
        if (!strcmp(gguf->values[gguf->by_key[i - 1]].key, gguf->values[gguf->by_key[i]].key))
            return error_set(err, STATUS_MODEL, "%s: duplicate key '%s'", gguf->path,
                             gguf->values[gguf->by_key[i]].key);
    return STATUS_OK;
}

static enum status refuse_magic(const struct gguf *gguf, const unsigned char *magic, struct error *err)
{
    static const char *const old[] = {"GGML", "ggml", "lmgg", "fmgg", "tjgg", "algg", "GGJT"};

    if (!memcmp(magic, "FUGG", 4))
        return error_set(err, STATUS_UNSUPPORTED, "%s: a big-endian GGUF file (magic FUGG) is not supported",
                         gguf->path);
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (!memcmp(magic, old[i], 4))
            return error_set(err, STATUS_UNSUPPORTED, "%s: not GGUF but an older format of the same family (magic %s)",
                             gguf->path, old[i]);
    return error_set(err, STATUS_MODEL,
                     "%s: not a GGUF file: it begins with the bytes %02x %02x %02x %02x, expected 47 47 55 46 "
                     "(a Hugging Face model is opened by its folder)",
                     gguf->path, magic[0], magic[1], magic[2], magic[3]);
}

/* Magic, version, and the two counts. */
static enum status read_head(struct gguf *gguf, uint64_t *ret_key_count, struct error *err)
{
    const unsigned char *magic;
    enum status st = need(gguf, "the magic", 4, err);

    if (st != STATUS_OK)
        return st;
    magic = gguf->header;
    if (memcmp(magic, "GGUF", 4))
        return refuse_magic(gguf, magic, err);
    gguf->position = 4;
    st = gguf_read_u32(gguf, "the version", &gguf->version, err);
    if (st != STATUS_OK)
        return st;
    if (gguf->version && !(gguf->version & 0xffffu))
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: a big-endian GGUF file (version 0x%08" PRIx32 " read little-endian) is not supported",
                         gguf->path, gguf->version);
    if (gguf->version != 2 && gguf->version != 3)
        return error_set(err, STATUS_UNSUPPORTED, "%s: GGUF version %" PRIu32 " is not supported, only 2 and 3",
                         gguf->path, gguf->version);
    st = gguf_read_u64(gguf, "the tensor count", &gguf->tensor_count, err);
    if (st == STATUS_OK && gguf->tensor_count > GGUF_TENSOR_COUNT_LIMIT)
        return error_set(err, STATUS_MODEL, "%s: %" PRIu64 " tensors, at most %d are read", gguf->path,
                         gguf->tensor_count, GGUF_TENSOR_COUNT_LIMIT);
    if (st == STATUS_OK)
        st = gguf_read_u64(gguf, "the key count", ret_key_count, err);
    return st;
}

static enum status read_alignment(struct gguf *gguf, struct error *err)
{
    const char *key = "general.alignment";

    gguf->alignment = GGUF_DEFAULT_ALIGNMENT;
    if (gguf_value_type(gguf, key) == GGUF_NONE)
        return STATUS_OK;
    if (!gguf_get_u64(gguf, key, &gguf->alignment) || !gguf->alignment || gguf->alignment % 8 ||
        gguf->alignment > GGUF_ALIGNMENT_LIMIT)
        return error_set(err, STATUS_MODEL, "%s: %s is %" PRIu64 " (%s), expected a multiple of 8 up to %" PRIu64,
                         gguf->path, key, gguf->alignment, gguf_type_name(gguf_value_type(gguf, key)),
                         GGUF_ALIGNMENT_LIMIT);
    return STATUS_OK;
}

enum status gguf_read(const char *path, struct gguf **ret, struct error *err)
{
    struct gguf *gguf = calloc(1, sizeof *gguf);
    uint64_t key_count = 0;
    enum status st;

    if (!gguf)
        return error_set(err, STATUS_NOMEM, "%s: metadata", path);
    gguf->descriptor = -1;
    gguf->path = strdup(path);
    st = gguf->path ? file_open(path, &gguf->descriptor, &gguf->file_bytes, err)
                    : error_set(err, STATUS_NOMEM, "%s: metadata", path);
    if (st == STATUS_OK)
        st = read_head(gguf, &key_count, err);
    if (st == STATUS_OK)
        st = read_values(gguf, key_count, err);
    if (st == STATUS_OK)
        st = sort_keys(gguf, err);
    if (st == STATUS_OK)
        st = read_alignment(gguf, err);
    if (st != STATUS_OK) {
        gguf_destroy(gguf);
        return st;
    }
    *ret = gguf;
    return STATUS_OK;
}

void gguf_finish(struct gguf *gguf)
{
    unsigned char *header = realloc(gguf->header, gguf->position ? gguf->position : 1);

    if (header) {
        gguf->header = header;
        gguf->header_bytes = gguf->header_capacity = gguf->position;
    }
    close(gguf->descriptor);
    gguf->descriptor = -1;
}

void gguf_destroy(struct gguf *gguf)
{
    if (!gguf)
        return;
    for (size_t i = 0; i < gguf->value_count; i++) {
        free(gguf->values[i].key);
        free(gguf->values[i].item_offset);
    }
    if (gguf->descriptor >= 0)
        close(gguf->descriptor);
    free(gguf->values);
    free(gguf->by_key);
    free(gguf->header);
    free(gguf->path);
    free(gguf);
}
