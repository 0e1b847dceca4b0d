/* The inside of a CUDA device, for the files of this folder. */
#ifndef BACKENDS_CUDA_PRIVATE_H
#define BACKENDS_CUDA_PRIVATE_H

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "backends/cuda/cuda_blocks.h"
#include "backends/cuda/cuda_image.h"
#include "backends/cuda/cuda_stream.h"
#include "backends/cuda/kernels.h"
#include "comm/device.h"

/* KERNEL_add_f32 and so on. */
#define KERNEL_NUMBER(name) KERNEL_##name,
enum kernel { KERNELS(KERNEL_NUMBER) KERNEL_COUNT };
#undef KERNEL_NUMBER

/* How much of a copy to or from pageable memory goes through pinned memory at a time. */
enum { BOUNCE_BYTES = 1 << 20 };

/* Bit per enum dtype: what is added; what is converted to and from f32. */
enum {
    CUDA_ADD_TYPES = 1 << DTYPE_F32 | 1 << DTYPE_F64 | 1 << DTYPE_I8 | 1 << DTYPE_U8 | 1 << DTYPE_I32 | 1 << DTYPE_U32 |
                     1 << DTYPE_I64 | 1 << DTYPE_U64,
    CUDA_HALF_TYPES = 1 << DTYPE_F16 | 1 << DTYPE_BF16
};

struct cuda_device;

struct memory_mark {
    cudaEvent_t event;
    struct memory_mark *next; /* while unused */
};

/* One queue on a device's memory. */
struct cuda_memory {
    struct memory base; /* first */
    struct cuda_device *device;
    struct cuda_memory *next; /* in device->queues */
    cudaStream_t stream;
    struct memory_mark *unused;
    pthread_mutex_t bounce_lock;
    void *bounce; /* [BOUNCE_BYTES] pinned */
    bool joined;  /* nobody's: the next fork may take it */
    char name[32];
};

struct pinned_memory {
    struct memory base; /* first */
    struct cuda_device *device;
};

/* Makes pinned blocks in a thread of its own.  Guarded by the device's lock. */
enum { MAKER_WANTS = 16 };
struct cuda_maker {
    pthread_t thread;
    pthread_cond_t more; /* something is wanted, or it is to end */
    bool started;
    bool stop;
    bool ended;
    size_t wanted[MAKER_WANTS]; /* sizes, each once; the first is being made */
    int wanted_count;
    size_t refused; /* so much could not be had; SIZE_MAX: not tried */
};

struct cuda_device {
    struct device base; /* first */
    pthread_mutex_t lock;
    cudaLibrary_t library;
    cudaKernel_t kernels[KERNEL_COUNT];
    unsigned int grid; /* blocks of a launch at most */
    size_t max_pitch;
    struct cuda_memory *queues; /* newest first */
    uint32_t forks;
    struct blocks blocks; /* of the device */
    struct pinned_memory pinned;
    struct blocks pinned_blocks;
    struct cuda_maker maker;
    PFN_cuDevicePrimaryCtxGetState_v7000 context_state; /* the driver's; NULL: it has none */
};

/* Make the device the calling thread's for some calls.  CUDA keeps one per thread, and the thread is the program's: it
 * gets its own back, unless this process has never used that one.  To set a device makes a context on it, hundreds of
 * megabytes, and a thread that never chose has the first, which is another rank's. */
struct cuda_entry {
    int before;
};
enum status cuda_enter(const struct cuda_device *device, struct cuda_entry *entry, struct error *err);
void cuda_leave(const struct cuda_device *device, const struct cuda_entry *entry);

/* Ask for what cuda_leave needs to know.  The device is the thread's. */
void cuda_entry_init(struct cuda_device *device);

/* Load the image and find its kernels.  The device is the thread's. */
enum status cuda_kernels_load(struct cuda_device *device, struct error *err);
/* Queue a kernel over count > 0 elements. */
enum status cuda_kernel_launch(struct cuda_memory *memory, enum kernel kernel, void *out, const void *in, size_t count,
                               struct error *err);

/* One more queue, in device->queues (returns). */
enum status cuda_memory_open(struct cuda_device *device, struct cuda_memory **ret, struct error *err);
/* Give back a queue that is in no list any more and on which nothing runs. */
void cuda_memory_close(struct cuda_memory *memory);
/* Has everything queued on it happened, or failed? */
bool cuda_memory_idle(const struct cuda_memory *memory);

/* Copies that touch pageable memory of the host; rows of run_bytes each. */
struct bounce_copy {
    void *to;
    size_t to_stride;
    const void *from;
    size_t from_stride;
    size_t run_bytes;
    size_t rows;
    bool to_host;
};
enum status cuda_bounce(struct cuda_memory *memory, const struct bounce_copy *copy, struct error *err);

void cuda_pinned_init(struct cuda_device *device);
/* A used block of exactly size bytes (returns), from CUDA itself: however long that takes.  STATUS_NOMEM,
 * STATUS_ENVIRONMENT. */
enum status cuda_pinned_make(struct cuda_device *device, size_t size, void **ret, struct error *err);

void cuda_maker_init(struct cuda_maker *maker);
/* Have a pinned block of this size made and kept, if none is on its way.  The device's lock is held. */
void cuda_maker_want(struct cuda_device *device, size_t size);
/* Tell it to end; it has (true) or is still inside CUDA. */
bool cuda_maker_stop(struct cuda_device *device);
/* It has ended, or never begun. */
void cuda_maker_done(struct cuda_maker *maker);

/* Versions of CUDA's runtime and driver, as struct plugin asks for them. */
struct plugin_library;
int cuda_libraries(struct plugin_library *list);

extern const struct device_ops cuda_device_ops;

#endif
