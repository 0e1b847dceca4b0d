/* Products and embedding: every type, odd shapes, any number of rows and threads, all paths bit for bit. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "tests/each.h"
#include "tests/unit/cpu/paths.h"
#include "tests/unit/cpu/reference.h"
#include "tests/suite.h"

enum { MAX_TOKENS = 100, Y_GAP = 3 };
static const size_t token_counts[] = {1, 2, 3, 4, 5, 7, 8, 16, 33, 100};

struct sample {
    struct guarded weights; /* the last row ends where memory ends */
    struct guarded inputs;  /* the last row ends at the next multiple of 16 floats */
    struct matrix w;
    float *x;
    size_t ldx;
    float *bias;
    float *expected; /* [MAX_TOKENS, rows], without bias */
};

/* The floats behind each activation row are not numbers: none may reach a result. */
static void fill_inputs(struct random *random, struct sample *sample, bool special)
{
    size_t cols = (size_t)sample->w.cols;
    size_t floats;

    sample->ldx = (cols + 15) / 16 * 16 + cols % 3;
    floats = (MAX_TOKENS - 1) * sample->ldx + (cols + 15) / 16 * 16;
    sample->inputs = guarded_create(floats * sizeof(float));
    sample->x = (float *)(void *)sample->inputs.data;
    for (size_t i = 0; i < floats; i++)
        sample->x[i] = NAN;
    for (size_t t = 0; t < MAX_TOKENS; t++) {
        for (size_t k = 0; k < cols; k++)
            sample->x[t * sample->ldx + k] = random_float(random);
    }
    if (special) {
        sample->x[cols - 1] = INFINITY;
        sample->x[2 * sample->ldx] = NAN;
        for (size_t k = 0; k < cols; k++) {
            sample->x[3 * sample->ldx + k] *= 0x1p-130f;
            sample->x[4 * sample->ldx + k] = k % 2 ? -0.0f : -0x1p-149f;
        }
    }
}

static struct sample sample_create(enum weight_type type, size_t rows, size_t cols, bool special)
{
    struct random random = {rows * 1000 + cols + (size_t)type};
    size_t row_bytes = cols / weight_block_length(type) * weight_block_bytes(type);
    struct sample sample = {.weights = guarded_create(rows * row_bytes)};
    float *decoded = malloc(cols * sizeof *decoded);

    sample.w = (struct matrix){type, rows, cols, row_bytes, sample.weights.data};
    fill_weights(&random, type, rows * cols, sample.weights.data, special);
    fill_inputs(&random, &sample, special);
    sample.bias = malloc(rows * sizeof *sample.bias);
    sample.expected = malloc(MAX_TOKENS * rows * sizeof *sample.expected);
    for (size_t r = 0; r < rows; r++) {
        sample.bias[r] = random_float(&random);
        weight_decode(type, sample.weights.data + r * row_bytes, cols, decoded);
        for (size_t t = 0; t < MAX_TOKENS; t++)
            sample.expected[t * rows + r] = reference_dot(decoded, sample.x + t * sample.ldx, cols);
    }
    free(decoded);
    return sample;
}

static void sample_destroy(struct sample *sample)
{
    guarded_destroy(&sample->weights);
    guarded_destroy(&sample->inputs);
    free(sample->bias);
    free(sample->expected);
}

static void check_product(const char *path, struct compute *compute, const struct sample *sample, size_t tokens,
                          bool bias)
{
    size_t rows = (size_t)sample->w.rows;
    size_t ldy = rows + Y_GAP;
    float *y = malloc(tokens * ldy * sizeof *y);
    struct product product = {&sample->w, sample->x, sample->ldx, y, ldy, bias ? sample->bias : NULL};

    for (size_t i = 0; i < tokens * ldy; i++)
        y[i] = 7.0f;
    cpu_compute.products(compute, &product, 1, tokens);
    for (size_t t = 0; t < tokens; t++) {
        for (size_t r = 0; r < rows; r++) {
            float expected = sample->expected[t * rows + r] + (bias ? sample->bias[r] : 0.0f);

            if (!bias)
                expected = sample->expected[t * rows + r];
            assert_each(same_float(y[t * ldy + r], expected), "%s %s [%zu, %zu] x %zu tokens: y[%zu][%zu] %a for %a",
                        path, weight_type_name(sample->w.type), rows, (size_t)sample->w.cols, tokens, t, r,
                        (double)y[t * ldy + r], (double)expected);
        }
        for (size_t r = rows; r < ldy; r++)
            assert_each(y[t * ldy + r] == 7.0f, "%s wrote beyond row %zu", path, t);
    }
    free(y);
}

/* Wide and emulated samples are few: the software instructions take their time. */
static void check_sample(const struct sample *sample, int most_threads)
{
    for (int path = 0; path < paths_count(); path++) {
        for (int threads = 1; threads <= most_threads; threads++) {
            struct compute *compute = paths_open(path, threads);

            if (!compute)
                continue;
            for (size_t i = 0; i < sizeof token_counts / sizeof *token_counts; i++)
                check_product(paths_name(path), compute, sample, token_counts[i], (i + (size_t)threads) % 2);
            cpu_compute.close(compute);
        }
    }
}

static void check_shapes(enum weight_type type, bool special)
{
    static const size_t rows[] = {1, 2, 3, 5, 6, 13, 37};
    unsigned block = weight_block_length(type);
    size_t cols[] = {block, 2 * block, 3 * block, 5 * block};

    if (block == 1)
        memcpy(cols, (size_t[]){1, 31, 60, 100}, sizeof cols);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sample sample = sample_create(type, rows[i], cols[i % 4], special);

        check_sample(&sample, 2);
        sample_destroy(&sample);
    }
}

START_TEST(products_of_small_odd_shapes_have_the_bits_of_the_reference)
{
    check_shapes((enum weight_type)_i, false);
}
END_TEST

START_TEST(infinities_subnormals_and_not_a_number_pass_through_alike)
{
    check_shapes((enum weight_type)_i, true);
}
END_TEST

START_TEST(products_wide_enough_for_several_threads_have_the_bits_of_the_reference)
{
    unsigned block = weight_block_length((enum weight_type)_i);
    struct sample sample = sample_create((enum weight_type)_i, 67, block == 1 ? 576 + 15 : 768, false);

    check_sample(&sample, 3);
    sample_destroy(&sample);
}
END_TEST

/* 4096 columns and more are worked in blocks whose chains are kept between them. */
START_TEST(products_blocked_by_columns_have_the_bits_of_the_reference)
{
    unsigned block = weight_block_length((enum weight_type)_i);
    size_t cols = block == 1 ? 4096 + 1024 + 7 : block == 32 ? 4096 + 32 : 4096 + 256;
    struct sample sample = sample_create((enum weight_type)_i, 13, cols, false);

    check_sample(&sample, 1);
    sample_destroy(&sample);
}
END_TEST

/* A slice along the inner dimension: rows lie further apart than they are long, x starts at any float. */
START_TEST(products_over_a_slice_of_the_columns_read_that_slice)
{
    enum weight_type type = (enum weight_type)_i;
    size_t unit = weight_block_length(type) == 1 ? 20 : weight_block_length(type);
    struct sample sample = sample_create(type, 14, 5 * unit, false);
    size_t skipped = 2 * unit / weight_block_length(type) * weight_block_bytes(type);
    struct matrix slice = {type, 14, 3 * unit, sample.w.row_bytes, sample.w.data + skipped};
    float *decoded = malloc(5 * unit * sizeof *decoded);

    for (int path = 0; path < paths_count(); path++) {
        struct compute *compute = paths_open(path, 2);
        float y[5 * 14];

        if (!compute)
            continue;
        for (size_t tokens = 1; tokens <= 5; tokens++) {
            struct product product = {&slice, sample.x + 2 * unit, sample.ldx, y, 14, NULL};

            cpu_compute.products(compute, &product, 1, tokens);
            for (size_t r = 0; r < 14; r++) {
                weight_decode(type, sample.w.data + r * sample.w.row_bytes, 5 * unit, decoded);
                for (size_t t = 0; t < tokens; t++) {
                    float expected = reference_dot(decoded + 2 * unit, sample.x + t * sample.ldx + 2 * unit, 3 * unit);

                    assert_each(same_float(y[t * 14 + r], expected), "%s row %zu of %zu tokens", paths_name(path), r,
                                tokens);
                }
            }
        }
        cpu_compute.close(compute);
    }
    free(decoded);
    sample_destroy(&sample);
}
END_TEST

START_TEST(several_products_run_as_one_and_empty_ones_do_nothing)
{
    struct sample q = sample_create(WEIGHT_Q4_1, 61, 576, false);
    struct sample k = sample_create(WEIGHT_BF16, 19, 576, false);
    struct matrix none = {WEIGHT_F32, 0, 576, 576 * 4, q.w.data};

    for (int path = 0; path < paths_count(); path++) {
        struct compute *compute = paths_open(path, 3);
        float a[61];
        float b[19];
        float before = 5.0f;
        struct product list[3] = {
            {&q.w, q.x, q.ldx, a, 61, NULL}, {&none, q.x, q.ldx, &before, 1, NULL}, {&k.w, k.x, k.ldx, b, 19, k.bias}};

        if (!compute)
            continue;
        cpu_compute.products(compute, list, 3, 1);
        ck_assert_uint_eq(first_difference(a, q.expected, 61), 61);
        for (int r = 0; r < 19; r++)
            ck_assert(same_float(b[r], k.expected[r] + k.bias[r]));
        list[0].y = &before;
        cpu_compute.products(compute, list, 3, 0);
        cpu_compute.products(compute, list, 0, 4);
        ck_assert(before == 5.0f);
        cpu_compute.close(compute);
    }
    sample_destroy(&q);
    sample_destroy(&k);
}
END_TEST

START_TEST(embed_decodes_the_rows_asked_for)
{
    enum weight_type type = (enum weight_type)_i;
    size_t cols = weight_block_length(type) == 1 ? 61 : 512;
    struct sample sample = sample_create(type, 29, cols, false);
    uint32_t ids[64];
    float *x = malloc(64 * (cols + 1) * sizeof *x);
    float *expected = malloc(cols * sizeof *expected);

    for (uint32_t i = 0; i < 64; i++)
        ids[i] = i * 17 % 29;
    for (int path = 0; path < paths_count(); path++) {
        struct compute *compute = paths_open(path, 2);

        if (!compute)
            continue;
        x[64 * (cols + 1) - 1] = 3.0f;
        cpu_compute.embed(compute, &sample.w, ids, 64, x, cols + 1);
        for (size_t t = 0; t < 64; t++) {
            weight_decode(type, sample.w.data + ids[t] * sample.w.row_bytes, cols, expected);
            ck_assert_msg(!memcmp(x + t * (cols + 1), expected, cols * sizeof *x), "%s %s", paths_name(path),
                          weight_type_name(type));
        }
        ck_assert(x[64 * (cols + 1) - 1] == 3.0f);
        cpu_compute.close(compute);
    }
    free(x);
    free(expected);
    sample_destroy(&sample);
}
END_TEST

static void count_turn(void *context)
{
    ++*(int *)context;
}

START_TEST(communication_gets_its_turns_between_tiles)
{
    struct sample sample = sample_create(WEIGHT_Q8_0, 400, 576, false);
    int turns = 0;
    struct compute_options options = {.threads = 1, .simd = "auto", .progress = count_turn, .progress_context = &turns};
    struct compute *compute = NULL;
    struct error err = {0};

    ck_assert_int_eq(cpu_compute.open(&options, &compute, &err), STATUS_OK);
    check_product("auto", compute, &sample, 16, false);
    ck_assert_int_gt(turns, 1);
    cpu_compute.close(compute);
    sample_destroy(&sample);
}
END_TEST

START_TEST(open_refuses_an_unknown_path_and_a_bad_number_of_threads)
{
    struct compute_options options = {.threads = 1, .simd = "sse9"};
    struct compute *compute = NULL;
    struct error err = {0};

    ck_assert_int_eq(cpu_compute.open(&options, &compute, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "simd: sse9 is none of auto, plain, avx2, avx512");
    options = (struct compute_options){.threads = 0, .simd = "plain"};
    ck_assert_int_eq(cpu_compute.open(&options, &compute, &err), STATUS_INVALID);
    ck_assert_ptr_null(compute);
    options.threads = 1;
    ck_assert_int_eq(cpu_compute.open(&options, &compute, &err), STATUS_OK);
    ck_assert_str_eq(cpu_compute.simd(compute), "plain");
    cpu_compute.close(compute);
    cpu_compute.close(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("product");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 240);
    tcase_add_loop_test(all, products_of_small_odd_shapes_have_the_bits_of_the_reference, 0, WEIGHT_TYPE_COUNT);
    tcase_add_loop_test(all, infinities_subnormals_and_not_a_number_pass_through_alike, 0, WEIGHT_TYPE_COUNT);
    tcase_add_loop_test(all, products_wide_enough_for_several_threads_have_the_bits_of_the_reference, 0,
                        WEIGHT_TYPE_COUNT);
    tcase_add_loop_test(all, products_blocked_by_columns_have_the_bits_of_the_reference, 0, WEIGHT_TYPE_COUNT);
    tcase_add_loop_test(all, products_over_a_slice_of_the_columns_read_that_slice, 0, WEIGHT_TYPE_COUNT);
    tcase_add_test(all, several_products_run_as_one_and_empty_ones_do_nothing);
    tcase_add_loop_test(all, embed_decodes_the_rows_asked_for, 0, WEIGHT_TYPE_COUNT);
    tcase_add_test(all, communication_gets_its_turns_between_tiles);
    tcase_add_test(all, open_refuses_an_unknown_path_and_a_bad_number_of_threads);
    suite_add_tcase(suite, all);
    paths_say();
    return suite_run(suite);
}
