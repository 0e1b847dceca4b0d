/* The types of GGUF's metadata, and the getters: a binary search for the key, then a load from the header's bytes,
 * which were checked when they were read. */
#include <string.h>

#include "checkpoint/gguf_private.h"

static const struct {
    const char *name;
    unsigned bytes; /* 0: not of one size */
} types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},         [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},     [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},
    [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? types[type].name : "none";
}

unsigned gguf_type_bytes(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? types[type].bytes : 0;
}

uint64_t gguf_load(const unsigned char *bytes, unsigned count)
{
    uint64_t number = 0;

    while (count--)
        number = number << 8 | bytes[count];
    return number;
}

static const struct gguf_value *find(const struct gguf *gguf, const char *key)
{
    size_t low = 0;
    size_t high = gguf->value_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct gguf_value *value = &gguf->values[gguf->by_key[middle]];
        int order = strcmp(key, value->key);

        if (!order)
            return value;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

enum gguf_type gguf_value_type(const struct gguf *gguf, const char *key)
{
    const struct gguf_value *value = find(gguf, key);

    return value ? value->type : GGUF_NONE;
}

/* An integer as sign and magnitude. */
static bool get_integer(const unsigned char *bytes, enum gguf_type type, bool *ret_negative, uint64_t *ret)
{
    unsigned count = gguf_type_bytes(type);
    bool has_sign = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    uint64_t number;

    if (!count || type == GGUF_F32 || type == GGUF_F64 || type == GGUF_BOOL)
        return false;
    number = gguf_load(bytes, count);
    *ret_negative = has_sign && number >> (8 * count - 1);
    if (*ret_negative)
        number = ((~(uint64_t)0 >> (64 - 8 * count)) - number) + 1;
    *ret = number;
    return true;
}

static bool get_i64(const unsigned char *bytes, enum gguf_type type, int64_t *ret)
{
    bool negative;
    uint64_t magnitude;

    if (!get_integer(bytes, type, &negative, &magnitude) || magnitude > (uint64_t)INT64_MAX + negative)
        return false;
    *ret = negative ? (int64_t)(~magnitude + 1) : (int64_t)magnitude;
    return true;
}

static bool get_f64(const unsigned char *bytes, enum gguf_type type, double *ret)
{
    bool negative;
    uint64_t number;

    if (type == GGUF_F32) {
        uint32_t bits = (uint32_t)gguf_load(bytes, 4);
        float single;

        memcpy(&single, &bits, sizeof single);
        *ret = (double)single;
        return true;
    }
    if (type == GGUF_F64) {
        number = gguf_load(bytes, 8);
        memcpy(ret, &number, sizeof *ret);
        return true;
    }
    if (!get_integer(bytes, type, &negative, &number))
        return false;
    *ret = negative ? -(double)number : (double)number;
    return true;
}

bool gguf_get_u64(const struct gguf *gguf, const char *key, uint64_t *ret)
{
    const struct gguf_value *value = find(gguf, key);
    bool negative;
    uint64_t number;

    if (!value || !get_integer(gguf->header + value->offset, value->type, &negative, &number) || negative)
        return false;
    *ret = number;
    return true;
}

bool gguf_get_i64(const struct gguf *gguf, const char *key, int64_t *ret)
{
    const struct gguf_value *value = find(gguf, key);

    return value && get_i64(gguf->header + value->offset, value->type, ret);
}

bool gguf_get_f64(const struct gguf *gguf, const char *key, double *ret)
{
    const struct gguf_value *value = find(gguf, key);

    return value && get_f64(gguf->header + value->offset, value->type, ret);
}

bool gguf_get_bool(const struct gguf *gguf, const char *key, bool *ret)
{
    const struct gguf_value *value = find(gguf, key);

    if (!value || value->type != GGUF_BOOL)
        return false;
    *ret = gguf->header[value->offset] != 0;
    return true;
}

bool gguf_get_string(const struct gguf *gguf, const char *key, const char **ret, size_t *ret_length)
{
    const struct gguf_value *value = find(gguf, key);

    if (!value || value->type != GGUF_STRING)
        return false;
    *ret = (const char *)gguf->header + value->offset;
    *ret_length = value->count;
    return true;
}

static const struct gguf_value *find_array(const struct gguf *gguf, const char *key)
{
    const struct gguf_value *value = find(gguf, key);

    return value && value->type == GGUF_ARRAY ? value : NULL;
}

size_t gguf_array_count(const struct gguf *gguf, const char *key)
{
    const struct gguf_value *value = find_array(gguf, key);

    return value ? value->count : 0;
}

enum gguf_type gguf_array_type(const struct gguf *gguf, const char *key)
{
    const struct gguf_value *value = find_array(gguf, key);

    return value ? value->item_type : GGUF_NONE;
}

const char *gguf_array_string(const struct gguf *gguf, const char *key, size_t index, size_t *ret_length)
{
    const struct gguf_value *value = find_array(gguf, key);
    const unsigned char *item;

    if (!value || value->item_type != GGUF_STRING || index >= value->count)
        return NULL;
    item = gguf->header + value->item_offset[index];
    *ret_length = gguf_load(item, 8);
    return (const char *)item + 8;
}

/* The bytes of a plain item, or NULL. */
static const unsigned char *plain_item(const struct gguf *gguf, const struct gguf_value *value, size_t index)
{
    if (!value || index >= value->count)
        return NULL;
    return gguf->header + value->offset + index * gguf_type_bytes(value->item_type);
}

bool gguf_array_i64(const struct gguf *gguf, const char *key, size_t index, int64_t *ret)
{
    const struct gguf_value *value = find_array(gguf, key);
    const unsigned char *item = plain_item(gguf, value, index);

    return item && get_i64(item, value->item_type, ret);
}

bool gguf_array_f64(const struct gguf *gguf, const char *key, size_t index, double *ret)
{
    const struct gguf_value *value = find_array(gguf, key);
    const unsigned char *item = plain_item(gguf, value, index);

    return item && get_f64(item, value->item_type, ret);
}

size_t gguf_key_count(const struct gguf *gguf)
{
    return gguf->value_count;
}

const char *gguf_key(const struct gguf *gguf, size_t index)
{
    return index < gguf->value_count ? gguf->values[index].key : NULL;
}
