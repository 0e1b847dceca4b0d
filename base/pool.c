/* Fork and join over two words: the generation that workers wait for, and the count of those still running.
 *
 * Each wait reads the clock once a microsecond or so while it spins; after 50 us it sleeps on the word itself.  A
 * waker looks whether anybody sleeps before it pays for the system call. */
#include "base/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

enum { CACHE_LINE = 64, SPIN_CHECK = 64 };
#define SPIN_NS (50 * NS_PER_US)

/* A word that is waited for, and whether somebody sleeps on it, on a cache line of their own. */
struct gate {
    _Alignas(CACHE_LINE) atomic_uint value;
    atomic_uint sleepers;
};

struct pool {
    struct gate start;   /* generation of the work */
    struct gate finish;  /* generation of the last finished work */
    struct gate barrier; /* generation of the barrier */
    _Alignas(CACHE_LINE) atomic_uint running;
    _Alignas(CACHE_LINE) atomic_uint arrived;
    pool_work *work;
    void *context;
    bool stop;
    int threads;
    int started;
    struct worker {
        struct pool *pool;
        int index;
        pthread_t thread;
    } *workers;
};

static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void gate_wait(struct gate *gate, unsigned old)
{
    uint64_t until = 0;

    for (unsigned spin = 0;; spin++) {
        if (atomic_load_explicit(&gate->value, memory_order_acquire) != old)
            return;
        spin_pause();
        if (spin % SPIN_CHECK)
            continue;
        uint64_t now = clock_ns();
        if (!until)
            until = now + SPIN_NS;
        else if (now >= until)
            break;
    }
    atomic_fetch_add(&gate->sleepers, 1);
    while (atomic_load(&gate->value) == old)
        syscall(SYS_futex, &gate->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&gate->sleepers, 1);
}

static void gate_open(struct gate *gate)
{
    atomic_fetch_add(&gate->value, 1);
    if (atomic_load(&gate->sleepers))
        syscall(SYS_futex, &gate->value, FUTEX_WAKE_PRIVATE, POOL_MAX_THREADS, NULL, NULL, 0);
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    struct pool *pool = worker->pool;
    unsigned seen = 0;

    for (;;) {
        gate_wait(&pool->start, seen++);
        if (pool->stop)
            return NULL;
        pool->work(pool->context, worker->index, pool->threads);
        if (atomic_fetch_sub(&pool->running, 1) == 1)
            gate_open(&pool->finish);
    }
}

enum status pool_create(int threads, struct pool **ret, struct error *err)
{
    struct pool *pool;

    if (threads < 1 || threads > POOL_MAX_THREADS)
        return error_set(err, STATUS_INVALID, "%d threads, expected 1 to %d", threads, POOL_MAX_THREADS);
    pool = aligned_alloc(CACHE_LINE, (sizeof *pool + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!pool)
        return error_set(err, STATUS_NOMEM, "a pool of %d threads", threads);
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    if (!pool->workers) {
        pool_destroy(pool);
        return error_set(err, STATUS_NOMEM, "a pool of %d threads", threads);
    }
    for (int i = 1; i < threads; i++) {
        struct worker *worker = &pool->workers[i];

        worker->pool = pool;
        worker->index = i;
        int code = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (code) {
            pool_destroy(pool);
            return error_set(err, STATUS_ENVIRONMENT, "cannot start thread %d of %d: %s", i, threads, strerror(code));
        }
        pool->started = i;
    }
    *ret = pool;
    return STATUS_OK;
}

void pool_destroy(struct pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    gate_open(&pool->start);
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    free(pool->workers);
    free(pool);
}

int pool_threads(const struct pool *pool)
{
    return pool->threads;
}

void pool_run(struct pool *pool, pool_work *work, void *context)
{
    if (pool->threads == 1) {
        work(context, 0, 1);
        return;
    }
    unsigned finished = atomic_load_explicit(&pool->finish.value, memory_order_relaxed);

    pool->work = work;
    pool->context = context;
    atomic_store(&pool->running, (unsigned)pool->threads - 1);
    gate_open(&pool->start);
    work(context, 0, pool->threads);
    gate_wait(&pool->finish, finished);
}

void pool_barrier(struct pool *pool)
{
    if (pool->threads == 1)
        return;
    unsigned generation = atomic_load_explicit(&pool->barrier.value, memory_order_relaxed);

    if (atomic_fetch_add(&pool->arrived, 1) == (unsigned)pool->threads - 1) {
        atomic_store(&pool->arrived, 0);
        gate_open(&pool->barrier);
    } else {
        gate_wait(&pool->barrier, generation);
    }
}
