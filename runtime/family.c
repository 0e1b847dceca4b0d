/* The families' one table: Llama, Mistral, Qwen2 and Qwen3 differ in which rows of it apply.
 *
 * Which rows apply is six yes-or-no facts of the model, so the 64 lists are written out by the preprocessor and lent
 * as constants: nobody has to own a list. */
#include "runtime/family.h"

#include <stdio.h>

#define LAYER(hf, gguf) .hf_name = "model.layers.%u." hf, .gguf_name = "blk.%u." gguf, .place = PLACE_LAYER

static const struct parameter_rule rule[PARAMETER_COUNT] = {
    [PARAMETER_EMBEDDING] = {PARAMETER_EMBEDDING, "model.embed_tokens.weight", "token_embd.weight", EXTENT_VOCAB,
                             EXTENT_HIDDEN, SPLIT_NONE, PLACE_FIRST},
    [PARAMETER_ATTENTION_NORM] = {PARAMETER_ATTENTION_NORM, LAYER("input_layernorm.weight", "attn_norm.weight"),
                                  .cols = EXTENT_HIDDEN},
    [PARAMETER_Q] = {PARAMETER_Q, LAYER("self_attn.q_proj.weight", "attn_q.weight"), .rows = EXTENT_Q,
                     .cols = EXTENT_HIDDEN, .split = SPLIT_Q_ROWS},
    [PARAMETER_K] = {PARAMETER_K, LAYER("self_attn.k_proj.weight", "attn_k.weight"), .rows = EXTENT_KV,
                     .cols = EXTENT_HIDDEN, .split = SPLIT_KV_ROWS},
    [PARAMETER_V] = {PARAMETER_V, LAYER("self_attn.v_proj.weight", "attn_v.weight"), .rows = EXTENT_KV,
                     .cols = EXTENT_HIDDEN, .split = SPLIT_KV_ROWS},
    [PARAMETER_Q_BIAS] = {PARAMETER_Q_BIAS, LAYER("self_attn.q_proj.bias", "attn_q.bias"), .cols = EXTENT_Q,
                          .split = SPLIT_Q_ROWS},
    [PARAMETER_K_BIAS] = {PARAMETER_K_BIAS, LAYER("self_attn.k_proj.bias", "attn_k.bias"), .cols = EXTENT_KV,
                          .split = SPLIT_KV_ROWS},
    [PARAMETER_V_BIAS] = {PARAMETER_V_BIAS, LAYER("self_attn.v_proj.bias", "attn_v.bias"), .cols = EXTENT_KV,
                          .split = SPLIT_KV_ROWS},
    [PARAMETER_Q_NORM] = {PARAMETER_Q_NORM, LAYER("self_attn.q_norm.weight", "attn_q_norm.weight"),
                          .cols = EXTENT_HEAD_DIM},
    [PARAMETER_K_NORM] = {PARAMETER_K_NORM, LAYER("self_attn.k_norm.weight", "attn_k_norm.weight"),
                          .cols = EXTENT_HEAD_DIM},
    [PARAMETER_O] = {PARAMETER_O, LAYER("self_attn.o_proj.weight", "attn_output.weight"), .rows = EXTENT_HIDDEN,
                     .cols = EXTENT_Q, .split = SPLIT_Q_COLS},
    [PARAMETER_O_BIAS] = {PARAMETER_O_BIAS, LAYER("self_attn.o_proj.bias", "attn_output.bias"), .cols = EXTENT_HIDDEN},
    [PARAMETER_FFN_NORM] = {PARAMETER_FFN_NORM, LAYER("post_attention_layernorm.weight", "ffn_norm.weight"),
                            .cols = EXTENT_HIDDEN},
    [PARAMETER_GATE] = {PARAMETER_GATE, LAYER("mlp.gate_proj.weight", "ffn_gate.weight"), .rows = EXTENT_FFN,
                        .cols = EXTENT_HIDDEN, .split = SPLIT_FFN_ROWS},
    [PARAMETER_UP] = {PARAMETER_UP, LAYER("mlp.up_proj.weight", "ffn_up.weight"), .rows = EXTENT_FFN,
                      .cols = EXTENT_HIDDEN, .split = SPLIT_FFN_ROWS},
    [PARAMETER_DOWN] = {PARAMETER_DOWN, LAYER("mlp.down_proj.weight", "ffn_down.weight"), .rows = EXTENT_HIDDEN,
                        .cols = EXTENT_FFN, .split = SPLIT_FFN_COLS},
    [PARAMETER_GATE_BIAS] = {PARAMETER_GATE_BIAS, LAYER("mlp.gate_proj.bias", "ffn_gate.bias"), .cols = EXTENT_FFN,
                             .split = SPLIT_FFN_ROWS},
    [PARAMETER_UP_BIAS] = {PARAMETER_UP_BIAS, LAYER("mlp.up_proj.bias", "ffn_up.bias"), .cols = EXTENT_FFN,
                           .split = SPLIT_FFN_ROWS},
    [PARAMETER_DOWN_BIAS] = {PARAMETER_DOWN_BIAS, LAYER("mlp.down_proj.bias", "ffn_down.bias"), .cols = EXTENT_HIDDEN},
    [PARAMETER_OUTPUT_NORM] = {PARAMETER_OUTPUT_NORM, "model.norm.weight", "output_norm.weight", EXTENT_NONE,
                               EXTENT_HIDDEN, SPLIT_NONE, PLACE_LAST},
    [PARAMETER_HEAD] = {PARAMETER_HEAD, "lm_head.weight", "output.weight", EXTENT_VOCAB, EXTENT_HIDDEN,
                        SPLIT_VOCAB_ROWS, PLACE_LAST},
    [PARAMETER_ROPE_FREQS] = {PARAMETER_ROPE_FREQS, "rope_freqs.weight", "rope_freqs.weight", EXTENT_NONE,
                              EXTENT_HALF_HEAD, SPLIT_NONE, PLACE_EVERY},
};

#define R(name) &rule[PARAMETER_##name]
#define ROPE_0
#define ROPE_1 R(ROPE_FREQS),
#define QKV_BIAS_0
#define QKV_BIAS_1 R(Q_BIAS), R(K_BIAS), R(V_BIAS),
#define QK_NORM_0
#define QK_NORM_1 R(Q_NORM), R(K_NORM),
#define O_BIAS_0
#define O_BIAS_1 R(O_BIAS),
#define MLP_BIAS_0
#define MLP_BIAS_1 R(GATE_BIAS), R(UP_BIAS), R(DOWN_BIAS),
#define HEAD_0
#define HEAD_1 R(HEAD),

#define LIST(rope, qkv, norm, o, mlp, head)                                                                            \
    {                                                                                                                  \
        R(EMBEDDING), ROPE_##rope R(ATTENTION_NORM), R(Q), R(K), R(V), QKV_BIAS_##qkv QK_NORM_##norm R(O),             \
            O_BIAS_##o R(FFN_NORM), R(GATE), R(UP), R(DOWN), MLP_BIAS_##mlp R(OUTPUT_NORM), HEAD_##head NULL           \
    }
#define LIST_5(...) LIST(__VA_ARGS__, 0), LIST(__VA_ARGS__, 1)
#define LIST_4(...) LIST_5(__VA_ARGS__, 0), LIST_5(__VA_ARGS__, 1)
#define LIST_3(...) LIST_4(__VA_ARGS__, 0), LIST_4(__VA_ARGS__, 1)
#define LIST_2(...) LIST_3(__VA_ARGS__, 0), LIST_3(__VA_ARGS__, 1)
#define LIST_1(...) LIST_2(__VA_ARGS__, 0), LIST_2(__VA_ARGS__, 1)

/* By the six facts as a number, the first one the highest bit. */
static const struct parameter_rule *const lists[64][PARAMETER_COUNT + 1] = {LIST_1(0), LIST_1(1)};

const struct parameter_rule *const *family_rules(const struct model_config *config, int *ret_count)
{
    unsigned facts = (unsigned)config->rope_freqs << 5 | (unsigned)config->attention_bias << 4 |
                     (unsigned)config->qk_norm << 3 | (unsigned)config->attention_output_bias << 2 |
                     (unsigned)config->mlp_bias << 1 | (unsigned)!config->tied;
    const struct parameter_rule *const *list = lists[facts];
    int count = 0;

    while (list[count])
        count++;
    *ret_count = count;
    return list;
}

uint64_t family_extent(const struct model_config *config, enum extent extent)
{
    switch (extent) {
    case EXTENT_VOCAB:
        return config->vocab_size;
    case EXTENT_HIDDEN:
        return config->hidden_size;
    case EXTENT_Q:
        return config->head_count * config->head_dim;
    case EXTENT_KV:
        return config->kv_head_count * config->head_dim;
    case EXTENT_HEAD_DIM:
        return config->head_dim;
    case EXTENT_FFN:
        return config->ffn_size;
    case EXTENT_HALF_HEAD:
        return config->head_dim / 2;
    case EXTENT_NONE:
        break;
    }
    return 1;
}

void family_tensor_name(const struct model_config *config, const struct parameter_rule *wanted, uint64_t layer,
                        char *name, size_t name_bytes)
{
    snprintf(name, name_bytes, config->gguf ? wanted->gguf_name : wanted->hf_name, (unsigned)layer);
}
