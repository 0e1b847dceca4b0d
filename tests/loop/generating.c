/* Threads as ranks: checkpoint, plan, session, weights, generation; and all of it released whatever happened. */
#include "tests/loop/generating.h"

#include <check.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/loopback/loopback.h"
#include "base/clock.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "comm/device.h"
#include "runtime/plan.h"
#include "runtime/shuttle.h"
#include "runtime/weights.h"
#include "tests/loop/late_memory.h"
#include "topology/topology.h"

enum { LATE_US = 100 }; /* the longest that the device holds back a piece of work */
enum { FEWEST_PROMPTS = 8 };

static enum status note(void *context, const struct result *result, struct error *err)
{
    struct generating *job = context;
    const struct token *token = &result->token;
    uint32_t r = token->request;

    if (r >= GENERATING_PROMPTS || token->index >= GENERATING_NEW || token->index != job->counts[r])
        return error_set(err, STATUS_INTERNAL, "token %u of prompt %u out of order", token->index, r);
    job->flags[r] = token->flags;
    if (token->flags & (TOKEN_FAILED | TOKEN_DEADLINE))
        return STATUS_OK;
    job->tokens[r][job->counts[r]++] = token->token;
    job->digests[r] = result->digest;
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
    struct device device; /* its memory NULL: none */
    struct shuttle *shuttle;
    struct generation *generation;
};

static void move(void *session)
{
    session_progress(session);
}

static enum status open_rank(struct outcome *o, struct rank_objects *r)
{
    const struct generating *job = o->job;
    const struct session_options options = {
        .timeout_ns = job->timeout_ns ? job->timeout_ns : 30 * NS_PER_S,
        .startup_timeout_ns = 60 * NS_PER_S,
        .checks = CHECKS_FULL,
        .faults = job->faults,
        .fault_count = job->fault_count,
        .memory = r->device.memory,
    };
    const struct transport_ops *ops = job->device ? job->device : &loopback_ops;
    const struct manifest manifest = {.why = ""};
    enum status st = checkpoint_open(job->model, &r->checkpoint, &o->err);

    if (st == STATUS_OK)
        st = plan_create(job->topology, r->checkpoint, &r->plan, &o->err);
    if (st == STATUS_OK)
        st = loopback_join(job->world, o->rank, &r->transport, &o->err);
    if (st == STATUS_OK)
        st = session_create(ops, r->transport, &options, &r->session, &o->err);
    if (st == STATUS_OK)
        st = session_consensus(r->session, &manifest, &o->err);
    if (st == STATUS_OK)
        st = session_build(r->session, r->plan->groups, r->plan->group_count, r->plan->routes, r->plan->route_count,
                           &o->err);
    return st;
}

static const struct compute_ops *compute_of(const struct generating *job)
{
    return job->ops ? job->ops : &cpu_compute;
}

static enum status load_rank(struct outcome *o, struct rank_objects *r)
{
    const struct compute_options options = {
        .threads = 2, .simd = "auto", .progress = move, .progress_context = r->session};
    enum status st = compute_of(o->job)->open(&options, &r->compute, &o->err);

    plan_rank(r->plan, o->rank, &r->rank);
    if (st == STATUS_OK)
        st = weights_load(r->checkpoint, r->plan, &r->rank, &r->weights, &o->err);
    if (o->rank == 0)
        r->prompts = o->job->prompts;
    if (st == STATUS_OK)
        st = prompts_share(&r->prompts, session_group(r->session, r->rank.world_group), r->plan->context,
                           r->plan->model->vocab_size, &o->err);
    return st;
}

/* What the rank knows at the end, and that an undecided step keeps it from going on. */
static void look_back(struct outcome *o, struct generation *generation)
{
    struct generate_stats ignored;
    uint64_t next = o->stats.steps;

    for (uint64_t i = 0; i < 2 && next > i; i++)
        o->last[i] = generation_epoch(generation, next - 1 - i);
    o->again = o->st;
    if (o->st != STATUS_OK)
        o->again = generation_run(generation, &ignored, &o->again_err);
}

static enum status generate_rank(struct outcome *o, struct rank_objects *r)
{
    const struct generate_options options = {
        .plan = r->plan,
        .rank = &r->rank,
        .session = r->session,
        .shuttle = r->shuttle,
        .weights = r->weights,
        .ops = compute_of(o->job),
        .compute = r->compute,
        .prompts = &r->prompts,
        .max_new_tokens = GENERATING_NEW,
        .prompt_chunk = o->job->chunk ? o->job->chunk : 5,
        .ignore_eos = true,
        .digest = true,
        .top = 3,
        .emit = note,
        .emit_context = o->job,
    };
    enum status st = generation_create(&options, &r->generation, &o->err);

    if (st != STATUS_OK)
        return st;
    o->st = generation_run(r->generation, &o->stats, &o->err);
    if (o->st != STATUS_OK)
        session_fail(r->session, o->st, o->err.text);
    look_back(o, r->generation);
    return o->st;
}

static void *run_rank(void *context)
{
    struct outcome *o = context;
    struct rank_objects r = {0};

    if (o->job->device)
        r.device.memory = late_memory_create(o->rank, LATE_US);
    o->st = open_rank(o, &r);
    if (o->st == STATUS_OK && r.device.memory)
        o->st = shuttle_create(r.session, &late_device_ops, &r.device, &r.shuttle, &o->err);
    if (o->st == STATUS_OK)
        o->st = load_rank(o, &r);
    if (o->st == STATUS_OK)
        o->st = generate_rank(o, &r);
    o->generated = r.generation != NULL;
    if (o->st != STATUS_OK && r.session)
        session_fail(r.session, o->st, o->err.text);
    shuttle_destroy(r.shuttle);
    if (r.session) {
        o->operations = session_counters(r.session).operations;
        enum status st = session_close(r.session, o->st == STATUS_OK, &o->err);

        o->st = o->st == STATUS_OK ? st : o->st;
    }
    generation_destroy(r.generation);
    if (r.device.memory)
        o->blocks = late_memory_blocks(r.device.memory);
    late_memory_destroy(r.device.memory);
    weights_unload(r.weights);
    if (r.compute)
        compute_of(o->job)->close(r.compute);
    if (o->rank)
        prompts_done(&r.prompts);
    plan_destroy(r.plan);
    checkpoint_close(r.checkpoint);
    return NULL;
}

void generating_run(struct generating *job)
{
    struct error err = {0};
    struct text text = {0};
    pthread_t thread[GENERATING_RANKS];

    text_add(&text, "ferry: 1\nname: loop\nmesh: {%s}\nworkload:\n  generate:\n    model: %s\n", job->mesh, job->model);
    if (job->microbatch)
        text_add(&text, "    microbatch: %u\n", job->microbatch);
    ck_assert_msg(topology_parse(text_string(&text), text.length, "loop.yaml", NULL, 0, &job->topology, NULL, &err) ==
                      STATUS_OK,
                  "%s", err.text);
    job->ranks = (int)job->topology->world_size;
    ck_assert_int_le(job->ranks, GENERATING_RANKS);
    ck_assert_int_eq(loopback_world_create(job->ranks, NULL, &job->world, &err), STATUS_OK);
    for (int i = 0; i < job->ranks; i++) {
        job->outcome[i] = (struct outcome){.job = job, .rank = i};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, run_rank, &job->outcome[i]), 0);
    }
    for (int i = 0; i < job->ranks; i++)
        pthread_join(thread[i], NULL);
    loopback_world_destroy(job->world);
    topology_destroy(job->topology);
    text_done(&text);
}

void golden_load(const char *name, struct golden *ret)
{
    char path[256];
    json_error_t problem;
    uint64_t used = 0;

    (void)snprintf(path, sizeof path, SOURCE "/tests/parity/golden/%s.json", name);
    (void)snprintf(ret->model, sizeof ret->model,
                   strcmp(name, "kjv") ? SOURCE "/tests/parity/models/%s" : SOURCE "/models/%s", name);
    json_t *golden = json_load_file(path, 0, &problem);
    json_t *list = json_object_get(golden, "prompts");
    uint32_t listed = (uint32_t)json_array_size(list);

    ck_assert_msg(listed > 0 && listed <= GENERATING_PROMPTS, "%s: %s", path, problem.text);
    ret->prompts = (struct prompts){
        .count = (FEWEST_PROMPTS + listed - 1) / listed * listed, .begin = ret->begin, .tokens = ret->ids};
    ck_assert_uint_le(ret->prompts.count, GENERATING_PROMPTS);
    ret->begin[0] = 0;
    for (uint32_t i = 0; i < ret->prompts.count; i++) {
        json_t *ids = json_object_get(json_array_get(list, i % listed), "prompt_tokens");
        json_t *made = json_object_get(json_array_get(list, i % listed), "tokens");

        for (size_t k = 0; k < json_array_size(ids); k++)
            ret->ids[used++] = (uint32_t)json_integer_value(json_array_get(ids, k));
        ret->begin[i + 1] = used;
        for (size_t k = 0; k < GENERATING_NEW; k++)
            ret->expected[i][k] = (uint32_t)json_integer_value(json_array_get(made, k));
    }
    json_decref(golden);
}
