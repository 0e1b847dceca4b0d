/* A dense tensor with headroom in front, so that a frame's header and the payload are one message.  It lies in the
 * process's own memory or in any other (memory.h). */
#ifndef BASE_TENSOR_H
#define BASE_TENSOR_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

enum {
    TENSOR_MAX_NDIM = 8,
    TENSOR_HEADROOM = 384, /* room for the largest frame header; a multiple of TENSOR_ALIGN */
    TENSOR_ALIGN = 64
};

struct shape {
    int ndim; /* 0 (a scalar, one element) to TENSOR_MAX_NDIM */
    uint64_t dim[TENSOR_MAX_NDIM];
};

/* The last reference to a view has gone: its memory is its owner's alone again.  Called by whichever thread let it go,
 * perhaps under a session's lock: it must not call comm. */
typedef void tensor_give_back(void *context);

/* Row-major and contiguous.  data is aligned to TENSOR_ALIGN; the TENSOR_HEADROOM bytes before it belong to
 * whoever sends or receives the tensor.  A view of memory that is not the tensor's own has no headroom, and is aligned
 * to its element alone. */
struct tensor {
    atomic_int references;
    atomic_int pending; /* how many operations that have not ended go by its shape */
    enum dtype dtype;
    struct shape shape;
    size_t bytes;          /* of the elements now described; <= capacity_bytes */
    size_t capacity_bytes; /* allocated behind data */
    unsigned char *data;   /* the host may look at it where memory_host_view(memory) */
    struct memory *memory; /* where it lies, borrowed to the last release; NULL: the process's own */
    unsigned char *block;  /* given back to memory with the tensor; NULL: a view */
    tensor_give_back *give_back;
    void *context;
};

/* Elements and bytes of a shape.  STATUS_OVERFLOW, STATUS_INVALID (ndim, dtype). */
enum status shape_bytes(const struct shape *shape, enum dtype dtype, size_t *ret, struct error *err);

/* Allocate, uninitialised, with one reference for the caller (returns).  STATUS_OVERFLOW, STATUS_NOMEM. */
enum status tensor_create(enum dtype dtype, const struct shape *shape, struct tensor **ret, struct error *err);

/* The same in this memory, which must outlive the tensor (borrowed); NULL: the process's own.  Aligned to at least
 * TENSOR_ALIGN, with headroom.  The last release gives the block back behind everything queued on the memory.
 * STATUS_NOMEM in the memory's own words. */
enum status tensor_create_in(struct memory *memory, enum dtype dtype, const struct shape *shape, struct tensor **ret,
                             struct error *err);

/* The same elements in memory that the caller keeps (borrowed) until give_back is called; NULL: nobody asks.
 * STATUS_INVALID (memory is missing, or not aligned to the element), STATUS_OVERFLOW, STATUS_NOMEM. */
enum status tensor_view(enum dtype dtype, const struct shape *shape, void *memory, tensor_give_back *give_back,
                        void *context, struct tensor **ret, struct error *err);

/* The same of a block in another memory (borrowed, too).  give_back may be called before everything queued on it has
 * happened. */
enum status tensor_view_in(struct memory *memory, enum dtype dtype, const struct shape *shape, void *block,
                           tensor_give_back *give_back, void *context, struct tensor **ret, struct error *err);

/* How its memory is held. */
static inline enum memory_kind tensor_kind(const struct tensor *tensor)
{
    return tensor->memory ? tensor->memory->kind : MEMORY_OWNED;
}

/* Describe other extents in the same memory.  STATUS_OVERFLOW when they exceed capacity_bytes. */
enum status tensor_reshape(struct tensor *tensor, enum dtype dtype, const struct shape *shape, struct error *err);

/* One more reference; one less, freed with the last.  NULL is allowed in release. */
struct tensor *tensor_retain(struct tensor *tensor);
void tensor_release(struct tensor *tensor);

/* "f32[4,576]" into text; always terminated. */
void shape_text(const struct shape *shape, enum dtype dtype, char *text, size_t text_bytes);

#endif
