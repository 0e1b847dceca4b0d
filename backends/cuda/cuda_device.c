/* CUDA's devices as the device table. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda_private.h"
#include "base/clock.h"

enum { BLOCKS_PER_PROCESSOR = 8, REST_US = 100 };

/* CUDA gives one code for a driver that is missing and one that is too old; only its version tells. */
static enum status no_driver(struct error *err)
{
    int driver = 0;

    (void)cudaDriverGetVersion(&driver);
    if (!driver)
        return error_set(err, STATUS_ENVIRONMENT,
                         "no CUDA driver on this machine (libcuda.so.1): install NVIDIA's driver, or run where there "
                         "is a GPU");
    return error_set(err, STATUS_ENVIRONMENT,
                     "the CUDA driver is too old: it knows CUDA %d.%d, and this plugin was built with %d.%d: update "
                     "NVIDIA's driver",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

static enum status no_device(struct error *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (!visible)
        return error_set(err, STATUS_ENVIRONMENT, "no CUDA device on this machine");
    return error_set(err, STATUS_ENVIRONMENT,
                     "no CUDA device is visible to this process: CUDA_VISIBLE_DEVICES is \"%.200s\"", visible);
}

static enum status device_count(int *ret, struct error *err)
{
    cudaError_t code = cudaGetDeviceCount(ret);

    if (code == cudaErrorInsufficientDriver)
        return no_driver(err);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && *ret < 1))
        return no_device(err);
    return cuda_status(code, "cudaGetDeviceCount", err);
}

static void write_uuid(const cudaUUID_t *uuid, char *text, size_t text_bytes)
{
    size_t length = (size_t)snprintf(text, text_bytes, "GPU");

    for (int i = 0; i < 16; i++)
        length += (size_t)snprintf(text + length, text_bytes - length, "%s%02x",
                                   i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                   (unsigned int)(unsigned char)uuid->bytes[i]);
}

static enum status read_facts(int index, struct device_facts *ret, struct cudaDeviceProp *properties, struct error *err)
{
    enum status st = cuda_status(cudaGetDeviceProperties(properties, index), "cudaGetDeviceProperties", err);

    *ret = (struct device_facts){.numa_node = -1};
    if (st == STATUS_OK)
        st = cuda_status(cudaDeviceGetPCIBusId(ret->pci, sizeof ret->pci, index), "cudaDeviceGetPCIBusId", err);
    if (st != STATUS_OK)
        return error_wrap(err, st, "cuda:%d", index);
    for (char *at = ret->pci; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    (void)snprintf(ret->name, sizeof ret->name, "%.79s", properties->name);
    write_uuid(&properties->uuid, ret->uuid, sizeof ret->uuid);
    ret->memory_bytes = properties->totalGlobalMem ? properties->totalGlobalMem : MEMORY_UNKNOWN;
    ret->capability[0] = properties->major;
    ret->capability[1] = properties->minor;
    if (cudaDeviceGetAttribute(&ret->numa_node, cudaDevAttrHostNumaId, index) != cudaSuccess)
        ret->numa_node = -1;
    return STATUS_OK;
}

static enum status check_index(int index, struct error *err)
{
    int count = 0;
    enum status st = device_count(&count, err);

    if (st == STATUS_OK && (index < 0 || index >= count))
        st = error_set(err, STATUS_ENVIRONMENT, "there is no device cuda:%d: this process sees cuda:0 to cuda:%d",
                       index, count - 1);
    return st;
}

static enum status device_describe(int index, struct device_facts *ret, struct error *err)
{
    struct cudaDeviceProp properties;
    enum status st = check_index(index, err);

    return st == STATUS_OK ? read_facts(index, ret, &properties, err) : st;
}

static void fill_capabilities(struct device_capabilities *capabilities)
{
    *capabilities = (struct device_capabilities){.substrate = "device memory",
                                                 .path_in = "copy engine, from pinned memory",
                                                 .path_out = "copy engine, to pinned memory",
                                                 .alignment = MEMORY_ALIGN,
                                                 .granularity = MEMORY_ALIGN,
                                                 .copy_types = ((1u << DTYPE_COUNT) - 1) & ~(1u << DTYPE_NONE),
                                                 .add_types = CUDA_ADD_TYPES,
                                                 .widen_types = CUDA_HALF_TYPES,
                                                 .narrow_types = CUDA_HALF_TYPES,
                                                 .flop_per_ns = DEVICE_UNKNOWN,
                                                 .bytes_per_ns = DEVICE_UNKNOWN};
}

static void free_device(void *address)
{
    (void)cudaFree(address);
}

static void free_pinned(void *address)
{
    (void)cudaFreeHost(address);
}

/* What open has made so far; nothing runs on it. */
static void destroy(struct cuda_device *device)
{
    struct cuda_entry entry;
    bool entered = cuda_enter(device, &entry, NULL) == STATUS_OK;

    while (device->queues) {
        struct cuda_memory *memory = device->queues;

        device->queues = memory->next;
        cuda_memory_close(memory);
    }
    blocks_done(&device->blocks, free_device);
    blocks_done(&device->pinned_blocks, free_pinned);
    if (device->library)
        (void)cudaLibraryUnload(device->library);
    if (entered)
        cuda_leave(device, &entry);
    cuda_maker_done(&device->maker);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* The device is the thread's. */
static enum status open_inside(struct cuda_device *device, struct error *err)
{
    struct cuda_memory *memory = NULL;
    enum status st;

    cuda_entry_init(device);
    st = cuda_memory_open(device, &memory, err);
    if (st == STATUS_OK)
        st = cuda_kernels_load(device, err);
    if (st != STATUS_OK)
        return st;
    cuda_pinned_init(device);
    device->base.memory = &memory->base;
    device->base.pinned = &device->pinned.base;
    fill_capabilities(&device->base.capabilities);
    return STATUS_OK;
}

static enum status device_open(int index, struct device **ret, struct error *err)
{
    struct cudaDeviceProp properties;
    struct cuda_device *device = NULL;
    struct cuda_entry entry;
    enum status st = check_index(index, err);

    if (st != STATUS_OK)
        return st;
    device = calloc(1, sizeof *device);
    if (!device)
        return error_set(err, STATUS_NOMEM, "cuda:%d", index);
    pthread_mutex_init(&device->lock, NULL);
    cuda_maker_init(&device->maker);
    device->base.index = index;
    st = read_facts(index, &device->base.facts, &properties, err);
    if (st == STATUS_OK)
        st = cuda_enter(device, &entry, err);
    if (st == STATUS_OK) {
        device->max_pitch = properties.memPitch;
        device->grid = (unsigned int)(properties.multiProcessorCount * BLOCKS_PER_PROCESSOR);
        st = open_inside(device, err);
        cuda_leave(device, &entry);
    }
    if (st != STATUS_OK) {
        st = error_wrap(err, st, "cuda:%d (%s, %s)", index, device->base.facts.name, device->base.facts.pci);
        destroy(device);
        return st;
    }
    *ret = &device->base;
    return STATUS_OK;
}

static bool idle(struct cuda_device *device)
{
    if (!cuda_maker_stop(device))
        return false;
    for (const struct cuda_memory *memory = device->queues; memory; memory = memory->next) {
        if (!cuda_memory_idle(memory))
            return false;
    }
    return true;
}

static void device_close(struct device *base)
{
    struct cuda_device *device = (struct cuda_device *)base;
    uint64_t until_ns = clock_ns() + NS_PER_S;

    if (!device)
        return;
    while (!idle(device) && clock_ns() < until_ns)
        clock_sleep_ns(REST_US * NS_PER_US);
    if (idle(device)) /* else CUDA would wait, perhaps for ever */
        destroy(device);
}

/* A queue that was joined and has run dry is as good as a new one. */
static struct cuda_memory *joined_queue(struct cuda_device *device)
{
    struct cuda_memory *memory;

    pthread_mutex_lock(&device->lock);
    memory = device->queues;
    while (memory && !(memory->joined && cuda_memory_idle(memory)))
        memory = memory->next;
    if (memory)
        memory->joined = false;
    pthread_mutex_unlock(&device->lock);
    return memory;
}

static enum status device_fork(struct device *base, struct memory **ret, struct error *err)
{
    struct cuda_device *device = (struct cuda_device *)base;
    struct cuda_memory *memory = joined_queue(device);
    struct cuda_entry entry;
    enum status st = STATUS_OK;

    if (!memory) {
        st = cuda_enter(device, &entry, err);
        if (st != STATUS_OK)
            return st;
        st = cuda_memory_open(device, &memory, err);
        cuda_leave(device, &entry);
    }
    if (st == STATUS_OK)
        *ret = &memory->base;
    return st;
}

static void device_join(struct device *base, struct memory *memory)
{
    struct cuda_device *device = (struct cuda_device *)base;

    if (!memory)
        return;
    CHECK(memory != device->base.memory);
    pthread_mutex_lock(&device->lock);
    ((struct cuda_memory *)memory)->joined = true;
    pthread_mutex_unlock(&device->lock);
}

const struct device_ops cuda_device_ops = {.name = "cuda",
                                           .count = device_count,
                                           .describe = device_describe,
                                           .open = device_open,
                                           .close = device_close,
                                           .fork = device_fork,
                                           .join = device_join};
