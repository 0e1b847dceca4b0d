/* Steps that fail, at every phase, over loopback: what each rank then knows of its last steps, that what they know can
 * be true together, and that an aborted step leaves no trace in what comes after it. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "backends/cpu/cpu.h"
#include "base/clock.h"
#include "tests/loop/generating.h"
#include "tests/suite.h"

static const char MODEL[] = "llama-10-layers";
static struct golden golden;
static struct generating job;

/* ---- a compute backend that fails where it is told to ------------------------------------------------- */

enum { CACHE_ENTRIES = 1 << 14 };

/* What a cache held when attention came to it at some position. */
struct cache_entry {
    const void *cache;
    uint32_t position;
    uint64_t digest;
};

/* Of one rank, that is, one thread. */
struct pretender {
    struct session *session;
    struct compute *inside;
    uint64_t norms;
    struct cache_entry entries[CACHE_ENTRIES];
    uint32_t entry_count;
};

/* What the next run is to do; written before its threads start. */
static struct {
    int rank;                /* the pretender of this rank... */
    uint64_t fail_at_norm;   /* ...fails its session at this call; 0: never */
    uint32_t poisoned_token; /* every row of this token is not a number; UINT32_MAX: none */
    bool watch_caches;
} orders;
static atomic_uint_fast64_t norms_counted, caches_seen_again;

static enum status pretend_open(const struct compute_options *options, struct compute **ret, struct error *err)
{
    struct pretender *p = calloc(1, sizeof *p);
    enum status st = cpu_compute.open(options, &p->inside, err);

    p->session = options->progress_context;
    *ret = (struct compute *)(void *)p;
    return st;
}

static struct pretender *of(struct compute *compute)
{
    return (struct pretender *)(void *)compute;
}

static void pretend_close(struct compute *compute)
{
    cpu_compute.close(of(compute)->inside);
    free(compute);
}

static const char *pretend_simd(const struct compute *compute)
{
    return cpu_compute.simd(((const struct pretender *)(const void *)compute)->inside);
}

static void pretend_products(struct compute *compute, const struct product *list, int count, size_t rows)
{
    cpu_compute.products(of(compute)->inside, list, count, rows);
}

static void pretend_embed(struct compute *compute, const struct matrix *w, const uint32_t *ids, size_t rows, float *x,
                          size_t ldx)
{
    cpu_compute.embed(of(compute)->inside, w, ids, rows, x, ldx);
    for (size_t t = 0; t < rows; t++)
        for (size_t i = 0; ids[t] == orders.poisoned_token && i < w->cols; i++)
            x[t * ldx + i] = (float)__builtin_nan("");
}

static void pretend_norm(struct compute *compute, const float *x, size_t ldx, size_t rows, size_t cols,
                         const float *weight, float epsilon, float *y, size_t ldy)
{
    struct pretender *p = of(compute);

    cpu_compute.norm(p->inside, x, ldx, rows, cols, weight, epsilon, y, ldy);
    p->norms++;
    if (session_rank(p->session) != orders.rank)
        return;
    atomic_store(&norms_counted, p->norms);
    if (p->norms == orders.fail_at_norm)
        session_fail(p->session, STATUS_INTERNAL, "a rehearsed failure between layers");
}

static void pretend_head_norm(struct compute *compute, float *x, size_t ldx, size_t rows, size_t heads, size_t head_dim,
                              const float *weight, float epsilon)
{
    cpu_compute.head_norm(of(compute)->inside, x, ldx, rows, heads, head_dim, weight, epsilon);
}

/* Keys and values of the positions before this segment (backends/cpu/attention.c says how they lie). */
static uint64_t cache_digest(const struct attention *a, const struct segment *segment)
{
    size_t width = (a->head_dim + 15) / 16 * 16;
    uint64_t digest = 0;

    for (uint32_t part = 0; part < 2 * a->kv_heads; part++) {
        const float *rows = (const float *)segment->cache + (size_t)part * a->context * width;

        digest = XXH3_64bits_withSeed(rows, segment->position * width * sizeof *rows, digest);
    }
    return digest;
}

/* A step that is repeated finds every cache byte for byte as it was: slots serve one request each here, so that a cache
 * at one position always holds the same. */
static void watch_cache(struct pretender *p, const struct attention *a, const struct segment *segment)
{
    struct cache_entry now = {segment->cache, segment->position, cache_digest(a, segment)};

    for (uint32_t i = 0; i < p->entry_count; i++) {
        if (p->entries[i].cache != now.cache || p->entries[i].position != now.position)
            continue;
        if (p->entries[i].digest != now.digest)
            ck_abort_msg("a cache differs at position %u", now.position);
        atomic_fetch_add(&caches_seen_again, 1);
        return;
    }
    if (p->entry_count == CACHE_ENTRIES)
        ck_abort_msg("more than %d caches and positions", CACHE_ENTRIES);
    p->entries[p->entry_count++] = now;
}

static void pretend_attend(struct compute *compute, const struct attention *attention)
{
    for (uint32_t i = 0; orders.watch_caches && i < attention->segment_count; i++)
        watch_cache(of(compute), attention, &attention->segments[i]);
    cpu_compute.attend(of(compute)->inside, attention);
}

static void pretend_gated(struct compute *compute, const float *gate, size_t ldg, const float *up, size_t ldu,
                          size_t rows, size_t cols, float *out, size_t ldo)
{
    cpu_compute.gated(of(compute)->inside, gate, ldg, up, ldu, rows, cols, out, ldo);
}

static void pretend_add(struct compute *compute, float *x, size_t ldx, const float *y, size_t ldy, size_t rows,
                        size_t cols)
{
    cpu_compute.add(of(compute)->inside, x, ldx, y, ldy, rows, cols);
}

static size_t pretend_cache_bytes(uint32_t kv_heads, uint32_t head_dim, uint32_t context)
{
    return cpu_compute.cache_bytes(kv_heads, head_dim, context);
}

static const struct compute_ops pretending = {
    .name = "pretending",
    .open = pretend_open,
    .close = pretend_close,
    .simd = pretend_simd,
    .products = pretend_products,
    .embed = pretend_embed,
    .norm = pretend_norm,
    .head_norm = pretend_head_norm,
    .attend = pretend_attend,
    .gated = pretend_gated,
    .add = pretend_add,
    .cache_bytes = pretend_cache_bytes,
};

static void start(const char *mesh, const struct compute_ops *ops, const struct fault *fault)
{
    golden_load(MODEL, &golden);
    memset(&job, 0, sizeof job);
    job.mesh = mesh;
    job.ops = ops;
    job.faults = fault;
    job.fault_count = fault != NULL;
    job.model = golden.model;
    job.prompts = golden.prompts;
}

/* ---- failures that end the run: three outcomes, and no two that cannot both be true --------------------- */

struct seen {
    int committed;
    int aborted;
    int indeterminate;
};

static enum epoch_state known(const struct outcome *o, uint64_t number)
{
    for (int i = 0; i < 2; i++)
        if (o->last[i].state != EPOCH_NONE && o->last[i].number == number)
            return o->last[i].state;
    return EPOCH_NONE;
}

/* Steps whose verdict the rank knows: all but the last two opened, and those of these that are committed. */
static int decided(const struct outcome *o)
{
    int steps = o->stats.steps > 2 ? (int)o->stats.steps - 2 : 0;

    for (int i = 0; i < 2; i++)
        steps += o->last[i].state == EPOCH_COMMITTED;
    return steps;
}

static void check_pair(const struct outcome *a, const struct outcome *b)
{
    ck_assert_msg(decided(a) <= decided(b) + 1, "rank %d knows of %d steps, rank %d of %d", a->rank, decided(a),
                  b->rank, decided(b));
    for (int i = 0; i < 2; i++) {
        enum epoch_state other = known(b, a->last[i].number);

        ck_assert_msg(!(a->last[i].state == EPOCH_COMMITTED && other == EPOCH_ABORTED),
                      "step %d is committed on rank %d and aborted on rank %d", (int)a->last[i].number, a->rank,
                      b->rank);
    }
}

/* Every rank has failed, every step has an end, and what was handed out is a part of what is right. */
static void check_outcomes(struct seen *seen)
{
    for (int r = 0; r < job.ranks; r++) {
        const struct outcome *o = &job.outcome[r];
        bool unknown = false;

        ck_assert_msg(o->st != STATUS_OK, "rank %d did not fail", r);
        for (int i = 0; i < 2 && o->last[i].state != EPOCH_NONE; i++) {
            ck_assert_msg(o->last[i].state >= EPOCH_COMMITTED, "rank %d leaves step %d %s", r, (int)o->last[i].number,
                          epoch_state_name(o->last[i].state));
            seen->committed += o->last[i].state == EPOCH_COMMITTED;
            seen->aborted += o->last[i].state == EPOCH_ABORTED;
            seen->indeterminate += o->last[i].state == EPOCH_INDETERMINATE;
            unknown = unknown || o->last[i].state == EPOCH_INDETERMINATE;
        }
        ck_assert_msg(o->again != STATUS_OK || !o->generated, "rank %d goes on after a failure", r);
        if (unknown) {
            ck_assert_int_eq(o->again, STATUS_LOST);
            ck_assert_msg(strstr(o->again_err.text, "is indeterminate"), "%s", o->again_err.text);
        }
        for (int other = 0; other < job.ranks; other++)
            check_pair(o, &job.outcome[other]);
    }
    for (uint32_t p = 0; p < golden.prompts.count; p++)
        ck_assert_mem_eq(job.tokens[p], golden.expected[p], job.counts[p] * sizeof job.tokens[p][0]);
}

/* Operations of a rank before the first step: consensus and prompts. */
static uint64_t first_operation(const char *mesh, int rank, uint64_t *ret_all)
{
    start(mesh, NULL, NULL);
    generating_run(&job);
    ck_assert_int_eq(job.outcome[rank].st, STATUS_OK);
    *ret_all = job.outcome[rank].operations;
    return 5;
}

static const char *const meshes[] = {"pipeline: 2", "data: 2", "tensor: 2", "pipeline: 3"};

/* Before the boundary's send, before a receipt, before the vote, and between vote and verdict: each operation in turn
 * finds no memory. */
START_TEST(a_rank_that_fails_at_any_operation_leaves_what_can_be_true_together)
{
    struct seen seen = {0};
    uint64_t all = 0;
    uint64_t first;
    int rank = _i % 2;

    first = first_operation(meshes[_i / 2], rank, &all);
    for (uint64_t operation = first; operation < all && operation < first + 24; operation++) {
        /* Late as well on the first mesh: the others have voted by then. */
        struct fault fault[2] = {{.rank = rank, .operation = operation, .kind = FAULT_OOM},
                                 {.rank = rank, .operation = operation, .kind = FAULT_OOM}};

        if (!(_i / 2)) {
            fault[0].kind = FAULT_DELAY;
            fault[0].delay_ns = 100 * NS_PER_MS;
        }
        start(meshes[_i / 2], NULL, fault);
        job.fault_count = 2;
        generating_run(&job);
        check_outcomes(&seen);
    }
    ck_assert_int_gt(seen.committed, 0);
    ck_assert_int_gt(seen.aborted, 0);
    if (!(_i / 2))
        ck_assert_int_gt(seen.indeterminate, 0);
}
END_TEST

/* Before any layer of a step, and between layers. */
START_TEST(a_rank_that_fails_between_layers_leaves_what_can_be_true_together)
{
    struct seen seen = {0};

    for (uint64_t norm = 1; norm < 40; norm += 3) {
        orders.rank = _i % 2;
        orders.fail_at_norm = norm;
        orders.poisoned_token = UINT32_MAX;
        start(meshes[_i / 2], &pretending, NULL);
        generating_run(&job);
        ck_assert_uint_ge(atomic_load(&norms_counted), norm);
        check_outcomes(&seen);
        ck_assert_msg(strstr(job.outcome[0].err.text, "rehearsed failure"), "%s", job.outcome[0].err.text);
    }
    ck_assert_int_gt(seen.aborted, 0);
}
END_TEST

/* ---- a failure that costs one request ------------------------------------------------------------------- */

struct reference {
    uint32_t tokens[GENERATING_PROMPTS][GENERATING_NEW];
    uint64_t digests[GENERATING_PROMPTS];
};

static const char *const all_meshes[] = {
    "pipeline: 1", "pipeline: 2", "data: 2", "pipeline: 4", "pipeline: 2, tensor: 2", "data: 2, pipeline: 2"};

/* The prompts in which the model never meets the token go on with the same bits, and with caches that at each position
 * hold byte for byte what they held when the aborted step came there. */
static void check_abort(const char *mesh, uint32_t microbatch, uint32_t token)
{
    static struct reference reference;
    uint32_t failed = 0;

    orders.poisoned_token = UINT32_MAX;
    orders.fail_at_norm = 0;
    start(mesh, &pretending, NULL);
    job.microbatch = microbatch;
    generating_run(&job);
    ck_assert_int_eq(job.outcome[0].st, STATUS_OK);
    ck_assert_uint_eq(job.outcome[0].stats.aborted, 0);
    memcpy(reference.tokens, job.tokens, sizeof job.tokens);
    memcpy(reference.digests, job.digests, sizeof job.digests);
    start(mesh, &pretending, NULL);
    job.microbatch = microbatch;
    orders.poisoned_token = token;
    orders.watch_caches = !microbatch;
    atomic_store(&caches_seen_again, 0);
    generating_run(&job);
    orders.watch_caches = false;
    for (int i = 0; i < job.ranks; i++) {
        ck_assert_msg(job.outcome[i].st == STATUS_OK, "rank %d: %s", i, job.outcome[i].err.text);
        ck_assert_uint_gt(job.outcome[i].stats.aborted, 0);
        ck_assert_uint_eq(job.outcome[i].stats.aborted, job.outcome[0].stats.aborted);
    }
    for (uint32_t p = 0; p < golden.prompts.count; p++) {
        bool bad = job.flags[p] & TOKEN_FAILED;

        failed += bad;
        ck_assert_mem_eq(job.tokens[p], reference.tokens[p], job.counts[p] * sizeof job.tokens[p][0]);
        ck_assert_uint_eq(job.counts[p] == GENERATING_NEW, !bad);
        if (!bad)
            ck_assert_uint_eq(job.digests[p], reference.digests[p]);
    }
    ck_assert_uint_gt(failed, 0);
    ck_assert_uint_lt(failed, golden.prompts.count);
    if (!microbatch)
        ck_assert_uint_gt(atomic_load(&caches_seen_again), 0);
}

/* In a prompt; then the third token that some prompt generates. */
START_TEST(an_aborted_step_leaves_no_trace)
{
    golden_load(MODEL, &golden);
    check_abort(all_meshes[_i], 0, golden.prompts.tokens[golden.prompts.begin[3] + 2]);
    check_abort(all_meshes[_i], 0, golden.expected[1][2]);
    check_abort(all_meshes[_i], 1, golden.expected[1][2]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("epochs");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 600);
    tcase_add_loop_test(all, a_rank_that_fails_at_any_operation_leaves_what_can_be_true_together, 0, 6);
    tcase_add_loop_test(all, a_rank_that_fails_between_layers_leaves_what_can_be_true_together, 0, 6);
    tcase_add_loop_test(all, an_aborted_step_leaves_no_trace, 0, sizeof all_meshes / sizeof *all_meshes);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
