/* The tree is walked once per block of elements, so that partial sums stay in the first-level cache.
 *
 * A subtree writes its sum to a block buffer of its own; depth is log2 of the members. */
#include "comm/reduce.h"

#include <stdint.h>
#include <string.h>

#include "base/elements.h"

enum { BLOCK = 512, PARTIAL_BYTES = 8 };

bool reduce_supports(enum dtype dtype)
{
    return dtype_bytes(dtype) && dtype != DTYPE_BOOL;
}

enum dtype reduce_partial(enum dtype dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? DTYPE_F32 : dtype;
}

void reduce_widen(enum dtype dtype, const void *in, size_t count, void *out)
{
    if (reduce_partial(dtype) != dtype)
        elements_widen(dtype, in, count, out);
    else if (count)
        memcpy(out, in, count * dtype_bytes(dtype));
}

void reduce_narrow(enum dtype dtype, const void *in, size_t count, void *out)
{
    if (reduce_partial(dtype) != dtype)
        elements_narrow(dtype, in, count, out);
    else if (count && in != out)
        memcpy(out, in, count * dtype_bytes(dtype));
}

/* One block of the tree over in[low..high), from element at on. */
static void tree_block(enum dtype dtype, const void *const *in, int low, int high, size_t at, size_t count, void *out)
{
    _Alignas(64) unsigned char right[BLOCK * PARTIAL_BYTES];
    int mid = low + (high - low + 1) / 2;

    if (high - low == 1) {
        reduce_widen(dtype, (const unsigned char *)in[low] + at * dtype_bytes(dtype), count, out);
        return;
    }
    tree_block(dtype, in, low, mid, at, count, out);
    tree_block(dtype, in, mid, high, at, count, right);
    elements_add(reduce_partial(dtype), out, right, count);
}

/* Two members of a dtype that is its own partial: no copies. */
#define SUM(type)                                                                                                      \
    do {                                                                                                               \
        const type *one = left;                                                                                        \
        const type *other = right;                                                                                     \
        type *to = out;                                                                                                \
        for (size_t k = 0; k < count; k++)                                                                             \
            to[k] = (type)(one[k] + other[k]);                                                                         \
    } while (0)

static void sum_two(enum dtype dtype, const void *left, const void *right, size_t count, void *out)
{
    switch (dtype) {
    case DTYPE_F32:
        SUM(float);
        break;
    case DTYPE_F64:
        SUM(double);
        break;
    case DTYPE_I8:
    case DTYPE_U8:
        SUM(uint8_t);
        break;
    case DTYPE_I32:
    case DTYPE_U32:
        SUM(uint32_t);
        break;
    default:
        SUM(uint64_t);
        break;
    }
}

void reduce_tree(enum dtype dtype, const void *const *in, int members, size_t count, void *out)
{
    _Alignas(64) unsigned char sum[BLOCK * PARTIAL_BYTES];

    if (members == 2 && reduce_partial(dtype) == dtype) {
        if (out == in[0])
            elements_add(dtype, out, in[1], count);
        else
            sum_two(dtype, in[0], in[1], count, out);
        return;
    }
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t block = count - at < BLOCK ? count - at : BLOCK;

        tree_block(dtype, in, 0, members, at, block, sum);
        reduce_narrow(dtype, sum, block, (unsigned char *)out + at * dtype_bytes(dtype));
    }
}
