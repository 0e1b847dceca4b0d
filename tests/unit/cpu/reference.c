#include "tests/unit/cpu/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/dtype.h"
#include "runtime/functions.h"

uint32_t random_bits(struct random *random)
{
    random->state = random->state * 6364136223846793005u + 1442695040888963407u;
    uint64_t mixed = random->state ^ random->state >> 29;

    return (uint32_t)(mixed * 0x9e3779b97f4a7c15u >> 32);
}

float random_float(struct random *random)
{
    return (float)(random_bits(random) >> 8) * 0x1p-23f - 1.0f;
}

struct guarded guarded_create(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = (bytes + page - 1) / page * page;
    struct guarded guarded = {.map_bytes = whole + page};

    guarded.map = mmap(NULL, guarded.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guarded.map == MAP_FAILED || mprotect((unsigned char *)guarded.map + whole, page, PROT_NONE))
        abort();
    guarded.data = (unsigned char *)guarded.map + whole - bytes;
    return guarded;
}

void guarded_destroy(struct guarded *guarded)
{
    munmap(guarded->map, guarded->map_bytes);
}

static void put_half(unsigned char *at, float value)
{
    uint16_t half = f32_to_f16(value);

    memcpy(at, &half, sizeof half);
}

/* A scale about small, now and then zero, negative, subnormal or (special) no number. */
static float random_scale(struct random *random, float size, bool special)
{
    uint32_t kind = random_bits(random) % 64;

    if (kind == 0)
        return 0.0f;
    if (kind == 1)
        return 0x1p-20f;
    if (special && kind == 2)
        return INFINITY;
    if (special && kind == 3)
        return NAN;
    return random_float(random) * size;
}

static void fill_floats(struct random *random, enum weight_type type, size_t elements, unsigned char *packed,
                        bool special)
{
    for (size_t i = 0; i < elements; i++) {
        float value = random_scale(random, 1.0f, special && random_bits(random) % 64 == 0);
        uint16_t brain = f32_to_bf16(value);

        if (type == WEIGHT_F32)
            memcpy(packed + 4 * i, &value, 4);
        else if (type == WEIGHT_F16)
            put_half(packed + 2 * i, value);
        else
            memcpy(packed + 2 * i, &brain, 2);
    }
}

void fill_weights(struct random *random, enum weight_type type, size_t elements, unsigned char *packed, bool special)
{
    size_t block_bytes = weight_block_bytes(type);

    if (weight_block_length(type) == 1) {
        fill_floats(random, type, elements, packed, special);
        return;
    }
    for (size_t b = 0; b < elements / weight_block_length(type); b++) {
        unsigned char *block = packed + b * block_bytes;

        for (size_t i = 0; i < block_bytes; i++)
            block[i] = (unsigned char)random_bits(random);
        if (type == WEIGHT_Q6_K) {
            put_half(block + 208, random_scale(random, 0.001f, special));
            continue;
        }
        put_half(block, random_scale(random, weight_block_length(type) == 256 ? 0.005f : 0.1f, special));
        if (type != WEIGHT_Q4_0 && type != WEIGHT_Q5_0 && type != WEIGHT_Q8_0)
            put_half(block + 2, random_scale(random, weight_block_length(type) == 256 ? 0.02f : 0.5f, special));
    }
}

static float tree(const float *lanes)
{
    float pairs[8];
    float quads[4];

    for (int i = 0; i < 8; i++)
        pairs[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; i++)
        quads[i] = pairs[i] + pairs[i + 4];
    return (quads[0] + quads[2]) + (quads[1] + quads[3]);
}

float reference_dot(const float *w, const float *x, size_t cols)
{
    float lanes[16] = {0};

    for (size_t k = 0; k < (cols + 15) / 16 * 16; k++)
        lanes[k % 16] = fmaf(k < cols ? w[k] : 0.0f, k < cols ? x[k] : 0.0f, lanes[k % 16]);
    return tree(lanes);
}

void reference_norm(const float *x, size_t cols, const float *weight, float epsilon, float *y)
{
    float mean = reference_dot(x, x, cols) / (float)cols;
    float inverse = 1.0f / sqrtf(mean + epsilon);

    for (size_t i = 0; i < cols; i++) {
        float scaled = x[i] * inverse;

        y[i] = scaled * weight[i];
    }
}

void reference_rotate(const float *x, const float *cos, const float *sin, size_t head_dim, bool pairs, float *out)
{
    for (size_t i = 0; i < head_dim / 2; i++) {
        float a = x[pairs ? 2 * i : i];
        float b = x[pairs ? 2 * i + 1 : i + head_dim / 2];
        float b_sin = b * sin[i];
        float b_cos = b * cos[i];

        out[i] = fmaf(a, cos[i], -b_sin);
        out[i + head_dim / 2] = fmaf(a, sin[i], b_cos);
    }
}

void reference_attention(const float *q, const float *keys, const float *values, size_t count, size_t head_dim,
                         float scale, float *out)
{
    float *e = malloc(count * sizeof *e);
    float lanes[16] = {0};
    float max = -INFINITY;

    for (size_t j = 0; j < count; j++) {
        e[j] = reference_dot(q, keys + j * head_dim, head_dim) * scale;
        if (e[j] > max)
            max = e[j];
    }
    for (size_t j = 0; j < count; j++) {
        e[j] = numeric_exp(e[j] - max);
        lanes[j % 16] += e[j];
    }
    float inverse = 1.0f / tree(lanes);

    for (size_t d = 0; d < head_dim; d++) {
        float sum = 0.0f;

        for (size_t j = 0; j < count; j++)
            sum = fmaf(e[j], values[j * head_dim + d], sum);
        out[d] = sum * inverse;
    }
    free(e);
}

bool same_float(float a, float b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

size_t first_difference(const float *a, const float *b, size_t count)
{
    size_t i = 0;

    while (i < count && same_float(a[i], b[i]))
        i++;
    return i;
}
