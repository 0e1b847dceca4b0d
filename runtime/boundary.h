/* The hand-overs of one rank of a pipeline: waves forward, tokens back.
 *
 * Sends are posted and remembered; their buffers belong to the route's pool until they are done.  The next wave's
 * receipt can be posted before this wave is computed, so that it arrives behind the compute. */
#ifndef RUNTIME_BOUNDARY_H
#define RUNTIME_BOUNDARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/schedule.h"
#include "runtime/wave.h"

struct bundle;
struct completion;
struct route;

enum { OUTBOX_SIZE = 64 };

/* Completions of what was sent, oldest first. */
struct outbox {
    struct completion *pending[OUTBOX_SIZE];
    int count;
};

struct boundary {
    struct route *forward_in; /* each NULL where this stage has none; borrowed from the session */
    struct route *forward_out;
    struct route *token_in;
    struct route *token_out;
    struct wave_limits limits;
    uint64_t hidden_size;
    struct completion *next_wave; /* posted ahead; NULL: none */
    struct outbox sent;
    uint64_t wait_ns;
};

/* Post the receipt of the next wave of step, if none is posted.  Does not block. */
enum status boundary_expect_wave(struct boundary *boundary, uint64_t step, struct error *err);

/* Wait for the next wave.  *ret_hidden [rows, hidden_size] is lent until boundary_return_wave.  Blocks. */
enum status boundary_take_wave(struct boundary *boundary, uint64_t step, struct wave *wave, struct bundle **ret_bundle,
                               const float **ret_hidden, struct error *err);
void boundary_return_wave(struct boundary *boundary, struct bundle *bundle);

/* Post a wave to the next stage (copied).  Blocks only while the pool is empty. */
enum status boundary_send_wave(struct boundary *boundary, uint64_t step, const struct wave *wave, const float *hidden,
                               struct error *err);

/* The way back: one entry a slot. */
enum status boundary_send_tokens(struct boundary *boundary, uint64_t step, const struct token *tokens,
                                 struct error *err);
enum status boundary_take_tokens(struct boundary *boundary, uint64_t step, struct token *tokens, struct error *err);

/* Wait until everything sent is done (clean), or give it to the session. */
enum status boundary_finish(struct boundary *boundary, bool clean, struct error *err);

/* Remember a posted send; reaps those that are done, waits for the oldest when full. */
enum status outbox_add(struct outbox *outbox, struct completion *completion, uint64_t *wait_ns, struct error *err);
enum status outbox_finish(struct outbox *outbox, bool clean, uint64_t *wait_ns, struct error *err);

#endif
