/* Bytes that the host may read where they lie, however they are held, shared by reference.
 *
 * Whoever needs them keeps a reference; the last one gives them back as their kind demands: frees them, returns them
 * to the memory they came from, ends the lease on a mapped file.  So a tensor borrowed from a mapping keeps the file
 * mapped.  References may be taken and let go by any thread. */
#ifndef BASE_STORAGE_H
#define BASE_STORAGE_H

#include <stddef.h>

#include "base/memory.h"
#include "base/tensor.h"

struct storage;

/* bytes of zeros, aligned to MEMORY_ALIGN (returns).  kind: MEMORY_OWNED; MEMORY_SHARED, which the processes that are
 * forked from now on see too.  STATUS_INVALID (another kind), STATUS_OVERFLOW, STATUS_NOMEM. */
enum status storage_create(enum memory_kind kind, size_t bytes, struct storage **ret, struct error *err);

/* The same, uninitialised, in a memory of its own kind (pinned), which is borrowed until the last reference is gone.
 * STATUS_INVALID: the host cannot read this memory.  STATUS_NOMEM. */
enum status storage_create_in(struct memory *memory, size_t bytes, struct storage **ret, struct error *err);

/* Bytes that somebody else holds (a leased part of a mapped file), borrowed until give_back is called, once, by
 * whoever lets the last reference go; NULL: nobody asks (returns).  STATUS_INVALID (a device's), STATUS_NOMEM: nothing
 * was borrowed. */
enum status storage_lend(enum memory_kind kind, const void *bytes, size_t count, tensor_give_back *give_back,
                         void *context, struct storage **ret, struct error *err);

/* One more reference; one less.  NULL is allowed in release. */
struct storage *storage_retain(struct storage *storage);
void storage_release(struct storage *storage);

enum memory_kind storage_kind(const struct storage *storage);
size_t storage_bytes(const struct storage *storage);
/* Lent until the last reference is gone. */
const void *storage_data(const struct storage *storage);
/* The same, to write to.  NULL: a mapped file is never written. */
void *storage_edit(struct storage *storage);

/* A tensor over the bytes from offset on, where they lie: no copy is made, and the tensor is a reference of its own
 * (returns).  Of a mapped file it must not be written.  STATUS_INVALID (beyond the end; not aligned to the element),
 * STATUS_OVERFLOW, STATUS_NOMEM. */
enum status storage_borrow(struct storage *storage, size_t offset, enum dtype dtype, const struct shape *shape,
                           struct tensor **ret, struct error *err);

/* An owned copy, which what later happens to this one does not touch (returns).  STATUS_NOMEM. */
enum status storage_copy(const struct storage *storage, struct storage **ret, struct error *err);

/* "owned", "mapped", "pinned", "shared", "device"; never NULL. */
const char *memory_kind_name(enum memory_kind kind);

#endif
