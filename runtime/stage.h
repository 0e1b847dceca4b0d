/* One rank's part of the model at work: its layers, its heads, its caches.
 *
 * A wave goes in as token ids (first stage) or hidden rows, and comes out as hidden rows or, on the last stage, as the
 * logits of the slots that want a token. */
#ifndef RUNTIME_STAGE_H
#define RUNTIME_STAGE_H

#include <stdint.h>

#include "base/status.h"
#include "runtime/compute.h"
#include "runtime/wave.h"

struct checkpoint;
struct group;
struct plan;
struct rank_plan;
struct shuttle;
struct weights;
struct stage;

struct stage_options {
    const struct plan *plan; /* borrowed, as all of these, until stage_destroy */
    const struct rank_plan *rank;
    const struct weights *weights;
    const struct compute_ops *ops;
    struct compute *compute;
    struct group *tensor_group; /* NULL when the tensor axis is 1 */
    struct shuttle *shuttle;    /* where its tensors travel; NULL: in host memory, */
    struct memory *shared;      /* of this kind; NULL: the process's own */
    uint32_t waves;             /* waves in a step: each has caches of its own */
    uint32_t slots;             /* requests per wave */
    uint32_t positions;         /* capacity of each cache */
};

/* Allocate activations and caches.  STATUS_NOMEM, STATUS_OVERFLOW. */
enum status stage_create(const struct stage_options *options, struct stage **ret, struct error *err);
void stage_destroy(struct stage *stage);

/* Embed the wave's rows (first stage): ids [wave->rows]. */
void stage_embed(struct stage *stage, const uint32_t *ids, uint32_t rows);
/* Take the wave's rows from hidden [rows, hidden_size] (copied). */
void stage_take(struct stage *stage, const float *hidden, uint32_t rows);

/* Run this stage's layers over the wave (index: its number in the step).  Every slot's rows must begin a request
 * (position 0) or go on where its cache ends: STATUS_MISMATCH otherwise.  Collective over the tensor group; blocks.
 * Statuses of the group's operations. */
enum status stage_run(struct stage *stage, const struct wave *wave, uint32_t index, struct error *err);

/* Positions that the cache of one slot holds. */
uint32_t stage_length(const struct stage *stage, uint32_t index, uint32_t slot);

/* Save the lengths of all caches at the start of a step (which: 0 or 1), and cut the caches back to them. */
void stage_save(struct stage *stage, int which);
void stage_restore(struct stage *stage, int which);

/* The rows after stage_run: dense [rows, hidden_size], lent until the next call. */
const float *stage_hidden(const struct stage *stage);

/* Last stage, after stage_run: logits [wave_samples, vocab_size] of the wanted slots in order, lent until the next
 * call.  Collective over the tensor group; blocks. */
enum status stage_logits(struct stage *stage, const struct wave *wave, const float **ret, struct error *err);

/* Time spent waiting for the tensor group so far, and bytes of all caches. */
uint64_t stage_wait_ns(const struct stage *stage);
uint64_t stage_cache_bytes(const struct stage *stage);

#endif
