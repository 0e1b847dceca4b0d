/* The plain definition of every packed type: one function a type, one block at a time, nothing clever.
 *
 * A block's scale times a small integer is exact in f32 (at most 11 + 8 + 5 significant bits), so only the addition of
 * a bias rounds, once.  Types without a bias multiply: a zero keeps the sign that scale times q gives it. */
#include "checkpoint/weight_type.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"

typedef void decode_block(const unsigned char *block, float *values);

static uint16_t load_u16(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static uint32_t load_u32(const unsigned char *bytes)
{
    return (uint32_t)load_u16(bytes) | (uint32_t)load_u16(bytes + 2) << 16;
}

static float load_half(const unsigned char *bytes)
{
    return f16_to_f32(load_u16(bytes));
}

static void decode_f32(const unsigned char *block, float *values)
{
    uint32_t bits = load_u32(block);

    memcpy(values, &bits, sizeof *values);
}

static void decode_f16(const unsigned char *block, float *values)
{
    *values = load_half(block);
}

static void decode_bf16(const unsigned char *block, float *values)
{
    *values = bf16_to_f32(load_u16(block));
}

/* scale f16, 16 bytes of nibbles: the low ones are elements 0..15, the high ones 16..31. */
static void decode_q4_0(const unsigned char *block, float *values)
{
    float scale = load_half(block);

    for (int i = 0; i < 16; i++) {
        values[i] = scale * (float)((block[2 + i] & 15) - 8);
        values[i + 16] = scale * (float)((block[2 + i] >> 4) - 8);
    }
}

/* scale f16, bias f16, nibbles as in Q4_0. */
static void decode_q4_1(const unsigned char *block, float *values)
{
    float scale = load_half(block);
    float bias = load_half(block + 2);

    for (int i = 0; i < 16; i++) {
        values[i] = fmaf(scale, (float)(block[4 + i] & 15), bias);
        values[i + 16] = fmaf(scale, (float)(block[4 + i] >> 4), bias);
    }
}

/* The fifth bit of element i is bit i of a word; the four low ones are nibbles as in Q4_0. */
static int five_bits(uint32_t high, const unsigned char *nibbles, int i)
{
    int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;

    return low | (int)(high >> i & 1u) << 4;
}

static void decode_q5_0(const unsigned char *block, float *values)
{
    float scale = load_half(block);
    uint32_t high = load_u32(block + 2);

    for (int i = 0; i < 32; i++)
        values[i] = scale * (float)(five_bits(high, block + 6, i) - 16);
}

static void decode_q5_1(const unsigned char *block, float *values)
{
    float scale = load_half(block);
    float bias = load_half(block + 2);
    uint32_t high = load_u32(block + 4);

    for (int i = 0; i < 32; i++)
        values[i] = fmaf(scale, (float)five_bits(high, block + 8, i), bias);
}

static void decode_q8_0(const unsigned char *block, float *values)
{
    float scale = load_half(block);

    for (int i = 0; i < 32; i++)
        values[i] = scale * (float)(int8_t)block[2 + i];
}

/* Sub-block s of eight: six bits of scale and six of minimum, in 12 bytes.  The first four lie in the low six bits of
 * bytes s and s + 4; of the others the low four bits lie in byte s + 4 and the high two atop bytes s - 4 and s. */
static void k_scale(const unsigned char *packed, int s, int *scale, int *minimum)
{
    if (s < 4) {
        *scale = packed[s] & 63;
        *minimum = packed[s + 4] & 63;
    } else {
        *scale = (packed[s + 4] & 15) | packed[s - 4] >> 6 << 4;
        *minimum = packed[s + 4] >> 4 | packed[s] >> 6 << 4;
    }
}

/* d f16, dmin f16, 12 bytes of scales, 128 of nibbles: sub-blocks 2j and 2j + 1 share 32 bytes. */
static void decode_q4_k(const unsigned char *block, float *values)
{
    float d = load_half(block);
    float dmin = load_half(block + 2);

    for (int s = 0; s < 8; s++) {
        const unsigned char *nibbles = block + 16 + s / 2 * 32;
        int scale;
        int minimum;

        k_scale(block + 4, s, &scale, &minimum);
        for (int i = 0; i < 32; i++) {
            int q = s % 2 ? nibbles[i] >> 4 : nibbles[i] & 15;

            values[s * 32 + i] = fmaf(d * (float)scale, (float)q, -(dmin * (float)minimum));
        }
    }
}

/* As Q4_K, with 32 bytes of fifth bits before the nibbles: bit s of byte i belongs to element i of sub-block s. */
static void decode_q5_k(const unsigned char *block, float *values)
{
    float d = load_half(block);
    float dmin = load_half(block + 2);

    for (int s = 0; s < 8; s++) {
        const unsigned char *nibbles = block + 48 + s / 2 * 32;
        int scale;
        int minimum;

        k_scale(block + 4, s, &scale, &minimum);
        for (int i = 0; i < 32; i++) {
            int q = (s % 2 ? nibbles[i] >> 4 : nibbles[i] & 15) | (block[16 + i] >> s & 1) << 4;

            values[s * 32 + i] = fmaf(d * (float)scale, (float)q, -(dmin * (float)minimum));
        }
    }
}

/* 128 bytes of low nibbles, 64 of high pairs of bits, 16 scales i8, d f16.  Each half of 128 elements is four runs of
 * 32: runs 0 and 2 share 32 bytes of nibbles, 1 and 3 the next 32; run r's high bits are bits 2r, 2r + 1. */
static void decode_q6_k(const unsigned char *block, float *values)
{
    float d = load_half(block + 208);

    for (int i = 0; i < 256; i++) {
        int half = i / 128;
        int run = i % 128 / 32;
        int low = block[half * 64 + run % 2 * 32 + i % 32] >> (run < 2 ? 0 : 4) & 15;
        int high = block[128 + half * 32 + i % 32] >> (2 * run) & 3;

        values[i] = d * (float)(int8_t)block[192 + i / 16] * (float)((low | high << 4) - 32);
    }
}

static const struct {
    const char *name;
    unsigned block_length;
    unsigned block_bytes;
    decode_block *decode;
} table[WEIGHT_TYPE_COUNT] = {
    [WEIGHT_F32] = {"F32", 1, 4, decode_f32},        [WEIGHT_F16] = {"F16", 1, 2, decode_f16},
    [WEIGHT_BF16] = {"BF16", 1, 2, decode_bf16},     [WEIGHT_Q4_0] = {"Q4_0", 32, 18, decode_q4_0},
    [WEIGHT_Q4_1] = {"Q4_1", 32, 20, decode_q4_1},   [WEIGHT_Q5_0] = {"Q5_0", 32, 22, decode_q5_0},
    [WEIGHT_Q5_1] = {"Q5_1", 32, 24, decode_q5_1},   [WEIGHT_Q8_0] = {"Q8_0", 32, 34, decode_q8_0},
    [WEIGHT_Q4_K] = {"Q4_K", 256, 144, decode_q4_k}, [WEIGHT_Q5_K] = {"Q5_K", 256, 176, decode_q5_k},
    [WEIGHT_Q6_K] = {"Q6_K", 256, 210, decode_q6_k},
};

const char *weight_type_name(enum weight_type type)
{
    return (unsigned)type < WEIGHT_TYPE_COUNT ? table[type].name : "none";
}

unsigned weight_block_length(enum weight_type type)
{
    CHECK((unsigned)type < WEIGHT_TYPE_COUNT);
    return table[type].block_length;
}

unsigned weight_block_bytes(enum weight_type type)
{
    CHECK((unsigned)type < WEIGHT_TYPE_COUNT);
    return table[type].block_bytes;
}

void weight_decode(enum weight_type type, const void *packed, size_t count, float *values)
{
    const unsigned char *block = packed;

    CHECK((unsigned)type < WEIGHT_TYPE_COUNT);
    CHECK(count % table[type].block_length == 0);
    for (size_t i = 0; i < count; i += table[type].block_length) {
        table[type].decode(block, values + i);
        block += table[type].block_bytes;
    }
}
