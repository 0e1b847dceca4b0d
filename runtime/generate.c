/* The loop, the same on every rank: for each wave, take, compute, hand on; then the vote.
 *
 * A wave's tokens of step n - 1 are taken just before its pass in step n, so that with as many waves as stages every
 * stage computes while the others do.  The vote of step n is waited for at the end of step n + 1, and committed earlier
 * when it has come: nobody ever waits for a rank that still computes step n.  A line's "done" goes into the vote as a
 * second flag; when everybody's is set the run ends, at the same step everywhere. */
#include "runtime/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "checkpoint/model_config.h"
#include "comm/group.h"
#include "comm/route.h"
#include "comm/session.h"
#include "runtime/boundary.h"
#include "runtime/plan.h"
#include "runtime/prompts.h"
#include "runtime/schedule.h"
#include "runtime/stage.h"
#include "runtime/wait.h"

enum { VOTE_WELL = 1u, VOTE_DONE = 2u };

/* A request's digest so far, one for every slot of every wave. */
struct digest {
    XXH3_state_t *state;
};

struct generation {
    struct generate_options o;
    uint32_t waves; /* per step */
    struct boundary boundary;
    struct stage *stage;
    struct schedule *schedule; /* first stage */
    struct results *results;
    struct group *world;
    uint32_t *ids;             /* [wave_rows] */
    struct token *tokens;      /* [waves, slots]: of the last pass, when this rank is first and last */
    struct digest *digests;    /* [waves, slots]: last stage */
    struct candidate *scratch; /* [vocab] */
    struct candidate best[RESULTS_MAX_TOP];
    struct completion *vote; /* of the step before this one, until it has been read */
    uint64_t vote_step;
    uint32_t vote_flags; /* what it said */
    struct generate_stats stats;
    uint64_t vote_wait_ns;
};

/* Requests of the busiest data line. */
static uint32_t line_requests(const struct generate_options *o)
{
    uint32_t lines = (uint32_t)o->plan->mesh.size[AXIS_DATA];

    return (o->prompts->count + lines - 1) / lines;
}

/* Waves per step and requests per wave: enough waves that every stage works, no more slots than requests. */
static void size_waves(const struct generate_options *o, uint32_t *ret_waves, uint32_t *ret_slots)
{
    uint32_t stages = (uint32_t)o->plan->mesh.size[AXIS_PIPELINE];
    uint32_t requests = line_requests(o);
    uint32_t slots = o->plan->slots;

    if (o->plan->microbatch_auto) {
        slots = (requests + stages - 1) / stages;
        slots = slots < 1 ? 1 : slots > o->plan->slots ? o->plan->slots : slots;
    }
    *ret_slots = slots;
    *ret_waves = (requests + slots - 1) / slots;
    *ret_waves = *ret_waves < 1 ? 1 : *ret_waves > stages ? stages : *ret_waves;
}

/* Positions that a cache must hold: the longest prompt and what it may generate. */
static uint32_t size_positions(const struct generate_options *o)
{
    uint64_t most = 1;

    for (uint32_t i = 0; i < o->prompts->count; i++) {
        uint64_t all = (uint64_t)prompt_length(o->prompts, i) + o->max_new_tokens;

        most = all > most ? all : most;
    }
    return most < o->plan->context ? (uint32_t)most : o->plan->context;
}

static enum status create_stage(struct generation *g, uint32_t slots, struct error *err)
{
    const struct generate_options *o = &g->o;
    const struct stage_options options = {
        .plan = o->plan,
        .rank = o->rank,
        .weights = o->weights,
        .ops = o->ops,
        .compute = o->compute,
        .tensor_group = o->rank->tensor_group ? session_group(o->session, o->rank->tensor_group) : NULL,
        .waves = g->waves,
        .slots = slots,
        .positions = size_positions(o),
    };

    return stage_create(&options, &g->stage, err);
}

static enum status create_schedule(struct generation *g, uint32_t slots, struct error *err)
{
    const struct generate_options *o = &g->o;
    const struct schedule_options options = {
        .prompts = o->prompts,
        .line = (uint32_t)o->rank->at.at[AXIS_DATA],
        .lines = (uint32_t)o->plan->mesh.size[AXIS_DATA],
        .waves = g->waves,
        .slots = slots,
        .wave_rows = o->plan->wave_rows,
        .prompt_chunk = o->prompt_chunk,
        .context = o->plan->context,
        .max_new_tokens = o->max_new_tokens,
        .vocab = (uint32_t)o->plan->model->vocab_size,
    };

    return o->rank->first ? schedule_create(&options, &g->schedule, err) : STATUS_OK;
}

static enum status create_digests(struct generation *g, size_t slots, struct error *err)
{
    g->digests = calloc(slots, sizeof *g->digests);
    if (!g->digests)
        return error_set(err, STATUS_NOMEM, "digests of %zu requests", slots);
    for (size_t i = 0; g->o.digest && i < slots; i++)
        if (!(g->digests[i].state = XXH3_createState()))
            return error_set(err, STATUS_NOMEM, "digests of %zu requests", slots);
    return STATUS_OK;
}

static struct route *route_or_null(const struct generation *g, uint32_t id)
{
    return id ? session_route(g->o.session, id) : NULL;
}

static void bind_boundary(struct generation *g, uint32_t slots)
{
    const struct rank_plan *rank = g->o.rank;

    g->boundary = (struct boundary){
        .forward_in = route_or_null(g, rank->forward_in),
        .forward_out = route_or_null(g, rank->forward_out),
        .token_in = route_or_null(g, rank->token_in),
        .token_out = route_or_null(g, rank->token_out),
        .hidden_size = g->o.plan->model->hidden_size,
        .limits = {.slots = g->o.plan->slots,
                   .used = slots,
                   .rows = g->o.plan->wave_rows,
                   .requests = g->o.prompts->count,
                   .context = size_positions(&g->o)},
    };
}

enum status generation_create(const struct generate_options *options, struct generation **ret, struct error *err)
{
    struct generation *g = calloc(1, sizeof *g);
    uint32_t slots = 0;
    size_t all;
    enum status st;

    if (!g)
        return error_set(err, STATUS_NOMEM, "a generation");
    g->o = *options;
    size_waves(&g->o, &g->waves, &slots);
    g->world = session_group(options->session, options->rank->world_group);
    bind_boundary(g, slots);
    all = (size_t)g->waves * options->plan->slots;
    g->ids = calloc(options->plan->wave_rows, sizeof *g->ids);
    g->tokens = calloc(all, sizeof *g->tokens);
    g->scratch = calloc(options->plan->model->vocab_size, sizeof *g->scratch);
    if (!g->ids || !g->tokens || !g->scratch) {
        generation_destroy(g);
        return error_set(err, STATUS_NOMEM, "a generation of %zu requests at once", all);
    }
    st = create_stage(g, slots, err);
    if (st == STATUS_OK)
        st = create_schedule(g, slots, err);
    if (st == STATUS_OK)
        st = create_digests(g, all, err);
    if (st == STATUS_OK)
        st = results_create(options->plan, options->rank, options->session, g->waves, options->top, options->emit,
                            options->emit_context, &g->results, err);
    if (st != STATUS_OK) {
        generation_destroy(g);
        return st;
    }
    *ret = g;
    return STATUS_OK;
}

void generation_destroy(struct generation *g)
{
    if (!g)
        return;
    for (size_t i = 0; g->digests && i < (size_t)g->waves * g->o.plan->slots; i++)
        XXH3_freeState(g->digests[i].state);
    stage_destroy(g->stage);
    schedule_destroy(g->schedule);
    results_destroy(g->results);
    free(g->digests);
    free(g->ids);
    free(g->tokens);
    free(g->scratch);
    free(g);
}

static bool is_stop(const struct generation *g, uint32_t token)
{
    const struct model_config *model = g->o.plan->model;

    for (int i = 0; !g->o.ignore_eos && i < model->stop_token_count; i++)
        if (model->stop_token[i] == token)
            return true;
    return false;
}

/* One slot's token from its logits; noted as a result and written to *token. */
static enum status sample_slot(struct generation *g, uint64_t step, uint32_t index, uint32_t s,
                               const struct wave_slot *slot, const float *logits, struct token *token,
                               struct error *err)
{
    uint32_t vocab = (uint32_t)g->o.plan->model->vocab_size;
    struct digest *digest = &g->digests[(size_t)index * g->o.plan->slots + s];
    uint32_t known = slot->position + slot->rows;
    uint32_t generated = known - prompt_length(g->o.prompts, slot->request);
    struct result result = {.top = g->best};
    enum status st;

    if (known < prompt_length(g->o.prompts, slot->request))
        return error_set(err, STATUS_MISMATCH, "slot %u asks for a token at position %u inside prompt %u", s, known,
                         slot->request);
    st = sampler_pick(&g->o.sampling, logits, vocab, slot->request, generated, g->scratch, &token->token, err);

    if (st != STATUS_OK)
        return error_wrap(err, st, "prompt %u, token %u", slot->request, generated);
    token->request = slot->request;
    token->index = generated;
    token->flags = TOKEN_VALID;
    if (is_stop(g, token->token))
        token->flags |= TOKEN_STOP;
    else if (slot->flags & WAVE_FINAL)
        token->flags |= TOKEN_LENGTH;
    if (digest->state) {
        if (!generated)
            XXH3_64bits_reset(digest->state);
        XXH3_64bits_update(digest->state, logits, vocab * sizeof *logits);
        result.digest = XXH3_64bits_digest(digest->state);
    }
    sampler_best(logits, vocab, g->o.top < vocab ? g->o.top : vocab, g->best);
    result.token = *token;
    results_note(g->results, step, &result);
    return STATUS_OK;
}

static enum status sample_wave(struct generation *g, uint64_t step, uint32_t index, const struct wave *wave,
                               struct error *err)
{
    struct token *tokens = g->tokens + (size_t)index * g->o.plan->slots;
    const float *logits = NULL;
    enum status st = stage_logits(g->stage, wave, &logits, err);

    memset(tokens, 0, g->o.plan->slots * sizeof *tokens);
    for (uint32_t s = 0; st == STATUS_OK && s < wave->slot_count; s++) {
        if (!(wave->slot[s].flags & WAVE_SAMPLE))
            continue;
        st = sample_slot(g, step, index, s, &wave->slot[s], logits, &tokens[s], err);
        logits += g->o.plan->model->vocab_size;
    }
    if (st == STATUS_OK && g->boundary.token_out)
        st = boundary_send_tokens(&g->boundary, step, tokens, err);
    return st;
}

/* Tokens that cannot be: the sender is whom a person must look at. */
static enum status wrap_sender(const struct route *route, enum status st, struct error *err)
{
    const struct route_spec *spec = route_spec(route);

    return error_wrap(err, st, "route %s (rank %d to rank %d)", spec->name, spec->from, spec->to);
}

/* The first stage: what came back decides this pass. */
static enum status start_wave(struct generation *g, uint64_t step, uint32_t index, struct wave *wave, struct error *err)
{
    struct token *tokens = g->tokens + (size_t)index * g->o.plan->slots;
    enum status st = STATUS_OK;

    if (step && g->boundary.token_in)
        st = boundary_take_tokens(&g->boundary, step - 1, tokens, err);
    if (st == STATUS_OK && step) {
        st = schedule_tokens(g->schedule, index, tokens, err);
        if (st != STATUS_OK && g->boundary.token_in)
            return wrap_sender(g->boundary.token_in, st, err);
    }
    if (st != STATUS_OK)
        return st;
    schedule_wave(g->schedule, index, wave, g->ids);
    wave->slot_count = g->o.plan->slots; /* slots past the ones in use are idle */
    if (wave->rows)
        stage_embed(g->stage, g->ids, wave->rows);
    return STATUS_OK;
}

static enum status receive_wave(struct generation *g, uint64_t step, uint32_t index, struct wave *wave,
                                struct error *err)
{
    struct bundle *bundle = NULL;
    const float *hidden = NULL;
    enum status st = boundary_take_wave(&g->boundary, step, wave, &bundle, &hidden, err);

    if (st != STATUS_OK)
        return st;
    stage_take(g->stage, hidden, wave->rows);
    boundary_return_wave(&g->boundary, bundle);
    return index + 1 < g->waves ? boundary_expect_wave(&g->boundary, step, err) : STATUS_OK;
}

static uint64_t waited(const struct generation *g)
{
    return g->boundary.wait_ns + stage_wait_ns(g->stage) + results_wait_ns(g->results) + g->vote_wait_ns;
}

/* The vote has come: commit its step. */
static enum status take_vote(struct generation *g, struct error *err)
{
    g->vote_flags = completion_flags(g->vote);
    completion_release(g->vote);
    g->vote = NULL;
    if (!(g->vote_flags & VOTE_WELL))
        return error_set(err, STATUS_LOST, "step %" PRIu64 " was not committed: a rank voted against it", g->vote_step);
    return results_commit(g->results, g->vote_step, err);
}

/* Commit the last step as soon as its vote is there: what it generated need not wait for the end of this one. */
static enum status poll_vote(struct generation *g, struct error *err)
{
    if (g->vote && completion_test(g->vote) == COMPLETION_DONE)
        return take_vote(g, err);
    return results_poll(g->results, err);
}

/* Wait for the vote; *ret_done: every line is done.  Read at the same point of the loop on every rank, so that all end
 * at the same step. */
static enum status read_vote(struct generation *g, bool *ret_done, struct error *err)
{
    uint64_t start = clock_ns();
    enum status st = g->vote ? completion_wait(g->vote, DEADLINE_NONE, err) : STATUS_OK;

    g->vote_wait_ns += clock_ns() - start;
    if (st == STATUS_OK && g->vote)
        st = take_vote(g, err);
    *ret_done = g->vote_flags & VOTE_DONE;
    return st;
}

static enum status post_vote(struct generation *g, uint64_t step, struct error *err)
{
    bool done = !g->schedule || schedule_done(g->schedule);

    g->vote_step = step;
    return group_failure_agreement(g->world, VOTE_WELL | (done ? VOTE_DONE : 0), &g->vote, err);
}

static enum status run_wave(struct generation *g, uint64_t step, uint32_t index, struct error *err)
{
    uint64_t start = clock_ns();
    uint64_t before = waited(g);
    struct wave wave;
    enum status st = poll_vote(g, err);

    if (st == STATUS_OK && g->o.rank->first)
        st = start_wave(g, step, index, &wave, err);
    else if (st == STATUS_OK)
        st = receive_wave(g, step, index, &wave, err);
    if (st == STATUS_OK)
        st = stage_run(g->stage, &wave, index, err);
    if (st == STATUS_OK && g->boundary.forward_out)
        st = boundary_send_wave(&g->boundary, step, &wave, stage_hidden(g->stage), err);
    if (st == STATUS_OK && g->o.rank->last)
        st = sample_wave(g, step, index, &wave, err);
    if (st == STATUS_OK && wave.rows) {
        g->stats.waves++;
        g->stats.rows += wave.rows;
        g->stats.compute_ns += clock_ns() - start - (waited(g) - before);
    }
    return st;
}

static enum status run_step(struct generation *g, uint64_t step, struct error *err)
{
    char phase[64];
    enum status st = STATUS_OK;

    (void)snprintf(phase, sizeof phase, "step %" PRIu64 ", stage %d", step, g->o.rank->at.at[AXIS_PIPELINE]);
    session_phase(g->o.session, phase);
    for (uint32_t index = 0; st == STATUS_OK && index < g->waves; index++) {
        st = run_wave(g, step, index, err);
        if (st != STATUS_OK)
            return error_wrap(err, st, "step %" PRIu64 ", wave %u", step, index);
    }
    return st;
}

static enum status run_steps(struct generation *g, struct error *err)
{
    bool done = false;
    uint64_t step;
    enum status st = STATUS_OK;

    for (step = 0; st == STATUS_OK && !done; step++) {
        st = run_step(g, step, err);
        if (st == STATUS_OK && step)
            st = read_vote(g, &done, err);
        if (st == STATUS_OK)
            st = post_vote(g, step, err);
    }
    g->stats.steps = step;
    if (st == STATUS_OK)
        st = read_vote(g, &done, err);
    /* The tokens of the last step came for nobody. */
    for (uint32_t index = 0; st == STATUS_OK && g->boundary.token_in && index < g->waves; index++)
        st = boundary_take_tokens(&g->boundary, step - 1, g->tokens + (size_t)index * g->o.plan->slots, err);
    return st;
}

enum status generation_run(struct generation *g, struct generate_stats *ret, struct error *err)
{
    uint64_t start = clock_ns();
    enum status st = run_steps(g, err);
    bool clean = st == STATUS_OK;
    struct error ignored = {0};

    if (g->vote)
        completion_abandon(g->vote);
    g->vote = NULL;
    enum status boundary = boundary_finish(&g->boundary, clean, clean ? err : &ignored);

    st = st == STATUS_OK ? boundary : st;
    enum status results = results_finish(g->results, st == STATUS_OK, clean ? err : &ignored);

    st = st == STATUS_OK ? results : st;
    g->stats.elapsed_ns = clock_ns() - start;
    g->stats.wait_ns = waited(g);
    g->stats.cache_bytes = stage_cache_bytes(g->stage);
    *ret = g->stats;
    return st;
}
