/* Marks: places in a stream, which it reaches once.  Events: each holds the mark of its last record. */
#include <stdlib.h>

#include "base/clock.h"
#include "tests/standin/inside.h"

struct standin_mark {
    int holders;
    bool reached;
    uint64_t reached_ns;
};

struct CUevent_st {
    unsigned flags;
    int device;
    struct standin_mark *mark;
};

/* --- marks ---------------------------------------------------------------------------------------------------- */

struct standin_mark *standin_mark_new(void)
{
    struct standin_mark *mark = calloc(1, sizeof *mark);

    if (!mark)
        abort();
    mark->holders = 2;
    return mark;
}

static void mark_drop(struct standin_mark *mark)
{
    if (--mark->holders == 0)
        free(mark);
}

void standin_mark_reach(void *argument)
{
    struct standin_mark *mark = argument;

    pthread_mutex_lock(&standin_gate.lock);
    mark->reached = true;
    mark->reached_ns = clock_ns();
    pthread_cond_broadcast(&standin_gate.changed);
    mark_drop(mark);
    pthread_mutex_unlock(&standin_gate.lock);
}

void standin_mark_await(void *argument)
{
    struct standin_mark *mark = argument;

    pthread_mutex_lock(&standin_gate.lock);
    while (!mark->reached)
        pthread_cond_wait(&standin_gate.changed, &standin_gate.lock);
    mark_drop(mark);
    pthread_mutex_unlock(&standin_gate.lock);
}

struct standin_mark *standin_mark(cudaStream_t handle)
{
    struct standin_mark *mark = standin_mark_new();

    standin_queue(handle, standin_mark_reach, mark);
    return mark;
}

void standin_wait(cudaStream_t handle, struct standin_mark *mark)
{
    pthread_mutex_lock(&standin_gate.lock);
    mark->holders++;
    pthread_mutex_unlock(&standin_gate.lock);
    standin_queue(handle, standin_mark_await, mark);
}

bool standin_reached(struct standin_mark *mark)
{
    bool reached;

    pthread_mutex_lock(&standin_gate.lock);
    reached = mark->reached;
    pthread_mutex_unlock(&standin_gate.lock);
    return reached;
}

void standin_forget(struct standin_mark *mark)
{
    if (!mark)
        return;
    pthread_mutex_lock(&standin_gate.lock);
    mark_drop(mark);
    pthread_mutex_unlock(&standin_gate.lock);
}

/* --- the calls ------------------------------------------------------------------------------------------------ */

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned int flags)
{
    cudaError_t error = standin_device_check(standin_current());

    if (error == cudaSuccess)
        standin_drain_when_told();
    if (error == cudaSuccess && !(*ret = calloc(1, sizeof **ret)))
        error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess)
        **ret = (struct CUevent_st){.flags = flags, .device = standin_current()};
    return standin_give(error);
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *ret)
{
    return cudaEventCreateWithFlags(ret, cudaEventDefault);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (!event)
        return standin_give(cudaErrorInvalidResourceHandle);
    standin_forget(event->mark);
    free(event);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    cudaError_t error = standin_stream_check(stream);

    (void)flags;
    if (error == cudaSuccess && (!event || standin_stream_device(stream) != event->device))
        error = cudaErrorInvalidResourceHandle;
    if (error != cudaSuccess)
        return standin_give(error);
    standin_forget(event->mark);
    event->mark = standin_mark(stream);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

/* An event that was never recorded holds nobody. */
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    cudaError_t error = standin_stream_check(stream);

    (void)flags;
    if (error == cudaSuccess && !event)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && event->mark)
        standin_wait(stream, event->mark);
    return standin_give(error);
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error = standin_ready();

    if (error == cudaSuccess && !event)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && event->mark && !standin_reached(event->mark))
        error = cudaErrorNotReady;
    return standin_give(error);
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error = standin_ready();

    if (error == cudaSuccess && !event)
        error = cudaErrorInvalidResourceHandle;
    if (error != cudaSuccess || !event->mark)
        return standin_give(error);
    pthread_mutex_lock(&standin_gate.lock);
    while (!event->mark->reached)
        pthread_cond_wait(&standin_gate.changed, &standin_gate.lock);
    pthread_mutex_unlock(&standin_gate.lock);
    return standin_give(standin_ready());
}

EXPORT cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    if (!start || !end || !start->mark || !end->mark || (start->flags | end->flags) & cudaEventDisableTiming)
        return standin_give(cudaErrorInvalidResourceHandle);
    if (!standin_reached(start->mark) || !standin_reached(end->mark))
        return cudaErrorNotReady;
    *ms = (float)((double)(end->mark->reached_ns - start->mark->reached_ns) / (double)NS_PER_MS);
    return cudaSuccess;
}
