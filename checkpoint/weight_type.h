/* The element types in which weights are stored, packed or plain, and their decoding to f32.
 *
 * Packed layouts: the GGUF specification (ggml-org/ggml, docs/gguf.md) and the block types of ggml.  Decoding is
 * NUMERICS' definition (docs/numerics.md): affine blocks decode as fmaf(scale, q, bias) in f32. */
#ifndef CHECKPOINT_WEIGHT_TYPE_H
#define CHECKPOINT_WEIGHT_TYPE_H

#include <stddef.h>
#include <stdint.h>

enum weight_type {
    WEIGHT_F32,
    WEIGHT_F16,
    WEIGHT_BF16,
    WEIGHT_Q4_0,
    WEIGHT_Q4_1,
    WEIGHT_Q5_0,
    WEIGHT_Q5_1,
    WEIGHT_Q8_0,
    WEIGHT_Q4_K,
    WEIGHT_Q5_K,
    WEIGHT_Q6_K,
    WEIGHT_TYPE_COUNT,
    WEIGHT_NONE = -1
};

const char *weight_type_name(enum weight_type type);

/* Elements in a block (1 for the float types, 32, 256) and the block's bytes. */
unsigned weight_block_length(enum weight_type type);
unsigned weight_block_bytes(enum weight_type type);

/* Decode count elements (whole blocks) at packed to f32.  The plain definition; exact. */
void weight_decode(enum weight_type type, const void *packed, size_t count, float *values);

#endif
