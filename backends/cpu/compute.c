/* The table cpu_compute: opening, the choice of the path, and the operations that go row by row. */
#include "backends/cpu/compute_private.h"

#include <stdlib.h>
#include <string.h>

#include "backends/cpu/float_mode.h"
#include "backends/cpu/path.h"
#include "base/dtype.h"
#include "base/size.h"

void compute_deal(struct compute *compute, size_t count, int shares)
{
    struct deal *deal = &compute->deal;

    deal->shares = (size_t)shares;
    for (size_t i = 0; i < deal->shares; i++) {
        size_t begin = (size_t)share_start(count, deal->shares, i);

        atomic_store_explicit(&deal->share[i].next, begin, memory_order_relaxed);
        deal->share[i].end = begin + (size_t)share_count(count, deal->shares, i);
    }
}

bool compute_take(struct compute *compute, int thread, size_t *ret_unit)
{
    struct deal *deal = &compute->deal;

    if (thread == 0 && compute->progress)
        compute->progress(compute->progress_context);
    for (size_t i = 0; i < deal->shares; i++) {
        struct deal_share *share = &deal->share[((size_t)thread + i) % deal->shares];

        *ret_unit = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
        if (*ret_unit < share->end)
            return true;
    }
    return false;
}

void compute_run(struct compute *compute, pool_work *work, void *context, size_t multiply_adds)
{
    float_mode mode = float_mode_enter();

    if (multiply_adds < SMALL_WORK)
        work(context, 0, 1);
    else
        pool_run(compute->pool, work, context);
    float_mode_leave(mode);
}

static void enter_float_mode(void *context, int thread, int threads)
{
    (void)context;
    (void)threads;
    if (thread)
        float_mode_enter();
}

static void cpu_close(struct compute *compute)
{
    if (!compute)
        return;
    pool_destroy(compute->pool);
    for (int i = 0; compute->scratch && i < compute->threads; i++)
        free(compute->scratch[i]);
    free(compute->scratch);
    free(compute);
}

enum status compute_open_kernels(const struct kernels *kernels, const struct compute_options *options,
                                 struct compute **ret, struct error *err)
{
    struct compute *compute = aligned_alloc(_Alignof(struct compute), sizeof *compute);
    enum status st;

    if (!compute)
        return error_set(err, STATUS_NOMEM, "the CPU backend");
    memset(compute, 0, sizeof *compute);
    compute->kernels = kernels;
    compute->progress = options->progress;
    compute->progress_context = options->progress_context;
    st = pool_create(options->threads, &compute->pool, err);
    if (st != STATUS_OK)
        goto fail;
    compute->threads = options->threads;
    compute->scratch = calloc((size_t)compute->threads, sizeof *compute->scratch);
    for (int i = 0; i < compute->threads; i++) {
        if (!compute->scratch || !(compute->scratch[i] = aligned_alloc(64, sizeof(struct scratch)))) {
            st = error_set(err, STATUS_NOMEM, "scratch memory of %d threads", compute->threads);
            goto fail;
        }
    }
    pool_run(compute->pool, enter_float_mode, NULL);
    *ret = compute;
    return STATUS_OK;
fail:
    cpu_close(compute);
    return st;
}

static enum status cpu_open(const struct compute_options *options, struct compute **ret, struct error *err)
{
    const struct kernels *kernels;
    enum status st = path_choose(options->simd, &kernels, err);

    if (st != STATUS_OK)
        return st;
    return compute_open_kernels(kernels, options, ret, err);
}

static const char *cpu_simd(const struct compute *compute)
{
    return compute->kernels->name;
}

/* One operation on rows, cut into units of whole rows. */
struct row_job {
    struct compute *compute;
    size_t rows;
    size_t rows_per_unit;
    void (*run)(const struct row_job *job, size_t row);
    const struct matrix *w;
    const uint32_t *ids;
    const float *x;
    size_t ldx;
    const float *other;
    size_t ldo;
    float *y;
    size_t ldy;
    size_t cols;
    size_t heads;
    float epsilon;
};

static void row_work(void *context, int thread, int threads)
{
    struct row_job *job = context;
    size_t unit;

    (void)threads;
    while (compute_take(job->compute, thread, &unit)) {
        size_t begin = unit * job->rows_per_unit;
        size_t end = begin + job->rows_per_unit < job->rows ? begin + job->rows_per_unit : job->rows;

        for (size_t row = begin; row < end; row++)
            job->run(job, row);
    }
}

/* An element here costs about as much as a few multiply-adds of a product: cost says how many. */
static void run_rows(struct row_job *job, size_t cost)
{
    size_t work = job->cols * job->heads * cost;

    job->rows_per_unit = work ? SMALL_WORK / 2 / work + 1 : job->rows + 1;
    compute_deal(job->compute, (job->rows + job->rows_per_unit - 1) / job->rows_per_unit, 1);
    compute_run(job->compute, row_work, job, job->rows * work);
}

static void embed_row(const struct row_job *job, size_t row)
{
    const struct matrix *w = job->w;
    const unsigned char *packed = w->data + job->ids[row] * w->row_bytes;
    decode_kernel *decode = job->compute->kernels->decode[w->type];

    if (decode)
        decode(packed, job->cols, job->y + row * job->ldy);
    else
        job->compute->kernels->row->decode(w->type, packed, job->cols, job->y + row * job->ldy);
}

static void cpu_embed(struct compute *compute, const struct matrix *w, const uint32_t *ids, size_t rows, float *x,
                      size_t ldx)
{
    struct row_job job = {.compute = compute,
                          .rows = rows,
                          .run = embed_row,
                          .w = w,
                          .ids = ids,
                          .y = x,
                          .ldy = ldx,
                          .cols = (size_t)w->cols,
                          .heads = 1};

    run_rows(&job, 4);
}

static void norm_row(const struct row_job *job, size_t row)
{
    for (size_t head = 0; head < job->heads; head++)
        job->compute->kernels->row->norm(job->x + row * job->ldx + head * job->cols, job->cols, job->other,
                                         job->epsilon, job->y + row * job->ldy + head * job->cols);
}

static void cpu_norm(struct compute *compute, const float *x, size_t ldx, size_t rows, size_t cols, const float *weight,
                     float epsilon, float *y, size_t ldy)
{
    struct row_job job = {.compute = compute,
                          .rows = rows,
                          .run = norm_row,
                          .x = x,
                          .ldx = ldx,
                          .other = weight,
                          .y = y,
                          .ldy = ldy,
                          .cols = cols,
                          .heads = 1,
                          .epsilon = epsilon};

    run_rows(&job, 4);
}

static void cpu_head_norm(struct compute *compute, float *x, size_t ldx, size_t rows, size_t heads, size_t head_dim,
                          const float *weight, float epsilon)
{
    struct row_job job = {.compute = compute,
                          .rows = rows,
                          .run = norm_row,
                          .x = x,
                          .ldx = ldx,
                          .other = weight,
                          .y = x,
                          .ldy = ldx,
                          .cols = head_dim,
                          .heads = heads,
                          .epsilon = epsilon};

    run_rows(&job, 4);
}

static void gated_row(const struct row_job *job, size_t row)
{
    job->compute->kernels->row->gated(job->x + row * job->ldx, job->other + row * job->ldo, job->cols,
                                      job->y + row * job->ldy);
}

static void cpu_gated(struct compute *compute, const float *gate, size_t ldg, const float *up, size_t ldu, size_t rows,
                      size_t cols, float *out, size_t ldo)
{
    struct row_job job = {.compute = compute,
                          .rows = rows,
                          .run = gated_row,
                          .x = gate,
                          .ldx = ldg,
                          .other = up,
                          .ldo = ldu,
                          .y = out,
                          .ldy = ldo,
                          .cols = cols,
                          .heads = 1};

    run_rows(&job, 16);
}

static void add_row(const struct row_job *job, size_t row)
{
    job->compute->kernels->row->add(job->y + row * job->ldy, job->other + row * job->ldo, job->cols);
}

static void cpu_add(struct compute *compute, float *x, size_t ldx, const float *y, size_t ldy, size_t rows, size_t cols)
{
    struct row_job job = {.compute = compute,
                          .rows = rows,
                          .run = add_row,
                          .other = y,
                          .ldo = ldy,
                          .y = x,
                          .ldy = ldx,
                          .cols = cols,
                          .heads = 1};

    run_rows(&job, 2);
}

#define EVERY_WEIGHT_TYPE ((1u << WEIGHT_TYPE_COUNT) - 1)

/* Rates depend on the machine and are not measured. */
static const struct compute_capabilities capabilities = {
    .substrate = "host memory",
    .path_in = "in place",
    .path_out = "in place",
    .alignment = 1,
    .granularity = 16,
    .product_types = EVERY_WEIGHT_TYPE,
    .embed_types = EVERY_WEIGHT_TYPE,
    .activation_types = 1u << DTYPE_F32,
    .flop_per_ns = COMPUTE_UNKNOWN,
    .bytes_per_ns = COMPUTE_UNKNOWN,
};

const struct compute_ops cpu_compute = {
    .name = "cpu",
    .capabilities = &capabilities,
    .open = cpu_open,
    .close = cpu_close,
    .simd = cpu_simd,
    .products = product_run,
    .embed = cpu_embed,
    .norm = cpu_norm,
    .head_norm = cpu_head_norm,
    .attend = attention_run,
    .gated = cpu_gated,
    .add = cpu_add,
    .cache_bytes = attention_cache_bytes,
};
