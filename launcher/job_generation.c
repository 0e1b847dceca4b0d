/* The work of `ferry run`: load this rank's part of the model, generate, report. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/cpu/cpu.h"
#include "base/clock.h"
#include "base/fit.h"
#include "checkpoint/checkpoint.h"
#include "launcher/job_private.h"
#include "launcher/printer.h"
#include "launcher/summary.h"
#include "runtime/compute.h"
#include "runtime/generate.h"
#include "runtime/shuttle.h"
#include "runtime/weights.h"
#include "topology/topology.h"

/* Threads per rank: what the topology says, else this rank's share of the cores that it may run on. */
int job_threads(const struct job *job)
{
    int ranks = job->starter.local_size > 0 ? job->starter.local_size : 1;
    int share = starter_cores(sched_getaffinity) / ranks;

    if (!job->topology->placement.threads.automatic)
        return (int)job->topology->placement.threads.value;
    return share > 1 ? share : 1;
}

static void progress(void *session)
{
    session_progress(session);
}

static enum status open_compute(struct job *job, struct error *err)
{
    static const char *const word[] = {"auto", "plain", "avx2", "avx512"};
    struct compute_options options = {
        .simd = word[job->topology->compute.simd.value],
        .progress = progress,
        .progress_context = job->session,
    };

    options.threads = job->threads = job_threads(job);
    return cpu_compute.open(&options, &job->compute, err);
}

/* What is short of memory is refused, or told, before it is allocated. */
static enum status check_memory(struct job *job, struct error *err)
{
    struct text warning = {0};
    enum status st = rank_plan_fits(&job->rank, memory_here(), &warning, err);

    if (st == STATUS_OK && warning.length)
        session_log(job->session, text_string(&warning));
    text_done(&warning);
    return st;
}

static enum status load(struct job *job, struct error *err)
{
    uint64_t start = clock_ns();
    enum status st = session_build(job->session, job->plan->groups, job->plan->group_count, job->plan->routes,
                                   job->plan->route_count, err);

    job_enter(job, "loading");
    if (st == STATUS_OK)
        st = check_memory(job, err);
    if (st == STATUS_OK)
        st = open_compute(job, err);
    if (st == STATUS_OK)
        st = weights_load(job->checkpoint, job->plan, &job->rank, &job->weights, err);
    job->load_ns = clock_ns() - start;
    if (st == STATUS_OK)
        st = prompts_share(&job->prompts, session_group(job->session, job->rank.world_group), job->plan->context,
                           job->plan->model->vocab_size, err);
    return st;
}

/* Where tensors travel in a device's memory. */
static enum status create_shuttle(struct job *job, struct error *err)
{
    const struct wire *wire = &job->wire;

    return wire->device ? shuttle_create(job->session, wire->devices, wire->device, &job->shuttle, err) : STATUS_OK;
}

/* No more of the best logits than there are. */
static uint32_t top_logits(const struct job *job)
{
    uint64_t vocab = job->plan->model->vocab_size;

    return job->options->top_logits < vocab ? job->options->top_logits : (uint32_t)vocab;
}

static enum status create_printer(struct job *job, struct error *err)
{
    const struct printer_options options = {
        .prompts = &job->prompts,
        .tokenizer = job->tokenizer,
        .json = job->options->json,
        .digest = job->options->logits_digest,
        .top = top_logits(job),
    };

    return job->rank.rank == 0 ? printer_create(&options, &job->printer, err) : STATUS_OK;
}

static struct generate_options generation_options(const struct job *job)
{
    const struct topology_generate *g = &job->topology->workload.generate;

    return (struct generate_options){
        .plan = job->plan,
        .rank = &job->rank,
        .session = job->session,
        .shuttle = job->shuttle,
        .shared = wire_shared(&job->wire),
        .weights = job->weights,
        .ops = &cpu_compute,
        .compute = job->compute,
        .prompts = &job->prompts,
        .sampling = {(float)g->sampling.temperature.value, (uint32_t)g->sampling.top_k.value,
                     (float)g->sampling.top_p.value, g->sampling.seed.value},
        .max_new_tokens = (uint32_t)g->max_new_tokens.value,
        .prompt_chunk = g->prompt_chunk.automatic ? job->plan->wave_rows : (uint32_t)g->prompt_chunk.value,
        .ignore_eos = g->ignore_eos.value,
        .digest = job->options->logits_digest,
        .top = top_logits(job),
        .emit = printer_emit,
        .emit_context = job->printer,
    };
}

static struct summary own_summary(const struct job *job, const struct generate_stats *stats)
{
    struct session_counters counters = session_counters(job->session);

    return (struct summary){
        .elapsed_ns = stats->elapsed_ns,
        .compute_ns = stats->compute_ns,
        .wait_ns = stats->wait_ns,
        .steps = stats->steps,
        .waves = stats->waves,
        .rows = stats->rows,
        .cache_bytes = stats->cache_bytes,
        .owned_bytes = job->weights->owned_bytes,
        .replica_bytes = job->rank.replica_bytes,
        .read_bytes = checkpoint_bytes_read(job->checkpoint),
        .resident_bytes = checkpoint_bytes_resident(job->checkpoint),
        .load_ns = job->load_ns,
        .frames_checked = counters.frames_checked,
        .frames_sent = counters.frames_sent,
        .bytes_sent = counters.bytes_sent,
        .bytes_received = counters.bytes_received,
    };
}

static enum status report(struct job *job, const struct generate_stats *stats, struct error *err)
{
    const struct summary mine = own_summary(job, stats);
    struct summary *all = calloc((size_t)job->plan->mesh.world, sizeof *all);
    enum status st;

    if (!all)
        return error_set(err, STATUS_NOMEM, "the summary of %d ranks", job->plan->mesh.world);
    st = summary_gather(&mine, session_group(job->session, job->rank.world_group), all, err);
    if (st == STATUS_OK && job->printer && !job->options->quiet) {
        struct printer_totals printed = printer_totals(job->printer);
        const struct summary_totals totals = {
            .tokens = printed.tokens,
            .prompt_tokens = printed.prompt_tokens,
            .first_token_ns = printed.first_token_ns,
            .transport = job->wire.ops->name,
            .memory = job->wire.device ? wire_memory(&job->wire) : NULL,
            .simd = cpu_compute.simd(job->compute),
            .threads = job->threads,
        };
        struct text text = {0};

        text_add(&text, job->options->json ? "" : "\n"); /* the text above ends where its last token does */
        summary_text(job->plan, all, &totals, &text);
        (void)fwrite(text_string(&text), 1, text.length, stderr);
        text_done(&text);
    }
    free(all);
    return st;
}

enum status job_generate(struct job *job, struct error *err)
{
    struct generate_options options;
    struct generate_stats stats = {0};
    enum status st = load(job, err);

    if (st == STATUS_OK)
        st = create_shuttle(job, err);
    if (st == STATUS_OK)
        st = create_printer(job, err);
    if (st != STATUS_OK)
        return st;
    options = generation_options(job);
    st = generation_create(&options, &job->generation, err);
    job_begin(job);
    if (st == STATUS_OK && job->printer)
        printer_start(job->printer);
    if (st == STATUS_OK)
        st = generation_run(job->generation, &stats, err);
    if (st == STATUS_OK && job->printer)
        st = printer_check(job->printer, err);
    job->incomplete = stats.aborted > 0;
    if (st == STATUS_OK) {
        shuttle_destroy(job->shuttle);
        job->shuttle = NULL;
    }
    return st == STATUS_OK ? report(job, &stats, err) : st;
}
