/* The first stage's scheduler of one data line: which rows of which requests go into which wave.
 *
 * A step has a fixed number of waves, each with a fixed number of slots; a slot serves one request after another.
 * Requests are dealt to data lines in turn and taken in order.  Every decision follows from the prompts and the tokens
 * that came back, and from what all ranks agree on (deadlines.h), never from a rank's own clock, so that all tensor
 * ranks of the stage decide alike.
 *
 * A slot whose request has ended rests for one step: until the step of its last token is committed that request may
 * have to be taken up again, and its cache must be what it was. */
#ifndef RUNTIME_SCHEDULE_H
#define RUNTIME_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/prompts.h"
#include "runtime/wave.h"

/* Flags of a token on its way back and of a result. */
enum {
    TOKEN_VALID = 1u,
    TOKEN_STOP = 2u,
    TOKEN_LENGTH = 4u,
    TOKEN_FAILED = 8u,    /* no token: the logit of id `token` is not finite.  Its step is aborted, its request ends */
    TOKEN_INFINITE = 16u, /* with TOKEN_FAILED: that logit is infinite, otherwise it is not a number */
    TOKEN_DEADLINE = 32u, /* a result alone: no token, the request's time is up */
    TOKEN_ENDS = TOKEN_STOP | TOKEN_LENGTH | TOKEN_FAILED | TOKEN_DEADLINE
};

struct token {
    uint32_t request;
    uint32_t token;
    uint32_t flags;
    uint32_t index; /* of the generated token, from 0 */
};

struct schedule_options {
    const struct prompts *prompts; /* borrowed */
    uint32_t line;                 /* data coordinate */
    uint32_t lines;
    uint32_t waves;
    uint32_t slots;
    uint32_t wave_rows;
    uint32_t prompt_chunk; /* prompt rows per wave at most */
    uint32_t context;
    uint32_t max_new_tokens;
    uint32_t vocab; /* tokens of the model */
};

struct schedule;

enum status schedule_create(const struct schedule_options *options, struct schedule **ret, struct error *err);
void schedule_destroy(struct schedule *schedule);

/* The next pass of wave index; ids [wave_rows] gets its rows' tokens. */
void schedule_wave(struct schedule *schedule, uint32_t index, struct wave *wave, uint32_t *ids);

/* What came back for wave index: one entry a slot.  STATUS_MISMATCH: anything but the one token that each slot
 * asked for (another request's, none, one outside the vocabulary, a last one that does not say so).  A failed token
 * cancels its request. */
enum status schedule_tokens(struct schedule *schedule, uint32_t index, const struct token *tokens, struct error *err);

/* End a request at its next pass, also one that was not taken yet; not undone by schedule_restore.  The token that its
 * last pass asked for is awaited first. */
void schedule_cancel(struct schedule *schedule, uint32_t request);

/* Save what the slots do at the start of a step (which: 0 or 1), and take it up again. */
void schedule_save(struct schedule *schedule, int which);
void schedule_restore(struct schedule *schedule, int which);

/* No request is left, waiting or running. */
bool schedule_done(const struct schedule *schedule);

#endif
