/* One pass over positions at load; the functions are ours, so the tables' bits do not depend on a library. */
#include "runtime/rope.h"

#include <stdlib.h>

#include "base/size.h"
#include "checkpoint/model_config.h"
#include "runtime/functions.h"

static const double two_pi = 6.283185307179586476925;

/* Llama 3.1: long wavelengths are slowed down by factor, short ones kept, those between blended. */
static float scale_llama3(const struct model_config *config, float frequency)
{
    double low = config->rope_scaling.low_freq_factor;
    double high = config->rope_scaling.high_freq_factor;
    double original = config->rope_scaling.original_context;
    double factor = config->rope_scaling.factor;
    float wavelength = (float)(two_pi / (double)frequency);

    if ((double)wavelength > original / low)
        return (float)((double)frequency / factor);
    if ((double)wavelength < original / high)
        return frequency;
    double smooth = (original / (double)wavelength - low) / (high - low);

    return (float)((1.0 - smooth) * (double)frequency / factor + smooth * (double)frequency);
}

void rope_frequencies(const struct model_config *config, const float *factors, float *frequencies)
{
    uint64_t dim = config->head_dim;

    for (uint64_t i = 0; i < dim / 2; i++) {
        float exponent = (float)(2 * i) / (float)dim;
        float frequency = 1.0f / (float)numeric_pow(config->rope_theta, (double)exponent);

        if (config->rope_scaling.llama3)
            frequency = scale_llama3(config, frequency);
        frequencies[i] = factors ? frequency / factors[i] : frequency;
    }
}

enum status rope_init(const struct model_config *config, const float *factors, uint32_t context, struct rope *ret,
                      struct error *err)
{
    uint32_t half = (uint32_t)(config->head_dim / 2);
    float *frequencies = calloc(half ? half : 1, sizeof *frequencies);
    size_t count = 0;

    *ret = (struct rope){.half = half, .context = context};
    if (size_mul(half, context, &count) == STATUS_OK && count < SIZE_MAX / sizeof(float)) {
        ret->cos = malloc(count ? count * sizeof(float) : 1);
        ret->sin = malloc(count ? count * sizeof(float) : 1);
    }
    if (!frequencies || !ret->cos || !ret->sin) {
        free(frequencies);
        rope_done(ret);
        return error_set(err, STATUS_NOMEM, "rotary tables of %u positions x %u", context, half);
    }
    rope_frequencies(config, factors, frequencies);
    for (uint32_t position = 0; position < context; position++) {
        for (uint32_t i = 0; i < half; i++) {
            float angle = (float)position * frequencies[i];

            ret->cos[(size_t)position * half + i] = (float)numeric_cos((double)angle);
            ret->sin[(size_t)position * half + i] = (float)numeric_sin((double)angle);
        }
    }
    free(frequencies);
    return STATUS_OK;
}

void rope_done(struct rope *rope)
{
    free(rope->cos);
    free(rope->sin);
    *rope = (struct rope){0};
}
