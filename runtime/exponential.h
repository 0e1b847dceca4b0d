/* The one polynomial of exp in f32, inline so that a loop over it vectorises with the same bits. */
#ifndef RUNTIME_EXPONENTIAL_H
#define RUNTIME_EXPONENTIAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* 0 below -87; arguments above 88 are taken as 88; not-a-number stays one.  Selections of values
 * instead of branches, also where the result is 0: a loop over this must vectorise.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, so exp(x) = 2^n exp(r).  Adding 1.5 * 2^23 rounds to an integer and leaves n in
 * the low bits of the sum; shifting them by 23 makes the exponent, and pushes everything above them out.  ln 2 is
 * subtracted in two parts, the first of few bits so that its product with n is exact. */
static inline float exponential(float x)
{
    const float magic = 12582912.0f;
    float below = x > 88.0f ? 88.0f : x;
    float capped = below < -88.0f ? -88.0f : below;
    float shifted = capped * 1.44269504f + magic;
    float n = shifted - magic;
    float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, capped));
    float p = 1.9875691500e-4f;
    uint32_t bits;
    float power;

    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23;
    bits &= 0u - (uint32_t)(x >= -87.0f);
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
