/* Requests that end when their time is up.
 *
 * No rank decides by its own clock: rank 0's travels with its vote on every step, as milliseconds in the bits beside
 * those of epoch.h, in which every other rank votes all ones, so that their AND is rank 0's.  Whoever reads the verdict
 * at the end of the next step ends the same requests there: the first stages give them no further row, and rank 0 tells
 * of their end once everything that they generated before has been handed on. */
#ifndef RUNTIME_DEADLINES_H
#define RUNTIME_DEADLINES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/results.h"

/* Above the flags of a vote that are no clock. */
enum { DEADLINES_SHIFT = 2, DEADLINES_MOST_MS = (1 << 30) - 2 };

struct prompts;
struct schedule;

struct deadlines_options {
    const struct prompts *prompts; /* borrowed until deadlines_destroy */
    uint32_t lines;                /* data lines */
    bool keeper;                   /* rank 0: its clock counts, and it tells */
    results_emit *emit;            /* of the keeper: gets what was generated, and the ends */
    void *emit_context;
};

struct deadlines;

/* STATUS_NOMEM. */
enum status deadlines_create(const struct deadlines_options *options, struct deadlines **ret, struct error *err);
void deadlines_destroy(struct deadlines *deadlines);

/* The clock starts.  Local. */
void deadlines_start(struct deadlines *deadlines);

/* What this rank adds to the flags of its vote. */
uint32_t deadlines_vote(const struct deadlines *deadlines);

/* The verdict on the step before this one, which was committed: flags is the AND of all votes.  Cancels in schedule
 * (NULL: this rank has none) what is due; its last token may still come in this step.  At the same point of the loop on
 * every rank. */
void deadlines_read(struct deadlines *deadlines, uint32_t flags, uint64_t step, struct schedule *schedule);

/* A results_emit whose context is the keeper's deadlines: hands on, and notes what has ended by itself. */
enum status deadlines_emit(void *context, const struct result *result, struct error *err);

/* The keeper: hand on the ends of due requests whose last step has been handed on; results NULL: of all that are due.
 * STATUS of emit. */
enum status deadlines_tell(struct deadlines *deadlines, const struct results *results, struct error *err);

#endif
