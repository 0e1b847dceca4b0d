/* Model families: each states its parameters in one table that plan, loader and memory ledger walk. */
#ifndef RUNTIME_FAMILY_H
#define RUNTIME_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/model_config.h"

/* What a parameter is for; the index into a layer's (or the stage's) bound weights. */
enum parameter {
    PARAMETER_EMBEDDING,
    PARAMETER_ATTENTION_NORM,
    PARAMETER_Q,
    PARAMETER_K,
    PARAMETER_V,
    PARAMETER_Q_BIAS,
    PARAMETER_K_BIAS,
    PARAMETER_V_BIAS,
    PARAMETER_Q_NORM,
    PARAMETER_K_NORM,
    PARAMETER_O,
    PARAMETER_O_BIAS,
    PARAMETER_FFN_NORM,
    PARAMETER_GATE,
    PARAMETER_UP,
    PARAMETER_DOWN,
    PARAMETER_GATE_BIAS,
    PARAMETER_UP_BIAS,
    PARAMETER_DOWN_BIAS,
    PARAMETER_OUTPUT_NORM,
    PARAMETER_HEAD,
    PARAMETER_ROPE_FREQS,
    PARAMETER_COUNT
};

/* A dimension by name; family_extent resolves it. */
enum extent { EXTENT_NONE, EXTENT_VOCAB, EXTENT_HIDDEN, EXTENT_Q, EXTENT_KV, EXTENT_HEAD_DIM, EXTENT_FFN,
              EXTENT_HALF_HEAD };

/* How tensor ranks share it. */
enum split {
    SPLIT_NONE,       /* every tensor rank holds it whole */
    SPLIT_Q_ROWS,     /* rows of its query heads */
    SPLIT_KV_ROWS,    /* rows of the key/value heads that they read (replicas possible) */
    SPLIT_FFN_ROWS,
    SPLIT_VOCAB_ROWS,
    SPLIT_Q_COLS,     /* inner dimension: packed at load when the tensor axis is larger than one */
    SPLIT_FFN_COLS
};

enum placement { PLACE_LAYER, PLACE_FIRST, PLACE_LAST, PLACE_EVERY };

struct parameter_rule {
    enum parameter parameter;
    const char *hf_name;   /* "model.layers.%u.self_attn.q_proj.weight" */
    const char *gguf_name; /* "blk.%u.attn_q.weight" */
    enum extent rows;      /* EXTENT_NONE: a vector of cols */
    enum extent cols;
    enum split split;
    enum placement place;
};

/* The rules of a model's family that apply to it (biases, q/k norms, head when untied, ...), in a fixed order.
 * A tied model has no PARAMETER_HEAD rule: the embedding is used on the last stage too.  Lent forever. */
const struct parameter_rule *const *family_rules(const struct model_config *config, int *ret_count);

uint64_t family_extent(const struct model_config *config, enum extent extent);

/* The stored name of a rule in this model's file, layer inserted. */
void family_tensor_name(const struct model_config *config, const struct parameter_rule *rule, uint64_t layer,
                        char *name, size_t name_bytes);

#endif
