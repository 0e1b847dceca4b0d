/* Reading files that nobody vouches for: regular files only, sizes known first, reads in bounded pieces. */
#ifndef CHECKPOINT_FILE_H
#define CHECKPOINT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The largest single read: a cancelled or cut transfer is noticed within one piece. */
#define FILE_PIECE_BYTES ((size_t)1 << 20)

/* Open for reading (returns the descriptor; the caller closes).  STATUS_STORAGE, also for anything but a regular
 * file. */
enum status file_open(const char *path, int *ret_descriptor, uint64_t *ret_bytes, struct error *err);

/* Read exactly bytes at offset.  path is for the message.  STATUS_STORAGE, also when the file ends early. */
enum status file_read(int descriptor, const char *path, uint64_t offset, size_t bytes, void *memory, struct error *err);

/* The whole file, with a NUL behind it (returns; the caller frees).  STATUS_STORAGE, STATUS_MODEL (longer than limit),
 * STATUS_NOMEM. */
enum status file_read_all(const char *path, size_t limit, char **ret, size_t *ret_bytes, struct error *err);

/* folder/name (returns; the caller frees), NULL when memory is refused. */
char *file_join(const char *folder, const char *name);

/* The part of path behind its last '/'.  Lends path's own bytes. */
const char *file_base_name(const char *path);

#endif
