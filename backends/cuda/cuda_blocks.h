/* Released blocks of memory, kept for the next allocation of their size.
 *
 * CUDA waits for the whole device before it gives memory back, and a device may hold an operation that waits for
 * another rank.  So a block goes back to CUDA only when the device is closed; until then it waits here, behind what was
 * queued when it was released.  Sizes are rounded so that at most an eighth is unused and tensors of nearly equal sizes
 * share blocks. */
#ifndef BACKENDS_CUDA_BLOCKS_H
#define BACKENDS_CUDA_BLOCKS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct block;

/* Zero-initialise. */
struct blocks {
    struct block *used; /* by address */
    struct block *kept; /* newest first */
    uint64_t kept_bytes;
};

/* bytes > 0 rounded up to the size that is allocated.  STATUS_OVERFLOW. */
enum status blocks_size(size_t bytes, size_t *ret);

/* A kept block of exactly this size whose time has come; NULL: none. */
void *blocks_take(struct blocks *blocks, size_t size);

/* Note a block that CUDA has just allocated.  STATUS_NOMEM: it is not noted. */
enum status blocks_add(struct blocks *blocks, void *address, size_t size);

/* Keep a used block; event (takes) tells when it may be used again, NULL: at once.  The address must be one of ours. */
void blocks_give(struct blocks *blocks, void *address, cudaEvent_t event);

/* Do these bytes lie in one used block? */
bool blocks_hold(const struct blocks *blocks, const void *address, size_t bytes);

/* Forget all, used ones too, and give each to free_block. */
void blocks_done(struct blocks *blocks, void (*free_block)(void *address));

#endif
