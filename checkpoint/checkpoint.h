/* A model on disk: a Hugging Face folder (safetensors, single or sharded) or a GGUF file (v2, v3).
 *
 * Opening reads metadata only.  Weights are reached through the mapping (row slices used where they lie) or through
 * bounded reads (slices along the inner dimension, packed once by the caller).  Every range asked for is counted. */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weight_type.h"

struct checkpoint;
struct storage;

/* One stored tensor.  Lent by the checkpoint until checkpoint_close. */
struct stored_tensor {
    const char *name;
    enum weight_type type; /* WEIGHT_NONE: a type that cannot be computed with; type_name says which */
    const char *type_name;
    int ndim;
    uint64_t dim[8]; /* outermost first, as Hugging Face writes shapes (GGUF's order reversed) */
    int shard;       /* index of the file */
    uint64_t offset; /* of the first byte, in the file */
    uint64_t bytes;
    uint64_t row_bytes; /* bytes of one innermost row */
};

/* Open path: a folder with config.json, a .gguf file, or the saved output of `ferry inspect --json`.  A folder with
 * config.json only opens too (has_weights is false then), and of a saved description no byte can be read (is_saved):
 * enough to plan.  STATUS_MODEL (damaged or contradictory: what, where, expected and found),
 * STATUS_UNSUPPORTED (well formed, not built: by name), STATUS_STORAGE, STATUS_NOMEM, STATUS_OVERFLOW (a limit). */
enum status checkpoint_open(const char *path, struct checkpoint **ret, struct error *err);
void checkpoint_close(struct checkpoint *checkpoint);

bool checkpoint_is_gguf(const struct checkpoint *checkpoint);
bool checkpoint_has_weights(const struct checkpoint *checkpoint);
bool checkpoint_is_saved(const struct checkpoint *checkpoint);
const char *checkpoint_path(const struct checkpoint *checkpoint);
/* What the model is.  Lent until checkpoint_close.  checkpoint/model_config.h */
const struct model_config *checkpoint_config(const struct checkpoint *checkpoint);
/* The word for a family in JSON, "llama". */
const char *checkpoint_family(enum architecture architecture);
/* Notes for a person (a stray second weight file, a default that was used), one a line, "" when there are none. */
const char *checkpoint_notes(const struct checkpoint *checkpoint);

size_t checkpoint_tensor_count(const struct checkpoint *checkpoint);
const struct stored_tensor *checkpoint_tensor(const struct checkpoint *checkpoint, size_t index);
/* NULL when there is no such tensor.  A saved description does not know the file (shard -1). */
const struct stored_tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name);
int checkpoint_shard_count(const struct checkpoint *checkpoint);
const char *checkpoint_shard_path(const struct checkpoint *checkpoint, int shard);

/* Lend the bytes [begin, begin + bytes) of a stored tensor in the mapped file, until checkpoint_close: a lease, which
 * pins the file.  Maps the file at the first use; counts the bytes as read.  At least 64 readable bytes always follow
 * (zeros behind the file's end).  The address may be unaligned, because a file's offsets may be: load through memcpy or
 * unaligned vectors. Safe from several threads.  STATUS_STORAGE (also: the file's size is no longer what its metadata
 * was checked against), STATUS_INVALID (a range outside the tensor), STATUS_OVERFLOW (too many mapped files). */
enum status checkpoint_map(struct checkpoint *checkpoint, const struct stored_tensor *tensor, uint64_t begin,
                           uint64_t bytes, const unsigned char **ret, struct error *err);

/* The same range as a storage (MEMORY_MAPPED), whose last reference ends the lease; it must be gone before
 * checkpoint_close.  Statuses as above; STATUS_NOMEM. */
enum status checkpoint_lend(struct checkpoint *checkpoint, const struct stored_tensor *tensor, uint64_t begin,
                            uint64_t bytes, struct storage **ret, struct error *err);

/* Copy the bytes [begin, begin + bytes) to memory, by bounded reads that do not touch the mapping; counted.  Safe from
 * several threads.  STATUS_STORAGE, STATUS_INVALID. */
enum status checkpoint_read(struct checkpoint *checkpoint, const struct stored_tensor *tensor, uint64_t begin,
                            uint64_t bytes, void *memory, struct error *err);

/* The same for a slice along the inner dimension: row_count pieces of piece_bytes each, stride_bytes apart from begin
 * on, one behind the other to memory.  Counts row_count * piece_bytes.  STATUS_STORAGE, STATUS_INVALID, STATUS_NOMEM.
 */
enum status checkpoint_read_strided(struct checkpoint *checkpoint, const struct stored_tensor *tensor, uint64_t begin,
                                    uint64_t row_count, uint64_t stride_bytes, uint64_t piece_bytes, void *memory,
                                    struct error *err);

/* Bytes asked for so far, and bytes of the mappings now resident (mincore). */
uint64_t checkpoint_bytes_read(const struct checkpoint *checkpoint);
uint64_t checkpoint_bytes_resident(const struct checkpoint *checkpoint);

/* Install the handler of SIGBUS (program only, once): a file cut under its mapping ends the process with the storage
 * code.  The sentence that names file and offset goes to last_words (async-signal-safe; context is borrowed for good),
 * or, when that is NULL, to standard error. */
void checkpoint_catch_sigbus(void (*last_words)(void *context, const char *line), void *context);

#endif
