/* The table that a compute backend fills in: the operations of a decoder, over rows of f32 activations.
 *
 * Numerics: docs/numerics.md defines every bit.  All pointers are host memory; activations are row-major f32; ld*
 * are row strides in floats.  Every activation row that a product reads is followed by readable floats up to the
 * next multiple of 16, whose contents do not matter to the result.  Calls block until the work is done; one caller
 * at a time.  Nothing here fails after open: the runtime checks sizes when it binds. */
#ifndef RUNTIME_COMPUTE_H
#define RUNTIME_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "checkpoint/weight_type.h"

struct compute;

/* A weight matrix as it lies: row r at data + r * row_bytes, cols elements of type (whole blocks). */
struct matrix {
    enum weight_type type;
    uint64_t rows;
    uint64_t cols;
    size_t row_bytes;
    const unsigned char *data;
};

/* y[t * ldy + r] = dot(row r of w, x + t * ldx) + (bias ? bias[r] : nothing). */
struct product {
    const struct matrix *w;
    const float *x;
    size_t ldx;
    float *y;
    size_t ldy;
    const float *bias;
};

/* Rows [row, row + count) of a wave belong to one request, at positions position..position + count - 1. */
struct segment {
    uint32_t row;
    uint32_t count;
    uint32_t position;
    void *cache; /* this request's cache of this layer: compute_ops.cache_bytes */
};

struct attention {
    const float *q; /* [rows, heads * head_dim] */
    size_t ldq;
    const float *k; /* [rows, kv_heads * head_dim]: rotated into the caches */
    size_t ldk;
    const float *v;
    size_t ldv;
    float *out; /* [rows, heads * head_dim] */
    size_t ldo;
    uint32_t heads;
    uint32_t kv_heads;
    const uint32_t *kv_of_head; /* [heads]: index into kv_heads; non-decreasing */
    uint32_t head_dim;
    float scale;
    bool rope_pairs;       /* false: pairs (i, i + head_dim / 2); true: (2i, 2i + 1) */
    const float *rope_cos; /* [context, head_dim / 2] */
    const float *rope_sin;
    uint32_t context; /* capacity of each cache, in positions */
    const struct segment *segments;
    uint32_t segment_count;
};

struct compute_options {
    int threads;      /* 1..POOL_MAX_THREADS */
    const char *simd; /* "auto", "plain", "avx2", "avx512" */
    /* Called between tiles by the calling thread, to progress communication; may be NULL. */
    void (*progress)(void *context);
    void *progress_context;
};

/* What a backend can do, as far as it knows without trying.  Unknown is never zero. */
#define COMPUTE_UNKNOWN (-1.0)

struct compute_capabilities {
    const char *substrate; /* where tensors lie: "host memory" */
    const char *path_in;   /* how bytes of the host get there, and back; NULL: unknown, through host staging */
    const char *path_out;
    size_t alignment;          /* bytes, of weights and activations; 1: none */
    size_t granularity;        /* floats that a row of activations is padded to */
    uint32_t product_types;    /* bit per enum weight_type: weights of products */
    uint32_t embed_types;      /* of the embedding */
    uint32_t activation_types; /* bit per enum dtype: of everything else */
    double flop_per_ns;        /* of one thread; COMPUTE_UNKNOWN: not measured */
    double bytes_per_ns;
};

struct compute_ops {
    const char *name;                                /* "cpu" */
    const struct compute_capabilities *capabilities; /* NULL: nothing is known */

    /* Start the pool and choose the path.  STATUS_ENVIRONMENT: this machine lacks the asked SIMD path. */
    enum status (*open)(const struct compute_options *options, struct compute **ret, struct error *err);
    void (*close)(struct compute *compute);
    /* The chosen path: "plain", "avx2", "avx512". */
    const char *(*simd)(const struct compute *compute);

    /* Several products over the same number of rows, in one parallel region.  count <= 16. */
    void (*products)(struct compute *compute, const struct product *list, int count, size_t rows);
    /* x[t] = decoded row ids[t] of w. */
    void (*embed)(struct compute *compute, const struct matrix *w, const uint32_t *ids, size_t rows, float *x,
                  size_t ldx);
    /* RMSNorm: y = (x * (1 / sqrt(sum(x^2) / cols + epsilon))) * weight.  y may be x. */
    void (*norm)(struct compute *compute, const float *x, size_t ldx, size_t rows, size_t cols, const float *weight,
                 float epsilon, float *y, size_t ldy);
    /* The same, applied to each of heads vectors of head_dim in a row, with one weight [head_dim]; in place. */
    void (*head_norm)(struct compute *compute, float *x, size_t ldx, size_t rows, size_t heads, size_t head_dim,
                      const float *weight, float epsilon);
    /* Rotate q and k, store k and v, attend causally. */
    void (*attend)(struct compute *compute, const struct attention *attention);
    /* out = gate / (1 + exp(-gate)) * up; out may be gate. */
    void (*gated)(struct compute *compute, const float *gate, size_t ldg, const float *up, size_t ldu, size_t rows,
                  size_t cols, float *out, size_t ldo);
    /* x += y. */
    void (*add)(struct compute *compute, float *x, size_t ldx, const float *y, size_t ldy, size_t rows, size_t cols);
    /* Bytes of one request's cache of one layer; a multiple of 64.  0 on overflow. */
    size_t (*cache_bytes)(uint32_t kv_heads, uint32_t head_dim, uint32_t context);
};

#endif
