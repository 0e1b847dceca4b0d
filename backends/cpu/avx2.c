/* The kernels for AVX2, FMA and F16C: the 16 lanes of a dot are two vectors of eight.  What works on decoded weights
 * and on caches is in avx2_tile.c, the loops that bound decoding are in avx2_stream.c. */
#include <immintrin.h>
#include <string.h>

#include "backends/cpu/avx2_columns.h"
#include "backends/cpu/avx2_stream.h"
#include "backends/cpu/avx2_tile.h"
#include "backends/cpu/inline.h"
#include "backends/cpu/kernels.h"

enum {
    HALF = 8,            /* floats in a vector */
    STREAM_ROWS = 4,     /* weight rows multiplied together with one activation row */
    STREAM_SCALES = 512, /* floats of scales prepared at a time for those rows: 2048 columns' worth */
    STREAM_AHEAD = 4096  /* bytes to prefetch ahead, at least */
};

/* ---- Packed types: the scales of a block, made once, and the parts of its groups ----
 *
 * A part is elements 8 i to 8 i + 7 of a group.  A block of 32 is one group, a superblock several, so that unrolled
 * code stays short. */

typedef void prepare_block(const unsigned char *block, float *scales);
typedef __m256 block_part(const unsigned char *block, const float *scales, int group, int part);

INLINE __m256i widen(const unsigned char *bytes)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
}

/* Two halves at once; the second is a bias or, in types without one, whatever follows. */
INLINE void prepare_two(const unsigned char *block, float *scales)
{
    int bits;

    memcpy(&bits, block, sizeof bits);
    _mm_storel_pi((__m64 *)(void *)scales, _mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

INLINE __m256 affine(const float *scales, __m256i q)
{
    return _mm256_fmadd_ps(_mm256_broadcast_ss(scales), _mm256_cvtepi32_ps(q), _mm256_broadcast_ss(scales + 1));
}

INLINE __m256 proportional(const float *scales, __m256i q)
{
    return _mm256_mul_ps(_mm256_broadcast_ss(scales), _mm256_cvtepi32_ps(q));
}

INLINE __m256i nibbles(const unsigned char *bytes, int high)
{
    __m256i q = widen(bytes);

    return high ? _mm256_srli_epi32(q, 4) : _mm256_and_si256(q, _mm256_set1_epi32(15));
}

INLINE __m256 part_q4_0(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    return proportional(scales, _mm256_sub_epi32(nibbles(block + 2 + part % 2 * 8, part / 2), _mm256_set1_epi32(8)));
}

INLINE __m256 part_q4_1(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    return affine(scales, nibbles(block + 4 + part % 2 * 8, part / 2));
}

/* 16 where the lane's bit of this part's byte is set. */
INLINE __m256i fifth_bits(const unsigned char *bits, int part)
{
    __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i set = _mm256_and_si256(_mm256_set1_epi32(bits[part]), lane);

    return _mm256_and_si256(_mm256_cmpeq_epi32(set, lane), _mm256_set1_epi32(16));
}

INLINE __m256 part_q5_0(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    __m256i q = _mm256_or_si256(nibbles(block + 6 + part % 2 * 8, part / 2), fifth_bits(block + 2, part));

    return proportional(scales, _mm256_sub_epi32(q, _mm256_set1_epi32(16)));
}

INLINE __m256 part_q5_1(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    return affine(scales, _mm256_or_si256(nibbles(block + 8 + part % 2 * 8, part / 2), fifth_bits(block + 4, part)));
}

INLINE __m256 part_q8_0(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(block + 2 + 8 * part));

    return proportional(scales, _mm256_cvtepi8_epi32(q));
}

/* Eight (scale, bias) pairs of a superblock.  Six bits each in 12 bytes: of sub-blocks 0..3 the low six of bytes 0..3
 * (scales) and 4..7 (minima); of 4..7 the nibbles of bytes 8..11, with the high two bits of bytes 0..3 and 4..7. */
INLINE void prepare_k(const unsigned char *block, float *scales)
{
    uint32_t a;
    uint32_t b;
    uint32_t c;
    float halves[2];

    prepare_two(block, halves);
    memcpy(&a, block + 4, 4);
    memcpy(&b, block + 8, 4);
    memcpy(&c, block + 12, 4);
    uint64_t scale = (a & 0x3f3f3f3fu) | (uint64_t)((c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u)) << 32;
    uint64_t minimum = (b & 0x3f3f3f3fu) | (uint64_t)((c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u)) << 32;
    __m256 s = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)scale)));
    __m256 m = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)minimum)));

    s = _mm256_mul_ps(_mm256_set1_ps(halves[0]), s);
    m = _mm256_xor_ps(_mm256_mul_ps(_mm256_set1_ps(halves[1]), m), _mm256_set1_ps(-0.0f));
    /* pairs: s0 m0 s1 m1 | s4 m4 s5 m5 and s2 m2 s3 m3 | s6 m6 s7 m7 */
    __m256 low = _mm256_unpacklo_ps(s, m);
    __m256 high = _mm256_unpackhi_ps(s, m);

    _mm256_storeu_ps(scales, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(scales + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

/* Group j is sub-blocks 2 j and 2 j + 1, which share 32 bytes of nibbles. */
INLINE __m256 part_q4_k(const unsigned char *block, const float *scales, int group, int part)
{
    return affine(scales + 4 * group + part / 4 * 2, nibbles(block + 16 + 32 * group + part % 4 * 8, part / 4));
}

INLINE __m256 part_q5_k(const unsigned char *block, const float *scales, int group, int part)
{
    __m256i fifth = _mm256_srl_epi32(widen(block + 16 + part % 4 * 8), _mm_cvtsi32_si128(2 * group + part / 4));
    __m256i q = nibbles(block + 48 + 32 * group + part % 4 * 8, part / 4);

    fifth = _mm256_slli_epi32(_mm256_and_si256(fifth, _mm256_set1_epi32(1)), 4);
    return affine(scales + 4 * group + part / 4 * 2, _mm256_or_si256(q, fifth));
}

INLINE void prepare_q6_k(const unsigned char *block, float *scales)
{
    uint16_t half;

    memcpy(&half, block + 208, sizeof half);
    __m256 d = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));

    UNROLL
    for (int i = 0; i < 2; i++) {
        __m128i s = _mm_loadl_epi64((const __m128i *)(const void *)(block + 192 + 8 * i));

        _mm256_storeu_ps(scales + 8 * i, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(s))));
    }
}

/* Group h is a half: four runs of 32; runs 0 and 2, 1 and 3 share nibbles, all four share the high bits. */
INLINE __m256 part_q6_k(const unsigned char *block, const float *scales, int group, int part)
{
    int run = part / 4;
    const unsigned char *nibble = block + 64 * group + run % 2 * 32 + part % 4 * 8;
    __m128i low = _mm_loadl_epi64((const __m128i *)(const void *)nibble);
    __m128i high = _mm_loadl_epi64((const __m128i *)(const void *)(block + 128 + 32 * group + part % 4 * 8));
    __m128i q;

    low = _mm_and_si128(run < 2 ? low : _mm_srli_epi16(low, 4), _mm_set1_epi8(15));
    high = _mm_and_si128(run < 2 ? _mm_slli_epi16(high, 4 - 2 * run) : _mm_srli_epi16(high, 2 * run - 4),
                         _mm_set1_epi8(48));
    q = _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
    return proportional(scales + 8 * group + part / 2, _mm256_cvtepi8_epi32(q));
}

/* Constants of a packed type. */
struct block_shape {
    size_t bytes;
    int groups;    /* of a block */
    int parts;     /* vectors of a group */
    size_t scales; /* floats that prepare makes */
};

/* ---- One activation row: weights stream by, four rows at a time ---- */

/* Bytes from a row to the one that will be wanted STREAM_AHEAD bytes later, a whole number of row groups. */
INLINE size_t bytes_ahead(size_t row_bytes)
{
    size_t group = STREAM_ROWS * row_bytes;

    return group ? (STREAM_AHEAD + group - 1) / group * group : 0;
}

INLINE void stream_blocks(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y,
                          const struct block_shape shape, prepare_block *prepare, block_part *part)
{
    size_t bytes = shape.bytes;
    size_t scale_count = shape.scales;
    size_t cols = (size_t)shape.groups * (size_t)shape.parts * HALF;
    size_t blocks = (size_t)w->cols / cols;
    size_t run = STREAM_SCALES / STREAM_ROWS / scale_count;
    size_t ahead = bytes_ahead(w->row_bytes);
    float scales[STREAM_SCALES];

    for (uint64_t r = 0; r < count; r += STREAM_ROWS) {
        const unsigned char *p[STREAM_ROWS];
        __m256 lanes[STREAM_ROWS][2];
        float sums[STREAM_ROWS];

        for (unsigned j = 0; j < STREAM_ROWS; j++)
            p[j] = w->data + (size_t)(row + (r + j < count ? r + j : count - 1)) * w->row_bytes;
        UNROLL
        for (int j = 0; j < STREAM_ROWS; j++)
            lanes[j][0] = lanes[j][1] = _mm256_setzero_ps();
        for (size_t begin = 0; begin < blocks; begin += run) {
            size_t end = begin + run < blocks ? begin + run : blocks;
            const float *s = scales;

            for (size_t b = begin; b < end; b++) {
                UNROLL
                for (int j = 0; j < STREAM_ROWS; j++)
                    prepare(p[j] + b * bytes, scales + ((b - begin) * STREAM_ROWS + (size_t)j) * scale_count);
            }
            for (size_t b = begin; b < end; b++) {
                /* Small blocks: the rows lie behind each other, so one straight line of prefetches runs ahead. */
                for (size_t line = 0; bytes <= 64 && line < STREAM_ROWS * bytes; line += 64)
                    _mm_prefetch((const char *)p[0] + STREAM_AHEAD + b * STREAM_ROWS * bytes + line, _MM_HINT_T0);
                UNROLL
                for (int j = 0; j < STREAM_ROWS; j++) {
                    const unsigned char *block = p[j] + b * bytes;

                    for (size_t line = 0; bytes > 64 && line < bytes; line += 64)
                        _mm_prefetch((const char *)block + ahead + line, _MM_HINT_T0);
                    for (int g = 0; g < shape.groups; g++) {
                        const float *xg = x + b * cols + (size_t)g * (size_t)shape.parts * HALF;

                        UNROLL
                        for (int i = 0; i < shape.parts; i++)
                            lanes[j][i % 2] =
                                _mm256_fmadd_ps(part(block, s, g, i), _mm256_loadu_ps(xg + i * HALF), lanes[j][i % 2]);
                    }
                    s += scale_count;
                }
            }
        }
        UNROLL
        for (int j = 0; j < STREAM_ROWS; j++)
            lanes[j][0] = _mm256_add_ps(lanes[j][0], lanes[j][1]);
        _mm_storeu_ps(sums, sum_four(lanes[0][0], lanes[1][0], lanes[2][0], lanes[3][0]));
        for (uint64_t j = 0; j < STREAM_ROWS && r + j < count; j++)
            y[r + j] = sums[j];
    }
}

INLINE void decode_blocks(const unsigned char *packed, size_t count, float *values, const struct block_shape shape,
                          prepare_block *prepare, block_part *part)
{
    size_t cols = (size_t)shape.groups * (size_t)shape.parts * HALF;

    for (size_t k = 0; k < count; k += cols) {
        float scales[16];

        prepare(packed, scales);
        for (int g = 0; g < shape.groups; g++) {
            UNROLL
            for (int i = 0; i < shape.parts; i++)
                _mm256_storeu_ps(values + k + (g * shape.parts + i) * HALF, part(packed, scales, g, i));
        }
        packed += shape.bytes;
    }
}

#define DECODE_KERNEL(type, prepare, ...)                                                                              \
    static void decode_##type(const unsigned char *packed, size_t count, float *values)                                \
    {                                                                                                                  \
        decode_blocks(packed, count, values, (struct block_shape){__VA_ARGS__}, prepare, part_##type);                 \
    }
#define BLOCK_KERNELS(type, prepare, ...)                                                                              \
    static void vector_##type(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y)          \
    {                                                                                                                  \
        stream_blocks(w, row, count, x, y, (struct block_shape){__VA_ARGS__}, prepare, part_##type);                   \
    }                                                                                                                  \
    DECODE_KERNEL(type, prepare, __VA_ARGS__)

/* Their vector kernels are in avx2_stream.c. */
DECODE_KERNEL(q4_0, prepare_two, .bytes = 18, .groups = 1, .parts = 4, .scales = 2)
DECODE_KERNEL(q4_1, prepare_two, .bytes = 20, .groups = 1, .parts = 4, .scales = 2)
BLOCK_KERNELS(q5_0, prepare_two, .bytes = 22, .groups = 1, .parts = 4, .scales = 2)
BLOCK_KERNELS(q5_1, prepare_two, .bytes = 24, .groups = 1, .parts = 4, .scales = 2)
DECODE_KERNEL(q8_0, prepare_two, .bytes = 34, .groups = 1, .parts = 4, .scales = 2)
BLOCK_KERNELS(q4_k, prepare_k, .bytes = 144, .groups = 4, .parts = 8, .scales = 16)
BLOCK_KERNELS(q5_k, prepare_k, .bytes = 176, .groups = 4, .parts = 8, .scales = 16)
BLOCK_KERNELS(q6_k, prepare_q6_k, .bytes = 210, .groups = 2, .parts = 16, .scales = 16)

/* ---- Float types: 8 elements at any address; a row's end is copied out first ---- */

typedef __m256 load_floats(const unsigned char *packed);

INLINE __m256 load_f32(const unsigned char *packed)
{
    return _mm256_loadu_ps((const float *)(const void *)packed);
}

INLINE __m256 load_f16(const unsigned char *packed)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)packed));
}

INLINE __m256 load_bf16(const unsigned char *packed)
{
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)packed);

    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

INLINE void stream_floats(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y, size_t bytes,
                          load_floats *load)
{
    size_t cols = (size_t)w->cols;
    size_t whole = cols / LANES * LANES;
    size_t ahead = bytes_ahead(w->row_bytes);
    float x_rest[LANES] = {0};

    memcpy(x_rest, x + whole, (cols - whole) * sizeof *x);
    for (uint64_t r = 0; r < count; r += STREAM_ROWS) {
        const unsigned char *p[STREAM_ROWS];
        __m256 lanes[STREAM_ROWS][2];
        float sums[STREAM_ROWS];

        for (unsigned j = 0; j < STREAM_ROWS; j++)
            p[j] = w->data + (size_t)(row + (r + j < count ? r + j : count - 1)) * w->row_bytes;
        UNROLL
        for (int j = 0; j < STREAM_ROWS; j++)
            lanes[j][0] = lanes[j][1] = _mm256_setzero_ps();
        for (size_t k = 0; k < whole; k += LANES) {
            UNROLL
            for (int j = 0; j < STREAM_ROWS; j++) {
                const unsigned char *at = p[j] + k * bytes;

                _mm_prefetch((const char *)at + ahead, _MM_HINT_T0);
                lanes[j][0] = _mm256_fmadd_ps(load(at), _mm256_loadu_ps(x + k), lanes[j][0]);
                lanes[j][1] = _mm256_fmadd_ps(load(at + HALF * bytes), _mm256_loadu_ps(x + k + HALF), lanes[j][1]);
            }
        }
        if (whole < cols) {
            UNROLL
            for (int j = 0; j < STREAM_ROWS; j++) {
                unsigned char rest[LANES * sizeof(float)] = {0};

                memcpy(rest, p[j] + whole * bytes, (cols - whole) * bytes);
                lanes[j][0] = _mm256_fmadd_ps(load(rest), _mm256_loadu_ps(x_rest), lanes[j][0]);
                lanes[j][1] = _mm256_fmadd_ps(load(rest + HALF * bytes), _mm256_loadu_ps(x_rest + HALF), lanes[j][1]);
            }
        }
        UNROLL
        for (int j = 0; j < STREAM_ROWS; j++)
            lanes[j][0] = _mm256_add_ps(lanes[j][0], lanes[j][1]);
        _mm_storeu_ps(sums, sum_four(lanes[0][0], lanes[1][0], lanes[2][0], lanes[3][0]));
        for (uint64_t j = 0; j < STREAM_ROWS && r + j < count; j++)
            y[r + j] = sums[j];
    }
}

INLINE void decode_floats(const unsigned char *packed, size_t count, float *values, size_t bytes, load_floats *load)
{
    size_t k = 0;

    for (; k + HALF <= count; k += HALF)
        _mm256_storeu_ps(values + k, load(packed + k * bytes));
    if (k < count) {
        unsigned char rest[HALF * sizeof(float)] = {0};
        float decoded[HALF];

        memcpy(rest, packed + k * bytes, (count - k) * bytes);
        _mm256_storeu_ps(decoded, load(rest));
        memcpy(values + k, decoded, (count - k) * sizeof *values);
    }
}

#define FLOAT_KERNELS(type, bytes)                                                                                     \
    static void vector_##type(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y)          \
    {                                                                                                                  \
        stream_floats(w, row, count, x, y, bytes, load_##type);                                                        \
    }                                                                                                                  \
    static void decode_##type(const unsigned char *packed, size_t count, float *values)                                \
    {                                                                                                                  \
        decode_floats(packed, count, values, bytes, load_##type);                                                      \
    }

FLOAT_KERNELS(f32, 4)
FLOAT_KERNELS(f16, 2)
FLOAT_KERNELS(bf16, 2)

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .panel_rows = AVX2_TILE_ROWS,
    .tile = tile_avx2,
    .pack = pack_avx2,
    .packed_rows = AVX2_COLUMN_ROWS,
    .mix = mix_avx2,
    .row = &row_kernels_plain_avx2,
    .vector = {[WEIGHT_F32] = vector_f32,
               [WEIGHT_F16] = vector_f16,
               [WEIGHT_BF16] = vector_bf16,
               [WEIGHT_Q4_0] = stream_q4_0_avx2,
               [WEIGHT_Q4_1] = stream_q4_1_avx2,
               [WEIGHT_Q5_0] = vector_q5_0,
               [WEIGHT_Q5_1] = vector_q5_1,
               [WEIGHT_Q8_0] = stream_q8_0_avx2,
               [WEIGHT_Q4_K] = vector_q4_k,
               [WEIGHT_Q5_K] = vector_q5_k,
               [WEIGHT_Q6_K] = vector_q6_k},
    .decode = {[WEIGHT_F32] = decode_f32,
               [WEIGHT_F16] = decode_f16,
               [WEIGHT_BF16] = decode_bf16,
               [WEIGHT_Q4_0] = decode_q4_0,
               [WEIGHT_Q4_1] = decode_q4_1,
               [WEIGHT_Q5_0] = decode_q5_0,
               [WEIGHT_Q5_1] = decode_q5_1,
               [WEIGHT_Q8_0] = decode_q8_0,
               [WEIGHT_Q4_K] = decode_q4_k,
               [WEIGHT_Q5_K] = decode_q5_k,
               [WEIGHT_Q6_K] = decode_q6_k},
};
