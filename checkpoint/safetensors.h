/* One safetensors file: eight bytes of header length, a JSON header, the data.
 *
 * Format: huggingface/safetensors, README ("Format").  The header is believed only after every tensor's shape, range
 * and place were checked against each other and against the file's size. */
#ifndef CHECKPOINT_SAFETENSORS_H
#define CHECKPOINT_SAFETENSORS_H

#include <jansson.h>

#include "checkpoint/checkpoint.h"

/* The format's own limit on the header. */
#define SAFETENSORS_HEADER_LIMIT ((uint64_t)100 * 1000 * 1000)

/* Zero-initialise.  Names are lent by header; tensors stand in the order of their data; shard is 0 in each. */
struct safetensors {
    json_t *header;
    uint64_t file_bytes;
    struct stored_tensor *tensors;
    size_t count;
};

/* Read the header of the file path.  STATUS_MODEL (damaged; names file and tensor, expected and found),
 * STATUS_UNSUPPORTED (an element type nobody knows), STATUS_STORAGE, STATUS_NOMEM. */
enum status safetensors_read(const char *path, struct safetensors *ret, struct error *err);

/* The same from the header's bytes, for a file of file_bytes: pure. */
enum status safetensors_parse(const char *path, const char *header, size_t header_bytes, uint64_t file_bytes,
                              struct safetensors *ret, struct error *err);

void safetensors_done(struct safetensors *file);

#endif
