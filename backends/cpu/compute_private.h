/* What the files of this backend share: the opened backend and its threads' scratch memory. */
#ifndef BACKENDS_CPU_COMPUTE_PRIVATE_H
#define BACKENDS_CPU_COMPUTE_PRIVATE_H

#include <stdatomic.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels.h"
#include "base/pool.h"

enum {
    ATTEND_MAX_ROWS = 24,       /* query vectors (tokens x heads of a group) in a tile */
    PACKED_FLOATS = 144 * 1024, /* of activations laid out anew */
    SMALL_WORK = 40000          /* multiply-adds below which a fork costs more than it saves */
};

/* One thread's own memory, allocated at open so that nothing fails later.  Pages that are never touched cost nothing.
 */
struct scratch {
    _Alignas(64) float panel[PANEL_MAX_ROWS * PANEL_MAX_COLS];
    _Alignas(64) float lanes[PANEL_MAX_ROWS * TILE_MAX_TOKENS * LANES];
    _Alignas(64) float query[ATTEND_MAX_ROWS * CPU_MAX_HEAD_DIM];
    _Alignas(64) float mixed[ATTEND_MAX_ROWS * CPU_MAX_HEAD_DIM];
    _Alignas(64) float scores[CPU_MAX_CONTEXT];
    _Alignas(64) float packed[PACKED_FLOATS];
    /* What packed holds in a list of products; x is NULL: nothing.  Attention lays out its queries there. */
    struct packed {
        const float *x;
        size_t ldx;
        size_t tokens;
        size_t cols;
    } packed_from;
};

_Static_assert(PACKED_FLOATS >= ATTEND_MAX_ROWS * CPU_MAX_HEAD_DIM, "a tile of queries fits");

/* Units of the running operation, in contiguous shares: a thread takes its own in order, then what others have left. */
struct deal {
    size_t shares;
    struct deal_share {
        _Alignas(64) atomic_size_t next;
        size_t end;
    } share[POOL_MAX_THREADS];
};

struct compute {
    struct deal deal;
    const struct kernels *kernels;
    struct pool *pool;
    void (*progress)(void *context);
    void *progress_context;
    struct scratch **scratch; /* [threads] */
    int threads;
};

/* Open with a table of the caller's choice; what cpu_compute.open does after choosing one. */
enum status compute_open_kernels(const struct kernels *kernels, const struct compute_options *options,
                                 struct compute **ret, struct error *err);

/* Lay count units out for the coming compute_run, in shares (1 to POOL_MAX_THREADS).  One: every unit goes to whichever
 * thread is free.  One a thread: each stays with a run of its own, as memory likes to be read, while there is any. */
void compute_deal(struct compute *compute, size_t count, int shares);

/* The next unit for this thread, or false when all are dealt.  Thread 0 first gives communication its turn. */
bool compute_take(struct compute *compute, int thread, size_t *ret_unit);

/* Run work on the pool, or at once on this thread when it is small (fewer than SMALL_WORK multiply-adds). */
void compute_run(struct compute *compute, pool_work *work, void *context, size_t multiply_adds);

/* The operations that have files of their own. */
void product_run(struct compute *compute, const struct product *list, int count, size_t rows);
void attention_run(struct compute *compute, const struct attention *attention);
size_t attention_cache_bytes(uint32_t kv_heads, uint32_t head_dim, uint32_t context);

#endif
