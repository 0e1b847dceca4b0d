/* The inside of struct gguf, for the files that read GGUF. */
#ifndef CHECKPOINT_GGUF_PRIVATE_H
#define CHECKPOINT_GGUF_PRIVATE_H

#include "base/status.h"
#include "checkpoint/gguf.h"

enum {
    GGUF_KEY_LIMIT = 65535,       /* bytes of a key: the specification's limit */
    GGUF_KEY_COUNT_LIMIT = 65536, /* keys of a file */
    GGUF_TENSOR_COUNT_LIMIT = 1 << 20,
    GGUF_NESTING_LIMIT = 4, /* arrays in arrays */
    GGUF_DEFAULT_ALIGNMENT = 32
};
#define GGUF_HEADER_LIMIT ((uint64_t)1 << 30)
#define GGUF_ALIGNMENT_LIMIT ((uint64_t)1 << 20)

/* One key.  Offsets are into the header's bytes. */
struct gguf_value {
    char *key;
    enum gguf_type type;
    enum gguf_type item_type; /* of an array */
    uint64_t offset;          /* of the scalar, of the string's first byte, or of the array's first item */
    uint64_t count;           /* bytes of the string, or items of the array */
    uint64_t *item_offset;    /* of an array of strings: where each item's length stands */
};

/* The file's first bytes, read as far as they were needed. */
struct gguf {
    int descriptor;
    char *path;
    uint64_t file_bytes;
    unsigned char *header;
    size_t header_bytes; /* read so far */
    size_t header_capacity;
    uint64_t position; /* of the reader */
    uint32_t version;
    uint64_t tensor_count;
    uint64_t alignment;
    struct gguf_value *values;
    size_t value_count;
    size_t *by_key; /* sorted */
};

/* Read magic, counts and metadata of the file path; the reader stands at the first tensor's description then (returns).
 * STATUS_MODEL, STATUS_UNSUPPORTED, STATUS_STORAGE, STATUS_NOMEM. */
enum status gguf_read(const char *path, struct gguf **ret, struct error *err);
/* NULL is allowed. */
void gguf_destroy(struct gguf *gguf);

/* The reader: checked against the file's end.  what names the thing being read, for the message. */
enum status gguf_read_u32(struct gguf *gguf, const char *what, uint32_t *ret, struct error *err);
enum status gguf_read_u64(struct gguf *gguf, const char *what, uint64_t *ret, struct error *err);
/* *ret_offset: of the string's first byte in gguf->header. */
enum status gguf_read_string(struct gguf *gguf, const char *what, uint64_t limit, uint64_t *ret_offset,
                             uint64_t *ret_length, struct error *err);

/* Bytes of a value of this type; 0: not of one size. */
unsigned gguf_type_bytes(enum gguf_type type);

/* A little-endian number of count bytes, at most 8. */
uint64_t gguf_load(const unsigned char *bytes, unsigned count);

/* Close the file once the tensors' descriptions are read; the header stays. */
void gguf_finish(struct gguf *gguf);

struct checkpoint;
struct model_config;

/* Read the tensors' descriptions behind the metadata and add them to the checkpoint as tensors of this shard.
 * STATUS_MODEL, STATUS_UNSUPPORTED, STATUS_STORAGE, STATUS_NOMEM. */
enum status gguf_read_tensors(struct gguf *gguf, struct checkpoint *checkpoint, int shard, struct error *err);

/* The model's facts, from checkpoint->gguf and the tensors' names.  STATUS_MODEL, STATUS_UNSUPPORTED. */
enum status gguf_config(struct checkpoint *checkpoint, struct error *err);

#endif
