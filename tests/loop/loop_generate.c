/* A whole generation with the shipped model, its ranks as threads over loopback, against the golden tokens that
 * transformers computed (tests/parity/golden/kjv.json).  Runs under the sanitizers, of threads too. */
#include <check.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/loopback/loopback.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "comm/session.h"
#include "runtime/compute.h"
#include "runtime/generate.h"
#include "runtime/plan.h"
#include "runtime/prompts.h"
#include "runtime/weights.h"
#include "topology/topology.h"

enum { MAX_PROMPTS = 8, MAX_NEW = 12, MAX_RANKS = 8 };

/* What all ranks of one run share: made by the test, read by its threads. */
struct shared {
    struct topology *topology;
    struct loopback_world *world;
    struct prompts prompts; /* rank 0's */
    const uint32_t *expected[MAX_PROMPTS];
    struct outcome {
        struct shared *shared;
        int rank;
        enum status st;
        struct error err;
        uint32_t tokens[MAX_PROMPTS][MAX_NEW]; /* on rank 0 */
        uint32_t counts[MAX_PROMPTS];
    } outcome[MAX_RANKS];
};

static enum status note(void *context, const struct result *result, struct error *err)
{
    struct outcome *outcome = context;
    const struct token *token = &result->token;

    if (token->request >= MAX_PROMPTS || token->index >= MAX_NEW || token->index != outcome->counts[token->request])
        return error_set(err, STATUS_INTERNAL, "token %u of prompt %u out of order", token->index, token->request);
    outcome->tokens[token->request][token->index] = token->token;
    outcome->counts[token->request]++;
    return STATUS_OK;
}

/* Objects of one rank, for one way out. */
struct rank_objects {
    struct checkpoint *checkpoint;
    struct plan *plan;
    struct rank_plan rank;
    struct transport *transport;
    struct session *session;
    struct compute *compute;
    struct weights *weights;
    struct prompts prompts;
    struct generation *generation;
};

static void move(void *session)
{
    session_progress(session);
}

static enum status open_rank(struct outcome *o, struct rank_objects *r)
{
    const struct session_options options = {
        .timeout_ns = 30 * NS_PER_S, .startup_timeout_ns = 60 * NS_PER_S, .checks = CHECKS_FULL};
    const struct manifest manifest = {.why = ""};
    enum status st = checkpoint_open(MODEL, &r->checkpoint, &o->err);

    if (st == STATUS_OK)
        st = plan_create(o->shared->topology, r->checkpoint, &r->plan, &o->err);
    if (st == STATUS_OK)
        st = loopback_join(o->shared->world, o->rank, &r->transport, &o->err);
    if (st == STATUS_OK)
        st = session_create(&loopback_ops, r->transport, &options, &r->session, &o->err);
    if (st == STATUS_OK)
        st = session_consensus(r->session, &manifest, &o->err);
    if (st == STATUS_OK)
        st = session_build(r->session, r->plan->groups, r->plan->group_count, r->plan->routes, r->plan->route_count,
                           &o->err);
    return st;
}

static enum status load_rank(struct outcome *o, struct rank_objects *r)
{
    const struct compute_options options = {
        .threads = 2, .simd = "auto", .progress = move, .progress_context = r->session};
    enum status st = cpu_compute.open(&options, &r->compute, &o->err);

    plan_rank(r->plan, o->rank, &r->rank);
    if (st == STATUS_OK)
        st = weights_load(r->checkpoint, r->plan, &r->rank, &r->weights, &o->err);
    if (o->rank == 0)
        r->prompts = o->shared->prompts;
    if (st == STATUS_OK)
        st = prompts_share(&r->prompts, session_group(r->session, r->rank.world_group), r->plan->context,
                           r->plan->model->vocab_size, &o->err);
    return st;
}

static enum status generate_rank(struct outcome *o, struct rank_objects *r)
{
    const struct generate_options options = {
        .plan = r->plan,
        .rank = &r->rank,
        .session = r->session,
        .weights = r->weights,
        .ops = &cpu_compute,
        .compute = r->compute,
        .prompts = &r->prompts,
        .max_new_tokens = MAX_NEW,
        .prompt_chunk = 5,
        .ignore_eos = true,
        .digest = true,
        .top = 3,
        .emit = note,
        .emit_context = o,
    };
    struct generate_stats stats;
    enum status st = generation_create(&options, &r->generation, &o->err);

    return st == STATUS_OK ? generation_run(r->generation, &stats, &o->err) : st;
}

static void *run_rank(void *context)
{
    struct outcome *o = context;
    struct rank_objects r = {0};

    o->st = open_rank(o, &r);
    if (o->st == STATUS_OK)
        o->st = load_rank(o, &r);
    if (o->st == STATUS_OK)
        o->st = generate_rank(o, &r);
    if (o->st != STATUS_OK && r.session)
        session_fail(r.session, o->st, o->err.text);
    if (r.session) {
        enum status st = session_close(r.session, o->st == STATUS_OK, &o->err);

        o->st = o->st == STATUS_OK ? st : o->st;
    }
    generation_destroy(r.generation);
    weights_unload(r.weights);
    if (r.compute)
        cpu_compute.close(r.compute);
    if (o->rank)
        prompts_done(&r.prompts);
    plan_destroy(r.plan);
    checkpoint_close(r.checkpoint);
    return NULL;
}

static json_t *load_golden(struct shared *shared)
{
    static uint64_t begin[MAX_PROMPTS + 1];
    static uint32_t tokens[4096];
    static uint32_t expected[MAX_PROMPTS][MAX_NEW];
    json_error_t problem;
    json_t *golden = json_load_file(GOLDEN, 0, &problem);
    json_t *list = json_object_get(golden, "prompts");
    uint64_t used = 0;

    ck_assert_ptr_nonnull(golden);
    shared->prompts = (struct prompts){(uint32_t)json_array_size(list), begin, tokens};
    ck_assert_uint_le(shared->prompts.count, MAX_PROMPTS);
    for (uint32_t i = 0; i < shared->prompts.count; i++) {
        json_t *ids = json_object_get(json_array_get(list, i), "prompt_tokens");
        json_t *made = json_object_get(json_array_get(list, i), "tokens");

        for (size_t k = 0; k < json_array_size(ids); k++)
            tokens[used++] = (uint32_t)json_integer_value(json_array_get(ids, k));
        begin[i + 1] = used;
        for (size_t k = 0; k < MAX_NEW; k++)
            expected[i][k] = (uint32_t)json_integer_value(json_array_get(made, k));
        shared->expected[i] = expected[i];
    }
    return golden;
}

static void check_golden(const struct shared *shared, int ranks)
{
    for (int i = 0; i < ranks; i++)
        ck_assert_msg(shared->outcome[i].st == STATUS_OK, "rank %d: %s", i, shared->outcome[i].err.text);
    for (uint32_t p = 0; p < shared->prompts.count; p++) {
        ck_assert_uint_eq(shared->outcome[0].counts[p], MAX_NEW);
        ck_assert_mem_eq(shared->outcome[0].tokens[p], shared->expected[p], sizeof shared->outcome[0].tokens[p]);
    }
}

static void check_refused(const struct shared *shared, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        ck_assert_int_eq(shared->outcome[i].st, STATUS_MISMATCH);
        ck_assert_msg(strstr(shared->outcome[i].err.text, "token 4294967295, the vocabulary has"), "rank %d: %s", i,
                      shared->outcome[i].err.text);
    }
}

/* damaged: rank 0 gives everybody a prompt that no model of this vocabulary has. */
static void run_mesh(const char *mesh, bool damaged)
{
    static struct shared shared;
    struct error err = {0};
    struct text text = {0};
    pthread_t thread[MAX_RANKS];
    int ranks;

    memset(&shared, 0, sizeof shared);
    json_t *golden = load_golden(&shared);

    if (damaged)
        shared.prompts.tokens[1] = UINT32_MAX;
    text_add(&text, "ferry: 1\nname: loop\nmesh: {%s}\nworkload:\n  generate:\n    model: %s\n", mesh, MODEL);
    ck_assert_msg(topology_parse(text_string(&text), text.length, "loop.yaml", NULL, 0, &shared.topology, NULL, &err) ==
                      STATUS_OK,
                  "%s", err.text);
    ranks = (int)shared.topology->world_size;
    ck_assert_int_eq(loopback_world_create(ranks, NULL, &shared.world, &err), STATUS_OK);
    for (int i = 0; i < ranks; i++) {
        shared.outcome[i].shared = &shared;
        shared.outcome[i].rank = i;
        ck_assert_int_eq(pthread_create(&thread[i], NULL, run_rank, &shared.outcome[i]), 0);
    }
    for (int i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
    (damaged ? check_refused : check_golden)(&shared, ranks);
    loopback_world_destroy(shared.world);
    topology_destroy(shared.topology);
    text_done(&text);
    json_decref(golden);
}

static const char *const meshes[] = {
    "pipeline: 1", "pipeline: 3", "tensor: 3", "data: 2", "pipeline: 2, tensor: 2", "data: 2, pipeline: 2"};

START_TEST(every_mesh_generates_the_golden_tokens)
{
    run_mesh(meshes[_i], false);
}
END_TEST

START_TEST(prompts_that_came_damaged_are_refused_before_a_row_is_looked_up)
{
    run_mesh("data: 2", true);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generate");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 300);
    tcase_add_loop_test(all, every_mesh_generates_the_golden_tokens, 0, sizeof meshes / sizeof *meshes);
    tcase_add_test(all, prompts_that_came_damaged_are_refused_before_a_row_is_looked_up);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
