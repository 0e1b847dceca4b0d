/* The arithmetic of the kernels, as the C compiler makes it of the header that nvcc compiles too. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backends/cuda/kernels.h"
#include "tests/each.h"
#include "tests/suite.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What a half means: sign, five bits of exponent, ten of fraction. */
static double half_value(unsigned int half)
{
    int exponent = half >> 10 & 31;
    double fraction = half & 1023;
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

    return half & 0x8000 ? -value : value;
}

START_TEST(every_half_is_widened_exactly)
{
    for (unsigned int half = 0; half < 65536; half++) {
        uint16_t in = (uint16_t)half;
        uint32_t out = 0;

        kernel_widen_f16(&out, &in, 0);
        if ((half >> 10 & 31) < 31)
            assert_each((double)float_of(out) == half_value(half) && out >> 31 == half >> 15, "%04x", half);
        else if (half & 1023)
            assert_each(isnan(float_of(out)), "%04x", half);
        else
            ck_assert(isinf(float_of(out)) && out >> 31 == half >> 15);
        kernel_widen_bf16(&out, &in, 0);
        assert_each(out == half << 16, "%04x: %08x", half, out);
    }
}
END_TEST

/* Between two neighbours the nearer one is taken, in the middle the one whose last bit is 0.  above: the next larger
 * value's bits, or what stands for infinity. */
static void check_between(void (*narrow)(void *out, const void *in, kernel_u64 k), unsigned int below, double low,
                          double high)
{
    const float middle = (float)((low + high) / 2);
    const float inputs[] = {(float)low, nextafterf(middle, (float)low), middle, nextafterf(middle, INFINITY)};
    const unsigned int expected[] = {below, below, below + (below & 1), below + 1};

    for (int i = 0; i < 4; i++) {
        uint16_t out = 0;
        float negative = -inputs[i];

        narrow(&out, &inputs[i], 0);
        assert_each(out == expected[i], "%a: %04x, expected %04x", (double)inputs[i], out, expected[i]);
        narrow(&out, &negative, 0);
        assert_each(out == (expected[i] | 0x8000), "%a: %04x", (double)negative, out);
    }
}

START_TEST(singles_become_the_nearest_half_ties_to_even)
{
    for (unsigned int half = 0; half < 0x7c00; half++) {
        double next = half + 1 == 0x7c00 ? 65536.0 : half_value(half + 1);

        check_between(kernel_narrow_f16, half, half_value(half), next);
    }
}
END_TEST

START_TEST(singles_become_the_nearest_bfloat_ties_to_even)
{
    for (unsigned int brain = 0; brain < 0x7f80; brain++) {
        double next = brain + 1 == 0x7f80 ? ldexp(1, 128) : (double)float_of((brain + 1) << 16);

        check_between(kernel_narrow_bf16, brain, (double)float_of(brain << 16), next);
    }
}
END_TEST

START_TEST(what_is_no_number_stays_none)
{
    static const uint32_t odd[] = {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu};
    uint16_t out = 0;

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        kernel_narrow_f16(&out, &odd[i], 0);
        ck_assert_msg((out & 0x7c00) == 0x7c00 && (out & 0x3ff), "%08x: %04x", odd[i], out);
        ck_assert_uint_eq(out >> 15, odd[i] >> 31);
        kernel_narrow_bf16(&out, &odd[i], 0);
        ck_assert_msg((out & 0x7f80) == 0x7f80 && (out & 0x7f), "%08x: %04x", odd[i], out);
        ck_assert_uint_eq(out >> 15, odd[i] >> 31);
    }
}
END_TEST

START_TEST(infinity_and_all_beyond_the_largest_half_is_infinity)
{
    static const float large[] = {65520.0f, 65536.0f, 1e30f, INFINITY};
    uint16_t out = 0;

    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        kernel_narrow_f16(&out, &large[i], 0);
        ck_assert_uint_eq(out, 0x7c00);
    }
    kernel_narrow_bf16(&out, &large[3], 0);
    ck_assert_uint_eq(out, 0x7f80);
}
END_TEST

START_TEST(sums_are_of_the_element_alone_and_integers_wrap)
{
    float f[3] = {1.5f, 16777216.0f, -0.0f};
    const float g[3] = {2.25f, 1.0f, -0.0f};
    double d[2] = {0.1, 1e300};
    const double e[2] = {0.2, 1e300};
    uint8_t b[2] = {250, 1};
    const uint8_t c[2] = {10, 1};
    uint32_t u[2] = {UINT32_MAX, 7};
    const uint32_t v[2] = {2, 7};
    uint64_t x[2] = {UINT64_MAX, 7};
    const uint64_t y[2] = {3, 7};

    for (kernel_u64 k = 0; k < 3; k++)
        kernel_add_f32(f, g, k);
    kernel_add_f64(d, e, 0);
    kernel_add_f64(d, e, 1);
    kernel_add_u8(b, c, 0);
    kernel_add_u32(u, v, 0);
    kernel_add_u64(x, y, 0);
    ck_assert_uint_eq(bits_of(f[0]), bits_of(3.75f));
    ck_assert_uint_eq(bits_of(f[1]), bits_of(16777216.0f));
    ck_assert_uint_eq(bits_of(f[2]), bits_of(-0.0f));
    ck_assert(d[0] == 0.30000000000000004 && d[1] == 2e300);
    ck_assert_uint_eq(b[0], 4);
    ck_assert_uint_eq(b[1], 1);
    ck_assert_uint_eq(u[0], 1);
    ck_assert_uint_eq(u[1], 7);
    ck_assert_uint_eq(x[0], 2);
    ck_assert_uint_eq(x[1], 7);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels");
    TCase *tests = tcase_create("kernels");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_half_is_widened_exactly);
    tcase_add_test(tests, singles_become_the_nearest_half_ties_to_even);
    tcase_add_test(tests, singles_become_the_nearest_bfloat_ties_to_even);
    tcase_add_test(tests, what_is_no_number_stays_none);
    tcase_add_test(tests, infinity_and_all_beyond_the_largest_half_is_infinity);
    tcase_add_test(tests, sums_are_of_the_element_alone_and_integers_wrap);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
