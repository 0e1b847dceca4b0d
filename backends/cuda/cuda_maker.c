/* Pinned blocks, made beside the program's own work.
 *
 * To pin memory takes the driver milliseconds, and it may wait until the device rests, which a transfer that waits for
 * a dead rank never lets it.  comm takes blocks while it holds its session's lock, so it takes what is there and goes
 * another way meanwhile; a thread makes what was missed, one block of a size at a time, and keeps it.  What could not
 * be had is not tried again. */
#include <signal.h>

#include "backends/cuda/cuda_private.h"

static void take_off(struct cuda_maker *maker)
{
    maker->wanted_count--;
    for (int i = 0; i < maker->wanted_count; i++)
        maker->wanted[i] = maker->wanted[i + 1];
}

/* The lock is held, but for CUDA's own call. */
static void make_first(struct cuda_device *device)
{
    struct cuda_maker *maker = &device->maker;
    size_t size = maker->wanted[0];
    void *block = NULL;
    enum status st;

    pthread_mutex_unlock(&device->lock);
    st = cuda_pinned_make(device, size, &block, NULL);
    pthread_mutex_lock(&device->lock);
    if (st == STATUS_OK)
        blocks_give(&device->pinned_blocks, block, NULL);
    else if (size < maker->refused)
        maker->refused = size;
    take_off(maker);
}

static void *maker_main(void *context)
{
    struct cuda_device *device = context;
    struct cuda_maker *maker = &device->maker;

    pthread_mutex_lock(&device->lock);
    while (!maker->stop) {
        if (maker->wanted_count)
            make_first(device);
        else
            (void)pthread_cond_wait(&maker->more, &device->lock);
    }
    maker->ended = true;
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

/* Where no thread can be had nothing is made, and everything goes the other way. */
static void start(struct cuda_device *device)
{
    sigset_t all;
    sigset_t old;

    /* Signals are for the program's own threads. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    device->maker.started = pthread_create(&device->maker.thread, NULL, maker_main, device) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void cuda_maker_init(struct cuda_maker *maker)
{
    (void)pthread_cond_init(&maker->more, NULL);
    maker->refused = SIZE_MAX;
}

void cuda_maker_want(struct cuda_device *device, size_t size)
{
    struct cuda_maker *maker = &device->maker;

    if (size >= maker->refused || maker->wanted_count == MAKER_WANTS || maker->stop)
        return;
    for (int i = 0; i < maker->wanted_count; i++) {
        if (maker->wanted[i] == size)
            return;
    }
    maker->wanted[maker->wanted_count++] = size;
    if (!maker->started)
        start(device);
    (void)pthread_cond_signal(&maker->more);
}

bool cuda_maker_stop(struct cuda_device *device)
{
    struct cuda_maker *maker = &device->maker;
    bool over;

    pthread_mutex_lock(&device->lock);
    maker->stop = true;
    (void)pthread_cond_signal(&maker->more);
    over = !maker->started || maker->ended;
    pthread_mutex_unlock(&device->lock);
    return over;
}

void cuda_maker_done(struct cuda_maker *maker)
{
    if (maker->started)
        (void)pthread_join(maker->thread, NULL);
    (void)pthread_cond_destroy(&maker->more);
}
