/* Page-locked memory: the host's in every respect but where it comes from, and how long that takes. */
#include "backends/cuda/cuda_private.h"
#include "base/memory_host.h"

static struct cuda_device *device_of(const struct memory *memory)
{
    return ((const struct pinned_memory *)memory)->device;
}

static const char *pinned_name(const struct memory *memory)
{
    (void)memory;
    return "pinned";
}

enum status cuda_pinned_make(struct cuda_device *device, size_t size, void **ret, struct error *err)
{
    struct cuda_entry entry;
    enum status st = cuda_enter(device, &entry, err);

    if (st != STATUS_OK)
        return st;
    st = cuda_status(cudaHostAlloc(ret, size, cudaHostAllocPortable), "cudaHostAlloc", err);
    if (st == STATUS_NOMEM)
        (void)cudaGetLastError();
    cuda_leave(device, &entry);
    if (st != STATUS_OK)
        return error_wrap(err, st, "%zu bytes of pinned memory (ulimit -l may bound it)", size);
    pthread_mutex_lock(&device->lock);
    st = blocks_add(&device->pinned_blocks, *ret, size);
    pthread_mutex_unlock(&device->lock);
    if (st != STATUS_OK) {
        (void)cudaFreeHost(*ret);
        return error_set(err, st, "a note of %zu bytes of pinned memory", size);
    }
    return STATUS_OK;
}

static enum status pinned_allocate(struct memory *memory, size_t bytes, void **ret, struct error *err)
{
    struct cuda_device *device = device_of(memory);
    size_t size = 0;
    void *block = NULL;

    if (blocks_size(bytes ? bytes : 1, &size) != STATUS_OK)
        return error_set(err, STATUS_NOMEM, "%zu bytes of pinned memory", bytes);
    pthread_mutex_lock(&device->lock);
    block = blocks_take(&device->pinned_blocks, size);
    pthread_mutex_unlock(&device->lock);
    if (!block)
        return cuda_pinned_make(device, size, ret, err);
    *ret = block;
    return STATUS_OK;
}

static void *pinned_at_hand(struct memory *memory, size_t bytes)
{
    struct cuda_device *device = device_of(memory);
    size_t size = 0;
    void *block = NULL;

    if (blocks_size(bytes ? bytes : 1, &size) != STATUS_OK)
        return NULL;
    pthread_mutex_lock(&device->lock);
    block = blocks_take(&device->pinned_blocks, size);
    if (!block)
        cuda_maker_want(device, size);
    pthread_mutex_unlock(&device->lock);
    return block;
}

/* Whoever queued a copy on a device holds the block until the copy's mark is reached. */
static void pinned_release(struct memory *memory, void *block)
{
    struct cuda_device *device = device_of(memory);

    if (!block)
        return;
    pthread_mutex_lock(&device->lock);
    blocks_give(&device->pinned_blocks, block, NULL);
    pthread_mutex_unlock(&device->lock);
}

static bool pinned_holds(const struct memory *memory, const void *address, size_t bytes)
{
    struct cuda_device *device = device_of(memory);
    bool held;

    pthread_mutex_lock(&device->lock);
    held = blocks_hold(&device->pinned_blocks, address, bytes);
    pthread_mutex_unlock(&device->lock);
    return held;
}

static enum status pinned_space(struct memory *memory, struct memory_space *ret, struct error *err)
{
    (void)memory;
    return memory_host_ops.space(memory_host(), ret, err);
}

static enum status pinned_copy(struct memory *memory, void *to, const void *from, size_t bytes, struct error *err)
{
    (void)memory;
    return memory_copy(NULL, to, from, bytes, err);
}

static enum status pinned_copy_rows(struct memory *memory, void *to, size_t to_stride, const void *from,
                                    size_t from_stride, size_t run_bytes, size_t rows, struct error *err)
{
    (void)memory;
    return memory_copy_rows(NULL, to, to_stride, from, from_stride, run_bytes, rows, err);
}

static enum status pinned_add(struct memory *memory, enum dtype dtype, void *left, const void *right, size_t count,
                              struct error *err)
{
    (void)memory;
    return memory_host_ops.add(memory_host(), dtype, left, right, count, err);
}

static enum status pinned_convert(struct memory *memory, enum dtype from, const void *in, enum dtype to, void *out,
                                  size_t count, struct error *err)
{
    (void)memory;
    return memory_host_ops.convert(memory_host(), from, in, to, out, count, err);
}

static enum status pinned_mark(struct memory *memory, struct memory_mark **ret, struct error *err)
{
    (void)memory;
    return memory_host_ops.mark(memory_host(), ret, err);
}

static enum status pinned_reached(struct memory *memory, struct memory_mark *mark, bool *ret, struct error *err)
{
    (void)memory;
    return memory_host_ops.reached(memory_host(), mark, ret, err);
}

static void pinned_forget(struct memory *memory, struct memory_mark *mark)
{
    (void)memory;
    memory_host_ops.forget(memory_host(), mark);
}

static const struct memory_ops pinned_ops = {.name = pinned_name,
                                             .allocate = pinned_allocate,
                                             .at_hand = pinned_at_hand,
                                             .release = pinned_release,
                                             .copy = pinned_copy,
                                             .copy_rows = pinned_copy_rows,
                                             .add = pinned_add,
                                             .convert = pinned_convert,
                                             .mark = pinned_mark,
                                             .reached = pinned_reached,
                                             .forget = pinned_forget,
                                             .space = pinned_space,
                                             .holds = pinned_holds};

void cuda_pinned_init(struct cuda_device *device)
{
    device->pinned = (struct pinned_memory){.base = {.ops = &pinned_ops, .kind = MEMORY_PINNED}, .device = device};
}
