/* Element types of tensors that travel between ranks.  (Packed weights have their own: checkpoint/weight_type.h) */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The numbers are the wire format's: never renumber. */
enum dtype {
    DTYPE_NONE = 0,
    DTYPE_F32 = 1,
    DTYPE_F16 = 2,
    DTYPE_BF16 = 3,
    DTYPE_F64 = 4,
    DTYPE_I8 = 5,
    DTYPE_U8 = 6,
    DTYPE_I32 = 7,
    DTYPE_U32 = 8,
    DTYPE_I64 = 9,
    DTYPE_U64 = 10,
    DTYPE_BOOL = 11,
    DTYPE_COUNT
};

/* Bytes of one element; 0 for a number that is no dtype. */
size_t dtype_bytes(enum dtype dtype);

/* "f32"; "none" for a number that is no dtype. */
const char *dtype_name(enum dtype dtype);

/* The dtype with this name, or DTYPE_NONE. */
enum dtype dtype_from_name(const char *name);

/* IEEE half, and bfloat16, to single: exact. */
static inline float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u;
    uint32_t mantissa = half & 0x3ffu;
    uint32_t bits;
    float value;

    if (exponent == 31) {
        bits = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent) {
        bits = sign | ((exponent + 112u) << 23) | (mantissa << 13);
    } else if (!mantissa) {
        bits = sign;
    } else {
        exponent = 113;
        while (!(mantissa & 0x400u)) {
            mantissa <<= 1;
            exponent--;
        }
        bits = sign | (exponent << 23) | ((mantissa & 0x3ffu) << 13);
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float bf16_to_f32(uint16_t brain)
{
    uint32_t bits = (uint32_t)brain << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Single to half and bfloat16: round to nearest, ties to even; not-a-number stays one. */
uint16_t f32_to_f16(float value);
uint16_t f32_to_bf16(float value);

#endif
