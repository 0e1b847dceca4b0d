/* A queue on a device's memory: a stream, with events as marks.
 *
 * Marks are used again, for making an event is a call of the driver and comm asks for one per message.  Blocks come
 * from cuda_blocks.h.  The lock guards the lists alone; CUDA's own calls may be made by several threads at once, and
 * what one thread queues stays in the order of its calls. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda_private.h"
#include "base/size.h"

enum { DRIVER_CALL = 7000 }; /* the version that cuDevicePrimaryCtxGetState is of */

static struct cuda_memory *self_of(const struct memory *memory)
{
    return (struct cuda_memory *)(uintptr_t)memory;
}

enum status cuda_enter(const struct cuda_device *device, struct cuda_entry *entry, struct error *err)
{
    enum status st = cuda_status(cudaGetDevice(&entry->before), "cudaGetDevice", err);

    if (st == STATUS_OK && entry->before != device->base.index)
        st = cuda_status(cudaSetDevice(device->base.index), "cudaSetDevice", err);
    return st == STATUS_OK ? st : error_wrap(err, st, "cuda:%d", device->base.index);
}

void cuda_entry_init(struct cuda_device *device)
{
    void *call = NULL;

    if (cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &call, DRIVER_CALL, cudaEnableDefault, NULL) !=
        cudaSuccess)
        (void)cudaGetLastError();
    memcpy(&device->context_state, &call, sizeof call);
}

/* The driver numbers devices as the runtime does. */
static bool in_use(const struct cuda_device *device, int index)
{
    unsigned int flags = 0;
    int active = 1;

    return !device->context_state || device->context_state(index, &flags, &active) != CUDA_SUCCESS || active;
}

void cuda_leave(const struct cuda_device *device, const struct cuda_entry *entry)
{
    if (entry->before != device->base.index && in_use(device, entry->before))
        (void)cudaSetDevice(entry->before);
}

static const char *queue_name(const struct memory *memory)
{
    return self_of(memory)->name;
}

static enum status queue_space(struct memory *memory, struct memory_space *ret, struct error *err)
{
    struct cuda_device *device = self_of(memory)->device;
    struct cuda_entry entry;
    size_t available = 0;
    size_t total = 0;
    enum status st = cuda_enter(device, &entry, err);

    if (st != STATUS_OK)
        return st;
    st = cuda_status(cudaMemGetInfo(&available, &total), "cudaMemGetInfo", err);
    cuda_leave(device, &entry);
    if (st != STATUS_OK)
        return st;
    pthread_mutex_lock(&device->lock);
    *ret = (struct memory_space){.available = available + device->blocks.kept_bytes, .total = total};
    pthread_mutex_unlock(&device->lock);
    return STATUS_OK;
}

static enum status no_room(struct cuda_memory *memory, size_t size, struct error *err)
{
    struct memory_space space;
    uint64_t kept = 0;

    (void)cudaGetLastError(); /* it is not the device that failed */
    if (queue_space(&memory->base, &space, NULL) != STATUS_OK)
        return error_set(err, STATUS_NOMEM, "%s: %zu bytes: out of memory; how much is available is not known",
                         memory->name, size);
    pthread_mutex_lock(&memory->device->lock);
    kept = memory->device->blocks.kept_bytes;
    pthread_mutex_unlock(&memory->device->lock);
    return error_set(err, STATUS_NOMEM,
                     "%s: %zu bytes: out of memory: %" PRIu64 " of %" PRIu64 " bytes are available, %" PRIu64
                     " of them in released blocks of other sizes",
                     memory->name, size, space.available, space.total, kept);
}

/* From CUDA itself. */
static enum status allocate_new(struct cuda_memory *memory, size_t size, void **ret, struct error *err)
{
    struct cuda_device *device = memory->device;
    struct cuda_entry entry;
    enum status st = cuda_enter(device, &entry, err);

    if (st != STATUS_OK)
        return st;
    st = cuda_status(cudaMalloc(ret, size), "cudaMalloc", err);
    cuda_leave(device, &entry);
    if (st == STATUS_NOMEM)
        return no_room(memory, size, err);
    if (st != STATUS_OK)
        return error_wrap(err, st, "%s: %zu bytes", memory->name, size);
    pthread_mutex_lock(&device->lock);
    st = blocks_add(&device->blocks, *ret, size);
    pthread_mutex_unlock(&device->lock);
    if (st != STATUS_OK) {
        (void)cudaFree(*ret);
        return error_set(err, st, "a note of %zu bytes of %s", size, memory->name);
    }
    return STATUS_OK;
}

static enum status queue_allocate(struct memory *memory, size_t bytes, void **ret, struct error *err)
{
    struct cuda_memory *self = self_of(memory);
    size_t size = 0;
    void *block = NULL;

    if (blocks_size(bytes ? bytes : 1, &size) != STATUS_OK)
        return error_set(err, STATUS_NOMEM, "%s: %zu bytes", self->name, bytes);
    pthread_mutex_lock(&self->device->lock);
    block = blocks_take(&self->device->blocks, size);
    pthread_mutex_unlock(&self->device->lock);
    if (!block)
        return allocate_new(self, size, ret, err);
    *ret = block;
    return STATUS_OK;
}

static bool queue_holds(const struct memory *memory, const void *address, size_t bytes)
{
    struct cuda_device *device = self_of(memory)->device;
    bool held;

    pthread_mutex_lock(&device->lock);
    held = blocks_hold(&device->blocks, address, bytes);
    pthread_mutex_unlock(&device->lock);
    return held;
}

/* An event behind everything queued so far; NULL where the device gives none. */
static cudaEvent_t event_here(struct cuda_memory *memory)
{
    struct cuda_entry entry;
    cudaEvent_t event = NULL;

    if (cuda_enter(memory->device, &entry, NULL) != STATUS_OK)
        return NULL;
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess)
        event = NULL;
    if (event && cudaEventRecord(event, memory->stream) != cudaSuccess) {
        (void)cudaEventDestroy(event);
        event = NULL;
    }
    cuda_leave(memory->device, &entry);
    return event;
}

static void queue_release(struct memory *memory, void *block)
{
    struct cuda_memory *self = self_of(memory);
    cudaEvent_t event = NULL;

    if (!block)
        return;
    event = event_here(self);
    if (!event) /* nothing tells when it is free: nobody gets it again */
        return;
    pthread_mutex_lock(&self->device->lock);
    blocks_give(&self->device->blocks, block, event);
    pthread_mutex_unlock(&self->device->lock);
}

/* Does the device reach it without a detour? */
static enum status look(const void *address, bool *ret_pageable, bool *ret_device, struct error *err)
{
    struct cudaPointerAttributes attributes;
    enum status st = cuda_status(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes", err);

    *ret_pageable = st == STATUS_OK && attributes.type == cudaMemoryTypeUnregistered;
    *ret_device = st == STATUS_OK && attributes.type == cudaMemoryTypeDevice;
    return st;
}

static enum cudaMemcpyKind kind_of(bool to_device, bool from_device)
{
    if (!to_device)
        return cudaMemcpyDeviceToHost;
    return from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
}

/* Rows of one length at strides that CUDA takes, all of them reachable. */
static enum status copy_reachable(struct cuda_memory *memory, const struct bounce_copy *copy, enum cudaMemcpyKind kind,
                                  struct error *err)
{
    const size_t limit = memory->device->max_pitch;

    if (copy->rows == 1 || (copy->to_stride == copy->run_bytes && copy->from_stride == copy->run_bytes))
        return cuda_status(cudaMemcpyAsync(copy->to, copy->from, copy->run_bytes * copy->rows, kind, memory->stream),
                           "cudaMemcpyAsync", err);
    if (copy->to_stride <= limit && copy->from_stride <= limit)
        return cuda_status(cudaMemcpy2DAsync(copy->to, copy->to_stride, copy->from, copy->from_stride, copy->run_bytes,
                                             copy->rows, kind, memory->stream),
                           "cudaMemcpy2DAsync", err);
    /* Strides of gigabytes: there are few such rows in any memory. */
    for (size_t row = 0; row < copy->rows; row++) {
        enum status st = cuda_status(cudaMemcpyAsync((unsigned char *)copy->to + row * copy->to_stride,
                                                     (const unsigned char *)copy->from + row * copy->from_stride,
                                                     copy->run_bytes, kind, memory->stream),
                                     "cudaMemcpyAsync", err);

        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static enum status copy_any(struct cuda_memory *memory, struct bounce_copy *copy, struct error *err)
{
    bool to_pageable = false;
    bool from_pageable = false;
    bool to_device = false;
    bool from_device = false;
    enum status st = look(copy->to, &to_pageable, &to_device, err);

    if (st == STATUS_OK)
        st = look(copy->from, &from_pageable, &from_device, err);
    if (st != STATUS_OK)
        return st;
    copy->to_host = !to_device;
    return to_pageable || from_pageable ? cuda_bounce(memory, copy, err)
                                        : copy_reachable(memory, copy, kind_of(to_device, from_device), err);
}

static enum status queue_copy_rows(struct memory *memory, void *to, size_t to_stride, const void *from,
                                   size_t from_stride, size_t run_bytes, size_t rows, struct error *err)
{
    struct cuda_memory *self = self_of(memory);
    struct bounce_copy copy = {.to = to,
                               .to_stride = to_stride,
                               .from = from,
                               .from_stride = from_stride,
                               .run_bytes = run_bytes,
                               .rows = rows};
    struct cuda_entry entry;
    enum status st;

    if (!run_bytes || !rows)
        return STATUS_OK;
    st = cuda_enter(self->device, &entry, err);
    if (st != STATUS_OK)
        return st;
    st = copy_any(self, &copy, err);
    cuda_leave(self->device, &entry);
    return st == STATUS_OK ? st : error_wrap(err, st, "%s: copy of %zu rows of %zu bytes", self->name, rows, run_bytes);
}

static enum status queue_copy(struct memory *memory, void *to, const void *from, size_t bytes, struct error *err)
{
    return queue_copy_rows(memory, to, bytes, from, bytes, bytes, 1, err);
}

static enum status launch(struct memory *memory, enum kernel kernel, void *out, const void *in, size_t count,
                          struct error *err)
{
    struct cuda_memory *self = self_of(memory);
    struct cuda_entry entry;
    enum status st;

    if (!count)
        return STATUS_OK;
    st = cuda_enter(self->device, &entry, err);
    if (st != STATUS_OK)
        return st;
    st = cuda_kernel_launch(self, kernel, out, in, count, err);
    cuda_leave(self->device, &entry);
    return st;
}

static enum status queue_add(struct memory *memory, enum dtype dtype, void *left, const void *right, size_t count,
                             struct error *err)
{
    static const enum kernel kernels[DTYPE_COUNT] = {
        [DTYPE_F32] = KERNEL_add_f32, [DTYPE_F64] = KERNEL_add_f64, [DTYPE_I8] = KERNEL_add_u8,
        [DTYPE_U8] = KERNEL_add_u8,   [DTYPE_I32] = KERNEL_add_u32, [DTYPE_U32] = KERNEL_add_u32,
        [DTYPE_I64] = KERNEL_add_u64, [DTYPE_U64] = KERNEL_add_u64};

    CHECK(CUDA_ADD_TYPES & 1 << dtype);
    return launch(memory, kernels[dtype], left, right, count, err);
}

static enum status queue_convert(struct memory *memory, enum dtype from, const void *in, enum dtype to, void *out,
                                 size_t count, struct error *err)
{
    enum dtype half = to == DTYPE_F32 ? from : to;

    CHECK(CUDA_HALF_TYPES & 1 << half);
    CHECK(from == DTYPE_F32 || to == DTYPE_F32);
    if (half == DTYPE_F16)
        return launch(memory, to == DTYPE_F32 ? KERNEL_widen_f16 : KERNEL_narrow_f16, out, in, count, err);
    return launch(memory, to == DTYPE_F32 ? KERNEL_widen_bf16 : KERNEL_narrow_bf16, out, in, count, err);
}

static struct memory_mark *take_mark(struct cuda_memory *memory)
{
    struct memory_mark *mark;

    pthread_mutex_lock(&memory->device->lock);
    mark = memory->unused;
    if (mark)
        memory->unused = mark->next;
    pthread_mutex_unlock(&memory->device->lock);
    return mark;
}

/* CUDA lets an event be recorded again while nobody asks for its earlier record. */
static void queue_forget(struct memory *memory, struct memory_mark *mark)
{
    struct cuda_memory *self = self_of(memory);

    if (!mark)
        return;
    pthread_mutex_lock(&self->device->lock);
    mark->next = self->unused;
    self->unused = mark;
    pthread_mutex_unlock(&self->device->lock);
}

static enum status new_mark(struct memory_mark **ret, struct error *err)
{
    struct memory_mark *mark = calloc(1, sizeof *mark);
    enum status st;

    if (!mark)
        return error_set(err, STATUS_NOMEM, "a mark");
    st = cuda_status(cudaEventCreateWithFlags(&mark->event, cudaEventDisableTiming), "cudaEventCreateWithFlags", err);
    if (st != STATUS_OK) {
        free(mark);
        return st;
    }
    *ret = mark;
    return STATUS_OK;
}

static enum status queue_mark(struct memory *memory, struct memory_mark **ret, struct error *err)
{
    struct cuda_memory *self = self_of(memory);
    struct memory_mark *mark = take_mark(self);
    struct cuda_entry entry;
    enum status st = cuda_enter(self->device, &entry, err);

    if (st != STATUS_OK) {
        queue_forget(memory, mark);
        return st;
    }
    if (!mark)
        st = new_mark(&mark, err);
    if (st == STATUS_OK)
        st = cuda_status(cudaEventRecord(mark->event, self->stream), "cudaEventRecord", err);
    cuda_leave(self->device, &entry);
    if (st != STATUS_OK) {
        queue_forget(memory, mark);
        return error_wrap(err, st, "%s", self->name);
    }
    *ret = mark;
    return STATUS_OK;
}

static enum status queue_reached(struct memory *memory, struct memory_mark *mark, bool *ret, struct error *err)
{
    cudaError_t code = cudaEventQuery(mark->event);

    *ret = code == cudaSuccess;
    if (code == cudaErrorNotReady)
        return STATUS_OK;
    queue_forget(memory, mark);
    if (code == cudaSuccess)
        return STATUS_OK;
    (void)cuda_status(code, "cudaEventQuery", err);
    return error_wrap(err, STATUS_ENVIRONMENT, "%s: the device failed", queue_name(memory));
}

/* The stream waits for what the event stood for when this was called: it may be recorded again. */
static enum status queue_follow(struct memory *memory, const struct memory_mark *mark, struct error *err)
{
    struct cuda_memory *self = self_of(memory);
    struct cuda_entry entry;
    enum status st = cuda_enter(self->device, &entry, err);

    if (st != STATUS_OK)
        return st;
    st = cuda_status(cudaStreamWaitEvent(self->stream, mark->event, cudaEventWaitDefault), "cudaStreamWaitEvent", err);
    cuda_leave(self->device, &entry);
    return st == STATUS_OK ? st : error_wrap(err, st, "%s", self->name);
}

static const struct memory_ops cuda_memory_ops = {.name = queue_name,
                                                  .allocate = queue_allocate,
                                                  .release = queue_release,
                                                  .copy = queue_copy,
                                                  .copy_rows = queue_copy_rows,
                                                  .add = queue_add,
                                                  .convert = queue_convert,
                                                  .mark = queue_mark,
                                                  .reached = queue_reached,
                                                  .forget = queue_forget,
                                                  .follow = queue_follow,
                                                  .space = queue_space,
                                                  .holds = queue_holds};

enum status cuda_memory_open(struct cuda_device *device, struct cuda_memory **ret, struct error *err)
{
    struct cuda_memory *memory = calloc(1, sizeof *memory);
    enum status st;

    if (!memory)
        return error_set(err, STATUS_NOMEM, "a queue");
    memory->base = (struct memory){.ops = &cuda_memory_ops, .kind = MEMORY_DEVICE};
    memory->device = device;
    /* Not ordered by the default stream, on which the program may work. */
    st = cuda_status(cudaStreamCreateWithFlags(&memory->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
                     err);
    /* Now, for later CUDA may let the call wait until the device rests. */
    if (st == STATUS_OK)
        st = cuda_status(cudaHostAlloc(&memory->bounce, BOUNCE_BYTES, cudaHostAllocPortable), "cudaHostAlloc", err);
    if (st != STATUS_OK) {
        if (memory->stream)
            (void)cudaStreamDestroy(memory->stream);
        free(memory);
        return st;
    }
    pthread_mutex_init(&memory->bounce_lock, NULL);
    pthread_mutex_lock(&device->lock);
    if (device->forks)
        (void)snprintf(memory->name, sizeof memory->name, "cuda:%d.%u", device->base.index, device->forks);
    else
        (void)snprintf(memory->name, sizeof memory->name, "cuda:%d", device->base.index);
    device->forks++;
    memory->next = device->queues;
    device->queues = memory;
    pthread_mutex_unlock(&device->lock);
    *ret = memory;
    return STATUS_OK;
}

void cuda_memory_close(struct cuda_memory *memory)
{
    while (memory->unused) {
        struct memory_mark *mark = memory->unused;

        memory->unused = mark->next;
        (void)cudaEventDestroy(mark->event);
        free(mark);
    }
    (void)cudaFreeHost(memory->bounce);
    (void)cudaStreamDestroy(memory->stream);
    pthread_mutex_destroy(&memory->bounce_lock);
    free(memory);
}

bool cuda_memory_idle(const struct cuda_memory *memory)
{
    return cudaStreamQuery(memory->stream) != cudaErrorNotReady;
}

int cuda_memory_device(const struct memory *memory)
{
    return memory && memory->ops == &cuda_memory_ops ? self_of(memory)->device->base.index : -1;
}

cudaStream_t cuda_memory_stream(const struct memory *memory)
{
    CHECK(cuda_memory_device(memory) >= 0);
    return self_of(memory)->stream;
}
