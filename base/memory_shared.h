/* Memory of this process that other processes of its host can read where it lies: what a peer needs then is copied
 * once, by the peer, from its place to its place.
 *
 * It is one unnamed file in memory (shared_file.h), whose pages are there only while a block lies in them.  Blocks of
 * at least SHARED_LEAST_BYTES are taken from it, smaller ones, and those for which it has no room, from the process's
 * own memory: allocate never fails for want of room in the file.  A block that was released cannot be touched any more,
 * nor the page behind one that was not.  A child of this process does not have it. */
#ifndef BASE_MEMORY_SHARED_H
#define BASE_MEMORY_SHARED_H

#include "base/memory.h"
#include "base/shared_file.h"

enum { SHARED_LEAST_BYTES = 16384 };

/* A memory of kind MEMORY_SHARED with room for about so many bytes (returns); NULL: this process cannot have one (its
 * system, or a limit on files or addresses).  A lack of room is none of an error: callers take NULL for the process's
 * own memory. */
struct memory *memory_shared_create(size_t most_bytes);
/* Peers may go on reading what they have mapped, of which nothing is left.  While a block is held it stays as it is, to
 * the end of the process: after a failure something may still be sent from there.  NULL is allowed. */
void memory_shared_destroy(struct memory *memory);

/* What peers map, for reading; it stays open as long as the memory. */
struct shared_file memory_shared_file(const struct memory *memory);

/* Do these bytes lie in one block of it?  *ret: where in the file.  NULL, and memory of another kind: no. */
bool memory_shared_find(const struct memory *memory, const void *bytes, size_t count, uint64_t *ret);

#endif
