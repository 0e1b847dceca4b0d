/* Tables of the rotary position embedding: cos and sin of position x frequency.
 *
 * Frequencies: theta^(-2i / head_dim), in f32; scaled as "llama3" (Llama 3.1's published rule) or divided by GGUF's
 * rope_freqs.weight.  Angles are f32 products, as Hugging Face transformers computes them. */
#ifndef RUNTIME_ROPE_H
#define RUNTIME_ROPE_H

#include <stdint.h>

#include "base/status.h"

struct model_config;

struct rope {
    uint32_t half;     /* head_dim / 2 */
    uint32_t context;  /* positions */
    float *cos;        /* [context, half] */
    float *sin;
};

/* The half frequencies of a model.  factors [head_dim / 2] divides them; NULL: none. */
void rope_frequencies(const struct model_config *config, const float *factors, float *frequencies);

/* STATUS_NOMEM, STATUS_OVERFLOW. */
enum status rope_init(const struct model_config *config, const float *factors, uint32_t context, struct rope *ret,
                      struct error *err);
void rope_done(struct rope *rope);

#endif
