/* Strided copies, and those past the cache, of every short length, against a loop over bytes. */
#include <check.h>
#include <stdbool.h>
#include <string.h>

#include "base/runs.h"
#include "base/stream.h"
#include "tests/suite.h"

enum { MOST = 700, LONGEST = 5000, ROWS = 5, GAP = 3, ROOM = ROWS * (LONGEST + GAP) + 16 };

static unsigned char from[ROOM];
static unsigned char to[ROOM];
static unsigned char expected[ROOM];

static void try_run(size_t run, size_t to_stride, size_t from_stride, size_t rows)
{
    memset(to, 0xee, sizeof to);
    memset(expected, 0xee, sizeof expected);
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < run; k++)
            expected[1 + i * to_stride + k] = from[1 + i * from_stride + k];
    }
    runs_copy(to + 1, to_stride, from + 1, from_stride, run, rows);
    ck_assert_msg(!memcmp(to, expected, sizeof to), "%zu runs of %zu bytes, %zu and %zu apart", rows, run, to_stride,
                  from_stride);
    if (!run)
        return;
    memset(to, 0xee, sizeof to);
    runs_copy_plain(to + 1, to_stride, from + 1, from_stride, run, rows);
    ck_assert_msg(!memcmp(to, expected, sizeof to), "plainly, %zu runs of %zu bytes, %zu and %zu apart", rows, run,
                  to_stride, from_stride);
}

static void try_strides(size_t run, size_t rows)
{
    try_run(run, run, run, rows);
    try_run(run, run + GAP, run, rows);
    try_run(run, run, run + GAP, rows);
    try_run(run, run + GAP, run + 1, rows);
}

START_TEST(runs_of_every_length_are_copied_and_nothing_else)
{
    static const size_t lengths[] = {1023, 1024, 2047, 2048, 2049, 2111, 4080, 4095, 4096, 4097, LONGEST};

    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)(i * 7 + (i >> 8) * 5 + 1);
    for (size_t run = 0; run <= MOST; run++) {
        for (size_t rows = 0; rows <= ROWS; rows++)
            try_strides(run, rows);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t rows = 0; rows <= ROWS; rows++)
            try_strides(lengths[i], rows);
    }
    runs_copy(NULL, 4, NULL, 4, 0, 3);
    runs_copy(NULL, 4, NULL, 4, 4, 0);
}
END_TEST

/* More than any processor's second cache holds. */
START_TEST(runs_far_apart_are_copied_and_nothing_else)
{
    enum { APART = 600001, FEW = 4 };
    static const size_t runs[] = {32, 64, 100, 1024, 3000};
    static unsigned char in[FEW * APART];
    static unsigned char out[FEW * APART];

    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7 + (i >> 8) * 5 + 1);
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
        bool equal = true;

        memset(out, 0xee, sizeof out);
        runs_copy(out, APART, in, APART, runs[k], FEW);
        for (size_t i = 0; i < sizeof out; i++)
            equal = equal && out[i] == (i % APART < runs[k] ? in[i] : 0xee);
        ck_assert_msg(equal, "runs of %zu bytes", runs[k]);
    }
}
END_TEST

START_TEST(streams_of_every_length_are_copied_and_nothing_else)
{
    static _Alignas(64) unsigned char out[ROOM];

    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)(i * 7 + (i >> 8) * 5 + 1);
    for (size_t bytes = 0; bytes <= MOST; bytes++) {
        memset(out, 0xee, sizeof out);
        memset(expected, 0xee, sizeof expected);
        for (size_t i = 0; i < bytes; i++)
            expected[16 + i] = from[3 + i];
        stream_copy(out + 16, from + 3, bytes);
        ck_assert_msg(!memcmp(out, expected, sizeof out), "%zu bytes", bytes);
    }
}
END_TEST

START_TEST(streamed_runs_of_every_length_lie_side_by_side)
{
    static _Alignas(64) unsigned char out[ROOM];

    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)(i * 7 + (i >> 8) * 5 + 1);
    for (size_t run = 0; run <= MOST; run++) {
        for (size_t rows = 0; rows <= ROWS; rows++) {
            memset(out, 0xee, sizeof out);
            memset(expected, 0xee, sizeof expected);
            for (size_t i = 0; i < run * rows; i++)
                expected[16 + i] = from[1 + i / run * (run + GAP) + i % run];
            stream_runs(out + 16, from + 1, run + GAP, run, rows);
            ck_assert_msg(!memcmp(out, expected, sizeof out), "%zu runs of %zu bytes", rows, run);
        }
    }
}
END_TEST

/* More than are laid side by side at a time, and runs too long for it. */
START_TEST(many_streamed_runs_lie_side_by_side)
{
    enum { LARGE = 200000, AT_ONCE = 40000 };
    static const size_t runs[] = {1, 13, 40, 684, 1368, 4094, 5000, 10920, 16001, 40001};
    static unsigned char in[LARGE];
    static _Alignas(64) unsigned char out[LARGE];
    static unsigned char side_by_side[LARGE];

    for (size_t i = 0; i < LARGE; i++)
        in[i] = (unsigned char)(i * 7 + (i >> 8) * 5 + 1);
    for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
        size_t run = runs[k];
        size_t rows = (run < AT_ONCE / 2 ? AT_ONCE + run : 3 * run) / run;

        memset(out, 0xee, sizeof out);
        memset(side_by_side, 0xee, sizeof side_by_side);
        for (size_t i = 0; i < run * rows; i++)
            side_by_side[16 + i] = in[1 + i / run * (run + GAP) + i % run];
        stream_runs(out + 16, in + 1, run + GAP, run, rows);
        ck_assert_msg(!memcmp(out, side_by_side, sizeof out), "%zu runs of %zu bytes", rows, run);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runs");
    TCase *all = tcase_create("all");

    tcase_add_test(all, runs_of_every_length_are_copied_and_nothing_else);
    tcase_add_test(all, runs_far_apart_are_copied_and_nothing_else);
    tcase_add_test(all, streams_of_every_length_are_copied_and_nothing_else);
    tcase_add_test(all, streamed_runs_of_every_length_lie_side_by_side);
    tcase_add_test(all, many_streamed_runs_lie_side_by_side);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
