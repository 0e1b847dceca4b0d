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
struct shuttle;
struct tensor;

enum { OUTBOX_SIZE = 64 };

/* Completions of what was sent, oldest first. */
struct outbox {
    struct completion *pending[OUTBOX_SIZE];
    int count;
};

/* Rows of the host on their way into a bundle that lies in a device's memory. */
struct leaving {
    struct tensor *rows;
    struct completion *promotion; /* NULL: settled */
};

enum { LEAVING_ROWS = 2 }; /* one is filled while the other is copied */

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

    struct shuttle *shuttle; /* NULL: bundles lie in host memory; then the rest is unused */
    struct tensor *arrived;  /* the host's copy of the rows that were taken last */
    struct leaving leaving[LEAVING_ROWS];
    unsigned next_leaving;
};

/* Bundles' rows lie in the shuttle's device (borrowed until boundary_done).  STATUS_NOMEM, STATUS_OVERFLOW. */
enum status boundary_use_device(struct boundary *boundary, struct shuttle *shuttle, struct error *err);
/* Release what boundary_use_device has made, after boundary_finish. */
void boundary_done(struct boundary *boundary);

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
