/* Kinds of memory behind one table: the process's own, pinned memory, a device's.
 *
 * A memory has one queue.  copy, copy_rows, add and convert are queued in the order of the calls and may not have
 * happened when a call returns; what they read and write must stay as it is until a mark that was set behind them is
 * reached.  A transport that takes messages in this memory begins a transfer behind everything queued before it.  Host
 * memory has no queue: calls have happened when they return, and every mark is reached.
 *
 * Every slot may be called by any thread, several at once: a tensor is released by whoever lets it go last, and the
 * runtime queues its own copies beside comm's.  No slot waits but allocate, which takes as long as its owner does: a
 * driver may wait for all that is queued on a device, so whoever must not wait asks at_hand first. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/runs.h"
#include "base/status.h"

enum { MEMORY_ALIGN = 256 }; /* of every allocation */

/* How memory is held.  The host may read and write all but MEMORY_DEVICE where it lies. */
enum memory_kind {
    MEMORY_OWNED,  /* allocated by the process */
    MEMORY_MAPPED, /* of a file */
    MEMORY_PINNED, /* page-locked for a device */
    MEMORY_SHARED, /* between processes of one host */
    MEMORY_DEVICE
};

/* Unknown is never zero. */
#define MEMORY_UNKNOWN UINT64_MAX

struct memory_space {
    uint64_t available; /* bytes; MEMORY_UNKNOWN */
    uint64_t total;     /* bytes; MEMORY_UNKNOWN */
};

struct memory;
struct memory_mark; /* a place in the queue */

struct memory_ops {
    /* "host", "pinned", "cuda:0".  Lends until the memory is closed. */
    const char *(*name)(const struct memory *memory);

    /* bytes, uninitialised, aligned to MEMORY_ALIGN (returns).  STATUS_NOMEM says how much is available. */
    enum status (*allocate)(struct memory *memory, size_t bytes, void **ret, struct error *err);
    /* Optional: a block of bytes that is there (returns), as allocate gives it; NULL: there is none now, and one is
     * being made meanwhile, if that can be.  NULL: allocate takes no time worth mentioning. */
    void *(*at_hand)(struct memory *memory, size_t bytes);
    /* Behind everything queued.  NULL is allowed. */
    void (*release)(struct memory *memory, void *block);

    /* One side lies in this memory; the other too, or where the host may read and write.  The sides do not overlap. */
    enum status (*copy)(struct memory *memory, void *to, const void *from, size_t bytes, struct error *err);
    /* rows runs of run_bytes; strides are the bytes between the starts of two runs. */
    enum status (*copy_rows)(struct memory *memory, void *to, size_t to_stride, const void *from, size_t from_stride,
                             size_t run_bytes, size_t rows, struct error *err);
    /* left[k] += right[k] for k < count; integers wrap.  Not bool, f16, bf16 (they are added as f32). */
    enum status (*add)(struct memory *memory, enum dtype dtype, void *left, const void *right, size_t count,
                       struct error *err);
    /* out[k] = in[k]: f16, bf16 to f32, exact, and f32 to f16, bf16, rounded to nearest even.
     * in and out do not overlap. */
    enum status (*convert)(struct memory *memory, enum dtype from, const void *in, enum dtype to, void *out,
                           size_t count, struct error *err);

    /* A mark behind everything queued so far (returns). */
    enum status (*mark)(struct memory *memory, struct memory_mark **ret, struct error *err);
    /* *ret: everything before the mark has happened; then the mark is freed.  STATUS_ENVIRONMENT: the device failed,
     * with its own words; freed too. */
    enum status (*reached)(struct memory *memory, struct memory_mark *mark, bool *ret, struct error *err);
    /* Free a mark that nobody waits for any more.  NULL is allowed. */
    void (*forget)(struct memory *memory, struct memory_mark *mark);

    /* Optional: what is queued here from now on happens behind a mark of another memory of the same provider, without
     * the host between them.  The mark stays its owner's, who may ask for it or forget it at once.  NULL: the host
     * waits. */
    enum status (*follow)(struct memory *memory, const struct memory_mark *mark, struct error *err);

    enum status (*space)(struct memory *memory, struct memory_space *ret, struct error *err);

    /* Optional: do these bytes lie in a block that was allocated here?  NULL: nobody can tell. */
    bool (*holds)(const struct memory *memory, const void *bytes, size_t count);
};

/* First member of what a provider allocates. */
struct memory {
    const struct memory_ops *ops;
    enum memory_kind kind;
};

/* The process's own memory, for whoever needs a table; comm and tensors take NULL for it, too.  Lends for ever. */
struct memory *memory_host(void);

/* May the host read and write it as it lies?  NULL: the process's own memory. */
static inline bool memory_host_view(const struct memory *memory)
{
    return !memory || memory->kind != MEMORY_DEVICE;
}

/* The same memory where the host may not, else NULL: what needs a queue. */
static inline struct memory *memory_device(struct memory *memory)
{
    return memory_host_view(memory) ? NULL : memory;
}

/* The slots, where NULL is the process's own memory: then what is asked has happened, inline.  Of no bytes nothing is
 * called, and pointers may be NULL. */
static inline enum status memory_copy(struct memory *memory, void *to, const void *from, size_t bytes,
                                      struct error *err)
{
    if (!bytes)
        return STATUS_OK;
    if (memory)
        return memory->ops->copy(memory, to, from, bytes, err);
    memcpy(to, from, bytes);
    return STATUS_OK;
}

static inline enum status memory_copy_rows(struct memory *memory, void *to, size_t to_stride, const void *from,
                                           size_t from_stride, size_t run_bytes, size_t rows, struct error *err)
{
    if (!run_bytes || !rows)
        return STATUS_OK;
    if (memory)
        return memory->ops->copy_rows(memory, to, to_stride, from, from_stride, run_bytes, rows, err);
    runs_copy(to, to_stride, from, from_stride, run_bytes, rows);
    return STATUS_OK;
}

/* Wait until everything queued so far has happened, or until deadline_ns on the monotonic clock.  Sleeps in growing
 * steps up to a millisecond.  STATUS_OK (at once for memory that the host may touch), STATUS_TIMEOUT (it may still
 * happen), STATUS_ENVIRONMENT (the device failed). */
enum status memory_wait(struct memory *memory, uint64_t deadline_ns, struct error *err);

#endif
