/* The metadata of a GGUF file: keys and their values, found by key.
 *
 * Format: ggml-org/ggml, docs/gguf.md, versions 2 and 3, little-endian.  Everything was checked against the file's
 * size when it was read, so the getters cannot fail: they say false (or NULL, or 0) when the key is absent or its value
 * is of another kind.  Strings are bytes with a length, without a NUL at the end, and need not be UTF-8.  All is lent
 * until checkpoint_close; a split file's metadata is that of its first part.  Local; safe from several threads. */
#ifndef CHECKPOINT_GGUF_H
#define CHECKPOINT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct checkpoint;
struct gguf;

/* The numbers are the file format's. */
enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
    GGUF_TYPE_COUNT = 13,
    GGUF_NONE = -1
};

/* NULL when the checkpoint is no GGUF file. */
const struct gguf *checkpoint_gguf(const struct checkpoint *checkpoint);

/* The type of the key's value; GGUF_NONE when the key is absent.  "u32", "string"; never NULL. */
enum gguf_type gguf_value_type(const struct gguf *gguf, const char *key);
const char *gguf_type_name(enum gguf_type type);

/* Integers of any width (u64: none below zero; i64: none above 2^63 - 1); f64: floats and integers alike. */
bool gguf_get_u64(const struct gguf *gguf, const char *key, uint64_t *ret);
bool gguf_get_i64(const struct gguf *gguf, const char *key, int64_t *ret);
bool gguf_get_f64(const struct gguf *gguf, const char *key, double *ret);
bool gguf_get_bool(const struct gguf *gguf, const char *key, bool *ret);
bool gguf_get_string(const struct gguf *gguf, const char *key, const char **ret, size_t *ret_length);

/* Arrays.  The count is 0 and the type GGUF_NONE when the key is absent or no array.  An element is found in constant
 * time; an index past the end is false or NULL.  Elements of nested arrays cannot be reached. */
size_t gguf_array_count(const struct gguf *gguf, const char *key);
enum gguf_type gguf_array_type(const struct gguf *gguf, const char *key);
const char *gguf_array_string(const struct gguf *gguf, const char *key, size_t index, size_t *ret_length);
bool gguf_array_i64(const struct gguf *gguf, const char *key, size_t index, int64_t *ret);
bool gguf_array_f64(const struct gguf *gguf, const char *key, size_t index, double *ret);

/* Walk the keys, in the file's order: NULL past the end. */
size_t gguf_key_count(const struct gguf *gguf);
const char *gguf_key(const struct gguf *gguf, size_t index);

#endif
