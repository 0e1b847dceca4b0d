/* Generation on one rank: steps of waves through the pipeline until every request is done.
 *
 * In step n each wave makes one pass.  The first stage decides its rows, every stage computes and hands on, the last
 * one samples and sends the tokens back.  Step n's vote travels while n + 1 computes; what a step generated is handed
 * out after its commit.  Every rank takes part in every wave and vote, idle or not.
 *
 * A request whose deadline has passed by rank 0's clock ends at a step on which all agree (deadlines.h); nothing is
 * aborted for it.  A request whose logits are not finite is voted down by the rank that samples it.  The step, and the
 * one that was begun on top of it, are then aborted on every rank: caches, slots and digests go back to the step's
 * start, the request ends with a failed result, and the others go on with the same bits as if it had never been there.
 * Every other failure poisons the session; each rank then knows of its last two steps whether they were committed,
 * aborted, or cannot be known (epoch.h). */
#ifndef RUNTIME_GENERATE_H
#define RUNTIME_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/epoch.h"
#include "runtime/results.h"

struct checkpoint;
struct compute;
struct compute_ops;
struct plan;
struct prompts;
struct rank_plan;
struct session;
struct shuttle;
struct weights;

struct generate_options {
    const struct plan *plan; /* borrowed until generation_destroy, as all of these */
    const struct rank_plan *rank;
    struct session *session;
    struct shuttle *shuttle; /* to the session's memory, where tensors travel; NULL: in host memory, */
    struct memory *shared;   /* of this kind; NULL: the process's own */
    const struct weights *weights;
    const struct compute_ops *ops;
    struct compute *compute;
    const struct prompts *prompts;
    struct sampling sampling;
    uint32_t max_new_tokens;
    uint32_t prompt_chunk;
    bool ignore_eos;
    bool digest;
    uint32_t top;       /* best logits per token, at most the vocabulary */
    results_emit *emit; /* rank 0 */
    void *emit_context;
};

/* What one rank did.  Times in nanoseconds. */
struct generate_stats {
    uint64_t elapsed_ns;
    uint64_t wait_ns;    /* for other ranks */
    uint64_t compute_ns; /* the rest of the time spent on waves that had rows */
    uint64_t steps;      /* all attempts, the aborted ones too */
    uint64_t aborted;    /* attempts; equal on every rank.  0: no request has failed */
    uint64_t waves;
    uint64_t rows;
    uint64_t cache_bytes;
};

struct generation;

/* Allocate everything a run needs.  STATUS_NOMEM, STATUS_OVERFLOW; STATUS_INVALID (top). */
enum status generation_create(const struct generate_options *options, struct generation **ret, struct error *err);

/* Run.  Collective over the world; blocks under the session's timeout rule.  On failure the caller fails the session
 * with what err says.  STATUS_LOST: an earlier run has left a step indeterminate. */
enum status generation_run(struct generation *generation, struct generate_stats *ret, struct error *err);

/* What this rank knows of a step, one of the last two.  After generation_run. */
struct epoch generation_epoch(const struct generation *generation, uint64_t number);

/* After session_close: a receipt that the session still holds may refer to it until then. */
void generation_destroy(struct generation *generation);

#endif
