/* An independent serial reference of docs/numerics.md, and the memory that catches a kernel reading too far. */
#ifndef TESTS_UNIT_CPU_REFERENCE_H
#define TESTS_UNIT_CPU_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/compute.h"

/* One number after another, the same in every run. */
struct random {
    uint64_t state;
};
uint32_t random_bits(struct random *random);
/* In [-1, 1). */
float random_float(struct random *random);

/* Memory whose last byte lies in front of a page that may not be touched. */
struct guarded {
    unsigned char *data; /* bytes long */
    void *map;
    size_t map_bytes;
};
struct guarded guarded_create(size_t bytes);
void guarded_destroy(struct guarded *guarded);

/* Random packed rows of a type whose decoded values are moderate; special: some scales and floats are inf or NaN. */
void fill_weights(struct random *random, enum weight_type type, size_t elements, unsigned char *packed, bool special);

/* Lane k mod 16 collects w[k] * x[k]; then the tree 8, 4, 2, 1. */
float reference_dot(const float *w, const float *x, size_t cols);
void reference_norm(const float *x, size_t cols, const float *weight, float epsilon, float *y);

/* One query head against keys and values [count, head_dim] in Hugging Face order. */
void reference_attention(const float *q, const float *keys, const float *values, size_t count, size_t head_dim,
                         float scale, float *out);
/* One head, from its layout to rotated Hugging Face order. */
void reference_rotate(const float *x, const float *cos, const float *sin, size_t head_dim, bool pairs, float *out);

/* The same bits, or both not a number. */
bool same_float(float a, float b);
/* Index of the first difference, or count. */
size_t first_difference(const float *a, const float *b, size_t count);

#endif
