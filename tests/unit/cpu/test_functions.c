/* The functions of the definition against the C library, whose own errors are below one unit in the last place. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "runtime/functions.h"
#include "tests/each.h"
#include "tests/unit/cpu/reference.h"
#include "tests/suite.h"

enum { SAMPLES = 200000 };
static const double tolerance = 1e-13;

static double uniform(struct random *random)
{
    return (double)random_bits(random) * 0x1p-31 - 1.0;
}

static void check_near(const char *name, double x, double value, double expected)
{
    assert_each(fabs(value - expected) <= tolerance * fabs(expected), "%s(%.17g) = %.17g, expected %.17g", name, x,
                value, expected);
}

START_TEST(log_agrees_from_subnormals_to_the_largest)
{
    struct random random = {1};

    for (int i = 0; i < SAMPLES; i++) {
        double wide = exp(uniform(&random) * 700.0);
        double near_one = 1.0 + uniform(&random) * 0x1p-10;

        check_near("log", wide, numeric_log(wide), log(wide));
        check_near("log", near_one, numeric_log(near_one), log(near_one));
    }
    check_near("log", 0x1p-1074, numeric_log(0x1p-1074), log(0x1p-1074));
    ck_assert(numeric_log(1.0) == 0.0);
}
END_TEST

START_TEST(pow_agrees_over_the_whole_range)
{
    struct random random = {2};

    for (int i = 0; i < SAMPLES; i++) {
        double base = exp(uniform(&random) * 30.0);
        double exponent = uniform(&random) * 22.0;

        check_near("pow", base, numeric_pow(base, exponent), pow(base, exponent));
    }
    for (int i = 0; i < 64; i++)
        check_near("pow", i, numeric_pow(500000.0, -2.0 * i / 128.0), pow(500000.0, -2.0 * i / 128.0));
    ck_assert(numeric_pow(7.0, 0.0) == 1.0);
}
END_TEST

START_TEST(sin_and_cos_agree_up_to_two_to_the_thirtieth)
{
    struct random random = {3};
    static const double ranges[] = {0.5, 10.0, 100000.0, 1073741000.0};

    for (int i = 0; i < SAMPLES; i++) {
        double x = uniform(&random) * ranges[i % 4];

        check_near("sin", x, numeric_sin(x), sin(x));
        check_near("cos", x, numeric_cos(x), cos(x));
    }
    /* next to a multiple of pi / 2 almost everything cancels */
    for (int i = 1; i < 1000; i++) {
        double x = (double)i * 1.5707963267948966;

        check_near("sin", x, numeric_sin(x), sin(x));
        check_near("cos", x, numeric_cos(x), cos(x));
    }
    ck_assert(numeric_sin(0.0) == 0.0 && numeric_cos(0.0) == 1.0);
}
END_TEST

START_TEST(exp_is_within_an_ulp_and_defined_everywhere)
{
    for (float x = -87.0f; x <= 88.0f; x += 0x1p-11f) {
        double expected = exp((double)x);

        assert_each(fabs((double)numeric_exp(x) - expected) <= 1.2e-7 * expected, "exp(%a)", (double)x);
    }
    ck_assert(numeric_exp(0.0f) == 1.0f && numeric_exp(-0.0f) == 1.0f);
    ck_assert(numeric_exp(-87.01f) == 0.0f && numeric_exp(-INFINITY) == 0.0f);
    ck_assert(numeric_exp(1000.0f) == numeric_exp(88.0f) && numeric_exp(INFINITY) == numeric_exp(88.0f));
    ck_assert(isnan(numeric_exp(NAN)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("functions");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 60);
    tcase_add_test(all, log_agrees_from_subnormals_to_the_largest);
    tcase_add_test(all, pow_agrees_over_the_whole_range);
    tcase_add_test(all, sin_and_cos_agree_up_to_two_to_the_thirtieth);
    tcase_add_test(all, exp_is_within_an_ulp_and_defined_everywhere);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
