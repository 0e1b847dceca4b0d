/* Functions for tables made at load, and exp: basic operations in a fixed order, so the bits are ours.
 *
 * f64 functions carry a correction beside the value where cancellation or a large factor would show: a pair (high,
 * low) whose sum is meant.  log: 2 atanh((m - 1) / (m + 1)).  sin, cos: pi / 2 subtracted in three parts, then Taylor.
 * Each stays below 1e-15 relative but for arguments that lie next to a zero of the function. */
#include "runtime/functions.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "runtime/exponential.h"

/* ln 2 and pi / 2, cut into the nearest double and the nearest doubles of what remains. */
#define LN2_HIGH 0x1.62e42fefa39efp-1
#define LN2_LOW 0x1.abc9e3b39803fp-56
#define HALF_PI_1 0x1.921fb54442d18p+0
#define HALF_PI_2 0x1.1a62633145c07p-54
#define HALF_PI_3 (-0x1.f1976b7ed8fbcp-110)

struct pair {
    double high;
    double low;
};

float numeric_exp(float x)
{
    return exponential(x);
}

/* a + b exactly. */
static struct pair two_sum(double a, double b)
{
    double sum = a + b;
    double rest = sum - a;

    return (struct pair){sum, (a - (sum - rest)) + (b - rest)};
}

/* x = m * 2^e with m in [sqrt(1/2), sqrt(2)). */
static double split_exponent(double x, int *ret_exponent)
{
    uint64_t bits;
    int exponent = 0;
    double m;

    if (x < 0x1p-1022) {
        x *= 0x1p54;
        exponent = -54;
    }
    memcpy(&bits, &x, sizeof bits);
    exponent += (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        exponent++;
    }
    *ret_exponent = exponent;
    return m;
}

/* log m = 2 f + 2 f^3 / 3 + 2 f^5 / 5 + ... with f = (m - 1) / (m + 1), |f| < 0.172. */
static struct pair log_pair(double x)
{
    int exponent;
    double m = split_exponent(x, &exponent);
    double above = m - 1.0;
    double below = m + 1.0;
    double below_low = m - (below - 1.0);
    double f = above / below;
    double f_low = (fma(-f, below, above) - f * below_low) / below;
    double s = f * f;
    double p = 1.0 / 25.0;
    struct pair sum;
    struct pair whole;

    for (int odd = 23; odd >= 3; odd -= 2)
        p = fma(p, s, 1.0 / (double)odd);
    sum = two_sum((double)exponent * LN2_HIGH, 2.0 * f);
    whole = two_sum(sum.high, 2.0 * f * s * p);
    whole.low += sum.low + 2.0 * f_low + (double)exponent * LN2_LOW;
    whole.low += fma((double)exponent, LN2_HIGH, -((double)exponent * LN2_HIGH));
    return two_sum(whole.high, whole.low);
}

double numeric_log(double x)
{
    return log_pair(x).high;
}

/* 2^n, for n that the caller keeps within the normal range. */
static double power_of_two(int n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp(high + low): 2^n times Taylor to the 14th power of a remainder below 0.35. */
static double exp_pair(struct pair x)
{
    double n;
    double r;
    double p = 1.0;

    if (x.high > 709.78)
        return INFINITY;
    if (x.high < -745.2)
        return 0.0;
    n = rint(x.high * 0x1.71547652b82fep+0);
    r = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, x.high)) + x.low;
    for (int k = 14; k >= 1; k--)
        p = fma(p, r / (double)k, 1.0);
    /* In two steps: 2^n itself may lie outside the normal range where the result does not. */
    return p * power_of_two((int)n / 2) * power_of_two((int)n - (int)n / 2);
}

double numeric_pow(double base, double exponent)
{
    struct pair log = log_pair(base);
    struct pair product;

    product.high = exponent * log.high;
    product.low = fma(exponent, log.high, -product.high) + exponent * log.low;
    return exp_pair(product);
}

/* x = quadrant * pi / 2 + remainder, |remainder| <= pi / 4.  The first subtraction is exact: |x| < 2^30. */
static struct pair reduce_angle(double x, unsigned *ret_quadrant)
{
    double n = rint(x * 0x1.45f306dc9c883p-1);
    double first = fma(-n, HALF_PI_1, x);
    double second = n * HALF_PI_2;
    double second_low = fma(n, HALF_PI_2, -second);
    struct pair r = two_sum(first, -second);

    *ret_quadrant = (unsigned)(int64_t)n & 3u;
    return two_sum(r.high, r.low - second_low - n * HALF_PI_3);
}

static double sin_series(struct pair r)
{
    double s = r.high * r.high;
    double p = 1.0;

    for (int k = 18; k >= 4; k -= 2)
        p = fma(p, -s / (double)(k * (k + 1)), 1.0);
    /* x - x^3 / 6 p + low cos(x), the smaller terms first */
    return r.high + (fma(r.high * -s / 6.0, p, r.low * (1.0 - 0.5 * s)));
}

static double cos_series(struct pair r)
{
    double s = r.high * r.high;
    double p = 1.0;

    for (int k = 17; k >= 3; k -= 2)
        p = fma(p, -s / (double)(k * (k + 1)), 1.0);
    return 1.0 - (0.5 * s * p + r.high * r.low);
}

double numeric_sin(double x)
{
    unsigned quadrant;
    struct pair r = reduce_angle(x, &quadrant);
    double value = quadrant & 1u ? cos_series(r) : sin_series(r);

    return quadrant & 2u ? -value : value;
}

double numeric_cos(double x)
{
    unsigned quadrant;
    struct pair r = reduce_angle(x, &quadrant);
    double value = quadrant & 1u ? sin_series(r) : cos_series(r);

    return (quadrant + 1u) & 2u ? -value : value;
}
