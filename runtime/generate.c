/* The loop, the same on every rank: for each wave, take, compute, hand on; then the vote.
 *
 * A wave's tokens of step n - 1 are taken just before its pass in step n, so that with as many waves as stages every
 * stage computes while the others do.  The vote of step n is waited for at the end of step n + 1, and committed earlier
 * when it has come: nobody ever waits for a rank that still computes step n.  A line's "done" goes into the vote as a
 * second flag; when everybody's is set the run ends, at the same step everywhere.
 *
 * When step n turns out to be aborted, at the end of n + 1, both are undone, and n + 2 starts from where n did.  So two
 * states are kept, by step modulo 2, and the tokens that a step started from with them.  The pipeline drains only then:
 * the tokens of n + 1, which are on their way, are taken and dropped. */
#include "runtime/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "checkpoint/model_config.h"
#include "comm/route.h"
#include "comm/session.h"
#include "runtime/boundary.h"
#include "runtime/deadlines.h"
#include "runtime/picker.h"
#include "runtime/plan.h"
#include "runtime/prompts.h"
#include "runtime/schedule.h"
#include "runtime/stage.h"

/* The vote's flag beside EPOCH_FOR; above it stands rank 0's clock. */
enum { VOTE_DONE = 2u };
_Static_assert(VOTE_DONE < 1u << DEADLINES_SHIFT, "flags of a vote lie below the clock");

struct generation {
    struct generate_options o;
    uint32_t waves; /* per step */
    struct boundary boundary;
    struct stage *stage;
    struct schedule *schedule; /* first stage */
    struct picker *picker;     /* last stage */
    struct results *results;
    struct deadlines *deadlines;
    uint32_t *ids;           /* [wave_rows] */
    struct token *picked;    /* [waves, slots]: of the last pass, on the last stage */
    struct token *starts[2]; /* [waves, slots]: tokens that a step starts from, by step modulo 2; first stage */
    bool fed[2];             /* the step starts from tokens: it is not the first */
    struct epoch_book book;
    uint64_t step; /* the one being worked on */
    bool again;    /* it repeats an aborted one */
    bool failed;   /* a token that this rank picked in it is a failed one */
    bool told;     /* a failed token of the step before came back */
    bool cast;     /* the vote on the step before was cast; the verdict waits for the end of this one */
    struct generate_stats stats;
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
        .shuttle = o->shuttle,
        .shared = o->shared,
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

static enum status create_picker(struct generation *g, struct error *err)
{
    const struct picker_options options = {
        .prompts = g->o.prompts,
        .model = g->o.plan->model,
        .results = g->results,
        .sampling = g->o.sampling,
        .waves = g->waves,
        .slots = g->o.plan->slots,
        .top = g->o.top,
        .ignore_eos = g->o.ignore_eos,
        .digest = g->o.digest,
    };

    return g->o.rank->last ? picker_create(&options, &g->picker, err) : STATUS_OK;
}

static enum status create_results(struct generation *g, struct error *err)
{
    const struct generate_options *o = &g->o;
    const struct deadlines_options options = {
        .prompts = o->prompts,
        .lines = (uint32_t)o->plan->mesh.size[AXIS_DATA],
        .keeper = o->rank->rank == 0,
        .emit = o->emit,
        .emit_context = o->emit_context,
    };
    enum status st = deadlines_create(&options, &g->deadlines, err);

    if (st != STATUS_OK)
        return st;
    return results_create(o->plan, o->rank, o->session, g->waves, o->top, deadlines_emit, g->deadlines, &g->results,
                          err);
}

static enum status create_tokens(struct generation *g, struct error *err)
{
    size_t all = (size_t)g->waves * g->o.plan->slots;

    g->ids = calloc(g->o.plan->wave_rows, sizeof *g->ids);
    g->picked = calloc(all, sizeof *g->picked);
    g->starts[0] = calloc(all, sizeof *g->starts[0]);
    g->starts[1] = calloc(all, sizeof *g->starts[1]);
    if (g->ids && g->picked && g->starts[0] && g->starts[1])
        return STATUS_OK;
    return error_set(err, STATUS_NOMEM, "a generation of %zu requests at once", all);
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
    enum status st;

    if (!g)
        return error_set(err, STATUS_NOMEM, "a generation");
    g->o = *options;
    size_waves(&g->o, &g->waves, &slots);
    g->book.world = session_group(options->session, options->rank->world_group);
    bind_boundary(g, slots);
    st = options->top <= RESULTS_MAX_TOP && options->top <= options->plan->model->vocab_size
             ? create_tokens(g, err)
             : error_set(err, STATUS_INVALID, "the %u best of %" PRIu64 " logits, at most %d", options->top,
                         options->plan->model->vocab_size, RESULTS_MAX_TOP);
    if (st == STATUS_OK && options->shuttle)
        st = boundary_use_device(&g->boundary, options->shuttle, err);
    if (st == STATUS_OK)
        st = create_stage(g, slots, err);
    if (st == STATUS_OK)
        st = create_schedule(g, slots, err);
    if (st == STATUS_OK)
        st = create_results(g, err);
    if (st == STATUS_OK)
        st = create_picker(g, err);
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
    boundary_done(&g->boundary);
    stage_destroy(g->stage);
    schedule_destroy(g->schedule);
    picker_destroy(g->picker);
    results_destroy(g->results);
    deadlines_destroy(g->deadlines);
    free(g->ids);
    free(g->picked);
    free(g->starts[0]);
    free(g->starts[1]);
    free(g);
}

static enum status pick_wave(struct generation *g, uint32_t index, const struct wave *wave, struct error *err)
{
    struct token *tokens = g->picked + (size_t)index * g->o.plan->slots;
    const float *logits = NULL;
    bool failed = false;
    enum status st = stage_logits(g->stage, wave, &logits, err);

    if (st == STATUS_OK)
        st = picker_wave(g->picker, g->step, index, wave, logits, tokens, &failed, err);
    g->failed = g->failed || failed;
    if (st == STATUS_OK && g->boundary.token_out)
        st = boundary_send_tokens(&g->boundary, g->step, tokens, err);
    return st;
}

/* Tokens that cannot be: the sender is whom a person must look at. */
static enum status wrap_sender(const struct route *route, enum status st, struct error *err)
{
    const struct route_spec *spec = route_spec(route);

    return error_wrap(err, st, "route %s (rank %d to rank %d)", spec->name, spec->from, spec->to);
}

/* The tokens of the step before, as far as wave index is concerned: they came for this step, or came before for the
 * step that this one repeats. */
static enum status feed_wave(struct generation *g, uint32_t index, struct error *err)
{
    size_t offset = (size_t)index * g->o.plan->slots;
    struct token *tokens = g->starts[g->step % 2] + offset;
    enum status st = STATUS_OK;

    if (!g->again && g->boundary.token_in)
        st = boundary_take_tokens(&g->boundary, g->step - 1, tokens, err);
    else if (!g->again)
        memcpy(tokens, g->picked + offset, g->o.plan->slots * sizeof *tokens);
    if (st != STATUS_OK)
        return st;
    st = schedule_tokens(g->schedule, index, tokens, err);
    for (uint32_t s = 0; s < g->o.plan->slots; s++)
        g->told = g->told || tokens[s].flags & TOKEN_FAILED;
    return st != STATUS_OK && g->boundary.token_in ? wrap_sender(g->boundary.token_in, st, err) : st;
}

/* The first stage: what came back decides this pass. */
static enum status start_wave(struct generation *g, uint32_t index, struct wave *wave, struct error *err)
{
    enum status st = g->fed[g->step % 2] ? feed_wave(g, index, err) : STATUS_OK;

    if (st != STATUS_OK)
        return st;
    schedule_wave(g->schedule, index, wave, g->ids);
    wave->slot_count = g->o.plan->slots; /* slots past the ones in use are idle */
    if (wave->rows)
        stage_embed(g->stage, g->ids, wave->rows);
    return STATUS_OK;
}

static enum status receive_wave(struct generation *g, uint32_t index, struct wave *wave, struct error *err)
{
    struct bundle *bundle = NULL;
    const float *hidden = NULL;
    enum status st = boundary_take_wave(&g->boundary, g->step, wave, &bundle, &hidden, err);

    if (st != STATUS_OK)
        return st;
    stage_take(g->stage, hidden, wave->rows);
    boundary_return_wave(&g->boundary, bundle);
    return index + 1 < g->waves ? boundary_expect_wave(&g->boundary, g->step, err) : STATUS_OK;
}

static uint64_t waited(const struct generation *g)
{
    return g->boundary.wait_ns + stage_wait_ns(g->stage) + results_wait_ns(g->results) + g->book.wait_ns;
}

/* The verdict has come, or is waited for.  A commit takes effect at once: what was generated need not wait for the end
 * of the step under way.  An abort waits for it, so that every rank turns back at the same point. */
static enum status read_verdict(struct generation *g, struct error *err)
{
    struct epoch epoch;
    enum status st = epoch_verdict(&g->book, &epoch, err);

    if (st == STATUS_OK && epoch.state == EPOCH_COMMITTED)
        st = results_commit(g->results, epoch.number, err);
    return st;
}

static enum status poll_verdict(struct generation *g, struct error *err)
{
    enum status st = epoch_heard(&g->book) ? read_verdict(g, err) : results_poll(g->results, err);

    return st == STATUS_OK ? deadlines_tell(g->deadlines, g->results, err) : st;
}

/* The step before this one was aborted, and so is this one: back to the start of that one. */
static enum status turn_back(struct generation *g, uint64_t aborted, struct error *err)
{
    int which = (int)(aborted % 2);
    enum status st = STATUS_OK;

    epoch_withdraw(&g->book);
    for (uint32_t index = 0; st == STATUS_OK && g->boundary.token_in && index < g->waves; index++)
        st = boundary_take_tokens(&g->boundary, g->step, g->picked + (size_t)index * g->o.plan->slots, err);
    if (st == STATUS_OK)
        st = results_abort(g->results, aborted, g->step + 1, err);
    stage_restore(g->stage, which);
    if (g->schedule)
        schedule_restore(g->schedule, which);
    if (g->picker)
        picker_restore(g->picker, which);
    g->again = true;
    g->told = false;
    return st;
}

/* Act on the verdict on the step before, at the same point of the loop on every rank.  *ret_done: every line is done;
 * *ret_back: this step does not count. */
static enum status settle_step(struct generation *g, bool *ret_done, bool *ret_back, struct error *err)
{
    enum status st = g->book.vote ? read_verdict(g, err) : STATUS_OK;
    struct epoch epoch = epoch_look(&g->book, g->book.voted);

    g->again = false;
    *ret_back = false;
    if (st != STATUS_OK || !g->cast)
        return st;
    g->cast = false;
    *ret_back = epoch.state == EPOCH_ABORTED;
    if (*ret_back)
        return turn_back(g, epoch.number, err);
    *ret_done = epoch.flags & VOTE_DONE;
    deadlines_read(g->deadlines, epoch.flags, g->step, g->schedule);
    if (!g->told)
        return STATUS_OK;
    return error_set(err, STATUS_MISMATCH, "a request failed in step %" PRIu64 ", but nobody voted against it",
                     epoch.number);
}

static enum status cast_vote(struct generation *g, struct error *err)
{
    bool done = !g->schedule || schedule_done(g->schedule);

    g->cast = true;
    return epoch_vote(&g->book, (g->failed ? 0 : EPOCH_FOR) | (done ? VOTE_DONE : 0) | deadlines_vote(g->deadlines),
                      err);
}

static enum status run_wave(struct generation *g, uint32_t index, struct error *err)
{
    uint64_t start = clock_ns();
    uint64_t before = waited(g);
    struct wave wave;
    enum status st = poll_verdict(g, err);

    if (st == STATUS_OK && g->o.rank->first)
        st = start_wave(g, index, &wave, err);
    else if (st == STATUS_OK)
        st = receive_wave(g, index, &wave, err);
    if (st == STATUS_OK)
        st = stage_run(g->stage, &wave, index, err);
    if (st == STATUS_OK && g->boundary.forward_out)
        st = boundary_send_wave(&g->boundary, g->step, &wave, stage_hidden(g->stage), err);
    if (st == STATUS_OK && g->o.rank->last)
        st = pick_wave(g, index, &wave, err);
    if (st == STATUS_OK && wave.rows) {
        g->stats.waves++;
        g->stats.rows += wave.rows;
        g->stats.compute_ns += clock_ns() - start - (waited(g) - before);
    }
    return st;
}

/* Open the next step; remember where it starts. */
static enum status open_step(struct generation *g, struct error *err)
{
    char phase[64];
    enum status st = epoch_open(&g->book, &g->step, err);
    int which = (int)(g->step % 2);

    if (st != STATUS_OK)
        return st;
    g->failed = false;
    if (!g->again)
        g->fed[which] = g->step > 0;
    stage_save(g->stage, which);
    if (g->schedule)
        schedule_save(g->schedule, which);
    if (g->picker)
        picker_save(g->picker, which);
    (void)snprintf(phase, sizeof phase, "step %" PRIu64 ", stage %d", g->step, g->o.rank->at.at[AXIS_PIPELINE]);
    session_phase(g->o.session, phase);
    return STATUS_OK;
}

static enum status run_step(struct generation *g, struct error *err)
{
    enum status st = open_step(g, err);

    if (st != STATUS_OK)
        return st;
    for (uint32_t index = 0; index < g->waves; index++) {
        st = run_wave(g, index, err);
        if (st != STATUS_OK)
            return error_wrap(err, st, "step %" PRIu64 ", wave %u", g->step, index);
    }
    return STATUS_OK;
}

/* The last step, in which every request had ended already: its verdict, and its tokens, which came for nobody. */
static enum status end_steps(struct generation *g, struct error *err)
{
    enum status st = read_verdict(g, err);

    if (st == STATUS_OK && epoch_look(&g->book, g->step).state != EPOCH_COMMITTED)
        st = error_set(err, STATUS_MISMATCH, "step %" PRIu64 " was voted down, but every request had ended before",
                       g->step);
    for (uint32_t index = 0; st == STATUS_OK && g->boundary.token_in && index < g->waves; index++)
        st = boundary_take_tokens(&g->boundary, g->step, g->picked + (size_t)index * g->o.plan->slots, err);
    return st;
}

static enum status run_steps(struct generation *g, struct error *err)
{
    bool done = false;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && !done) {
        bool back = false;

        st = run_step(g, err);
        if (st == STATUS_OK)
            st = settle_step(g, &done, &back, err);
        if (st == STATUS_OK && !back)
            st = cast_vote(g, err);
    }
    return st == STATUS_OK ? end_steps(g, err) : st;
}

/* For whoever looks at the recorder: what became of the last two steps. */
static void note_end(struct generation *g)
{
    char phase[64];
    uint64_t newest = g->book.next ? g->book.next - 1 : 0;
    uint64_t before = newest ? newest - 1 : 0;

    (void)snprintf(phase, sizeof phase, "step %" PRIu64 " is %s, step %" PRIu64 " is %s", before,
                   epoch_state_name(epoch_look(&g->book, before).state), newest,
                   epoch_state_name(epoch_look(&g->book, newest).state));
    session_phase(g->o.session, phase);
}

enum status generation_run(struct generation *g, struct generate_stats *ret, struct error *err)
{
    uint64_t start = clock_ns();
    deadlines_start(g->deadlines);
    enum status st = run_steps(g, err);
    bool clean = st == STATUS_OK;
    struct error ignored = {0};

    epoch_end(&g->book);
    if (!clean)
        note_end(g);
    enum status boundary = boundary_finish(&g->boundary, clean, clean ? err : &ignored);

    st = st == STATUS_OK ? boundary : st;
    enum status results = results_finish(g->results, st == STATUS_OK, clean ? err : &ignored);

    st = st == STATUS_OK ? results : st;
    if (st == STATUS_OK)
        st = deadlines_tell(g->deadlines, NULL, err);
    g->stats.steps = g->book.next;
    g->stats.aborted = g->book.aborted_count;
    g->stats.elapsed_ns = clock_ns() - start;
    g->stats.wait_ns = waited(g);
    g->stats.cache_bytes = stage_cache_bytes(g->stage);
    *ret = g->stats;
    return st;
}

struct epoch generation_epoch(const struct generation *g, uint64_t number)
{
    return epoch_look(&g->book, number);
}
