/* The rule for cuts, with the numbers of the definition. */
#include <check.h>
#include <string.h>

#include "runtime/cut.h"
#include "tests/suite.h"

static void assert_parts(uint64_t total, uint64_t unit, uint32_t pieces, uint32_t parts, const uint64_t *expected)
{
    struct cut cut;
    uint64_t start = 0;

    ck_assert_int_eq(cut_init(total, unit, pieces, "things", &cut, NULL), STATUS_OK);
    for (uint32_t part = 0; part < parts; part++) {
        struct share range = cut_range(&cut, parts, part);

        ck_assert_uint_eq(range.start, start);
        ck_assert_uint_eq(range.count, expected[part]);
        start += range.count;
    }
    ck_assert_uint_eq(start, total);
    cut_done(&cut);
}

START_TEST(units_are_dealt_balanced_and_the_first_get_one_more)
{
    assert_parts(9, 1, 2, 2, (uint64_t[]){5, 4});
    assert_parts(11008, 256, 2, 2, (uint64_t[]){22 * 256, 21 * 256});
    assert_parts(1536, 32, 2, 2, (uint64_t[]){768, 768});
    /* B139: 6 heads over 4 ranks are legal. */
    assert_parts(6, 1, 4, 4, (uint64_t[]){2, 2, 1, 1});
}
END_TEST

START_TEST(pieces_stay_whole_when_fewer_ranks_share_them)
{
    /* 9 heads in 4 pieces are 3, 2, 2, 2: two ranks get 5 and 4, one gets all. */
    assert_parts(9, 1, 4, 4, (uint64_t[]){3, 2, 2, 2});
    assert_parts(9, 1, 4, 2, (uint64_t[]){5, 4});
    assert_parts(9, 1, 4, 1, (uint64_t[]){9});
    assert_parts(12, 1, 6, 4, (uint64_t[]){4, 4, 2, 2});
}
END_TEST

START_TEST(a_last_unit_may_be_short)
{
    assert_parts(70, 32, 3, 3, (uint64_t[]){32, 32, 6});
}
END_TEST

START_TEST(more_pieces_than_units_are_refused_with_the_possible_numbers)
{
    struct error err = {0};
    struct cut cut = {.pieces = 77};

    ck_assert_int_eq(cut_init(9, 1, 10, "query heads", &cut, &err), STATUS_MODEL);
    ck_assert_str_eq(err.text, "query heads: 9 in units of 1 cannot be cut in 10 pieces, 1 to 9 are possible");
    ck_assert_int_eq(cut_init(256, 256, 2, "the feed-forward dimension", &cut, &err), STATUS_MODEL);
    ck_assert(strstr(err.text, "cannot be cut at all"));
    ck_assert_int_eq(cut_init(1 << 20, 1, CUT_MAX_PIECES + 1, "rows", &cut, &err), STATUS_MODEL);
    ck_assert(strstr(err.text, "1 to 1024"));
    ck_assert_int_eq(cut_init(0, 1, 1, "rows", &cut, &err), STATUS_INVALID);
    ck_assert_uint_eq(cut.pieces, 77);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cut");
    TCase *tests = tcase_create("cut");

    tcase_add_test(tests, units_are_dealt_balanced_and_the_first_get_one_more);
    tcase_add_test(tests, pieces_stay_whole_when_fewer_ranks_share_them);
    tcase_add_test(tests, a_last_unit_may_be_short);
    tcase_add_test(tests, more_pieces_than_units_are_refused_with_the_possible_numbers);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
