/* The tree of pieces on one rank, against the recursion of the definition written out here.  (Several ranks: tests/cli
 * compares digests over meshes.) */
#include <check.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "runtime/compute.h"
#include "runtime/piece_sum.h"
#include "tests/suite.h"

static float reference(const float *values, int lo, int hi)
{
    int middle = lo + (hi - lo + 1) / 2;

    return hi - lo == 1 ? values[lo] : reference(values, lo, middle) + reference(values, middle, hi);
}

START_TEST(pieces_are_added_by_the_balanced_tree)
{
    const struct compute_options options = {.threads = 1, .simd = "plain"};
    struct compute *compute = NULL;
    struct error err = {0};

    ck_assert_int_eq(cpu_compute.open(&options, &compute, &err), STATUS_OK);
    for (uint32_t pieces = 1; pieces <= 13; pieces++) {
        enum { ROWS = 3, COLS = 5 };
        struct piece_sum *sum = NULL;
        float *whole = NULL;
        uint64_t waited = 0;
        float column[16];

        ck_assert_int_eq(piece_sum_create(pieces, 1, 0, NULL, NULL, ROWS, COLS, &sum, &err), STATUS_OK);
        for (uint32_t p = 0; p < pieces; p++)
            for (int i = 0; i < ROWS * COLS; i++)
                piece_sum_partial(sum, p, ROWS)[i] =
                    (float)((p * 7919 + (uint32_t)i * 104729) % 1000) * 1.37e-3f - 0.5f;
        float expected[ROWS * COLS];

        for (int i = 0; i < ROWS * COLS; i++) {
            for (uint32_t p = 0; p < pieces; p++)
                column[p] = piece_sum_partial(sum, p, ROWS)[i];
            expected[i] = reference(column, 0, (int)pieces);
        }
        ck_assert_int_eq(piece_sum_run(sum, &cpu_compute, compute, ROWS, &whole, &waited, &err), STATUS_OK);
        ck_assert_mem_eq(whole, expected, sizeof expected);
        piece_sum_destroy(sum);
    }
    cpu_compute.close(compute);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("piece_sum");
    TCase *all = tcase_create("all");

    tcase_add_test(all, pieces_are_added_by_the_balanced_tree);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
