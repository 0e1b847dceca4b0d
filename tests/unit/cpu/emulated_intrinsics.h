/* The AVX-512 instructions that backends/cpu/avx512*.c use, each in plain C as its description reads: the test double
 * for a processor that is not here.  128- and 256-bit instructions are the processor's own (AVX2). */
#ifndef TESTS_UNIT_CPU_EMULATED_INTRINSICS_H
#define TESTS_UNIT_CPU_EMULATED_INTRINSICS_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

struct emulated_floats {
    float f[16];
};
struct emulated_ints {
    uint32_t u[16];
};

#define __m512 struct emulated_floats
#define __m512i struct emulated_ints

/* Some are macros of the compiler's headers, depending on the optimisation. */
#undef _mm512_setzero_ps
#undef _mm512_set1_ps
#undef _mm512_setr_ps
#undef _mm512_add_ps
#undef _mm512_mul_ps
#undef _mm512_fmadd_ps
#undef _mm512_loadu_ps
#undef _mm512_maskz_loadu_ps
#undef _mm512_storeu_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_castps512_ps256
#undef _mm512_extractf32x8_ps
#undef _mm512_broadcastss_ps
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtph_ps
#undef _mm512_srli_epi32
#undef _mm512_slli_epi32
#undef _mm512_castsi512_ps
#undef _mm512_permutexvar_ps
#undef _mm512_mask_permutexvar_ps
#undef _mm256_maskz_loadu_epi16
#undef _mm_test_epi8_mask

/* The compiler's own functions of these names need a processor that has them. */
#define _mm512_setzero_ps() emulated_set1(0.0f)
#define _mm512_set1_ps emulated_set1
#define _mm512_setr_ps(...) ((struct emulated_floats){{__VA_ARGS__}})
#define _mm512_add_ps emulated_add
#define _mm512_mul_ps emulated_mul
#define _mm512_fmadd_ps emulated_fmadd
#define _mm512_loadu_ps(p) emulated_load(p, 0xffff)
#define _mm512_maskz_loadu_ps(mask, p) emulated_load(p, mask)
#define _mm512_storeu_ps(p, a) emulated_store(p, 0xffff, a)
#define _mm512_mask_storeu_ps(p, mask, a) emulated_store(p, mask, a)
#define _mm512_castps512_ps256(a) emulated_half(a, 0)
#define _mm512_extractf32x8_ps(a, half) emulated_half(a, half)
#define _mm512_broadcastss_ps(a) emulated_set1(_mm_cvtss_f32(a))
#define _mm512_cvtepu8_epi32 emulated_widen_u8
#define _mm512_cvtepi8_epi32 emulated_widen_i8
#define _mm512_cvtepu16_epi32 emulated_widen_u16
#define _mm512_cvtepi32_ps emulated_to_float
#define _mm512_cvtph_ps emulated_from_half
#define _mm512_srli_epi32 emulated_shift_right
#define _mm512_slli_epi32 emulated_shift_left
#define _mm512_castsi512_ps emulated_reinterpret
#define _mm512_permutexvar_ps(index, a) emulated_permute(a, 0xffff, index, a)
#define _mm512_mask_permutexvar_ps emulated_permute
#define _mm256_maskz_loadu_epi16 emulated_load_u16
#define _mm_test_epi8_mask emulated_test_bytes

/* Not inlined: hundreds of uses a kernel make the compiler slow. */
#define EMULATED static __attribute__((noinline, unused))

EMULATED struct emulated_floats emulated_set1(float value)
{
    struct emulated_floats r;

    for (int i = 0; i < 16; i++)
        r.f[i] = value;
    return r;
}

EMULATED struct emulated_floats emulated_add(struct emulated_floats a, struct emulated_floats b)
{
    for (int i = 0; i < 16; i++)
        a.f[i] += b.f[i];
    return a;
}

EMULATED struct emulated_floats emulated_mul(struct emulated_floats a, struct emulated_floats b)
{
    for (int i = 0; i < 16; i++)
        a.f[i] *= b.f[i];
    return a;
}

EMULATED struct emulated_floats emulated_fmadd(struct emulated_floats a, struct emulated_floats b,
                                               struct emulated_floats c)
{
    for (int i = 0; i < 16; i++)
        c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
    return c;
}

/* Masked-out elements are not touched in memory. */
EMULATED struct emulated_floats emulated_load(const void *p, unsigned mask)
{
    struct emulated_floats r = {{0}};

    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1u)
            memcpy(&r.f[i], (const char *)p + 4 * i, 4);
    }
    return r;
}

EMULATED void emulated_store(void *p, unsigned mask, struct emulated_floats a)
{
    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1u)
            memcpy((char *)p + 4 * i, &a.f[i], 4);
    }
}

EMULATED __m256 emulated_half(struct emulated_floats a, int half)
{
    return _mm256_loadu_ps(a.f + 8 * half);
}

EMULATED struct emulated_ints emulated_widen_u8(__m128i a)
{
    struct emulated_ints r;
    uint8_t bytes[16];

    memcpy(bytes, &a, sizeof bytes);
    for (int i = 0; i < 16; i++)
        r.u[i] = bytes[i];
    return r;
}

EMULATED struct emulated_ints emulated_widen_i8(__m128i a)
{
    struct emulated_ints r;
    int8_t bytes[16];

    memcpy(bytes, &a, sizeof bytes);
    for (int i = 0; i < 16; i++)
        r.u[i] = (uint32_t)(int32_t)bytes[i];
    return r;
}

EMULATED struct emulated_ints emulated_widen_u16(__m256i a)
{
    struct emulated_ints r;
    uint16_t words[16];

    memcpy(words, &a, sizeof words);
    for (int i = 0; i < 16; i++)
        r.u[i] = words[i];
    return r;
}

EMULATED struct emulated_floats emulated_to_float(struct emulated_ints a)
{
    struct emulated_floats r;

    for (int i = 0; i < 16; i++)
        r.f[i] = (float)(int32_t)a.u[i];
    return r;
}

EMULATED struct emulated_floats emulated_from_half(__m256i a)
{
    struct emulated_floats r;
    uint16_t words[16];

    memcpy(words, &a, sizeof words);
    for (int i = 0; i < 16; i++)
        r.f[i] = f16_to_f32(words[i]);
    return r;
}

EMULATED struct emulated_ints emulated_shift_right(struct emulated_ints a, unsigned count)
{
    for (int i = 0; i < 16; i++)
        a.u[i] >>= count;
    return a;
}

EMULATED struct emulated_ints emulated_shift_left(struct emulated_ints a, unsigned count)
{
    for (int i = 0; i < 16; i++)
        a.u[i] <<= count;
    return a;
}

EMULATED struct emulated_floats emulated_reinterpret(struct emulated_ints a)
{
    struct emulated_floats r;

    memcpy(&r, &a, sizeof r);
    return r;
}

/* Element i of the result is a[index[i] mod 16] where the mask has bit i, else source[i]. */
EMULATED struct emulated_floats emulated_permute(struct emulated_floats source, unsigned mask,
                                                 struct emulated_ints index, struct emulated_floats a)
{
    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1u)
            source.f[i] = a.f[index.u[i] & 15u];
    }
    return source;
}

EMULATED __m256i emulated_load_u16(unsigned mask, const void *p)
{
    uint16_t words[16] = {0};

    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1u)
            memcpy(&words[i], (const char *)p + 2 * i, 2);
    }
    return _mm256_loadu_si256((const __m256i *)(const void *)words);
}

EMULATED __mmask16 emulated_test_bytes(__m128i a, __m128i b)
{
    uint8_t x[16];
    uint8_t y[16];
    unsigned mask = 0;

    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 16; i++)
        mask |= (unsigned)((x[i] & y[i]) != 0) << i;
    return (__mmask16)mask;
}

#endif
