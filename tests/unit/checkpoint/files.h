/* Files for the tests: a scratch folder a test, safetensors from a header's text, GGUF from calls. */
#ifndef TESTS_CHECKPOINT_FILES_H
#define TESTS_CHECKPOINT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"

/* Checked fixture: make the folder, remove it with everything in it. */
void scratch_setup(void);
void scratch_teardown(void);

/* folder/name, in a buffer that lives until eight calls later; "" is the folder itself. */
const char *scratch_path(const char *name);
/* Write a file into the folder and return its path. */
const char *scratch_write(const char *name, const void *bytes, size_t count);
const char *scratch_write_text(const char *name, const char *text);
/* header_bytes: the length written in front; header's own length when SIZE_MAX. */
const char *scratch_write_safetensors(const char *name, const char *header, uint64_t header_bytes, const void *data,
                                      size_t data_bytes);

/* A file of data/ beside the tests. */
const char *data_path(const char *name);

/* Open and expect this status and this piece of the sentence. */
void expect_refusal(const char *path, enum status status, const char *sentence);
/* Open and expect success; the caller closes. */
struct checkpoint *expect_open(const char *path);

/* Little-endian pieces of a GGUF file. */
void put_u32(struct text *file, uint32_t number);
void put_u64(struct text *file, uint64_t number);
void put_string(struct text *file, const char *string);
void put_head(struct text *file, uint32_t version, uint64_t tensors, uint64_t keys);
void put_key_u32(struct text *file, const char *key, uint32_t number);
void put_key_f32(struct text *file, const char *key, float number);
void put_key_string(struct text *file, const char *key, const char *string);
void put_tensor(struct text *file, const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type,
                uint64_t offset);
void put_padding(struct text *file, size_t alignment);
/* The MODEL_KEYS keys of a small llama (hidden 32, one layer, vocabulary 4). */
enum { MODEL_KEYS = 7 };
void put_model_keys(struct text *file);

/* A config.json of a small llama with extra (", ..." or "") put at its end. */
const char *small_config(const char *extra);

#endif
