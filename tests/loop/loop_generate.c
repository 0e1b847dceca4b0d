/* A whole generation with the shipped model, its ranks as threads over loopback, against the golden tokens that
 * transformers computed (tests/parity/golden/kjv.json).  Runs under the sanitizers, of threads too. */
#include <check.h>
#include <string.h>

#include "backends/loopback/loopback.h"
#include "tests/loop/generating.h"
#include "tests/suite.h"

static struct golden golden;
static struct generating job;

static void run_over(const char *mesh, uint32_t prompts, const struct transport_ops *device)
{
    golden_load("kjv", &golden);
    golden.prompts.count = prompts ? prompts : golden.prompts.count;
    memset(&job, 0, sizeof job);
    job.mesh = mesh;
    job.model = golden.model;
    job.prompts = golden.prompts;
    job.device = device;
    generating_run(&job);
    for (int i = 0; i < job.ranks; i++)
        ck_assert_msg(job.outcome[i].st == STATUS_OK, "rank %d: %s", i, job.outcome[i].err.text);
    for (uint32_t p = 0; p < golden.prompts.count; p++) {
        ck_assert_uint_eq(job.counts[p], GENERATING_NEW);
        ck_assert_mem_eq(job.tokens[p], golden.expected[p], sizeof job.tokens[p]);
    }
}

static void run(const char *mesh, uint32_t prompts)
{
    run_over(mesh, prompts, NULL);
}

static const char *const meshes[] = {
    "pipeline: 1", "pipeline: 3", "tensor: 3", "data: 2", "pipeline: 2, tensor: 2", "data: 2, pipeline: 2"};

START_TEST(every_mesh_generates_the_golden_tokens)
{
    run(meshes[_i], 0);
}
END_TEST

/* Rows, sums and logits in a memory that nobody may touch and whose queue runs late, staged and from device to device:
 * what is not waited for, or not promoted, ends the process or changes the tokens. */
static const struct {
    const char *mesh;
    const struct transport_ops *transport;
} devices[] = {{"pipeline: 3", &loopback_ops},
               {"pipeline: 3", &loopback_device_ops},
               {"tensor: 3", &loopback_ops},
               {"tensor: 3", &loopback_device_ops},
               {"data: 2, pipeline: 2, tensor: 2", &loopback_device_ops}};

START_TEST(tensors_that_travel_in_a_devices_memory_change_no_token)
{
    run_over(devices[_i].mesh, 0, devices[_i].transport);
    for (int i = 0; i < job.ranks; i++)
        ck_assert_int_eq(job.outcome[i].blocks, 0);
}
END_TEST

/* One prompt: fewer waves than stages, and a data line with nothing to do at all. */
static const char *const idle[] = {"pipeline: 2",          "pipeline: 3", "pipeline: 4",
                                   "data: 2, pipeline: 2", "data: 4",     "data: 2, tensor: 2, pipeline: 2"};

START_TEST(idle_ranks_take_part_in_every_wave_and_vote)
{
    run(idle[_i], 1);
    for (int i = 0; i < job.ranks; i++)
        ck_assert_uint_eq(job.outcome[i].stats.steps, job.outcome[0].stats.steps);
}
END_TEST

START_TEST(prompts_that_came_damaged_are_refused_before_a_row_is_looked_up)
{
    golden_load("kjv", &golden);
    golden.prompts.tokens[1] = UINT32_MAX;
    memset(&job, 0, sizeof job);
    job.mesh = "data: 2";
    job.model = golden.model;
    job.prompts = golden.prompts;
    generating_run(&job);
    for (int i = 0; i < job.ranks; i++) {
        ck_assert_int_eq(job.outcome[i].st, STATUS_MISMATCH);
        ck_assert_msg(strstr(job.outcome[i].err.text, "token 4294967295, the vocabulary has"), "rank %d: %s", i,
                      job.outcome[i].err.text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generate");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 300);
    tcase_add_loop_test(all, every_mesh_generates_the_golden_tokens, 0, sizeof meshes / sizeof *meshes);
    tcase_add_loop_test(all, tensors_that_travel_in_a_devices_memory_change_no_token, 0,
                        sizeof devices / sizeof *devices);
    tcase_add_loop_test(all, idle_ranks_take_part_in_every_wave_and_vote, 0, sizeof idle / sizeof *idle);
    tcase_add_test(all, prompts_that_came_damaged_are_refused_before_a_row_is_looked_up);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
