/* The last stage's choice of tokens: one for every slot of a wave that wants one.
 *
 * A request whose logits are not finite gets a failed token: the choice goes on for the others, and the step will be
 * aborted. */
#ifndef RUNTIME_PICKER_H
#define RUNTIME_PICKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/results.h"
#include "runtime/sampler.h"
#include "runtime/schedule.h"
#include "runtime/wave.h"

struct model_config;
struct picker;

struct picker_options {
    const struct prompts *prompts; /* borrowed until picker_destroy, as all of these */
    const struct model_config *model;
    struct results *results; /* gets every token noted */
    struct sampling sampling;
    uint32_t waves;
    uint32_t slots; /* of a wave's description */
    uint32_t top;   /* best logits per token, at most the vocabulary */
    bool ignore_eos;
    bool digest; /* of every request's logits */
};

/* STATUS_NOMEM. */
enum status picker_create(const struct picker_options *options, struct picker **ret, struct error *err);
void picker_destroy(struct picker *picker);

/* Choose for one wave of step: logits [wave_samples, vocab]; tokens [slots] gets one entry a slot, zeros where none was
 * wanted.  *ret_failed: a token has failed.  STATUS_MISMATCH: a token is wanted inside a prompt. */
enum status picker_wave(struct picker *picker, uint64_t step, uint32_t index, const struct wave *wave,
                        const float *logits, struct token *tokens, bool *ret_failed, struct error *err);

/* Save the digests at the start of a step (which: 0 or 1), and take them up again. */
void picker_save(struct picker *picker, int which);
void picker_restore(struct picker *picker, int which);

#endif
