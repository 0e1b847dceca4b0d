/* Names and widths of the element types, and the two narrowing conversions. */
#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
} table[DTYPE_COUNT] = {
    [DTYPE_NONE] = {"none", 0}, [DTYPE_F32] = {"f32", 4}, [DTYPE_F16] = {"f16", 2},
    [DTYPE_BF16] = {"bf16", 2}, [DTYPE_F64] = {"f64", 8}, [DTYPE_I8] = {"i8", 1},
    [DTYPE_U8] = {"u8", 1},     [DTYPE_I32] = {"i32", 4}, [DTYPE_U32] = {"u32", 4},
    [DTYPE_I64] = {"i64", 8},   [DTYPE_U64] = {"u64", 8}, [DTYPE_BOOL] = {"bool", 1},
};

size_t dtype_bytes(enum dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT ? table[dtype].bytes : 0;
}

const char *dtype_name(enum dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT ? table[dtype].name : "none";
}

enum dtype dtype_from_name(const char *name)
{
    for (int i = 1; i < DTYPE_COUNT; i++)
        if (!strcmp(table[i].name, name))
            return (enum dtype)i;
    return DTYPE_NONE;
}

uint16_t f32_to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t f32_to_f16(float value)
{
    uint32_t bits;
    uint32_t sign;
    uint32_t mantissa;
    int exponent;

    memcpy(&bits, &value, sizeof bits);
    sign = (bits >> 16) & 0x8000u;
    exponent = (int)((bits >> 23) & 255u) - 127;
    mantissa = bits & 0x7fffffu;
    if (exponent == 128)
        return (uint16_t)(sign | 0x7c00u | (mantissa ? 0x200u | (mantissa >> 13) : 0));
    if (exponent > 15)
        return (uint16_t)(sign | 0x7c00u);
    if (exponent < -25)
        return (uint16_t)sign;
    mantissa |= 0x800000u;
    /* A subnormal half loses one more bit for every step below the least normal exponent. */
    int shift = exponent < -14 ? 13 + (-14 - exponent) : 13;
    uint32_t base = exponent < -14 ? 0 : (uint32_t)(exponent + 14) << 10;
    uint32_t half = base + (mantissa >> shift);
    uint32_t rest = mantissa & ((1u << shift) - 1u);
    uint32_t middle = 1u << (shift - 1);

    if (rest > middle || (rest == middle && (half & 1u)))
        half++;
    return (uint16_t)(sign | half);
}
