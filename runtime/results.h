/* What was generated, on its way from every data line's sampling rank to rank 0.
 *
 * The sampling rank keeps a step's entries until the step is committed, then sends them in one bundle a step.  Rank 0
 * posts the receipt at its own commit and hands the entries on when they have come: step by step, line by line.  A step
 * that is aborted has a bundle too: of the failures that are its cause. */
#ifndef RUNTIME_RESULTS_H
#define RUNTIME_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/sampler.h"
#include "runtime/schedule.h"

struct plan;
struct rank_plan;
struct session;

enum { RESULTS_MAX_TOP = 64 };

/* One generated token, or a failed one or a deadline that ends its request, as rank 0 learns of it.  Lent during the
 * call. */
struct result {
    struct token token;
    uint64_t digest;             /* of the request's logits so far, this token's included; 0 unless asked for */
    const struct candidate *top; /* [top] the best logits of the step */
};

/* Called on rank 0, in order of index for each request.  Anything but STATUS_OK ends the run. */
typedef enum status results_emit(void *context, const struct result *result, struct error *err);

struct results;

/* top: best logits per token, 0..RESULTS_MAX_TOP.  emit is used on rank 0. */
enum status results_create(const struct plan *plan, const struct rank_plan *rank, struct session *session,
                           uint32_t waves, uint32_t top, results_emit *emit, void *context, struct results **ret,
                           struct error *err);
void results_destroy(struct results *results);

/* The sampling rank: note one token of the step. */
void results_note(struct results *results, uint64_t step, const struct result *result);

/* Step is committed: send its entries (sampling ranks), post the receipts (rank 0), hand on what has come. */
enum status results_commit(struct results *results, uint64_t step, struct error *err);

/* Step is aborted and the next attempt is the step `next`: what was generated since its start is dropped; the failed
 * entries of step, which say why, are handed on.  Blocks on rank 0 until all that was decided before has come. */
enum status results_abort(struct results *results, uint64_t step, uint64_t next, struct error *err);

/* Hand on what has come; never blocks. */
enum status results_poll(struct results *results, struct error *err);

/* Rank 0: has everything of this step of a data line been handed on, or will never be? */
bool results_passed(const struct results *results, int line, uint64_t step);

/* Time spent waiting for other ranks so far. */
uint64_t results_wait_ns(const struct results *results);

/* Wait for all that was committed (clean), or let go of it. */
enum status results_finish(struct results *results, bool clean, struct error *err);

#endif
