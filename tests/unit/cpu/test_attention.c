/* Attention and the operations on rows, against the serial reference, all paths bit for bit. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#include "backends/cpu/cpu.h"
#include "runtime/functions.h"
#include "tests/unit/cpu/paths.h"
#include "tests/unit/cpu/reference.h"
#include "tests/suite.h"

enum { MAX_HEADS = 66, CONTEXT = 320, REQUESTS = 2, MAX_THREADS = 3, MAX_RUNS = 24 };

struct model {
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t kv_of_head[MAX_HEADS];
    uint32_t head_dim;
    bool pairs;
};

static const struct model models[] = {
    {9, 3, {0, 0, 0, 1, 1, 1, 2, 2, 2}, 64, false},
    {5, 2, {0, 0, 0, 1, 1}, 64, true}, /* the first half of those heads on a rank of two: 3 + 2 */
    {4, 2, {0, 1, 1, 1}, 12, true},
    {2, 1, {0, 0}, 16, false},
    {3, 3, {0, 1, 2}, 80, true},
    {4, 1, {0, 0, 0, 0}, 128, false},
    /* more groups of heads than decoding takes at a time */
    {66,
     66,
     {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
      44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65},
     16,
     false},
};

/* Two requests at different positions, advanced together by chunks of these lengths; 300 positions and more in all. */
static const uint32_t chunk[][REQUESTS] = {{1, 3},   {2, 0}, {33, 1},   {1, 1}, {100, 17},
                                           {7, 130}, {1, 1}, {160, 40}, {1, 1}};

struct rows {
    float *q;
    float *k;
    float *v;
    float *out;
    size_t count;
};

/* What a request has said so far, in Hugging Face order: [CONTEXT, kv_heads, head_dim]. */
struct history {
    float *keys;
    float *values;
    uint32_t length;
};

/* One path with some threads, and its own caches. */
struct run {
    struct compute *compute;
    const char *path;
    void *cache[REQUESTS];
};

struct bench {
    const struct model *model;
    float *cos; /* [CONTEXT, head_dim / 2] */
    float *sin;
    struct history history[REQUESTS];
    struct run runs[MAX_RUNS];
    int run_count;
    struct rows rows;
    float *expected; /* computed once, compared with every run */
};

static float *random_floats(struct random *random, size_t count)
{
    float *values = malloc((count + 16) * sizeof *values);

    for (size_t i = 0; i < count; i++)
        values[i] = random_float(random);
    return values;
}

static void open_run(struct bench *bench, int path, int threads)
{
    size_t bytes = cpu_compute.cache_bytes(bench->model->kv_heads, bench->model->head_dim, CONTEXT);
    struct run *run = &bench->runs[bench->run_count];

    run->compute = paths_open(path, threads);
    if (!run->compute)
        return;
    ck_assert_int_lt(++bench->run_count, MAX_RUNS);
    run->path = paths_name(path);
    for (int r = 0; r < REQUESTS; r++) {
        run->cache[r] = aligned_alloc(64, bytes);
        /* Whatever an unwritten cache holds must not matter. */
        memset(run->cache[r], 0xff, bytes);
    }
}

static void bench_open(struct bench *bench, const struct model *model)
{
    struct random random = {17};
    size_t floats = (size_t)CONTEXT * model->kv_heads * model->head_dim;

    memset(bench, 0, sizeof *bench);
    bench->model = model;
    bench->cos = random_floats(&random, CONTEXT * model->head_dim / 2);
    bench->sin = random_floats(&random, CONTEXT * model->head_dim / 2);
    for (int r = 0; r < REQUESTS; r++) {
        bench->history[r].keys = malloc(floats * sizeof(float));
        bench->history[r].values = malloc(floats * sizeof(float));
    }
    for (int path = 0; path < paths_count(); path++) {
        for (int threads = 1; threads <= MAX_THREADS; threads++)
            open_run(bench, path, threads);
    }
}

static void bench_close(struct bench *bench)
{
    for (int r = 0; r < REQUESTS; r++) {
        free(bench->history[r].keys);
        free(bench->history[r].values);
        for (int i = 0; i < bench->run_count; i++)
            free(bench->runs[i].cache[r]);
    }
    for (int i = 0; i < bench->run_count; i++)
        cpu_compute.close(bench->runs[i].compute);
    free(bench->cos);
    free(bench->sin);
}

static void reference_row(struct bench *bench, struct history *history, size_t row)
{
    const struct model *m = bench->model;
    size_t hd = m->head_dim;
    size_t kv_row = (size_t)m->kv_heads * hd;
    const float *cos = bench->cos + history->length * hd / 2;
    const float *sin = bench->sin + history->length * hd / 2;
    float q[128];

    for (uint32_t kv = 0; kv < m->kv_heads; kv++) {
        /* kept by head, so that one head's keys are contiguous */
        size_t at = (kv * CONTEXT + history->length) * hd;

        reference_rotate(bench->rows.k + row * kv_row + kv * hd, cos, sin, hd, m->pairs, history->keys + at);
        memcpy(history->values + at, bench->rows.v + row * kv_row + kv * hd, hd * sizeof(float));
    }
    history->length++;
    for (uint32_t h = 0; h < m->heads; h++) {
        size_t at = m->kv_of_head[h] * CONTEXT * hd;

        reference_rotate(bench->rows.q + (row * m->heads + h) * hd, cos, sin, hd, m->pairs, q);
        reference_attention(q, history->keys + at, history->values + at, history->length, hd, 1.0f / sqrtf((float)hd),
                            bench->expected + (row * m->heads + h) * hd);
    }
}

static void check_run(struct bench *bench, const struct run *run, struct segment *segments, size_t step)
{
    const struct model *m = bench->model;
    size_t floats = bench->rows.count * m->heads * m->head_dim;
    struct attention attention = {.q = bench->rows.q,
                                  .ldq = (size_t)m->heads * m->head_dim,
                                  .k = bench->rows.k,
                                  .ldk = (size_t)m->kv_heads * m->head_dim,
                                  .v = bench->rows.v,
                                  .ldv = (size_t)m->kv_heads * m->head_dim,
                                  .out = bench->rows.out,
                                  .ldo = (size_t)m->heads * m->head_dim,
                                  .heads = m->heads,
                                  .kv_heads = m->kv_heads,
                                  .kv_of_head = m->kv_of_head,
                                  .head_dim = m->head_dim,
                                  .scale = 1.0f / sqrtf((float)m->head_dim),
                                  .rope_pairs = m->pairs,
                                  .rope_cos = bench->cos,
                                  .rope_sin = bench->sin,
                                  .context = CONTEXT,
                                  .segments = segments,
                                  .segment_count = REQUESTS};

    for (int r = 0; r < REQUESTS; r++)
        segments[r].cache = run->cache[r];
    memset(bench->rows.out, 0xff, floats * sizeof(float));
    cpu_compute.attend(run->compute, &attention);
    size_t differs = first_difference(bench->rows.out, bench->expected, floats);

    ck_assert_msg(differs == floats, "%s heads %u/%u of %u, step %zu: float %zu is %a for %a", run->path, m->heads,
                  m->kv_heads, m->head_dim, step, differs, (double)bench->rows.out[differs % floats],
                  (double)bench->expected[differs % floats]);
}

static void advance(struct bench *bench, size_t step)
{
    const struct model *m = bench->model;
    struct random random = {step + 99};
    struct segment segments[REQUESTS];
    uint32_t row = 0;

    for (uint32_t r = 0; r < REQUESTS; r++) {
        segments[r] = (struct segment){row, chunk[step][r], bench->history[r].length, NULL};
        row += chunk[step][r];
    }
    size_t floats = (size_t)row * m->heads * m->head_dim;
    size_t kv_floats = (size_t)row * m->kv_heads * m->head_dim;

    bench->rows = (struct rows){random_floats(&random, floats), random_floats(&random, kv_floats),
                                random_floats(&random, kv_floats), malloc(floats * sizeof(float)), row};
    bench->expected = malloc(floats * sizeof(float));
    for (uint32_t r = 0; r < REQUESTS; r++) {
        for (uint32_t t = 0; t < segments[r].count; t++)
            reference_row(bench, &bench->history[r], segments[r].row + t);
    }
    for (int i = 0; i < bench->run_count; i++)
        check_run(bench, &bench->runs[i], segments, step);
    free(bench->rows.q);
    free(bench->rows.k);
    free(bench->rows.v);
    free(bench->rows.out);
    free(bench->expected);
}

START_TEST(attention_has_the_bits_of_the_reference_at_every_position)
{
    struct bench bench;

    bench_open(&bench, &models[_i]);
    for (size_t step = 0; step < sizeof chunk / sizeof *chunk; step++)
        advance(&bench, step);
    bench_close(&bench);
}
END_TEST

START_TEST(caches_beyond_the_limits_are_refused)
{
    ck_assert_uint_eq(cpu_compute.cache_bytes(3, 64, 2048), 3u * 2048 * 64 * 4 * 2);
    ck_assert_uint_eq(cpu_compute.cache_bytes(1, 12, 5) % 64, 0);
    ck_assert_uint_eq(cpu_compute.cache_bytes(1, CPU_MAX_HEAD_DIM + 2, 16), 0);
    ck_assert_uint_eq(cpu_compute.cache_bytes(1, 64, CPU_MAX_CONTEXT + 1), 0);
}
END_TEST

static void check_rows(struct compute *compute, const char *path, size_t rows, size_t cols)
{
    struct random random = {rows * 7 + cols};
    size_t ld = cols + 5;
    float *x = random_floats(&random, rows * ld);
    float *up = random_floats(&random, rows * ld);
    float *weight = random_floats(&random, cols);
    float *y = random_floats(&random, rows * ld);
    float *expected = malloc(rows * ld * sizeof *expected);

    for (size_t i = 0; i < rows * ld; i++)
        x[i] *= 100.0f;
    memcpy(expected, y, rows * ld * sizeof *y);
    for (size_t t = 0; t < rows; t++)
        reference_norm(x + t * ld, cols, weight, 1e-5f, expected + t * ld);
    cpu_compute.norm(compute, x, ld, rows, cols, weight, 1e-5f, y, ld);
    ck_assert_msg(!memcmp(y, expected, rows * ld * sizeof *y), "%s norm %zu x %zu", path, rows, cols);

    for (size_t t = 0; t < rows; t++) {
        for (size_t i = 0; i < cols; i++) {
            float gate = x[t * ld + i];
            float one_more = 1.0f + numeric_exp(-gate);
            float quotient = gate / one_more;

            expected[t * ld + i] = quotient * up[t * ld + i];
        }
    }
    cpu_compute.gated(compute, x, ld, up, ld, rows, cols, y, ld);
    ck_assert_msg(!memcmp(y, expected, rows * ld * sizeof *y), "%s gated %zu x %zu", path, rows, cols);

    for (size_t t = 0; t < rows; t++) {
        for (size_t i = 0; i < cols; i++)
            expected[t * ld + i] += up[t * ld + i];
    }
    cpu_compute.add(compute, y, ld, up, ld, rows, cols);
    ck_assert_msg(!memcmp(y, expected, rows * ld * sizeof *y), "%s add %zu x %zu", path, rows, cols);

    size_t head_dim = cols / 3;

    memcpy(expected, y, rows * ld * sizeof *y);
    for (size_t t = 0; t < rows * 3; t++)
        reference_norm(y + t / 3 * ld + t % 3 * head_dim, head_dim, weight, 1e-6f,
                       expected + t / 3 * ld + t % 3 * head_dim);
    cpu_compute.head_norm(compute, y, ld, rows, 3, head_dim, weight, 1e-6f);
    ck_assert_msg(!memcmp(y, expected, rows * ld * sizeof *y), "%s head norm %zu x %zu", path, rows, cols);
    free(x);
    free(up);
    free(weight);
    free(y);
    free(expected);
}

START_TEST(operations_on_rows_have_the_bits_of_the_reference)
{
    for (int path = 0; path < paths_count(); path++) {
        for (int threads = 1; threads <= 3; threads++) {
            struct compute *compute = paths_open(path, threads);

            if (!compute)
                continue;
            check_rows(compute, paths_name(path), 1, 60);
            check_rows(compute, paths_name(path), 3, 576);
            check_rows(compute, paths_name(path), 100, 577);
            cpu_compute.close(compute);
        }
    }
}
END_TEST

/* Programs built with fast-math flags flush subnormals; the backend must not follow its caller. */
START_TEST(a_caller_that_flushes_subnormals_changes_no_bit)
{
    struct compute *compute = paths_open(0, 1);
    unsigned mode = _mm_getcsr();
    float x = 0x1p-140f;
    float y = 0x1p-141f;

    _mm_setcsr(mode | 0x8040);
    cpu_compute.add(compute, &x, 1, &y, 1, 1, 1);
    ck_assert_uint_eq(_mm_getcsr() & 0x8040, 0x8040);
    _mm_setcsr(mode);
    ck_assert(x == 0x1.8p-140f);
    cpu_compute.close(compute);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attention");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 240);
    tcase_add_loop_test(all, attention_has_the_bits_of_the_reference_at_every_position, 0,
                        sizeof models / sizeof *models);
    tcase_add_test(all, caches_beyond_the_limits_are_refused);
    tcase_add_test(all, operations_on_rows_have_the_bits_of_the_reference);
    tcase_add_test(all, a_caller_that_flushes_subnormals_changes_no_bit);
    suite_add_tcase(suite, all);
    paths_say();
    return suite_run(suite);
}
