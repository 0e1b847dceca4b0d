/* The kernels for AVX-512 (F, BW, DQ, VL): one vector is the 16 lanes of a dot.
 *
 * Small quants are looked up, not computed: the 16 (or 32) values that a block can have are made with the definition's
 * one operation each, and a permutation picks them by the quants' low four bits. */
#include "backends/cpu/avx512_intrinsics.h"

#include <string.h>

#include "backends/cpu/inline.h"
#include "backends/cpu/kernels.h"

enum {
    STREAM_ROWS = 4,     /* weight rows multiplied together with one activation row */
    STREAM_SCALES = 512, /* floats of scales prepared at a time for those rows: 2048 columns' worth */
    STREAM_AHEAD = 4096  /* bytes to prefetch ahead, at least */
};

/* ---- Sums of lanes: i + 8, then i + 4, i + 2, i + 1 ---- */

INLINE __m256 add_halves(__m512 a)
{
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}

/* The sums of four vectors. */
INLINE __m128 sum_four(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m256 a8 = add_halves(a);
    __m256 b8 = add_halves(b);
    __m256 c8 = add_halves(c);
    __m256 d8 = add_halves(d);
    /* a0 a1 a2 a3 b0 b1 b2 b3, each already the sum of i and i + 4 */
    __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
    __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
    /* a0 a1 c0 c1 b0 b1 d0 d1 */
    __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    /* a c a c b d b d */
    __m256 one = _mm256_add_ps(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xdd));

    return _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1));
}

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
    size_t cols = (size_t)shape.groups * (size_t)shape.parts * LANES;
    size_t blocks = (size_t)w->cols / cols;
    size_t run = STREAM_SCALES / STREAM_ROWS / scale_count;
    size_t ahead = bytes_ahead(w->row_bytes);
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
                /* Small blocks: the rows lie behind each other, so one straight line of prefetches runs ahead. */
                for (size_t line = 0; bytes <= 64 && line < STREAM_ROWS * bytes; line += 64)
                    _mm_prefetch((const char *)p[0] + STREAM_AHEAD + b * STREAM_ROWS * bytes + line, _MM_HINT_T0);
                UNROLL
                for (int j = 0; j < STREAM_ROWS; j++) {
                    const unsigned char *block = p[j] + b * bytes;

                    for (size_t line = 0; bytes > 64 && line < bytes; line += 64)
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

#define BLOCK_KERNELS(type, prepare, ...)                                                                              \
    static void vector_##type(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y)          \
    {                                                                                                                  \
        stream_blocks(w, row, count, x, y, (struct block_shape){__VA_ARGS__}, prepare, part_##type);                   \
    }                                                                                                                  \
    static void decode_##type(const unsigned char *packed, size_t count, float *values)                                \
    {                                                                                                                  \
        decode_blocks(packed, count, values, (struct block_shape){__VA_ARGS__}, prepare, part_##type);                 \
    }

BLOCK_KERNELS(q4_0, prepare_two, .bytes = 18, .groups = 1, .parts = 2, .scales = 2)
BLOCK_KERNELS(q4_1, prepare_two, .bytes = 20, .groups = 1, .parts = 2, .scales = 2)
BLOCK_KERNELS(q5_0, prepare_two, .bytes = 22, .groups = 1, .parts = 2, .scales = 2)
BLOCK_KERNELS(q5_1, prepare_two, .bytes = 24, .groups = 1, .parts = 2, .scales = 2)
BLOCK_KERNELS(q8_0, prepare_two, .bytes = 34, .groups = 1, .parts = 2, .scales = 2)
BLOCK_KERNELS(q4_k, prepare_k, .bytes = 144, .groups = 4, .parts = 4, .scales = 16)
BLOCK_KERNELS(q5_k, prepare_k, .bytes = 176, .groups = 4, .parts = 4, .scales = 16)
BLOCK_KERNELS(q6_k, prepare_q6_k, .bytes = 210, .groups = 2, .parts = 8, .scales = 16)

/* ---- Float types: 16 elements at any address, or the fewer at a row's end ---- */

typedef __m512 load_floats(const unsigned char *packed, __mmask16 mask);

#define ALL_LANES ((__mmask16)0xffff)

INLINE __mmask16 first_lanes(size_t count)
{
    return (__mmask16)((1u << count) - 1u);
}

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
    size_t ahead = bytes_ahead(w->row_bytes);

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

/* ---- Decoded panels against several activation rows ---- */

enum { TILE_ROWS = 6, TILE_TOKENS = 4 };

/* R weight rows from r on against T activation rows from t on; R and T are constants. */
INLINE void tile_dots(const struct tile *tile, size_t r, size_t t, int R, int T)
{
    const float *w = tile->panel + r * tile->stride;
    const float *x = tile->x + t * tile->ldx;
    float *kept = tile->lanes ? tile->lanes + (r * tile->tokens + t) * LANES : NULL;
    size_t whole = tile->cols / LANES * LANES;
    __mmask16 rest = first_lanes(tile->cols % LANES);
    __m512 lanes[TILE_ROWS][TILE_TOKENS];

    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int j = 0; j < T; j++)
            lanes[i][j] = kept && !tile->first ? _mm512_loadu_ps(kept + ((size_t)i * tile->tokens + (size_t)j) * LANES)
                                               : _mm512_setzero_ps();
    }
    for (size_t k = 0; k < whole; k += LANES) {
        __m512 xv[TILE_TOKENS];

        UNROLL
        for (int j = 0; j < T; j++)
            xv[j] = _mm512_loadu_ps(x + (size_t)j * tile->ldx + k);
        UNROLL
        for (int i = 0; i < R; i++) {
            __m512 wv = _mm512_loadu_ps(w + (size_t)i * tile->stride + k);

            UNROLL
            for (int j = 0; j < T; j++)
                lanes[i][j] = _mm512_fmadd_ps(wv, xv[j], lanes[i][j]);
        }
    }
    if (rest) {
        UNROLL
        for (int i = 0; i < R; i++) {
            __m512 wv = _mm512_loadu_ps(w + (size_t)i * tile->stride + whole);

            UNROLL
            for (int j = 0; j < T; j++)
                lanes[i][j] =
                    _mm512_fmadd_ps(wv, _mm512_maskz_loadu_ps(rest, x + (size_t)j * tile->ldx + whole), lanes[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        if (kept && !tile->last) {
            UNROLL
            for (int j = 0; j < T; j++)
                _mm512_storeu_ps(kept + ((size_t)i * tile->tokens + (size_t)j) * LANES, lanes[i][j]);
        } else {
            float sums[TILE_TOKENS];

            _mm_storeu_ps(sums, sum_four(lanes[i][0], T > 1 ? lanes[i][1] : lanes[i][0],
                                         T > 2 ? lanes[i][2] : lanes[i][0], T > 3 ? lanes[i][3] : lanes[i][0]));
            UNROLL
            for (int j = 0; j < T; j++)
                tile->y[(t + (size_t)j) * tile->ldy + r + (size_t)i] = sums[j];
        }
    }
}

INLINE void tile_rows(const struct tile *tile, size_t r, int R)
{
    size_t t = 0;

    for (; t + TILE_TOKENS <= tile->tokens; t += TILE_TOKENS)
        tile_dots(tile, r, t, R, TILE_TOKENS);
    if (tile->tokens - t == 3)
        tile_dots(tile, r, t, R, 3);
    else if (tile->tokens - t == 2)
        tile_dots(tile, r, t, R, 2);
    else if (tile->tokens - t == 1)
        tile_dots(tile, r, t, R, 1);
}

static void tile_avx512(const struct tile *tile)
{
    size_t r = 0;

    for (; r + TILE_ROWS <= tile->rows; r += TILE_ROWS)
        tile_rows(tile, r, TILE_ROWS);
    for (; r + 2 <= tile->rows; r += 2)
        tile_rows(tile, r, 2);
    if (r < tile->rows)
        tile_rows(tile, r, 1);
}

/* ---- Weighted sums of value rows ---- */

/* R rows from r on, D vectors of channels from d on; constants. */
INLINE void mix_sums(const struct mix *mix, size_t r, size_t d, int R, int D)
{
    const float *weight = mix->weight + r * mix->ldw;
    const float *value = mix->value + d;
    float *out = mix->out + r * mix->ldo + d;
    __m512 sum[6][4];

    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < D; v++)
            sum[i][v] = _mm512_loadu_ps(out + (size_t)i * mix->ldo + (size_t)v * LANES);
    }
    for (size_t j = 0; j < mix->count; j++) {
        __m512 row[4];

        UNROLL
        for (int v = 0; v < D; v++)
            row[v] = _mm512_loadu_ps(value + j * mix->ldv + (size_t)v * LANES);
        UNROLL
        for (int i = 0; i < R; i++) {
            __m512 w = _mm512_set1_ps(weight[(size_t)i * mix->ldw + j]);

            UNROLL
            for (int v = 0; v < D; v++)
                sum[i][v] = _mm512_fmadd_ps(w, row[v], sum[i][v]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < D; v++)
            _mm512_storeu_ps(out + (size_t)i * mix->ldo + (size_t)v * LANES, sum[i][v]);
    }
}

INLINE void mix_rows(const struct mix *mix, size_t r, int R)
{
    size_t d = 0;

    for (; d + (size_t)4 * LANES <= mix->width; d += (size_t)4 * LANES)
        mix_sums(mix, r, d, R, 4);
    for (; d < mix->width; d += LANES)
        mix_sums(mix, r, d, R, 1);
}

static void mix_avx512(const struct mix *mix)
{
    size_t r = 0;

    for (; r + 6 <= mix->rows; r += 6)
        mix_rows(mix, r, 6);
    for (; r + 3 <= mix->rows; r += 3)
        mix_rows(mix, r, 3);
    for (; r < mix->rows; r++)
        mix_rows(mix, r, 1);
}

#if defined(FERRY_EMULATE_AVX512)
#define kernels_avx512 kernels_avx512_emulated
#define row_kernels_plain_avx512 row_kernels_plain_avx2
extern const struct kernels kernels_avx512;
#endif

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .panel_rows = TILE_ROWS,
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
