/* Bytes depend on source, target, tensor and place, so that data of another member, another transfer or another place
 * are told apart.  At most 33 members bring something to one place of a sum, at most 4 each: 132 at most, exact in
 * bf16. */
#include "launcher/check_pattern.h"

#include <string.h>

enum { ADDING_MEMBERS = 32 };

static unsigned char byte_of(struct pattern who, enum dtype dtype, size_t at)
{
    size_t mixed = (size_t)who.source * 37 + (size_t)(who.target + 1) * 101 + (size_t)who.tensor * 59 + at * 11 +
                   (at >> 8) * 7 + (at >> 16) * 3 + 1;

    return (unsigned char)(dtype == DTYPE_BOOL ? mixed >> 2 & 1 : mixed);
}

void pattern_fill(struct tensor *tensor, const struct slab *slab, uint64_t start, uint64_t count, struct pattern who)
{
    size_t run = (size_t)count * slab->inner_bytes;

    for (size_t outer = 0; outer < slab->outer; outer++) {
        unsigned char *bytes = tensor->data + (outer * slab->extent + (size_t)start) * slab->inner_bytes;

        for (size_t i = 0; i < run; i++)
            bytes[i] = byte_of(who, tensor->dtype, outer * run + i);
    }
}

bool pattern_holds(const struct tensor *tensor, const struct slab *slab, uint64_t start, uint64_t count,
                   struct pattern who, size_t *ret_byte, unsigned char *ret_expected)
{
    size_t run = (size_t)count * slab->inner_bytes;

    for (size_t outer = 0; outer < slab->outer; outer++) {
        size_t first = (outer * slab->extent + (size_t)start) * slab->inner_bytes;

        for (size_t i = 0; i < run; i++) {
            unsigned char expected = byte_of(who, tensor->dtype, outer * run + i);

            if (tensor->data[first + i] == expected)
                continue;
            *ret_byte = first + i;
            *ret_expected = expected;
            return false;
        }
    }
    return true;
}

static unsigned addend(int member, int size, size_t element)
{
    size_t stride = ((size_t)size + ADDING_MEMBERS - 1) / ADDING_MEMBERS;

    if (((size_t)member + element) % stride)
        return 0;
    return (unsigned)(((size_t)member * 7 + element * 13) % 4 + 1);
}

/* value as one element. */
static void put_number(enum dtype dtype, unsigned value, unsigned char *to)
{
    uint64_t whole = value;
    float single = (float)value;
    double wide = value;
    uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(single) : f32_to_bf16(single);

    if (dtype == DTYPE_F32)
        memcpy(to, &single, sizeof single);
    else if (dtype == DTYPE_F64)
        memcpy(to, &wide, sizeof wide);
    else if (dtype == DTYPE_F16 || dtype == DTYPE_BF16)
        memcpy(to, &half, sizeof half);
    else
        memcpy(to, &whole, dtype_bytes(dtype)); /* little-endian: its low bytes */
}

void pattern_fill_addends(struct tensor *tensor, int member, int size)
{
    size_t width = dtype_bytes(tensor->dtype);

    for (size_t i = 0; i < tensor->bytes / width; i++)
        put_number(tensor->dtype, addend(member, size, i), tensor->data + i * width);
}

bool pattern_holds_sums(const struct tensor *tensor, int size, size_t *ret_byte, unsigned char *ret_expected)
{
    size_t width = dtype_bytes(tensor->dtype);

    for (size_t i = 0; i < tensor->bytes / width; i++) {
        unsigned char expected[8];
        unsigned sum = 0;

        for (int member = 0; member < size; member++)
            sum += addend(member, size, i);
        put_number(tensor->dtype, sum, expected);
        for (size_t k = 0; k < width; k++) {
            if (tensor->data[i * width + k] == expected[k])
                continue;
            *ret_byte = i * width + k;
            *ret_expected = expected[k];
            return false;
        }
    }
    return true;
}
