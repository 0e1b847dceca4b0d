/* What a stage's caches hold: rows go on where they end, and a step that is taken back leaves the same bits. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "runtime/plan.h"
#include "runtime/stage.h"
#include "runtime/weights.h"
#include "topology/topology.h"
#include "tests/suite.h"

static struct topology *topology;
static struct checkpoint *checkpoint;
static struct plan *plan;
static struct rank_plan rank;
static struct weights *weights;
static struct compute *compute;
static struct stage *stage;

static void setup(void)
{
    const struct compute_options options = {.threads = 1, .simd = "auto"};
    struct error err = {0};
    struct text text = {0};

    text_add(&text, "ferry: 1\nname: stage\nmesh: {pipeline: 1}\nworkload:\n  generate:\n    model: %s\n", MODEL);
    ck_assert_int_eq(topology_parse(text_string(&text), text.length, "t", NULL, 0, &topology, NULL, &err), STATUS_OK);
    text_done(&text);
    ck_assert_int_eq(checkpoint_open(MODEL, &checkpoint, &err), STATUS_OK);
    ck_assert_int_eq(plan_create(topology, checkpoint, &plan, &err), STATUS_OK);
    plan_rank(plan, 0, &rank);
    ck_assert_int_eq(weights_load(checkpoint, plan, &rank, &weights, &err), STATUS_OK);
    ck_assert_int_eq(cpu_compute.open(&options, &compute, &err), STATUS_OK);
    const struct stage_options all = {.plan = plan,
                                      .rank = &rank,
                                      .weights = weights,
                                      .ops = &cpu_compute,
                                      .compute = compute,
                                      .waves = 1,
                                      .slots = 2,
                                      .positions = 16};

    ck_assert_msg(stage_create(&all, &stage, &err) == STATUS_OK, "%s", err.text);
}

static void teardown(void)
{
    stage_destroy(stage);
    cpu_compute.close(compute);
    weights_unload(weights);
    plan_destroy(plan);
    checkpoint_close(checkpoint);
    topology_destroy(topology);
}

/* rows of request 7 at position, in slot 1. */
static enum status pass(uint32_t position, uint32_t rows, uint32_t first_id, struct error *err)
{
    struct wave wave = {.slot_count = 2, .rows = rows, .slot = {{0}, {7, position, rows, WAVE_SAMPLE}}};
    uint32_t ids[16];

    for (uint32_t i = 0; i < rows; i++)
        ids[i] = first_id + i;
    stage_embed(stage, ids, rows);
    return stage_run(stage, &wave, 0, err);
}

START_TEST(rows_that_do_not_follow_the_cache_are_refused)
{
    struct error err = {0};

    ck_assert_int_eq(pass(3, 2, 1, &err), STATUS_MISMATCH);
    ck_assert_msg(strstr(err.text, "slot 1: request 7 goes on at position 3, its cache holds 0"), "%s", err.text);
    ck_assert_int_eq(pass(0, 3, 1, &err), STATUS_OK);
    ck_assert_uint_eq(stage_length(stage, 0, 1), 3);
    ck_assert_uint_eq(stage_length(stage, 0, 0), 0);
    ck_assert_int_eq(pass(2, 1, 1, &err), STATUS_MISMATCH);
    ck_assert_int_eq(pass(4, 1, 1, &err), STATUS_MISMATCH);
    ck_assert_int_eq(pass(3, 1, 1, &err), STATUS_OK);
    ck_assert_int_eq(pass(0, 2, 1, &err), STATUS_OK); /* another request begins */
    ck_assert_uint_eq(stage_length(stage, 0, 1), 2);
}
END_TEST

START_TEST(what_was_taken_back_shows_in_no_bit)
{
    size_t hidden = plan->model->hidden_size;
    float *straight = calloc(hidden, sizeof *straight);
    struct error err = {0};

    ck_assert_int_eq(pass(0, 3, 1, &err), STATUS_OK);
    ck_assert_int_eq(pass(3, 1, 40, &err), STATUS_OK);
    memcpy(straight, stage_hidden(stage), hidden * sizeof *straight);
    ck_assert_int_eq(pass(0, 3, 1, &err), STATUS_OK);
    stage_save(stage, 1);
    ck_assert_int_eq(pass(3, 4, 90, &err), STATUS_OK); /* other rows at the same positions */
    stage_save(stage, 0);
    stage_restore(stage, 1);
    ck_assert_uint_eq(stage_length(stage, 0, 1), 3);
    ck_assert_int_eq(pass(3, 1, 40, &err), STATUS_OK);
    ck_assert_mem_eq(straight, stage_hidden(stage), hidden * sizeof *straight);
    stage_restore(stage, 0);
    ck_assert_uint_eq(stage_length(stage, 0, 1), 7);
    free(straight);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stage");
    TCase *all = tcase_create("all");

    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, rows_that_do_not_follow_the_cache_are_refused);
    tcase_add_test(all, what_was_taken_back_shows_in_no_bit);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
