/* The files of a checkpoint: opened and mapped at their first use, read in bounded pieces, every range counted.
 *
 * A lent range is a lease that pins its file.  At most a number of files are open at a time: when another one is
 * needed, the one that is not leased and was longest not used gives way, and comes back when it is used again. */
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

/* At most limit files are open at a time (1 to STORE_MAX_FILES, which holds until this is called). */
void store_limit(struct store *store, int limit);

int store_count(const struct store *store);
const char *store_path(const struct store *store, int shard);

/* Lend bytes at offset in the mapped file until store_release, once for every store_map, or store_destroy; 64 more
 * bytes may be loaded behind any range (zeros behind the file's end).  The range must lie in the file as it was added.
 * Counted.  Safe from several threads. STATUS_STORAGE (also: the file changed its size), STATUS_OVERFLOW (as many files
 * are leased as may be open; too many mapped files in the process). */
enum status store_map(struct store *store, int shard, uint64_t offset, uint64_t bytes, const unsigned char **ret,
                      struct error *err);

/* End one lease on the file.  Releasing what is not leased is a programming error (CHECK). */
void store_release(struct store *store, int shard);

/* Files that are open now. */
int store_open_count(struct store *store);

/* Copy bytes at offset to memory, without the mapping.  Counted.  Safe from several threads.  STATUS_STORAGE,
 * STATUS_OVERFLOW (as many files are leased as may be open). */
enum status store_read(struct store *store, int shard, uint64_t offset, uint64_t bytes, void *memory,
                       struct error *err);

/* Copy row_count pieces of piece_bytes each, stride_bytes apart from offset on, one behind the other to memory.
 * Counted: row_count * piece_bytes.  STATUS_STORAGE, STATUS_NOMEM, STATUS_OVERFLOW. */
enum status store_read_strided(struct store *store, int shard, uint64_t offset, uint64_t row_count,
                               uint64_t stride_bytes, uint64_t piece_bytes, void *memory, struct error *err);

uint64_t store_bytes_read(const struct store *store);
uint64_t store_bytes_resident(struct store *store);

#endif
