/* What a model is, from config.json and generation_config.json or from GGUF's metadata: facts, no weights. */
#ifndef CHECKPOINT_MODEL_CONFIG_H
#define CHECKPOINT_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum architecture { ARCH_LLAMA, ARCH_MISTRAL, ARCH_QWEN2, ARCH_QWEN3 };

enum rope_layout {
    ROPE_HALVES, /* pairs (i, i + head_dim / 2): Hugging Face, and GGUF's qwen2, qwen3 */
    ROPE_PAIRS   /* pairs (2i, 2i + 1): GGUF's llama, whose q and k rows lie permuted */
};

enum { MODEL_MAX_STOP_TOKENS = 16 };

struct model_config {
    enum architecture architecture;
    char architecture_name[64]; /* as the file spells it */
    bool gguf;
    uint64_t vocab_size; /* rows of the embedding and of the output head */
    uint64_t hidden_size;
    uint64_t ffn_size;
    uint64_t layer_count;
    uint64_t head_count;
    uint64_t kv_head_count;
    uint64_t head_dim;
    uint64_t context_length; /* max_position_embeddings */
    double norm_epsilon;
    double rope_theta;
    bool rope_theta_default; /* the file names none: the documented default is used */
    enum rope_layout rope_layout;
    struct {
        bool llama3; /* scaling of type llama3; false: none.  Other types are refused by name. */
        double factor;
        double low_freq_factor;
        double high_freq_factor;
        double original_context;
    } rope_scaling;
    bool rope_freqs;     /* GGUF: rope_freqs.weight [head_dim / 2] divides the frequencies */
    bool tied;           /* the output head is the embedding */
    bool attention_bias; /* biases of q, k, v */
    bool attention_output_bias;
    bool mlp_bias;
    bool qk_norm;
    char torch_dtype[16]; /* "" when the file names none */
    int64_t bos_token;    /* -1: none */
    int stop_token_count;
    uint32_t stop_token[MODEL_MAX_STOP_TOKENS];
};

#endif
