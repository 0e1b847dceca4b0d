/* The files of a checkpoint: opened and mapped at their first use, read in bounded pieces, every range counted.
 *
 * A shard is reached only through store_map and store_read, so that a limit on mapped shards can come in one place. */
#ifndef CHECKPOINT_STORE_H
#define CHECKPOINT_STORE_H

#include <stdint.h>

#include "base/status.h"

struct store;

enum { STORE_MAX_FILES = 4096 };

/* STATUS_NOMEM. */
enum status store_create(struct store **ret, struct error *err);
/* Unmaps and closes; NULL is allowed. */
void store_destroy(struct store *store);

/* Add the file path (copies), which had bytes when its metadata was read; *ret_shard is its index.  Opens nothing.
 * STATUS_NOMEM, STATUS_OVERFLOW (more than STORE_MAX_FILES). */
enum status store_add(struct store *store, const char *path, uint64_t bytes, int *ret_shard, struct error *err);

int store_count(const struct store *store);
const char *store_path(const struct store *store, int shard);

/* Lend bytes at offset in the mapped file until store_destroy; 64 more bytes may be loaded behind any range (zeros
 * behind the file's end).  The range must lie in the file as it was added.  Counted.  Safe from several threads.
 * STATUS_STORAGE (also: the file changed its size), STATUS_OVERFLOW (too many mapped files). */
enum status store_map(struct store *store, int shard, uint64_t offset, uint64_t bytes, const unsigned char **ret,
                      struct error *err);

/* Copy bytes at offset to memory, without the mapping.  Counted.  Safe from several threads.  STATUS_STORAGE. */
enum status store_read(struct store *store, int shard, uint64_t offset, uint64_t bytes, void *memory,
                       struct error *err);

/* Copy row_count pieces of piece_bytes each, stride_bytes apart from offset on, one behind the other to memory.
 * Counted: row_count * piece_bytes.  STATUS_STORAGE, STATUS_NOMEM. */
enum status store_read_strided(struct store *store, int shard, uint64_t offset, uint64_t row_count,
                               uint64_t stride_bytes, uint64_t piece_bytes, void *memory, struct error *err);

uint64_t store_bytes_read(const struct store *store);
uint64_t store_bytes_resident(const struct store *store);

#endif
