/* One AVX-512 vector is the 16 lanes of a dot: how they are added, and how fewer of them are read. */
#ifndef BACKENDS_CPU_AVX512_LANES_H
#define BACKENDS_CPU_AVX512_LANES_H

#include <stddef.h>

#include "backends/cpu/avx512_intrinsics.h"
#include "backends/cpu/inline.h"

/* Lanes i and i + 8; i + 4, i + 2 and i + 1 are added to them afterwards. */
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

INLINE __mmask16 first_lanes(size_t count)
{
    return (__mmask16)((1u << count) - 1u);
}

#endif
