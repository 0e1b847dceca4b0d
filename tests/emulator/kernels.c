/* Prints one line an operation of the CPU backend: its name, what it worked on, a digest of the result.  Which path
 * computes, and with how many threads, must not show in a line.
 *
 * usage: kernels PATH THREADS [short]      PATH: one of compute.simd; the path that was chosen goes to standard error
 * short: without the matrices that are wider than a panel, for processors that must compute fmaf in software
 * exit status: 0 done; 5 this processor lacks the path, which is said
 *
 * Sizes are small, for an emulated processor takes a microsecond for an instruction, and odd, so that every remainder
 * of a loop has its turn: 15 rows are two tiles of 6, one of 2, one of 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "backends/cpu/cpu.h"
#include "tests/unit/cpu/reference.h"

enum { ROWS = 15, MAX_TOKENS = 13, CONTEXT = 160, REQUESTS = 2, FEED = 577 };

/* NaNs of every kind are one: which of two a sum keeps is not defined. */
static void print_digest(const char *operation, const char *type, size_t a, size_t b, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = isnan(values[i]) ? NAN : values[i];
    printf("%s %s %zu %zu %016llx\n", operation, type, a, b,
           (unsigned long long)XXH3_64bits(values, count * sizeof *values));
}

static float *random_floats(struct random *random, size_t count)
{
    float *values = malloc((count + 16) * sizeof *values);

    if (!values)
        abort();
    for (size_t i = 0; i < count + 16; i++)
        values[i] = i < count ? random_float(random) : NAN;
    return values;
}

/* One type's products and embedding; the last row of weights ends where memory ends. */
static void run_products(struct compute *compute, enum weight_type type, size_t cols, bool special)
{
    static const size_t token_counts[] = {1, 2, 3, 4, 5, MAX_TOKENS};
    struct random random = {cols * 16 + (size_t)type + special};
    size_t row_bytes = cols / weight_block_length(type) * weight_block_bytes(type);
    struct guarded weights = guarded_create(ROWS * row_bytes);
    struct matrix w = {type, ROWS, cols, row_bytes, weights.data};
    size_t ldx = cols + 16;
    float *x = random_floats(&random, MAX_TOKENS * ldx);
    float *y = random_floats(&random, MAX_TOKENS * (size_t)ROWS);
    float *rows = random_floats(&random, MAX_TOKENS * ldx);
    uint32_t ids[2] = {ROWS - 1, 0};
    const char *name = special ? "product with infinities" : "product";

    fill_weights(&random, type, ROWS * cols, weights.data, special);
    /* What lies behind a row may be loaded, and must not count. */
    for (size_t t = 0; t < MAX_TOKENS; t++) {
        for (size_t k = cols; k < ldx; k++)
            x[t * ldx + k] = NAN;
    }
    for (size_t i = 0; i < sizeof token_counts / sizeof *token_counts; i++) {
        struct product product = {&w, x, ldx, y, ROWS, i % 2 ? x : NULL};

        cpu_compute.products(compute, &product, 1, token_counts[i]);
        print_digest(name, weight_type_name(type), cols, token_counts[i], y, token_counts[i] * ROWS);
    }
    memset(rows, 0, 2 * ldx * sizeof *rows);
    cpu_compute.embed(compute, &w, ids, 2, rows, ldx);
    print_digest("embed", weight_type_name(type), cols, 2, rows, 2 * ldx);
    free(x);
    free(y);
    free(rows);
    guarded_destroy(&weights);
}

struct heads {
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t kv_of_head[9];
    uint32_t head_dim;
    bool pairs;
};

static const struct heads models[] = {
    {9, 3, {0, 0, 0, 1, 1, 1, 2, 2, 2}, 64, false},
    {4, 2, {0, 1, 1, 1}, 12, true},
    {2, 1, {0, 0}, 80, false},
};

/* Two requests advanced together: prompts, single tokens, a mixture. */
static void run_attention(struct compute *compute, const struct heads *m)
{
    static const uint32_t chunk[][REQUESTS] = {{1, 3}, {9, 1}, {1, 1}, {0, 130}, {1, 1}};
    struct random random = {m->head_dim};
    size_t bytes = cpu_compute.cache_bytes(m->kv_heads, m->head_dim, CONTEXT);
    size_t ldq = (size_t)m->heads * m->head_dim;
    size_t ldk = (size_t)m->kv_heads * m->head_dim;
    float *cos = random_floats(&random, (size_t)CONTEXT * m->head_dim / 2);
    float *sin = random_floats(&random, (size_t)CONTEXT * m->head_dim / 2);
    float *q = random_floats(&random, CONTEXT * ldq);
    float *k = random_floats(&random, CONTEXT * ldk);
    float *v = random_floats(&random, CONTEXT * ldk);
    float *out = random_floats(&random, CONTEXT * ldq);
    struct segment segments[REQUESTS] = {{0}};
    struct attention attention = {.q = q,
                                  .ldq = ldq,
                                  .k = k,
                                  .ldk = ldk,
                                  .v = v,
                                  .ldv = ldk,
                                  .out = out,
                                  .ldo = ldq,
                                  .heads = m->heads,
                                  .kv_heads = m->kv_heads,
                                  .kv_of_head = m->kv_of_head,
                                  .head_dim = m->head_dim,
                                  .scale = 1.0f / sqrtf((float)m->head_dim),
                                  .rope_pairs = m->pairs,
                                  .rope_cos = cos,
                                  .rope_sin = sin,
                                  .context = CONTEXT,
                                  .segments = segments,
                                  .segment_count = REQUESTS};

    for (int r = 0; r < REQUESTS; r++) {
        segments[r].cache = aligned_alloc(64, bytes);
        if (!segments[r].cache)
            abort();
        memset(segments[r].cache, 0xff, bytes);
    }
    for (size_t step = 0; step < sizeof chunk / sizeof *chunk; step++) {
        uint32_t rows = 0;

        for (int r = 0; r < REQUESTS; r++) {
            segments[r].row = rows;
            segments[r].count = chunk[step][r];
            rows += chunk[step][r];
        }
        cpu_compute.attend(compute, &attention);
        print_digest("attention", m->pairs ? "pairs" : "halves", m->head_dim, step, out, rows * ldq);
        for (int r = 0; r < REQUESTS; r++)
            segments[r].position += chunk[step][r];
    }
    for (int r = 0; r < REQUESTS; r++)
        free(segments[r].cache);
    free(cos);
    free(sin);
    free(q);
    free(k);
    free(v);
    free(out);
}

static void run_rows(struct compute *compute)
{
    struct random random = {5};
    size_t count = (size_t)3 * FEED;
    float *x = random_floats(&random, count);
    float *up = random_floats(&random, count);
    float *weight = random_floats(&random, FEED);

    for (size_t i = 0; i < count; i++)
        x[i] *= 100.0f;
    cpu_compute.norm(compute, x, FEED, 3, FEED, weight, 1e-5f, x, FEED);
    print_digest("norm", "f32", 3, FEED, x, count);
    cpu_compute.gated(compute, x, FEED, up, FEED, 3, FEED, x, FEED);
    print_digest("gated", "f32", 3, FEED, x, count);
    cpu_compute.add(compute, x, FEED, up, FEED, 3, FEED);
    print_digest("add", "f32", 3, FEED, x, count);
    cpu_compute.head_norm(compute, x, FEED, 3, 3, FEED / 3, weight, 1e-6f);
    print_digest("head norm", "f32", 3, FEED, x, count);
    free(x);
    free(up);
    free(weight);
}

int main(int argc, char **argv)
{
    struct compute_options options = {.threads = argc > 2 ? atoi(argv[2]) : 1, .simd = argc > 1 ? argv[1] : "auto"};
    struct compute *compute = NULL;
    struct error err = {0};
    enum status st = cpu_compute.open(&options, &compute, &err);

    if (st != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return status_exit_code(st);
    }
    fprintf(stderr, "%s\n", cpu_compute.simd(compute));
    for (int type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        size_t block = weight_block_length((enum weight_type)type);

        run_products(compute, (enum weight_type)type, block == 1 ? 60 : block * 2, false);
        run_products(compute, (enum weight_type)type, block == 1 ? 60 : block, true);
        /* more columns than a panel holds */
        if (argc <= 3)
            run_products(compute, (enum weight_type)type, block == 1 ? 1031 : 1024 + block, false);
    }
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        run_attention(compute, &models[i]);
    run_rows(compute);
    cpu_compute.close(compute);
    return 0;
}
