/* Streams: a thread each, which does what was queued in order.
 *
 * Every task may wait, so a stream whose head waits holds only what is behind it.  FERRY_STANDIN_LAG is the number of
 * microseconds that a stream rests before each task, so that work is rarely done when a call returns;
 * FERRY_STANDIN_TAIL is for how many it says that it is at work when it is not. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tests/standin/inside.h"

struct standin_gate standin_gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};

struct task {
    void (*run)(void *);
    void *argument;
    struct task *next;
};

struct CUstream_st {
    int device;
    unsigned flags;
    int priority;
    struct task *head;
    struct task **tail;
    uint64_t queued;
    uint64_t done;
    uint64_t done_ns; /* when the last piece was done */
    bool closing;
    struct CUstream_st *next;
};

static struct CUstream_st *streams;
static struct CUstream_st *default_streams[DEVICES_MAX];
static long task_count;

/* --- the thread of a stream ----------------------------------------------------------------------------------- */

static void stream_unlink(struct CUstream_st *stream)
{
    struct CUstream_st **at = &streams;

    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
}

/* The next task; NULL: the stream was destroyed and all is done.  Called and left with the lock held. */
static struct task *stream_next(struct CUstream_st *stream)
{
    struct task *task;

    while (!stream->head && !stream->closing)
        pthread_cond_wait(&standin_gate.changed, &standin_gate.lock);
    task = stream->head;
    if (task && !(stream->head = task->next))
        stream->tail = &stream->head;
    return task;
}

static uint64_t microseconds_of(const char *variable)
{
    const char *value = getenv(variable);

    return value ? strtoull(value, NULL, 10) : 0;
}

uint64_t standin_lag_us(void)
{
    return microseconds_of("FERRY_STANDIN_LAG");
}

/* With the lock held. */
static bool seems_busy(const struct CUstream_st *stream)
{
    return stream->done < stream->queued ||
           (stream->done && clock_ns() < stream->done_ns + microseconds_of("FERRY_STANDIN_TAIL") * NS_PER_US);
}

static void rest(void)
{
    uint64_t us = standin_lag_us();

    if (us > 0)
        clock_sleep_ns(us * NS_PER_US);
}

static void *stream_work(void *argument)
{
    struct CUstream_st *stream = argument;
    struct task *task;

    pthread_mutex_lock(&standin_gate.lock);
    while ((task = stream_next(stream))) {
        pthread_mutex_unlock(&standin_gate.lock);
        rest();
        task->run(task->argument);
        free(task);
        pthread_mutex_lock(&standin_gate.lock);
        stream->done++;
        stream->done_ns = clock_ns();
        pthread_cond_broadcast(&standin_gate.changed);
    }
    stream_unlink(stream);
    free(stream);
    pthread_mutex_unlock(&standin_gate.lock);
    return NULL;
}

static struct CUstream_st *stream_start(int device, unsigned flags, int priority)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    int failed;

    if (!stream)
        return NULL;
    *stream = (struct CUstream_st){.device = device, .flags = flags, .priority = priority};
    stream->tail = &stream->head;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&standin_gate.lock);
    failed = pthread_create(&thread, &detached, stream_work, stream);
    if (!failed) {
        stream->next = streams;
        streams = stream;
    }
    pthread_mutex_unlock(&standin_gate.lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    if (failed) {
        free(stream);
        return NULL;
    }
    return stream;
}

/* --- queueing ------------------------------------------------------------------------------------------------- */

static bool is_default(cudaStream_t stream)
{
    return stream == NULL || stream == cudaStreamLegacy;
}

static struct CUstream_st *default_stream(int device)
{
    static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&starting);
    if (!default_streams[device])
        default_streams[device] = stream_start(device, cudaStreamDefault, 0);
    pthread_mutex_unlock(&starting);
    return default_streams[device];
}

static struct CUstream_st *stream_of(cudaStream_t stream)
{
    return is_default(stream) ? default_stream(standin_current()) : stream;
}

static bool is_known(const struct CUstream_st *stream)
{
    for (const struct CUstream_st *each = streams; each; each = each->next)
        if (each == stream)
            return !each->closing;
    return false;
}

cudaError_t standin_stream_check(cudaStream_t stream)
{
    cudaError_t error = standin_device_check(standin_current());
    bool known;

    if (error != cudaSuccess || is_default(stream))
        return error;
    pthread_mutex_lock(&standin_gate.lock);
    known = stream != cudaStreamPerThread && is_known(stream);
    pthread_mutex_unlock(&standin_gate.lock);
    return known ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

int standin_stream_device(cudaStream_t stream)
{
    if (standin_stream_check(stream) != cudaSuccess)
        return -1;
    return stream_of(stream)->device;
}

/* With the lock held. */
static void append(struct CUstream_st *stream, void (*run)(void *), void *argument)
{
    struct task *task = malloc(sizeof *task);

    if (!task)
        abort();
    *task = (struct task){.run = run, .argument = argument};
    *stream->tail = task;
    stream->tail = &task->next;
    stream->queued++;
    pthread_cond_broadcast(&standin_gate.changed);
}

/* A mark behind what is queued on one stream, awaited by another.  With the lock held. */
static void follow(struct CUstream_st *stream, struct CUstream_st *before)
{
    struct standin_mark *mark;

    if (stream == before || before->queued == before->done)
        return;
    mark = standin_mark_new();
    append(before, standin_mark_reach, mark);
    append(stream, standin_mark_await, mark);
}

/* The default stream begins behind all blocking streams of its device, and they behind it. */
static void follow_default(struct CUstream_st *stream)
{
    struct CUstream_st *standard = default_streams[stream->device];

    if (stream->flags & cudaStreamNonBlocking || !standard)
        return;
    if (stream != standard) {
        follow(stream, standard);
        return;
    }
    for (struct CUstream_st *each = streams; each; each = each->next)
        if (each->device == stream->device && !(each->flags & cudaStreamNonBlocking) && !each->closing)
            follow(stream, each);
}

static void fail_when_told(void)
{
    struct standin_fault fault = standin_fault_at(FAULT_LOST, __atomic_fetch_add(&task_count, 1, __ATOMIC_RELAXED));

    if (fault.kind == FAULT_LOST)
        standin_lose();
}

void standin_queue(cudaStream_t handle, void (*run)(void *), void *argument)
{
    struct CUstream_st *stream = stream_of(handle);

    fail_when_told();
    pthread_mutex_lock(&standin_gate.lock);
    follow_default(stream);
    append(stream, run, argument);
    pthread_mutex_unlock(&standin_gate.lock);
}

/* --- waiting -------------------------------------------------------------------------------------------------- */

/* Until what is queued now is done.  With the lock held. */
static void stream_await(struct CUstream_st *stream)
{
    uint64_t target = stream->queued;

    while (is_known(stream) && stream->done < target)
        pthread_cond_wait(&standin_gate.changed, &standin_gate.lock);
}

void standin_sync(cudaStream_t handle)
{
    struct CUstream_st *stream = stream_of(handle);

    pthread_mutex_lock(&standin_gate.lock);
    follow_default(stream);
    stream_await(stream);
    pthread_mutex_unlock(&standin_gate.lock);
}

static struct CUstream_st *busy_stream(int device)
{
    for (struct CUstream_st *each = streams; each; each = each->next)
        if (each->device == device && each->done < each->queued)
            return each;
    return NULL;
}

void standin_drain(int device)
{
    pthread_mutex_lock(&standin_gate.lock);
    while (busy_stream(device))
        pthread_cond_wait(&standin_gate.changed, &standin_gate.lock);
    pthread_mutex_unlock(&standin_gate.lock);
}

void standin_drain_all(void)
{
    for (int device = 0; device < standin_visible(); device++)
        standin_drain(device);
}

void standin_drain_when_told(void)
{
    const char *value = getenv("FERRY_STANDIN_DRAIN");

    if (value && *value && strcmp(value, "0") != 0)
        standin_drain_all();
}

/* --- the calls ------------------------------------------------------------------------------------------------ */

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *ret, unsigned int flags, int priority)
{
    cudaError_t error = standin_device_check(standin_current());

    if (error == cudaSuccess && flags & ~(unsigned)cudaStreamNonBlocking)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && !(*ret = stream_start(standin_current(), flags, priority)))
        error = cudaErrorMemoryAllocation;
    return standin_give(error);
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned int flags)
{
    return cudaStreamCreateWithPriority(ret, flags, 0);
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *ret)
{
    return cudaStreamCreateWithPriority(ret, cudaStreamDefault, 0);
}

/* Returns at once; what is queued is still done. */
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t error = standin_stream_check(stream);

    if (error == cudaSuccess && is_default(stream))
        error = cudaErrorInvalidResourceHandle;
    if (error != cudaSuccess)
        return standin_give(error);
    pthread_mutex_lock(&standin_gate.lock);
    stream->closing = true;
    pthread_cond_broadcast(&standin_gate.changed);
    pthread_mutex_unlock(&standin_gate.lock);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    cudaError_t error = standin_stream_check(handle);
    struct CUstream_st *stream;

    if (error != cudaSuccess)
        return standin_give(error);
    stream = stream_of(handle);
    pthread_mutex_lock(&standin_gate.lock);
    error = seems_busy(stream) ? cudaErrorNotReady : cudaSuccess;
    pthread_mutex_unlock(&standin_gate.lock);
    return error;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error = standin_stream_check(stream);

    if (error == cudaSuccess) {
        standin_sync(stream);
        error = standin_ready();
    }
    return standin_give(error);
}

EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = standin_device_check(standin_current());

    if (error == cudaSuccess) {
        standin_drain(standin_current());
        error = standin_ready();
    }
    return standin_give(error);
}

EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device)
{
    cudaError_t error = standin_stream_check(stream);

    if (error == cudaSuccess)
        *device = stream_of(stream)->device;
    return standin_give(error);
}

EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags)
{
    cudaError_t error = standin_stream_check(stream);

    if (error == cudaSuccess)
        *flags = stream_of(stream)->flags;
    return standin_give(error);
}

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    cudaError_t error = standin_stream_check(stream);

    if (error == cudaSuccess)
        *priority = stream_of(stream)->priority;
    return standin_give(error);
}

struct host_call {
    cudaHostFn_t function;
    void *argument;
};

static void host_call_run(void *argument)
{
    struct host_call *call = argument;

    call->function(call->argument);
    standin_host_calls(-1);
    free(call);
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    cudaError_t error = standin_stream_check(stream);
    struct host_call *call = NULL;

    if (error == cudaSuccess && !function)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && !(call = malloc(sizeof *call)))
        error = cudaErrorMemoryAllocation;
    if (error != cudaSuccess)
        return standin_give(error);
    *call = (struct host_call){function, argument};
    standin_host_calls(1);
    standin_queue(stream, host_call_run, call);
    return cudaSuccess;
}
