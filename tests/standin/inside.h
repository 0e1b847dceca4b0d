/* Shared by the files of the stand-in for libcudart. */
#ifndef TESTS_STANDIN_INSIDE_H
#define TESTS_STANDIN_INSIDE_H

#include <pthread.h>

#include "tests/standin/standin.h"

#define EXPORT STANDIN_API

enum { DEVICES_MAX = 16 };

/* One lock for streams, events and the use of memory; changed is signalled whenever a task ends. */
struct standin_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
};
extern struct standin_gate standin_gate;

/* Remember and return. */
cudaError_t standin_give(cudaError_t error);
/* Is there a driver, a device of this number, and is it well?  Remembered by the caller. */
cudaError_t standin_device_check(int device);
cudaError_t standin_ready(void);
int standin_current(void);
int standin_visible(void);
/* Every later call fails. */
void standin_lose(void);

enum memory_place { PLACE_PAGEABLE, PLACE_PINNED, PLACE_DEVICE, PLACE_FREED };
struct memory_spot {
    enum memory_place place;
    int device;
    char *base;
    size_t bytes;
    char *alias; /* of the address asked for; the address itself where the host may touch it */
    size_t left; /* bytes from the address to the end of its allocation */
};
/* What lies at an address. */
struct memory_spot standin_spot(const void *address);
uint64_t standin_memory_total(void);

/* standin_use and standin_unuse for rows runs of width bytes. */
void standin_use_rows(const void *alias, size_t pitch, size_t width, size_t rows, bool written);
void standin_unuse_rows(const void *alias, size_t pitch, size_t width, size_t rows);
/* One more, or less, function of the host is queued: it may read any pinned memory, which nobody fills till then. */
void standin_host_calls(int more);

/* This thread's device has a context of this process from now on. */
void standin_use_context(void);

/* Wait for everything queued on a device; on all devices; the latter where FERRY_STANDIN_DRAIN is set. */
void standin_drain(int device);
void standin_drain_all(void);
void standin_drain_when_told(void);
cudaError_t standin_stream_check(cudaStream_t stream);
/* A mark that two hold: tasks of two streams, one of which reaches it and one awaits it; or one and the caller. */
struct standin_mark *standin_mark_new(void);
void standin_mark_reach(void *mark);
void standin_mark_await(void *mark);
void standin_sync(cudaStream_t stream);

#endif
