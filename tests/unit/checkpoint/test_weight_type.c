/* Packed types against the values that the Python package gguf gives (data/weights.bin, make_vectors.py). */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/weight_type.h"
#include "files.h"
#include "tests/suite.h"

static size_t read_exact(FILE *file, void *memory, size_t bytes)
{
    return fread(memory, 1, bytes, file);
}

/* Same bits; of not-a-numbers only that both are. */
static int same_value(float one, float two)
{
    return (isnan(one) && isnan(two)) || !memcmp(&one, &two, sizeof one);
}

/* B127 */
START_TEST(every_packed_type_decodes_to_the_reference_bits)
{
    FILE *file = fopen(data_path("weights.bin"), "rb");
    struct {
        char name[8];
        uint32_t blocks;
        uint32_t values;
    } head;
    int types_seen = 0;
    int infinite = 0;

    ck_assert_ptr_nonnull(file);
    for (; read_exact(file, &head, sizeof head) == sizeof head; types_seen++) {
        enum weight_type type = (enum weight_type)types_seen;
        size_t bytes = (size_t)head.blocks * weight_block_bytes(type);
        unsigned char *packed = malloc(bytes + 1);
        float *expected = calloc(head.values, sizeof *expected);
        float *values = calloc(head.values, sizeof *values);

        ck_assert(packed && expected && values);
        ck_assert_str_eq(head.name, weight_type_name(type));
        ck_assert_uint_eq(head.values, head.blocks * weight_block_length(type));
        /* One byte off: packed weights need not be aligned. */
        ck_assert_uint_eq(read_exact(file, packed + 1, bytes), bytes);
        ck_assert_uint_eq(read_exact(file, expected, head.values * sizeof *expected), head.values * sizeof *expected);
        weight_decode(type, packed + 1, head.values, values);
        for (uint32_t i = 0; i < head.values; i++) {
            if (!same_value(values[i], expected[i]))
                ck_abort_msg("%s, value %u: %a, expected %a", head.name, i, (double)values[i], (double)expected[i]);
            infinite += isinf(expected[i]) != 0;
        }
        free(packed);
        free(expected);
        free(values);
    }
    ck_assert_int_eq(types_seen, WEIGHT_TYPE_COUNT);
    ck_assert_int_gt(infinite, 0);
    fclose(file);
}
END_TEST

START_TEST(sizes_are_those_of_the_format)
{
    ck_assert_uint_eq(weight_block_bytes(WEIGHT_Q4_1), 20);
    ck_assert_uint_eq(weight_block_length(WEIGHT_Q6_K), 256);
    ck_assert_uint_eq(weight_block_length(WEIGHT_BF16), 1);
    ck_assert_str_eq(weight_type_name(WEIGHT_NONE), "none");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("weight_type");
    TCase *tcase = tcase_create("decode");

    tcase_add_test(tcase, every_packed_type_decodes_to_the_reference_bits);
    tcase_add_test(tcase, sizes_are_those_of_the_format);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
