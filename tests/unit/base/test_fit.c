/* Would it fit: the borders, and what is not known. */
#include <check.h>
#include "base/fit.h"
#include "tests/suite.h"

START_TEST(eighty_five_of_a_hundred_is_comfortable_and_one_more_is_tight)
{
    struct memory_space empty = {100, 100};
    struct memory_space half = {50, 100};

    ck_assert_int_eq(would_fit(85, empty), FIT_COMFORTABLE);
    ck_assert_int_eq(would_fit(86, empty), FIT_TIGHT);
    ck_assert_int_eq(would_fit(100, empty), FIT_TIGHT);
    ck_assert_int_eq(would_fit(101, empty), FIT_NOT);
    ck_assert_int_eq(would_fit(35, half), FIT_COMFORTABLE);
    ck_assert_int_eq(would_fit(36, half), FIT_TIGHT);
    ck_assert_int_eq(would_fit(0, (struct memory_space){15, 100}), FIT_COMFORTABLE);
    ck_assert_int_eq(would_fit(0, (struct memory_space){14, 100}), FIT_TIGHT);
    ck_assert_int_eq(would_fit(16, (struct memory_space){19, 19}), FIT_COMFORTABLE); /* 85 % of 19 is 16.15 */
    ck_assert_int_eq(would_fit(17, (struct memory_space){19, 19}), FIT_TIGHT);
    ck_assert_int_eq(would_fit(51, half), FIT_NOT);
}
END_TEST

START_TEST(what_nobody_says_is_unknown_and_not_zero)
{
    ck_assert_int_eq(would_fit(1, (struct memory_space){0, 0}), FIT_UNKNOWN);
    ck_assert_int_eq(would_fit(1, (struct memory_space){MEMORY_UNKNOWN, MEMORY_UNKNOWN}), FIT_UNKNOWN);
    ck_assert_int_eq(would_fit(1, (struct memory_space){MEMORY_UNKNOWN, 100}), FIT_UNKNOWN);
    ck_assert_int_eq(would_fit(1, (struct memory_space){100, MEMORY_UNKNOWN}), FIT_UNKNOWN);
    ck_assert_int_eq(would_fit(101, (struct memory_space){100, MEMORY_UNKNOWN}), FIT_NOT);
    ck_assert_int_eq(would_fit(1, (struct memory_space){0, 100}), FIT_NOT);
}
END_TEST

START_TEST(odd_numbers_do_not_wrap)
{
    ck_assert_int_eq(would_fit(10, (struct memory_space){200, 100}), FIT_COMFORTABLE);
    ck_assert_int_eq(would_fit(UINT64_MAX, (struct memory_space){100, 200}), FIT_NOT);
    ck_assert_int_eq(would_fit(UINT64_MAX - 1, (struct memory_space){UINT64_MAX - 1, UINT64_MAX - 1}), FIT_TIGHT);
}
END_TEST

START_TEST(this_machine_has_memory)
{
    struct memory_space here = memory_here();

    ck_assert_uint_gt(here.total, 1 << 20);
    ck_assert_uint_le(here.available, here.total);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fit");
    TCase *all = tcase_create("all");

    tcase_add_test(all, eighty_five_of_a_hundred_is_comfortable_and_one_more_is_tight);
    tcase_add_test(all, what_nobody_says_is_unknown_and_not_zero);
    tcase_add_test(all, odd_numbers_do_not_wrap);
    tcase_add_test(all, this_machine_has_memory);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
