/* One activation row against the hottest packed types: the loops that bound decoding, written out. */
#ifndef BACKENDS_CPU_AVX2_STREAM_H
#define BACKENDS_CPU_AVX2_STREAM_H

#include <immintrin.h>
#include <stdint.h>

#include "backends/cpu/inline.h"

struct matrix;

/* The sums of four vectors: lanes i + 4 are added first, then i + 2, i + 1. */
INLINE __m128 sum_four(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    /* a0 a1 c0 c1 b0 b1 d0 d1 */
    __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    /* a c a c b d b d */
    __m256 one = _mm256_add_ps(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xdd));

    return _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1));
}

/* y[i] = dot(row + i of w, x), i < count: vector_kernel's contract (kernels.h). */
void stream_q4_0_avx2(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y);
void stream_q4_1_avx2(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y);
void stream_q8_0_avx2(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y);

#endif
