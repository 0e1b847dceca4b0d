/* The next token from one row of logits.
 *
 * Order: temperature, top-k, softmax, top-p (the smallest prefix that reaches p, ties by id); then one random number,
 * the top 24 bits of Philox4x32-10 (key: seed; counter: request, step) / 2^24.  Sums are f32 in sorted order.
 * Temperature 0, or one so small that the best logit divided by it is not finite, is greedy: the largest logit, the
 * lowest id on a tie.
 * Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11. */
#ifndef RUNTIME_SAMPLER_H
#define RUNTIME_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct sampling {
    float temperature; /* 0: greedy */
    uint32_t top_k;    /* 0: all */
    float top_p;       /* 0 to 1; 0: the best one */
    uint64_t seed;
};

struct candidate {
    float logit;
    uint32_t id;
};

/* scratch [vocab] is overwritten.  Local.  STATUS_MODEL: a logit is not a number or +infinity; *ret is its token. */
enum status sampler_pick(const struct sampling *sampling, const float *logits, uint32_t vocab, uint32_t request,
                         uint32_t step, struct candidate *scratch, uint32_t *ret, struct error *err);

/* Say that the logit of token is infinite, or else not a number: sets err, returns STATUS_MODEL. */
enum status sampler_refuse(uint32_t token, bool infinite, struct error *err);

/* The count best of logits, best first, ties by id: candidates [count].  count <= vocab. */
void sampler_best(const float *logits, uint32_t vocab, uint32_t count, struct candidate *candidates);

/* Philox4x32-10. */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t ret[4]);

#endif
