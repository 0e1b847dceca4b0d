/* The kernels for AVX-512 (F, BW, DQ, VL): one vector is the 16 lanes of a dot.
 *
 * Small quants are looked up, not computed: the 16 (or 32) values that a block can have are made with the definition's
 * one operation each, and a permutation picks them by the quants' low four bits. */
#include <string.h>

#include "backends/cpu/avx512_lanes.h"
#include "backends/cpu/avx512_tile.h"
#include "backends/cpu/kernels.h"

enum {
    STREAM_ROWS = 4,     /* weight rows multiplied together with one activation row */
    STREAM_SCALES = 512, /* floats of scales prepared at a time for those rows: 2048 columns' worth */
    STREAM_AHEAD = 4096, /* bytes to prefetch ahead, at least */
    SMALL_ROWS = 8,      /* the same of types with small blocks, ... */
    SMALL_BLOCKS = 64    /* ... whose scales are prepared for so many of them at a time */
};

/* ---- Packed types: the scales of a block, made once, and the parts of its groups ----
 *
 * A part is elements 16 i to 16 i + 15 of a group.  A block of 32 is one group, a superblock several, so that unrolled
 * code stays short. */

typedef void prepare_block(const unsigned char *block, float *scales);
typedef __m512 block_part(const unsigned char *block, const float *scales, int group, int part);

INLINE __m512 counting(float first)
{
    return _mm512_add_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_ps(first));
}

INLINE __m512i widen(const unsigned char *bytes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)bytes));
}

/* Two halves at once; the second is a bias or, in types without one, whatever follows. */
INLINE void prepare_two(const unsigned char *block, float *scales)
{
    int bits;

    memcpy(&bits, block, sizeof bits);
    _mm_storel_pi((__m64 *)(void *)scales, _mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

INLINE __m512 affine(const float *scales, float first)
{
    return _mm512_fmadd_ps(_mm512_set1_ps(scales[0]), counting(first), _mm512_set1_ps(scales[1]));
}

INLINE __m512 proportional(const float *scales, float first)
{
    return _mm512_mul_ps(_mm512_set1_ps(scales[0]), counting(first));
}

INLINE __m512i nibbles(const unsigned char *bytes, int high)
{
    __m512i q = widen(bytes);

    return high ? _mm512_srli_epi32(q, 4) : q;
}

INLINE __m512 part_q4_0(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    return _mm512_permutexvar_ps(nibbles(block + 2, part), proportional(scales, -8.0f));
}

INLINE __m512 part_q4_1(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    return _mm512_permutexvar_ps(nibbles(block + 4, part), affine(scales, 0.0f));
}

/* The fifth bit chooses between two tables. */
INLINE __m512 pick_of_32(__m512i q, __mmask16 fifth, __m512 low, __m512 high)
{
    return _mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(q, low), fifth, q, high);
}

INLINE __mmask16 fifth_bits(const unsigned char *bits, int part)
{
    uint16_t mask;

    memcpy(&mask, bits + 2 * part, sizeof mask);
    return (__mmask16)mask;
}

INLINE __m512 part_q5_0(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    return pick_of_32(nibbles(block + 6, part), fifth_bits(block + 2, part), proportional(scales, -16.0f),
                      proportional(scales, 0.0f));
}

INLINE __m512 part_q5_1(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    return pick_of_32(nibbles(block + 8, part), fifth_bits(block + 4, part), affine(scales, 0.0f),
                      affine(scales, 16.0f));
}

INLINE __m512 part_q8_0(const unsigned char *block, const float *scales, int group, int part)
{
    (void)group;
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(block + 2 + 16 * part));

    return _mm512_mul_ps(_mm512_set1_ps(scales[0]), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
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
INLINE __m512 part_q4_k(const unsigned char *block, const float *scales, int group, int part)
{
    return _mm512_permutexvar_ps(nibbles(block + 16 + 32 * group + part % 2 * 16, part / 2),
                                 affine(scales + 4 * group + part / 2 * 2, 0.0f));
}

INLINE __m512 part_q5_k(const unsigned char *block, const float *scales, int group, int part)
{
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(block + 16 + part % 2 * 16));
    __mmask16 fifth = _mm_test_epi8_mask(high, _mm_set1_epi8((char)(1 << (2 * group + part / 2))));
    const float *s = scales + 4 * group + part / 2 * 2;

    return pick_of_32(nibbles(block + 48 + 32 * group + part % 2 * 16, part / 2), fifth, affine(s, 0.0f),
                      affine(s, 16.0f));
}

INLINE void prepare_q6_k(const unsigned char *block, float *scales)
{
    uint16_t half;

    memcpy(&half, block + 208, sizeof half);
    __m512 d = _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
    __m128i s = _mm_loadu_si128((const __m128i *)(const void *)(block + 192));

    _mm512_storeu_ps(scales, _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(s))));
}

/* Group h is a half: four runs of 32; runs 0 and 2, 1 and 3 share nibbles, all four share the high bits. */
INLINE __m512 part_q6_k(const unsigned char *block, const float *scales, int group, int part)
{
    int run = part / 2;
    const unsigned char *nibble = block + 64 * group + run % 2 * 32 + part % 2 * 16;
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)nibble);
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(block + 128 + 32 * group + part % 2 * 16));
    __m128i q;

    low = _mm_and_si128(run < 2 ? low : _mm_srli_epi16(low, 4), _mm_set1_epi8(15));
    high = _mm_and_si128(run < 2 ? _mm_slli_epi16(high, 4 - 2 * run) : _mm_srli_epi16(high, 2 * run - 4),
                         _mm_set1_epi8(48));
    q = _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
    return _mm512_mul_ps(_mm512_set1_ps(scales[8 * group + part]), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
}

/* Constants of a packed type. */
struct block_shape {
    size_t bytes;
    int groups;    /* of a block */
    int parts;     /* vectors of a group */
    size_t scales; /* floats that prepare makes */
};

/* ---- One activation row: weights stream by, some rows at a time ---- */

/* Bytes from a group of rows to the one that will be wanted STREAM_AHEAD bytes later. */
INLINE size_t bytes_ahead(size_t group)
{
    return group ? (STREAM_AHEAD + group - 1) / group * group : 0;
}

/* Superblocks, four rows. */
INLINE void stream_blocks(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y,
                          const struct block_shape shape, prepare_block *prepare, block_part *part)
{
    size_t bytes = shape.bytes;
    size_t scale_count = shape.scales;
    size_t cols = (size_t)shape.groups * (size_t)shape.parts * LANES;
    size_t blocks = (size_t)w->cols / cols;
    size_t run = STREAM_SCALES / STREAM_ROWS / scale_count;
    size_t ahead = bytes_ahead(STREAM_ROWS * w->row_bytes);
    float scales[STREAM_SCALES];

    for (uint64_t r = 0; r < count; r += STREAM_ROWS) {
        const unsigned char *p[STREAM_ROWS];
        __m512 lanes[STREAM_ROWS];
        float sums[STREAM_ROWS];

        for (unsigned j = 0; j < STREAM_ROWS; j++)
            p[j] = w->data + (size_t)(row + (r + j < count ? r + j : count - 1)) * w->row_bytes;
        UNROLL
        for (int j = 0; j < STREAM_ROWS; j++)
            lanes[j] = _mm512_setzero_ps();
        for (size_t begin = 0; begin < blocks; begin += run) {
            size_t end = begin + run < blocks ? begin + run : blocks;
            const float *s = scales;

            for (size_t b = begin; b < end; b++) {
                UNROLL
                for (int j = 0; j < STREAM_ROWS; j++)
                    prepare(p[j] + b * bytes, scales + ((b - begin) * STREAM_ROWS + (size_t)j) * scale_count);
            }
            for (size_t b = begin; b < end; b++) {
                UNROLL
                for (int j = 0; j < STREAM_ROWS; j++) {
                    const unsigned char *block = p[j] + b * bytes;

                    for (size_t line = 0; line < bytes; line += 64)
                        _mm_prefetch((const char *)block + ahead + line, _MM_HINT_T0);
                    for (int g = 0; g < shape.groups; g++) {
                        const float *xg = x + b * cols + (size_t)g * (size_t)shape.parts * LANES;

                        UNROLL
                        for (int i = 0; i < shape.parts; i++)
                            lanes[j] = _mm512_fmadd_ps(part(block, s, g, i), _mm512_loadu_ps(xg + i * LANES), lanes[j]);
                    }
                    s += scale_count;
                }
            }
        }
        _mm_storeu_ps(sums, sum_four(lanes[0], lanes[1], lanes[2], lanes[3]));
        for (uint64_t j = 0; j < STREAM_ROWS && r + j < count; j++)
            y[r + j] = sums[j];
    }
}

/* Row j of eight, or of four: by address, so that few registers say where all of them are. */
INLINE const unsigned char *row_at(const unsigned char *const *fours, size_t row_bytes, int j)
{
    return fours[j / 4] + (size_t)(j % 4) * row_bytes;
}

/* (scale, bias) of a run of blocks, four rows' at once; without a bias the second is whatever follows. */
INLINE void make_scales(const unsigned char *const *fours, size_t row_bytes, size_t blocks, size_t bytes, int rows,
                        float *scales)
{
    for (size_t b = 0; b < blocks; b++) {
        UNROLL
        for (int four = 0; four < rows; four += 4) {
            int bits[4];

            UNROLL
            for (int j = 0; j < 4; j++)
                memcpy(&bits[j], row_at(fours, row_bytes, four + j) + b * bytes, sizeof *bits);
            _mm256_storeu_ps(scales + 2 * (b * (size_t)rows + (size_t)four),
                             _mm256_cvtph_ps(_mm_setr_epi32(bits[0], bits[1], bits[2], bits[3])));
        }
    }
}

/* Blocks of 32: rows [a constant, 4 or 8] that lie row_bytes apart, side by side.  The number of instructions bounds
 * this loop, so that eight rows share the activations and the prefetches, which run in a straight line as far ahead of
 * every group, so that each row is asked for once. */
INLINE void stream_rows(const unsigned char *first, size_t row_bytes, size_t blocks, const char *ahead, const float *x,
                        float *sums, size_t bytes, int rows, block_part *part)
{
    const unsigned char *fours[2] = {first, first + 4 * row_bytes};
    __m512 lanes[SMALL_ROWS];

    UNROLL
    for (int j = 0; j < rows; j++)
        lanes[j] = _mm512_setzero_ps();
    for (size_t begin = 0; begin < blocks; begin += SMALL_BLOCKS) {
        float scales[SMALL_BLOCKS * SMALL_ROWS * 2];
        size_t run = blocks - begin < SMALL_BLOCKS ? blocks - begin : SMALL_BLOCKS;

        make_scales(fours, row_bytes, run, bytes, rows, scales);
        for (size_t b = 0; b < run; b++) {
            __m512 x0 = _mm512_loadu_ps(x + (begin + b) * 2 * LANES);
            __m512 x1 = _mm512_loadu_ps(x + (begin + b) * 2 * LANES + LANES);

            UNROLL
            for (size_t line = 0; line < (size_t)rows * bytes; line += 64)
                _mm_prefetch(ahead + (begin + b) * (size_t)rows * bytes + line, _MM_HINT_T0);
            UNROLL
            for (int j = 0; j < rows; j++) {
                const unsigned char *block = row_at(fours, row_bytes, j) + b * bytes;
                const float *s = scales + 2 * (b * (size_t)rows + (size_t)j);

                lanes[j] = _mm512_fmadd_ps(part(block, s, 0, 0), x0, lanes[j]);
                lanes[j] = _mm512_fmadd_ps(part(block, s, 0, 1), x1, lanes[j]);
            }
        }
        fours[0] += run * bytes;
        fours[1] += run * bytes;
    }
    UNROLL
    for (int j = 0; j < rows; j += 4)
        _mm_storeu_ps(sums + j, sum_four(lanes[j], lanes[j + 1], lanes[j + 2], lanes[j + 3]));
}

INLINE void stream_small(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y, size_t bytes,
                         block_part *part)
{
    size_t blocks = (size_t)w->cols / (2 * LANES);
    const unsigned char *data = w->data + (size_t)row * w->row_bytes;
    const char *ahead = (const char *)data + bytes_ahead(SMALL_ROWS * w->row_bytes);
    size_t row_bytes = w->row_bytes;
    size_t r = 0;

    for (; r + SMALL_ROWS <= count; r += SMALL_ROWS)
        stream_rows(data + r * row_bytes, row_bytes, blocks, ahead + r * row_bytes, x, y + r, bytes, SMALL_ROWS, part);
    for (; r + 4 <= count; r += 4)
        stream_rows(data + r * row_bytes, row_bytes, blocks, ahead + r * row_bytes, x, y + r, bytes, 4, part);
    for (; r < count; r++) {
        float sums[4]; /* four times the same row */

        stream_rows(data + r * row_bytes, 0, blocks, ahead + r * row_bytes, x, sums, bytes, 4, part);
        y[r] = sums[0];
    }
}

INLINE void decode_blocks(const unsigned char *packed, size_t count, float *values, const struct block_shape shape,
                          prepare_block *prepare, block_part *part)
{
    size_t cols = (size_t)shape.groups * (size_t)shape.parts * LANES;

    for (size_t k = 0; k < count; k += cols) {
        float scales[16];

        prepare(packed, scales);
        for (int g = 0; g < shape.groups; g++) {
            UNROLL
            for (int i = 0; i < shape.parts; i++)
                _mm512_storeu_ps(values + k + (g * shape.parts + i) * LANES, part(packed, scales, g, i));
        }
        packed += shape.bytes;
    }
}

#define DECODE_KERNEL(type, prepare, ...)                                                                              \
    static void decode_##type(const unsigned char *packed, size_t count, float *values)                                \
    {                                                                                                                  \
        decode_blocks(packed, count, values, (struct block_shape){__VA_ARGS__}, prepare, part_##type);                 \
    }

#define SMALL_KERNELS(type, block_bytes)                                                                               \
    static void vector_##type(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y)          \
    {                                                                                                                  \
        stream_small(w, row, count, x, y, block_bytes, part_##type);                                                   \
    }                                                                                                                  \
    DECODE_KERNEL(type, prepare_two, .bytes = (block_bytes), .groups = 1, .parts = 2, .scales = 2)

#define BLOCK_KERNELS(type, prepare, ...)                                                                              \
    static void vector_##type(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y)          \
    {                                                                                                                  \
        stream_blocks(w, row, count, x, y, (struct block_shape){__VA_ARGS__}, prepare, part_##type);                   \
    }                                                                                                                  \
    DECODE_KERNEL(type, prepare, __VA_ARGS__)

SMALL_KERNELS(q4_0, 18)
SMALL_KERNELS(q4_1, 20)
SMALL_KERNELS(q5_0, 22)
SMALL_KERNELS(q5_1, 24)
SMALL_KERNELS(q8_0, 34)
BLOCK_KERNELS(q4_k, prepare_k, .bytes = 144, .groups = 4, .parts = 4, .scales = 16)
BLOCK_KERNELS(q5_k, prepare_k, .bytes = 176, .groups = 4, .parts = 4, .scales = 16)
BLOCK_KERNELS(q6_k, prepare_q6_k, .bytes = 210, .groups = 2, .parts = 8, .scales = 16)

/* ---- Float types: 16 elements at any address, or the fewer at a row's end ---- */

typedef __m512 load_floats(const unsigned char *packed, __mmask16 mask);

#define ALL_LANES ((__mmask16)0xffff)

INLINE __m512 load_f32(const unsigned char *packed, __mmask16 mask)
{
    return _mm512_maskz_loadu_ps(mask, packed);
}

INLINE __m512 load_f16(const unsigned char *packed, __mmask16 mask)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, packed));
}

INLINE __m512 load_bf16(const unsigned char *packed, __mmask16 mask)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, packed)), 16));
}

INLINE void stream_floats(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y, size_t bytes,
                          load_floats *load)
{
    size_t cols = (size_t)w->cols;
    size_t whole = cols / LANES * LANES;
    __mmask16 rest = first_lanes(cols % LANES);
    size_t ahead = bytes_ahead(STREAM_ROWS * w->row_bytes);

    for (uint64_t r = 0; r < count; r += STREAM_ROWS) {
        const unsigned char *p[STREAM_ROWS];
        __m512 lanes[STREAM_ROWS];
        float sums[STREAM_ROWS];

        for (unsigned j = 0; j < STREAM_ROWS; j++)
            p[j] = w->data + (size_t)(row + (r + j < count ? r + j : count - 1)) * w->row_bytes;
        UNROLL
        for (int j = 0; j < STREAM_ROWS; j++)
            lanes[j] = _mm512_setzero_ps();
        for (size_t k = 0; k < whole; k += LANES) {
            __m512 xv = _mm512_loadu_ps(x + k);

            UNROLL
            for (int j = 0; j < STREAM_ROWS; j++) {
                _mm_prefetch((const char *)p[j] + ahead + k * bytes, _MM_HINT_T0);
                lanes[j] = _mm512_fmadd_ps(load(p[j] + k * bytes, ALL_LANES), xv, lanes[j]);
            }
        }
        if (rest) {
            __m512 xv = _mm512_maskz_loadu_ps(rest, x + whole);

            UNROLL
            for (int j = 0; j < STREAM_ROWS; j++)
                lanes[j] = _mm512_fmadd_ps(load(p[j] + whole * bytes, rest), xv, lanes[j]);
        }
        _mm_storeu_ps(sums, sum_four(lanes[0], lanes[1], lanes[2], lanes[3]));
        for (uint64_t j = 0; j < STREAM_ROWS && r + j < count; j++)
            y[r + j] = sums[j];
    }
}

INLINE void decode_floats(const unsigned char *packed, size_t count, float *values, size_t bytes, load_floats *load)
{
    size_t k = 0;

    for (; k + LANES <= count; k += LANES)
        _mm512_storeu_ps(values + k, load(packed + k * bytes, ALL_LANES));
    if (k < count)
        _mm512_mask_storeu_ps(values + k, first_lanes(count - k), load(packed + k * bytes, first_lanes(count - k)));
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

#if defined(FERRY_EMULATE_AVX512)
#define kernels_avx512 kernels_avx512_emulated
#define row_kernels_plain_avx512 row_kernels_plain_avx2
extern const struct kernels kernels_avx512;
#endif

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .panel_rows = AVX512_TILE_ROWS,
    .tile = tile_avx512,
    .mix = mix_avx512,
    .row = &row_kernels_plain_avx512,
    .vector = {[WEIGHT_F32] = vector_f32,
               [WEIGHT_F16] = vector_f16,
               [WEIGHT_BF16] = vector_bf16,
               [WEIGHT_Q4_0] = vector_q4_0,
               [WEIGHT_Q4_1] = vector_q4_1,
               [WEIGHT_Q5_0] = vector_q5_0,
               [WEIGHT_Q5_1] = vector_q5_1,
               [WEIGHT_Q8_0] = vector_q8_0,
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
