/* The definition: every bit that the CPU backend computes, in plain C.
 *
 * Compiled three times, for the baseline, for AVX2 and for AVX-512 (PATH_SUFFIX names the tables), always without
 * contraction: a multiplication and an addition are fused where fmaf is written and nowhere else.  The hand-written
 * paths must give these bits.  docs/numerics.md says the same in prose. */
#include <math.h>
#include <string.h>

#include "backends/cpu/inline.h"
#include "backends/cpu/kernels.h"
#include "checkpoint/weight_type.h"
#include "runtime/exponential.h"

#define JOIN(a, b) a##b
#define NAME(a, b) JOIN(a, b)
#define TEXT(a) #a
#define NAME_TEXT(a) TEXT(a)

/* Lanes i and i + 8 are added, then i + 4, i + 2, i + 1. */
static float lanes_sum(const float lanes[LANES])
{
    float sum[LANES / 2];

    for (int i = 0; i < 8; i++)
        sum[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; i++)
        sum[i] += sum[i + 4];
    for (int i = 0; i < 2; i++)
        sum[i] += sum[i + 2];
    return sum[0] + sum[1];
}

/* Lane k mod 16 collects w[k] * x[k] for k ascending; w and x count as +0 up to the next multiple of 16. */
static void lanes_add(float lanes[LANES], const float *w, const float *x, size_t cols)
{
    float sum[LANES]; /* apart from w and x for all that the compiler knows, so it may stay in registers */
    size_t k = 0;

    memcpy(sum, lanes, sizeof sum);
    for (; k + LANES <= cols; k += LANES) {
        for (int i = 0; i < LANES; i++)
            sum[i] = fmaf(w[k + i], x[k + i], sum[i]);
    }
    if (k < cols) {
        float w_rest[LANES] = {0};
        float x_rest[LANES] = {0};

        memcpy(w_rest, w + k, (cols - k) * sizeof *w);
        memcpy(x_rest, x + k, (cols - k) * sizeof *x);
        for (int i = 0; i < LANES; i++)
            sum[i] = fmaf(w_rest[i], x_rest[i], sum[i]);
    }
    memcpy(lanes, sum, sizeof sum);
}

static float dot(const float *w, const float *x, size_t cols)
{
    float lanes[LANES] = {0};

    lanes_add(lanes, w, x, cols);
    return lanes_sum(lanes);
}

static void tile_plain(const struct tile *tile)
{
    for (size_t r = 0; r < tile->rows; r++) {
        for (size_t t = 0; t < tile->tokens; t++) {
            float *kept = tile->lanes ? tile->lanes + (r * tile->tokens + t) * LANES : NULL;
            float lanes[LANES] = {0};

            if (kept && !tile->first)
                memcpy(lanes, kept, sizeof lanes);
            lanes_add(lanes, tile->panel + r * tile->stride, tile->x + t * tile->ldx, tile->cols);
            if (kept && !tile->last)
                memcpy(kept, lanes, sizeof lanes);
            else
                tile->y[t * tile->ldy + r] = lanes_sum(lanes);
        }
    }
}

static void mix_plain(const struct mix *mix)
{
    for (size_t r = 0; r < mix->rows; r++) {
        float *out = mix->out + r * mix->ldo;

        for (size_t j = 0; j < mix->count; j++) {
            float weight = mix->weight[r * mix->ldw + j];
            const float *value = mix->value + j * mix->ldv;

            for (size_t d = 0; d < mix->width; d++)
                out[d] = fmaf(weight, value[d], out[d]);
        }
    }
}

static void norm(const float *x, size_t cols, const float *weight, float epsilon, float *y)
{
    float inverse = 1.0f / sqrtf(dot(x, x, cols) / (float)cols + epsilon);

    for (size_t i = 0; i < cols; i++)
        y[i] = (x[i] * inverse) * weight[i];
}

static void gated(const float *gate, const float *up, size_t cols, float *out)
{
    for (size_t i = 0; i < cols; i++)
        out[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

static void add(float *x, const float *y, size_t cols)
{
    for (size_t i = 0; i < cols; i++)
        x[i] += y[i];
}

static void scale(const float *x, float factor, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = x[i] * factor;
}

/* The largest of the scaled scores.  A score that is not a number is passed over here and shows in the sum. */
static float scale_and_max(float *s, size_t count, float factor)
{
    float max[LANES];
    size_t j = 0;

    for (size_t i = 0; i < count; i++)
        s[i] *= factor;
    for (int i = 0; i < LANES; i++)
        max[i] = -INFINITY;
    for (; j + LANES <= count; j += LANES) {
        KEEP_LOOP
        for (int i = 0; i < LANES; i++)
            max[i] = s[j + i] > max[i] ? s[j + i] : max[i];
    }
    for (; j < count; j++)
        max[0] = s[j] > max[0] ? s[j] : max[0];
    for (int i = 1; i < LANES; i++)
        max[0] = max[i] > max[0] ? max[i] : max[0];
    return max[0];
}

static float softmax(float *s, size_t count, float factor)
{
    float max = scale_and_max(s, count, factor);
    float lanes[LANES] = {0};
    size_t j = 0;

    for (size_t i = 0; i < count; i++)
        s[i] = exponential(s[i] - max);
    for (; j + LANES <= count; j += LANES) {
        for (int i = 0; i < LANES; i++)
            lanes[i] += s[j + i];
    }
    for (int i = 0; j < count; i++, j++)
        lanes[i] += s[j];
    return 1.0f / lanes_sum(lanes);
}

static void rotate(const float *x, const float *cos, const float *sin, size_t head_dim, bool pairs, float *out)
{
    size_t half = head_dim / 2;

    for (size_t i = 0; i < half; i++) {
        float a = pairs ? x[2 * i] : x[i];
        float b = pairs ? x[2 * i + 1] : x[half + i];

        out[i] = fmaf(a, cos[i], -(b * sin[i]));
        out[half + i] = fmaf(a, sin[i], b * cos[i]);
    }
}

const struct row_kernels NAME(row_kernels_, PATH_SUFFIX) = {
    .decode = weight_decode,
    .norm = norm,
    .gated = gated,
    .add = add,
    .softmax = softmax,
    .rotate = rotate,
    .scale = scale,
};

const struct kernels NAME(kernels_, PATH_SUFFIX) = {
    .name = NAME_TEXT(PATH_SUFFIX),
    .panel_rows = 4,
    .tile = tile_plain,
    .mix = mix_plain,
    .row = &NAME(row_kernels_, PATH_SUFFIX),
};
