/* Generation on one rank: steps of waves through the pipeline until every request is done.
 *
 * In step n each wave makes one pass.  The first stage decides its rows, every stage computes and hands on, the last
 * one samples and sends the tokens back.  Step n's vote travels while n + 1 computes; what a step generated is handed
 * out after its commit.  Every rank takes part in every wave and vote, idle or not. */
#ifndef RUNTIME_GENERATE_H
#define RUNTIME_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/results.h"

struct checkpoint;
struct compute;
struct compute_ops;
struct plan;
struct prompts;
struct rank_plan;
struct session;
struct weights;

struct generate_options {
    const struct plan *plan;       /* borrowed until generation_destroy, as all of these */
    const struct rank_plan *rank;
    struct session *session;
    const struct weights *weights;
    const struct compute_ops *ops;
    struct compute *compute;
    const struct prompts *prompts;
    struct sampling sampling;
    uint32_t max_new_tokens;
    uint32_t prompt_chunk;
    bool ignore_eos;
    bool digest;
    uint32_t top;                  /* best logits per token */
    results_emit *emit;            /* rank 0 */
    void *emit_context;
};

/* What one rank did.  Times in nanoseconds. */
struct generate_stats {
    uint64_t elapsed_ns;
    uint64_t wait_ns;    /* for other ranks */
    uint64_t compute_ns; /* the rest of the time spent on waves that had rows */
    uint64_t steps;
    uint64_t waves;
    uint64_t rows;
    uint64_t cache_bytes;
};

struct generation;

/* Allocate everything a run needs.  STATUS_NOMEM, STATUS_OVERFLOW. */
enum status generation_create(const struct generate_options *options, struct generation **ret, struct error *err);

/* Run.  Collective over the world; blocks under the session's timeout rule.  On failure the caller fails the session
 * with what err says. */
enum status generation_run(struct generation *generation, struct generate_stats *ret, struct error *err);

/* After session_close: a receipt that the session still holds may refer to it until then. */
void generation_destroy(struct generation *generation);

#endif
