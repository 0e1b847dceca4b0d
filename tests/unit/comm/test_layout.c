/* B23: counts, displacements and byte sizes past 2^31 and 2^32, and where 64 bits end. */
#include <check.h>
#include <string.h>
#include <sys/mman.h>

#include "comm/layout.h"
#include "comm/reduce.h"
#include "tests/suite.h"

#define TWO_31 (UINT64_C(1) << 31)
#define TWO_33 (UINT64_C(1) << 33)

START_TEST(offsets_go_past_two_to_the_31)
{
    const uint64_t counts[] = {TWO_31 + 5, 0, TWO_33, 1};
    struct layout layout = {0};
    struct error err = {0};

    ck_assert_int_eq(layout_init(&layout, counts, 4, &err), STATUS_OK);
    ck_assert_uint_eq(layout.start[0], 0);
    ck_assert_uint_eq(layout.start[1], UINT64_C(2147483653));
    ck_assert_uint_eq(layout.start[2], UINT64_C(2147483653));
    ck_assert_uint_eq(layout.start[3], UINT64_C(10737418245));
    ck_assert_uint_eq(layout_total(&layout), UINT64_C(10737418246));
    ck_assert_uint_eq(layout_count(&layout, 1), 0);
    ck_assert_uint_eq(layout_count(&layout, 2), TWO_33);
    layout_done(&layout);
}
END_TEST

START_TEST(counts_whose_sum_overflows_are_refused)
{
    const uint64_t counts[] = {UINT64_MAX - 3, 3, 1};
    struct layout layout = {0};
    struct error err = {0};

    ck_assert_int_eq(layout_init(&layout, counts, 3, &err), STATUS_OVERFLOW);
    ck_assert_str_eq(err.text, "members 0 to 2 have more together than 64 bits can count: member 2 has 1");
    ck_assert_ptr_null(layout.start);
    ck_assert_int_eq(layout_init(&layout, counts, 2, &err), STATUS_OK);
    ck_assert_uint_eq(layout_total(&layout), UINT64_MAX);
    layout_done(&layout);
}
END_TEST

START_TEST(slabs_of_any_size_are_measured_or_refused)
{
    static const struct shape wide = {3, {3, 3 << 20, 1 << 20}};
    static const struct shape nothing = {3, {1 << 20, 0, UINT64_C(1) << 40}};
    static const struct shape too_much = {2, {UINT64_C(1) << 32, UINT64_C(1) << 32}};
    struct slab slab = {0};
    struct error err = {0};

    ck_assert_int_eq(slab_of(&wide, DTYPE_F64, 1, &slab, &err), STATUS_OK);
    ck_assert_uint_eq(slab.outer, 3);
    ck_assert_uint_eq(slab.extent, 3145728);
    ck_assert_uint_eq(slab.inner_bytes, 8388608);
    ck_assert_uint_eq(slab_bytes(&slab, 3145728), UINT64_C(79164837199872));
    ck_assert_int_eq(slab_of(&nothing, DTYPE_F64, 1, &slab, &err), STATUS_OK);
    ck_assert_uint_eq(slab_bytes(&slab, slab.extent), 0);
    ck_assert_int_eq(slab_of(&too_much, DTYPE_U8, 0, &slab, &err), STATUS_OVERFLOW);
    ck_assert_int_eq(slab_of(&wide, DTYPE_F64, 3, &slab, &err), STATUS_INVALID);
    ck_assert_int_eq(slab_of(&wide, DTYPE_F64, -1, &slab, &err), STATUS_INVALID);
}
END_TEST

/* Sparse memory: only the few pages that are touched exist. */
static unsigned char *reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

START_TEST(parts_far_behind_are_copied_where_they_lie)
{
    static const struct shape shape = {3, {3, TWO_31 + 64, 2}};
    size_t row = (TWO_31 + 64) * 2;
    unsigned char *tensor = reserve(3 * row);
    unsigned char *other = reserve(3 * row);
    unsigned char packed[3 * 5 * 2];
    struct slab slab = {0};

    if (!tensor || !other)
        return; /* a machine that reserves nothing it has not got */
    ck_assert_int_eq(slab_of(&shape, DTYPE_I8, 1, &slab, NULL), STATUS_OK);
    for (size_t o = 0; o < 3; o++) {
        for (size_t k = 0; k < 10; k++)
            tensor[o * row + (TWO_31 + 7) * 2 + k] = (unsigned char)(100 * o + k + 1);
    }
    (void)slab_pack(NULL, &slab, tensor, TWO_31 + 7, 5, slab_rows(&slab), packed, NULL);
    for (size_t k = 0; k < sizeof packed; k++)
        ck_assert_uint_eq(packed[k], 100 * (k / 10) + k % 10 + 1);
    (void)slab_unpack(NULL, &slab, other, TWO_31 + 59, 5, slab_rows(&slab), packed, NULL);
    for (size_t o = 0; o < 3; o++)
        ck_assert_mem_eq(other + o * row + (TWO_31 + 59) * 2, packed + 10 * o, 10);
    ck_assert_uint_eq(other[(TWO_31 + 58) * 2 + 1], 0);
    ck_assert_uint_eq(other[row], 0);
    (void)munmap(tensor, 3 * row);
    (void)munmap(other, 3 * row);
}
END_TEST

/* Whole rows, as many as fit but at least one, each in one piece; counts that leave a shorter last one. */
START_TEST(pieces_hold_every_row_once)
{
    static const struct {
        struct shape shape;
        uint64_t count;
        int pieces;
        size_t first_rows;
    } cases[] = {{{3, {10, 9, 3}}, 2, 1, 10},     {{3, {11, 9, 3}}, 2, 2, 10},    {{3, {31, 9, 3}}, 3, 6, 6},
                 {{3, {7, 9, 3}}, 9, 4, 2},       {{3, {5, 100, 1}}, 61, 5, 1},   {{3, {5, 100, 1}}, 60, 5, 1},
                 {{3, {1, 1000, 1}}, 1000, 1, 1}, {{3, {3, 1000, 1}}, 999, 3, 1}, {{3, {40, 9, 3}}, 0, 1, 40},
                 {{3, {0, 9, 3}}, 2, 1, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slab slab = {0};
        size_t next = 0;
        int pieces = 0;

        ck_assert_int_eq(slab_of(&cases[i].shape, DTYPE_U8, 1, &slab, NULL), STATUS_OK);
        ck_assert_int_eq(slab_pieces(&slab, cases[i].count, 60, &pieces, NULL), STATUS_OK);
        ck_assert_int_eq(pieces, cases[i].pieces);
        ck_assert_uint_eq(slab_piece(&slab, cases[i].count, 60, 0).count, cases[i].first_rows);
        for (int k = 0; k < pieces; k++) {
            struct rows rows = slab_piece(&slab, cases[i].count, 60, k);

            ck_assert_uint_eq(rows.first, next);
            next += rows.count;
        }
        ck_assert_uint_eq(next, cases[i].shape.dim[0]);
        ck_assert_uint_eq(slab_piece(&slab, cases[i].count, 60, pieces).count, 0);
        ck_assert_uint_eq(slab_piece(&slab, cases[i].count, 60, pieces + 7).count, 0);
    }
}
END_TEST

START_TEST(more_pieces_than_an_int_counts_are_refused)
{
    struct slab slab = {.outer = (size_t)TWO_31, .extent = 64, .inner_bytes = 1};
    struct error err = {0};
    int pieces = 0;

    ck_assert_int_eq(slab_pieces(&slab, 61, 60, &pieces, &err), STATUS_OVERFLOW);
    ck_assert_str_eq(err.text, "2147483648 pieces of 1 rows");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *all = tcase_create("all");

    tcase_add_test(all, pieces_hold_every_row_once);
    tcase_add_test(all, more_pieces_than_an_int_counts_are_refused);
    tcase_add_test(all, offsets_go_past_two_to_the_31);
    tcase_add_test(all, counts_whose_sum_overflows_are_refused);
    tcase_add_test(all, slabs_of_any_size_are_measured_or_refused);
    tcase_add_test(all, parts_far_behind_are_copied_where_they_lie);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
