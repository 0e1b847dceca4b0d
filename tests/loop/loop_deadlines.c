/* Requests whose time is up, over loopback: they end where rank 0's clock says, the same on every rank, and what the
 * others generate does not change by a bit. */
#include <check.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "base/clock.h"
#include "tests/loop/generating.h"
#include "tests/suite.h"

/* Each norm of a step takes longer, so that no whole answer is made within the shortest deadline. */
enum { PAUSE_US = 200, NOW_MS = 1, LATE_MS = 3600 * 1000 };

static struct golden golden;
static struct generating job;
static struct compute_ops slow;
static uint32_t poisoned_token; /* every row of this token is not a number; UINT32_MAX: none */
static uint32_t deadlines[GENERATING_PROMPTS];

static void slow_norm(struct compute *compute, const float *x, size_t ldx, size_t rows, size_t cols,
                      const float *weight, float epsilon, float *y, size_t ldy)
{
    clock_sleep_ns(PAUSE_US * NS_PER_US);
    cpu_compute.norm(compute, x, ldx, rows, cols, weight, epsilon, y, ldy);
}

static void poisoned_embed(struct compute *compute, const struct matrix *w, const uint32_t *ids, size_t rows, float *x,
                           size_t ldx)
{
    cpu_compute.embed(compute, w, ids, rows, x, ldx);
    for (size_t t = 0; t < rows; t++)
        for (size_t i = 0; ids[t] == poisoned_token && i < w->cols; i++)
            x[t * ldx + i] = (float)__builtin_nan("");
}

/* Every prompt with this deadline; 0: none has one. */
static void set_all(uint32_t deadline_ms)
{
    for (int p = 0; p < GENERATING_PROMPTS; p++)
        deadlines[p] = deadline_ms;
}

static void run(const char *mesh, uint32_t microbatch)
{
    golden_load("llama-10-layers", &golden);
    slow = cpu_compute;
    slow.norm = slow_norm;
    slow.embed = poisoned_embed;
    memset(&job, 0, sizeof job);
    job.mesh = mesh;
    job.microbatch = microbatch;
    job.ops = &slow;
    job.model = golden.model;
    job.prompts = golden.prompts;
    job.prompts.deadline_ms = deadlines;
    generating_run(&job);
    for (int i = 0; i < job.ranks; i++) {
        ck_assert_msg(job.outcome[i].st == STATUS_OK, "rank %d: %s", i, job.outcome[i].err.text);
        ck_assert_uint_eq(job.outcome[i].stats.steps, job.outcome[0].stats.steps);
        ck_assert_uint_eq(job.outcome[i].stats.aborted, job.outcome[0].stats.aborted);
    }
}

struct reference {
    uint32_t tokens[GENERATING_PROMPTS][GENERATING_NEW];
    uint64_t digests[GENERATING_PROMPTS];
    uint64_t steps;
};

static struct reference reference;

static void refer(const char *mesh, uint32_t microbatch)
{
    poisoned_token = UINT32_MAX;
    set_all(LATE_MS);
    run(mesh, microbatch);
    memcpy(reference.tokens, job.tokens, sizeof job.tokens);
    memcpy(reference.digests, job.digests, sizeof job.digests);
    reference.steps = job.outcome[0].stats.steps;
    for (uint32_t p = 0; p < golden.prompts.count; p++) {
        ck_assert_mem_eq(job.tokens[p], golden.expected[p], sizeof job.tokens[p]);
        ck_assert_uint_eq(job.flags[p] & TOKEN_ENDS, TOKEN_LENGTH);
    }
}

/* Of what a request made everything is right; one that went on to its end has the bits that it has without the rest. */
static void compare(uint32_t prompt, uint32_t end)
{
    ck_assert_msg((job.flags[prompt] & TOKEN_ENDS) == end, "prompt %u ends with %u, expected %u", prompt,
                  job.flags[prompt], end);
    ck_assert_mem_eq(job.tokens[prompt], reference.tokens[prompt], job.counts[prompt] * sizeof job.tokens[0][0]);
    if (end != TOKEN_LENGTH)
        ck_assert_uint_lt(job.counts[prompt], GENERATING_NEW);
    else
        ck_assert_uint_eq(job.digests[prompt], reference.digests[prompt]);
}

static bool is_cut(uint32_t prompt)
{
    return prompt % 5 == 0;
}

static const char *const meshes[] = {
    "pipeline: 1", "pipeline: 2", "data: 2", "pipeline: 3", "pipeline: 2, tensor: 2", "data: 2, pipeline: 2"};

/* Running ones and, one request a wave, ones that still wait. */
START_TEST(requests_end_at_their_deadline_and_the_others_keep_their_bits)
{
    for (uint32_t microbatch = 0; microbatch < 2; microbatch++) {
        refer(meshes[_i], microbatch);
        for (uint32_t p = 0; p < golden.prompts.count; p++)
            deadlines[p] = is_cut(p) ? NOW_MS : p % 2 ? LATE_MS : 0;
        run(meshes[_i], microbatch);
        ck_assert_uint_eq(job.outcome[0].stats.aborted, 0);
        for (uint32_t p = 0; p < golden.prompts.count; p++)
            compare(p, is_cut(p) ? TOKEN_DEADLINE : TOKEN_LENGTH);
    }
}
END_TEST

START_TEST(a_run_ends_when_the_time_of_all_is_up)
{
    refer(meshes[_i], 1);
    set_all(NOW_MS);
    run(meshes[_i], 1);
    for (uint32_t p = 0; p < golden.prompts.count; p++)
        compare(p, TOKEN_DEADLINE);
    ck_assert_uint_lt(job.outcome[0].stats.steps, reference.steps);
}
END_TEST

/* The step in which requests are cut is aborted for another one's sake, and repeated without them. */
START_TEST(deadlines_and_aborted_steps_leave_the_others_alone)
{
    uint32_t failed = 0;

    refer(meshes[_i], 0);
    poisoned_token = golden.expected[1][1];
    for (uint32_t p = 0; p < golden.prompts.count; p++)
        deadlines[p] = is_cut(p) ? NOW_MS : 0;
    run(meshes[_i], 0);
    ck_assert_uint_gt(job.outcome[0].stats.aborted, 0);
    for (uint32_t p = 0; p < golden.prompts.count; p++) {
        bool bad = job.flags[p] & TOKEN_FAILED;

        failed += bad;
        compare(p, bad ? TOKEN_FAILED : is_cut(p) ? TOKEN_DEADLINE : TOKEN_LENGTH);
    }
    ck_assert_uint_gt(failed, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deadlines");
    TCase *all = tcase_create("all");
    int count = (int)(sizeof meshes / sizeof *meshes);

    tcase_set_timeout(all, 300);
    tcase_add_loop_test(all, requests_end_at_their_deadline_and_the_others_keep_their_bits, 0, count);
    tcase_add_loop_test(all, a_run_ends_when_the_time_of_all_is_up, 0, count);
    tcase_add_loop_test(all, deadlines_and_aborted_steps_leave_the_others_alone, 0, count);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
