#include "files.h"

#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

void scratch_setup(void)
{
    const char *base = getenv("TMPDIR");

    (void)snprintf(folder, sizeof folder, "%s/ferry-checkpoint-XXXXXX", base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static int remove_entry(const char *path, const struct stat *facts, int kind, struct FTW *walk)
{
    (void)facts;
    (void)kind;
    (void)walk;
    return remove(path);
}

void scratch_teardown(void)
{
    (void)nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_path(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];

    (void)snprintf(path, sizeof paths[0], "%s%s%s", folder, *name ? "/" : "", name);
    return path;
}

const char *scratch_write(const char *name, const void *bytes, size_t count)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, count, file), count);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

const char *scratch_write_text(const char *name, const char *text)
{
    return scratch_write(name, text, strlen(text));
}

const char *scratch_write_safetensors(const char *name, const char *header, uint64_t header_bytes, const void *data,
                                      size_t data_bytes)
{
    struct text file = {0};
    const char *path;

    put_u64(&file, header_bytes == UINT64_MAX ? strlen(header) : header_bytes);
    text_add_bytes(&file, header, strlen(header));
    text_add_bytes(&file, data, data_bytes);
    path = scratch_write(name, file.bytes, file.length);
    text_done(&file);
    return path;
}

const char *data_path(const char *name)
{
    static char path[512];

    ck_assert_ptr_nonnull(getenv("CHECKPOINT_DATA"));
    (void)snprintf(path, sizeof path, "%s/%s", getenv("CHECKPOINT_DATA"), name);
    return path;
}

void expect_refusal(const char *path, enum status status, const char *sentence)
{
    struct error err = {0};
    struct checkpoint *checkpoint = NULL;
    enum status st = checkpoint_open(path, &checkpoint, &err);

    ck_assert_msg(st == status, "expected %s, got %s: %s", status_name(status), status_name(st), err.text);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "expected '%s' in: %s", sentence, err.text);
    ck_assert_msg(strstr(err.text, folder) != NULL, "no path in: %s", err.text);
}

struct checkpoint *expect_open(const char *path)
{
    struct error err = {0};
    struct checkpoint *checkpoint = NULL;

    ck_assert_msg(checkpoint_open(path, &checkpoint, &err) == STATUS_OK, "%s", err.text);
    return checkpoint;
}

void put_u32(struct text *file, uint32_t number)
{
    unsigned char bytes[4] = {(unsigned char)number, (unsigned char)(number >> 8), (unsigned char)(number >> 16),
                              (unsigned char)(number >> 24)};

    text_add_bytes(file, bytes, sizeof bytes);
}

void put_u64(struct text *file, uint64_t number)
{
    put_u32(file, (uint32_t)number);
    put_u32(file, (uint32_t)(number >> 32));
}

void put_string(struct text *file, const char *string)
{
    put_u64(file, strlen(string));
    text_add_bytes(file, string, strlen(string));
}

void put_head(struct text *file, uint32_t version, uint64_t tensors, uint64_t keys)
{
    text_add_bytes(file, "GGUF", 4);
    put_u32(file, version);
    put_u64(file, tensors);
    put_u64(file, keys);
}

void put_key_u32(struct text *file, const char *key, uint32_t number)
{
    put_string(file, key);
    put_u32(file, 4);
    put_u32(file, number);
}

void put_key_f32(struct text *file, const char *key, float number)
{
    uint32_t bits;

    memcpy(&bits, &number, sizeof bits);
    put_string(file, key);
    put_u32(file, 6);
    put_u32(file, bits);
}

void put_key_string(struct text *file, const char *key, const char *string)
{
    put_string(file, key);
    put_u32(file, 8);
    put_string(file, string);
}

void put_tensor(struct text *file, const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type,
                uint64_t offset)
{
    put_string(file, name);
    put_u32(file, ndim);
    for (uint32_t i = 0; i < ndim && i < 8; i++)
        put_u64(file, dims[i]);
    put_u32(file, type);
    put_u64(file, offset);
}

void put_padding(struct text *file, size_t alignment)
{
    while (file->length % alignment)
        text_add_bytes(file, "", 1);
}

void put_model_keys(struct text *file)
{
    put_key_string(file, "general.architecture", "llama");
    put_key_u32(file, "llama.block_count", 1);
    put_key_u32(file, "llama.embedding_length", 32);
    put_key_u32(file, "llama.feed_forward_length", 64);
    put_key_u32(file, "llama.attention.head_count", 2);
    put_key_u32(file, "llama.context_length", 64);
    put_key_f32(file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

const char *small_config(const char *extra)
{
    struct text text = {0};
    const char *path;

    text_add(&text,
             "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 8, \"hidden_size\": 32,"
             "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
             "\"num_key_value_heads\": 2, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5,"
             "\"rope_theta\": 10000.0%s}",
             extra);
    path = scratch_write_text("config.json", text_string(&text));
    text_done(&text);
    return path;
}
