/* The inside of struct checkpoint, for the files of this folder that fill it in. */
#ifndef CHECKPOINT_CHECKPOINT_PRIVATE_H
#define CHECKPOINT_CHECKPOINT_PRIVATE_H

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_config.h"
#include "checkpoint/store.h"

enum { TENSOR_NAME_LIMIT = 1024, STORED_MAX_NDIM = 8 };

struct checkpoint {
    char *path;
    struct store *store;
    struct gguf *gguf; /* of the first part; NULL for a folder */
    bool saved;        /* a description alone */
    struct model_config config;
    struct text notes;
    struct stored_tensor *tensors; /* names are owned */
    size_t count;
    size_t capacity;
    size_t *by_name; /* indices of tensors, sorted by name; NULL until checkpoint_index_names */
};

/* Add a tensor whose facts were checked against its file; copies its name of length bytes (facts->name is not read).
 * STATUS_MODEL (a name that is empty, too long or holds control characters), STATUS_NOMEM. */
enum status checkpoint_add_tensor(struct checkpoint *checkpoint, const char *name, size_t length,
                                  const struct stored_tensor *facts, struct error *err);

/* Make checkpoint_find work.  STATUS_MODEL names a tensor that is there twice; STATUS_NOMEM. */
enum status checkpoint_index_names(struct checkpoint *checkpoint, struct error *err);

/* Fill in a fresh checkpoint from checkpoint->path.  STATUS_MODEL, STATUS_STORAGE, STATUS_NOMEM, STATUS_OVERFLOW,
 * STATUS_UNSUPPORTED. */
enum status folder_open(struct checkpoint *checkpoint, struct error *err);
enum status gguf_open(struct checkpoint *checkpoint, struct error *err);

#endif
