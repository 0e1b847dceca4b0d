/* Four weight rows at a time, blocks of 32 side by side.
 *
 * The scales of a run of blocks are made first, so that the loop over blocks only loads them.  The four rows of a block
 * are worked behind each other, each with its 32 weights and its two accumulators; activations are read where they are
 * multiplied, so that the eight accumulators and a row's weights stay in the 16 registers.  The rows of a group lie
 * behind each other in memory (unless they are columns of wider ones), so one straight line of prefetches runs ahead of
 * them. */
#include "backends/cpu/avx2_stream.h"

#include <stdbool.h>
#include <string.h>

#include "backends/cpu/kernels.h"

enum {
    HALF = 8,
    ROWS = 4,
    RUN_BLOCKS = 64,   /* blocks whose scales are made at a time */
    AHEAD_BYTES = 4096 /* prefetched before they are wanted */
};

/* What differs between the types; constants in each kernel. */
struct kind {
    size_t bytes;  /* of a block */
    size_t header; /* scales in front of the quants */
    bool nibbles;  /* else bytes with a sign */
    bool bias;     /* else nibbles count from -8 */
};

/* (scale, bias) of four blocks side by side, converted together; without a bias the second is whatever follows. */
INLINE void make_scales(const unsigned char *const *p, size_t begin, size_t end, float *scales, const struct kind kind)
{
    for (size_t b = begin; b < end; b++) {
        int bits[ROWS];

        UNROLL
        for (int j = 0; j < ROWS; j++)
            memcpy(&bits[j], p[j] + b * kind.bytes, sizeof *bits);
        _mm256_storeu_ps(scales + (b - begin) * ROWS * 2,
                         _mm256_cvtph_ps(_mm_setr_epi32(bits[0], bits[1], bits[2], bits[3])));
    }
}

INLINE __m256 weight(__m256 scale, __m256 bias, __m256i q, const struct kind kind)
{
    if (kind.bias)
        return _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(q), bias);
    return _mm256_mul_ps(scale, _mm256_cvtepi32_ps(q));
}

/* lanes += w * x.  Said to the processor itself: x is part of the instruction and the sum stays in its register, where
 * compilers load and copy, and the number of instructions is what bounds these loops. */
INLINE void accumulate(__m256 *lanes, __m256 w, const float *x)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*lanes) : "x"(w), "m"(*(const float(*)[HALF])(const void *)x));
}

/* Elements 8 half + 0..7 and, 16 further on, the second eight that fall on the same lanes. */
INLINE void load_pair(const unsigned char *quants, int half, __m256i *first, __m256i *second, const struct kind kind)
{
    if (kind.nibbles) {
        __m256i q = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(quants + HALF * half)));

        *first = _mm256_and_si256(q, _mm256_set1_epi32(15));
        *second = _mm256_srli_epi32(q, 4);
        if (!kind.bias) {
            *first = _mm256_sub_epi32(*first, _mm256_set1_epi32(8));
            *second = _mm256_sub_epi32(*second, _mm256_set1_epi32(8));
        }
    } else {
        *first = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(quants + HALF * half)));
        *second = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(quants + 16 + HALF * half)));
    }
}

/* A block of one row to its lanes 0..7 and 8..15. */
INLINE void add_block(const unsigned char *quants, const float *scales, const float *x, __m256 *lanes,
                      const struct kind kind)
{
    __m256 scale = _mm256_broadcast_ss(scales);
    __m256 bias = kind.bias ? _mm256_broadcast_ss(scales + 1) : _mm256_setzero_ps();
    __m256 w[2][2];

    UNROLL
    for (int half = 0; half < 2; half++) {
        __m256i first;
        __m256i second;

        load_pair(quants, half, &first, &second, kind);
        w[0][half] = weight(scale, bias, first, kind);
        w[1][half] = weight(scale, bias, second, kind);
    }
    UNROLL
    for (int part = 0; part < 2; part++) {
        UNROLL
        for (int half = 0; half < 2; half++)
            accumulate(&lanes[half], w[part][half], x + 2 * HALF * part + HALF * half);
    }
}

/* Four rows; ahead: where the bytes lie that will be wanted, in a line. */
INLINE void stream_group(const unsigned char *const *p, size_t blocks, const unsigned char *ahead, const float *x,
                         float *sums, const struct kind kind)
{
    float scales[RUN_BLOCKS * ROWS * 2];
    __m256 lanes[ROWS][2];

    UNROLL
    for (int j = 0; j < ROWS; j++)
        lanes[j][0] = lanes[j][1] = _mm256_setzero_ps();
    for (size_t begin = 0; begin < blocks; begin += RUN_BLOCKS) {
        size_t end = begin + RUN_BLOCKS < blocks ? begin + RUN_BLOCKS : blocks;

        make_scales(p, begin, end, scales, kind);
        for (size_t b = begin; b < end; b++) {
            UNROLL
            for (size_t line = 0; line < ROWS * kind.bytes; line += 64)
                _mm_prefetch((const char *)(ahead + b * ROWS * kind.bytes + line), _MM_HINT_T0);
            UNROLL
            for (int j = 0; j < ROWS; j++)
                add_block(p[j] + b * kind.bytes + kind.header, scales + (b - begin) * ROWS * 2 + 2 * j, x + b * 32,
                          lanes[j], kind);
        }
    }
    UNROLL
    for (int j = 0; j < ROWS; j++)
        lanes[j][0] = _mm256_add_ps(lanes[j][0], lanes[j][1]);
    _mm_storeu_ps(sums, sum_four(lanes[0][0], lanes[1][0], lanes[2][0], lanes[3][0]));
}

INLINE void stream(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y,
                   const struct kind kind)
{
    size_t blocks = (size_t)w->cols / 32;

    for (uint64_t r = 0; r < count; r += ROWS) {
        const unsigned char *p[ROWS];
        float sums[ROWS];

        for (unsigned j = 0; j < ROWS; j++)
            p[j] = w->data + (size_t)(row + (r + j < count ? r + j : count - 1)) * w->row_bytes;
        stream_group(p, blocks, p[0] + AHEAD_BYTES, x, sums, kind);
        for (uint64_t j = 0; j < ROWS && r + j < count; j++)
            y[r + j] = sums[j];
    }
}

void stream_q4_0_avx2(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y)
{
    stream(w, row, count, x, y, (struct kind){.bytes = 18, .header = 2, .nibbles = true});
}

void stream_q4_1_avx2(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y)
{
    stream(w, row, count, x, y, (struct kind){.bytes = 20, .header = 4, .nibbles = true, .bias = true});
}

void stream_q8_0_avx2(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y)
{
    stream(w, row, count, x, y, (struct kind){.bytes = 34, .header = 2});
}
