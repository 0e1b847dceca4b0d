/* The inner loops, one table a SIMD path.  Every path gives the bits of plain.c, which is the definition.
 *
 * No kernel reads past the last byte of a weight row's asked columns, nor lets a float behind an activation row reach
 * a result (it may load up to the next multiple of 16).  Weight rows may lie at any address. */
#ifndef BACKENDS_CPU_KERNELS_H
#define BACKENDS_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/weight_type.h"
#include "runtime/compute.h"

enum {
    LANES = 16,            /* of a dot */
    PANEL_MAX_ROWS = 6,    /* weight rows decoded at a time */
    PANEL_MAX_COLS = 1024, /* columns decoded at a time; a multiple of every block length */
    TILE_MAX_TOKENS = 256, /* activation rows whose lanes are kept between two blocks of columns */
    PACK_TOKENS = 8,       /* pack rounds tokens up to a multiple */
    PACK_MIN_TOKENS = 12   /* fewer activation rows are not worth laying out */
};

/* A block of columns of some decoded weight rows against the same columns of some activation rows. */
struct tile {
    const float *panel; /* [rows, stride], each padded to a multiple of LANES columns with +0 */
    size_t stride;
    size_t rows;
    const float *x; /* [tokens, ldx] */
    size_t ldx;
    const float *packed; /* these columns of x laid out by pack, or NULL; then x is not read */
    size_t tokens;
    size_t cols;
    /* The chains between blocks: LANES of each row and token (rounded up to PACK_TOKENS), in an order of the path's
     * own.  NULL: these columns are all there are. */
    float *lanes;
    bool first; /* chains start at +0; else they resume from lanes */
    bool last;  /* sums go to y; else chains are kept in lanes */
    float *y;   /* y[t * ldy + r] */
    size_t ldy;
};

/* out[r][d] = fmaf(weight[r][j], value[j][d], out[r][d]) for j ascending. */
struct mix {
    const float *weight; /* [rows, ldw] */
    size_t ldw;
    size_t rows;
    const float *value; /* [count, ldv] */
    size_t ldv;
    size_t count;
    size_t width; /* a multiple of LANES */
    float *out;   /* [rows, ldo] */
    size_t ldo;
};

/* What compiles well enough from the plain file; one instance for each set of instructions. */
struct row_kernels {
    void (*decode)(enum weight_type type, const void *packed, size_t count, float *values);
    /* y = x * (1 / sqrt(dot(x, x) / cols + epsilon)) * weight; y may be x. */
    void (*norm)(const float *x, size_t cols, const float *weight, float epsilon, float *y);
    /* out = gate / (1 + exp(-gate)) * up; out may be gate. */
    void (*gated)(const float *gate, const float *up, size_t cols, float *out);
    void (*add)(float *x, const float *y, size_t cols);
    /* s[j] = exp(s[j] * scale - max) and 1 / their sum. */
    float (*softmax)(float *s, size_t count, float scale);
    /* Rotate one head of head_dim; out is in Hugging Face order whichever way the pairs lie in x. */
    void (*rotate)(const float *x, const float *cos, const float *sin, size_t head_dim, bool pairs, float *out);
    void (*scale)(const float *x, float factor, size_t count, float *out);
};

/* y[r] = dot(row + r of w, x), r < count. */
typedef void vector_kernel(const struct matrix *w, uint64_t row, uint64_t count, const float *x, float *y);
/* Decode count elements (whole blocks, or floats) at packed. */
typedef void decode_kernel(const unsigned char *packed, size_t count, float *values);

struct kernels {
    const char *name;
    size_t panel_rows; /* the rows that tile likes to get at a time */
    void (*tile)(const struct tile *tile);
    /* Lay x [tokens, ldx] out as tile multiplies many rows fastest (PACK_MIN_TOKENS or more): tokens rounded up to
     * PACK_TOKENS times cols rounded up to LANES floats.  NULL: tile takes rows as they are. */
    void (*pack)(const float *x, size_t ldx, size_t tokens, size_t cols, float *out);
    size_t packed_rows; /* panel_rows with x laid out */
    void (*mix)(const struct mix *mix);
    const struct row_kernels *row;
    /* NULL for a type: one row is a panel and a tile. */
    vector_kernel *vector[WEIGHT_TYPE_COUNT];
    /* NULL for a type: row->decode. */
    decode_kernel *decode[WEIGHT_TYPE_COUNT];
};

extern const struct kernels kernels_plain;
extern const struct kernels kernels_plain_avx2;
extern const struct kernels kernels_plain_avx512;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
extern const struct row_kernels row_kernels_plain;
extern const struct row_kernels row_kernels_plain_avx2;
extern const struct row_kernels row_kernels_plain_avx512;

#endif
