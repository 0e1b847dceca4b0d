/* A pool of threads for compute: fork, join and a barrier, nothing else.
 *
 * A wait spins up to 50 us by the clock, then sleeps on a futex, so that ranks may outnumber cores: no waiting thread
 * burns a core that another rank needs. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/status.h"

struct pool;

enum { POOL_MAX_THREADS = 256 };

/* work(context, thread, threads) with thread in 0..threads-1; the caller of pool_run is thread 0. */
typedef void pool_work(void *context, int thread, int threads);

/* Start threads - 1 threads (returns).  1 <= threads <= POOL_MAX_THREADS.  STATUS_INVALID, STATUS_NOMEM,
 * STATUS_ENVIRONMENT (no thread could be started). */
enum status pool_create(int threads, struct pool **ret, struct error *err);

/* Join and free; NULL is allowed.  Not while pool_run is active. */
void pool_destroy(struct pool *pool);

int pool_threads(const struct pool *pool);

/* Run work on every thread and wait until all are done.  Blocks.  One caller at a time. */
void pool_run(struct pool *pool, pool_work *work, void *context);

/* Inside work: wait until every thread of the pool is here. */
void pool_barrier(struct pool *pool);

#endif
