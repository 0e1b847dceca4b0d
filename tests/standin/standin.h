/* What the stand-in for libcudart lends to the stand-in for libnccl: addresses, streams, faults. */
#ifndef TESTS_STANDIN_STANDIN_H
#define TESTS_STANDIN_STANDIN_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STANDIN_API __attribute__((visibility("default")))

enum {
    STANDIN_TOUCHED = 97, /* exit status: the host touched device memory */
    STANDIN_BUS_BYTES = 16
};

/* What unfinished memory holds.  As f32, f16 and bf16: not a number, or far out. */
enum { POISON_FRESH = 0xff, POISON_PENDING = 0xfd };

struct standin_mark; /* a place in a stream, counted */

/* Where the stand-in's threads may read and write bytes at address: device memory of that device (-1: of any), or
 * pinned memory.  NULL: it is neither, or not all of it. */
STANDIN_API void *standin_reach(const void *address, size_t bytes, int device);

/* Fill [bytes] with POISON_PENDING now if nothing queued uses it, and note it as used until standin_unused. */
STANDIN_API void standin_use(const void *alias, size_t bytes, bool written);
STANDIN_API void standin_unuse(const void *alias, size_t bytes);

/* FERRY_STANDIN_LAG: how long a stream rests before each task, and a launch that does not block before it is issued. */
STANDIN_API uint64_t standin_lag_us(void);

/* Queue run(argument) on a stream.  run is called by the stream's thread and may wait. */
STANDIN_API void standin_queue(cudaStream_t stream, void (*run)(void *), void *argument);
/* A mark behind all that is queued on the stream; the stream waits for it; the caller waits for it; let go. */
STANDIN_API struct standin_mark *standin_mark(cudaStream_t stream);
STANDIN_API void standin_wait(cudaStream_t stream, struct standin_mark *mark);
STANDIN_API bool standin_reached(struct standin_mark *mark);
STANDIN_API void standin_forget(struct standin_mark *mark);
/* The device of a stream; of this thread for the default stream.  -1: no such stream. */
STANDIN_API int standin_stream_device(cudaStream_t stream);

/* A bit per visible device on which this process has a context: it was set, or something was allocated there. */
STANDIN_API unsigned int standin_contexts(void);

/* Bus id of a visible device ("0000:1b:00.0"), which is the same in every process. */
STANDIN_API void standin_bus(int device, char bus[STANDIN_BUS_BYTES]);

/* Faults, from FERRY_STANDIN_FAULT (README). */
enum standin_fault_kind {
    FAULT_NONE,
    FAULT_DELAY, /* value: milliseconds before the operation */
    FAULT_KILL,
    FAULT_SHORT,   /* value: bytes that are not sent */
    FAULT_FLIP,    /* value: the byte whose lowest bit is turned over in transit */
    FAULT_INIT,    /* never comes to the meeting */
    FAULT_UNREADY, /* never ends it */
    FAULT_ERROR,   /* an asynchronous error */
    FAULT_SPLIT,   /* the split fails */
    FAULT_LOST,    /* the device fails */
    FAULT_PIN      /* value: milliseconds that it takes to pin memory */
};

struct standin_fault {
    enum standin_fault_kind kind;
    long op;    /* -1: not given */
    long value; /* 0: not given */
};

/* The fault of this kind, or of any with FAULT_NONE, that this process has at operation op; kind FAULT_NONE: none. */
STANDIN_API struct standin_fault standin_fault_at(enum standin_fault_kind kind, long op);

#endif
