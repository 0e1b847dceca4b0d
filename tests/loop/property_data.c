/* What members contribute, and what a sum must be: written from the definition alone. */
#include "tests/loop/property.h"

#include <string.h>

static uint64_t bits_of(const struct property_case *c, int from, int to, size_t k)
{
    return property_mix(c->seed ^ ((uint64_t)(from + 1) << 40) ^ ((uint64_t)(to + 1) << 50) ^ k);
}

unsigned char property_byte(const struct property_case *c, int from, int to, size_t k)
{
    return (unsigned char)(bits_of(c, from, to, k / 8) >> (k % 8 * 8));
}

/* Thirds of several magnitudes, so that the order of adding shows in every format. */
static double real_of(uint64_t bits)
{
    static const double scale[] = {0x1p-14, 0x1p-16, 0x1p-18, 0x1p-20, 0x1p-22, 0x1p-24, 0x1p-26, 0x1p-28};

    return ((double)(bits & 0xffffff) - 0x800000) / 3.0 * scale[bits >> 32 & 7];
}

void property_put(const struct property_case *c, int member, size_t k, unsigned char *data)
{
    uint64_t bits = bits_of(c, member, -1, k);
    float single = (float)real_of(bits);
    double full = real_of(bits);
    uint16_t half = c->dtype == DTYPE_BF16 ? f32_to_bf16(single) : f32_to_f16(single);

    switch (c->dtype) {
    case DTYPE_F32:
        memcpy(data, &single, 4);
        break;
    case DTYPE_F64:
        memcpy(data, &full, 8);
        break;
    case DTYPE_F16:
    case DTYPE_BF16:
        memcpy(data, &half, 2);
        break;
    default:
        memcpy(data, &bits, dtype_bytes(c->dtype));
        break;
    }
}

static float tree_f32(const float *in, int count)
{
    int left = (count + 1) / 2;

    return count == 1 ? in[0] : tree_f32(in, left) + tree_f32(in + left, count - left);
}

static double tree_f64(const double *in, int count)
{
    int left = (count + 1) / 2;

    return count == 1 ? in[0] : tree_f64(in, left) + tree_f64(in + left, count - left);
}

void property_sum(const struct property_case *c, size_t k, unsigned char *data)
{
    float single[PROPERTY_RANKS] = {0};
    double full[PROPERTY_RANKS] = {0};
    uint64_t whole = 0;
    int size = c->size;

    for (int i = 0; i < size; i++) {
        uint64_t bits = 0;
        uint16_t half;

        property_put(c, i, k, (unsigned char *)&bits);
        half = (uint16_t)bits;
        memcpy(&single[i], &bits, 4);
        memcpy(&full[i], &bits, 8);
        if (c->dtype == DTYPE_F16 || c->dtype == DTYPE_BF16)
            single[i] = c->dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
        whole += bits;
    }
    if (c->dtype == DTYPE_F64) {
        full[0] = tree_f64(full, size);
        memcpy(data, &full[0], 8);
    } else if (c->dtype == DTYPE_F32 || c->dtype == DTYPE_F16 || c->dtype == DTYPE_BF16) {
        uint16_t half;

        single[0] = tree_f32(single, size);
        half = c->dtype == DTYPE_F16 ? f32_to_f16(single[0]) : f32_to_bf16(single[0]);
        if (c->dtype == DTYPE_F32)
            memcpy(data, &single[0], 4);
        else
            memcpy(data, &half, 2);
    } else {
        memcpy(data, &whole, dtype_bytes(c->dtype));
    }
}
