/* Would it fit: the borders, and what is not known. */
#include "fixture.h"
#include "runtime/fit.h"

START_TEST(eighty_five_of_a_hundred_is_comfortable_and_one_more_is_tight)
{
    struct memory_size empty = {100, 100};
    struct memory_size half = {50, 100};

    ck_assert_int_eq(would_fit(85, empty), FIT_COMFORTABLE);
    ck_assert_int_eq(would_fit(86, empty), FIT_TIGHT);
    ck_assert_int_eq(would_fit(100, empty), FIT_TIGHT);
    ck_assert_int_eq(would_fit(101, empty), FIT_NOT);
    ck_assert_int_eq(would_fit(35, half), FIT_COMFORTABLE);
    ck_assert_int_eq(would_fit(36, half), FIT_TIGHT);
    ck_assert_int_eq(would_fit(51, half), FIT_NOT);
}
END_TEST

START_TEST(what_nobody_says_is_unknown_and_not_zero)
{
    ck_assert_int_eq(would_fit(1, (struct memory_size){0, 0}), FIT_UNKNOWN);
    ck_assert_int_eq(would_fit(1, (struct memory_size){MEMORY_UNKNOWN, MEMORY_UNKNOWN}), FIT_UNKNOWN);
    ck_assert_int_eq(would_fit(1, (struct memory_size){MEMORY_UNKNOWN, 100}), FIT_UNKNOWN);
    ck_assert_int_eq(would_fit(1, (struct memory_size){100, MEMORY_UNKNOWN}), FIT_UNKNOWN);
    ck_assert_int_eq(would_fit(101, (struct memory_size){100, MEMORY_UNKNOWN}), FIT_NOT);
    ck_assert_int_eq(would_fit(1, (struct memory_size){0, 100}), FIT_NOT);
}
END_TEST

START_TEST(odd_numbers_do_not_wrap)
{
    ck_assert_int_eq(would_fit(10, (struct memory_size){200, 100}), FIT_COMFORTABLE);
    ck_assert_int_eq(would_fit(UINT64_MAX, (struct memory_size){100, 200}), FIT_NOT);
    ck_assert_int_eq(would_fit(UINT64_MAX - 1, (struct memory_size){UINT64_MAX - 1, UINT64_MAX - 1}), FIT_TIGHT);
}
END_TEST

START_TEST(this_machine_has_memory)
{
    struct memory_size here = memory_here();

    ck_assert_uint_gt(here.total, 1 << 20);
    ck_assert_uint_le(here.available, here.total);
}
END_TEST

CHECK_MAIN("fit", eighty_five_of_a_hundred_is_comfortable_and_one_more_is_tight,
           what_nobody_says_is_unknown_and_not_zero, odd_numbers_do_not_wrap, this_machine_has_memory)
