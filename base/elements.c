/* Plain loops, which the compiler makes vectors of. */
#include "base/elements.h"

#define ADD(type)                                                                                                      \
    do {                                                                                                               \
        type *restrict to = left;                                                                                      \
        const type *restrict from = right;                                                                             \
        for (size_t k = 0; k < count; k++)                                                                             \
            to[k] = (type)(to[k] + from[k]);                                                                           \
    } while (0)

void elements_add(enum dtype dtype, void *left, const void *right, size_t count)
{
    switch (dtype) {
    case DTYPE_F32:
        ADD(float);
        break;
    case DTYPE_F64:
        ADD(double);
        break;
    case DTYPE_I8:
    case DTYPE_U8:
        ADD(uint8_t);
        break;
    case DTYPE_I32:
    case DTYPE_U32:
        ADD(uint32_t);
        break;
    default:
        ADD(uint64_t);
        break;
    }
}

void elements_widen(enum dtype from, const void *in, size_t count, float *out)
{
    const uint16_t *half = in;

    if (from == DTYPE_F16) {
        for (size_t k = 0; k < count; k++)
            out[k] = f16_to_f32(half[k]);
    } else {
        for (size_t k = 0; k < count; k++)
            out[k] = bf16_to_f32(half[k]);
    }
}

void elements_narrow(enum dtype to, const float *in, size_t count, void *out)
{
    uint16_t *half = out;

    if (to == DTYPE_F16) {
        for (size_t k = 0; k < count; k++)
            half[k] = f32_to_f16(in[k]);
    } else {
        for (size_t k = 0; k < count; k++)
            half[k] = f32_to_bf16(in[k]);
    }
}
