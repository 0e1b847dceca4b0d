/* Kernels: found by name in a table that is compiled from the same functions as the device's, started on a stream.
 *
 * What the device would run (the image) is looked at only so far that it must be one. */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/kernels.h"
#include "base/size.h"
#include "tests/standin/inside.h"

struct CUkern_st {
    const char *name;
    void (*at)(void *out, const void *in, uint64_t k);
    size_t out_bytes; /* of an element */
    size_t in_bytes;
    bool loaded; /* by who asked for its attributes, or started it */
};

struct CUlib_st {
    struct CUkern_st *kernels; /* copies: a handle of an unloaded library is freed memory */
};

/* "add_f32" works on its own type; the others go between a half and f32. */
#define TABLE_ENTRY(name) {"ferry_" #name, kernel_##name, 0, 0, false},
static const struct CUkern_st table[] = {KERNELS(TABLE_ENTRY)};
enum { TABLE_COUNT = sizeof table / sizeof *table };

static size_t type_bytes(const char *name)
{
    const char *digits = name + strcspn(name, "0123456789");

    return strtoul(digits, NULL, 10) / 8;
}

static struct CUkern_st kernel_of(const struct CUkern_st *entry)
{
    struct CUkern_st kernel = *entry;

    kernel.out_bytes = strstr(entry->name, "widen") ? sizeof(float) : type_bytes(entry->name);
    kernel.in_bytes = strstr(entry->name, "narrow") ? sizeof(float) : type_bytes(entry->name);
    return kernel;
}

/* A fat binary, an object for a device, or PTX in words. */
static bool is_image(const unsigned char *code)
{
    static const unsigned char fat[] = {0x50, 0xed, 0x55, 0xba};
    static const unsigned char elf[] = {0x7f, 'E', 'L', 'F'};

    return memcmp(code, fat, sizeof fat) == 0 || memcmp(code, elf, sizeof elf) == 0 ||
           strncmp((const char *)code, "//", 2) == 0;
}

EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t *ret, const void *code, enum cudaJitOption *jit_options,
                                       void **jit_values, unsigned int jit_count, enum cudaLibraryOption *options,
                                       void **values, unsigned int count)
{
    cudaError_t error = standin_ready();
    struct CUlib_st *library = NULL;

    (void)jit_options;
    (void)jit_values;
    (void)options;
    (void)values;
    if (error == cudaSuccess && (!ret || !code || jit_count != 0 || count != 0))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && !is_image(code))
        error = cudaErrorInvalidKernelImage;
    if (error != cudaSuccess)
        return standin_give(error);
    library = malloc(sizeof *library);
    if (library && !(library->kernels = malloc(sizeof table))) {
        free(library);
        library = NULL;
    }
    if (!library)
        return standin_give(cudaErrorMemoryAllocation);
    for (int i = 0; i < TABLE_COUNT; i++)
        library->kernels[i] = kernel_of(&table[i]);
    *ret = library;
    return cudaSuccess;
}

EXPORT cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    if (!library)
        return standin_give(cudaErrorInvalidResourceHandle);
    for (int device = 0; device < standin_visible(); device++)
        standin_drain(device);
    free(library->kernels);
    free(library);
    return cudaSuccess;
}

EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t *ret, cudaLibrary_t library, const char *name)
{
    cudaError_t error = standin_ready();

    if (error == cudaSuccess && (!library || !name))
        error = cudaErrorInvalidResourceHandle;
    for (int i = 0; error == cudaSuccess && i < TABLE_COUNT; i++) {
        if (strcmp(name, table[i].name) == 0) {
            *ret = &library->kernels[i];
            return cudaSuccess;
        }
    }
    return standin_give(error == cudaSuccess ? cudaErrorSymbolNotFound : error);
}

struct start {
    struct CUkern_st kernel;
    char *out;
    const char *in;
    uint64_t count;
    size_t out_bytes;
    size_t in_bytes;
};

static void start_run(void *argument)
{
    struct start *start = argument;

    for (uint64_t k = 0; k < start->count; k++)
        start->kernel.at(start->out, start->in, k);
    standin_unuse(start->out, start->out_bytes);
    standin_unuse(start->in, start->in_bytes);
    free(start);
}

/* What the arguments say; an address that is not all there is an illegal one. */
static cudaError_t start_read(struct start *start, void **arguments, int device)
{
    const void *out = *(void **)arguments[0];
    const void *in = *(void **)arguments[1];

    memcpy(&start->count, arguments[2], sizeof start->count);
    if (size_mul(start->count, start->kernel.out_bytes, &start->out_bytes) != STATUS_OK ||
        size_mul(start->count, start->kernel.in_bytes, &start->in_bytes) != STATUS_OK)
        return cudaErrorIllegalAddress;
    if (start->count == 0)
        return cudaSuccess;
    start->out = standin_reach(out, start->out_bytes, device);
    start->in = standin_reach(in, start->in_bytes, device);
    if ((uintptr_t)out % start->kernel.out_bytes != 0 || (uintptr_t)in % start->kernel.in_bytes != 0)
        return cudaErrorMisalignedAddress;
    return start->out && start->in ? cudaSuccess : cudaErrorIllegalAddress;
}

static bool dimensions_fit(dim3 grid, dim3 block)
{
    return grid.x >= 1 && grid.x <= 2147483647u && grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535 &&
           block.x >= 1 && block.y >= 1 && block.z >= 1 && block.x <= 1024 && block.y <= 1024 && block.z <= 64 &&
           (uint64_t)block.x * block.y * block.z <= 1024;
}

/* As CUDA may, it waits for everything that runs on the device when a kernel is used first. */
static void load(const void *function, int device)
{
    struct CUkern_st *kernel = (struct CUkern_st *)(uintptr_t)function;

    if (!__atomic_load_n(&kernel->loaded, __ATOMIC_RELAXED))
        standin_drain(device);
    __atomic_store_n(&kernel->loaded, true, __ATOMIC_RELAXED);
}

EXPORT cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                    cudaStream_t stream)
{
    cudaError_t error = standin_stream_check(stream);
    struct start *start = NULL;

    if (error == cudaSuccess && !function)
        error = cudaErrorInvalidDeviceFunction;
    if (error == cudaSuccess && (!dimensions_fit(grid, block) || shared_bytes > 48 << 10))
        error = cudaErrorInvalidConfiguration;
    if (error == cudaSuccess && !(start = calloc(1, sizeof *start)))
        error = cudaErrorMemoryAllocation;
    if (error != cudaSuccess)
        return standin_give(error);
    load(function, standin_stream_device(stream));
    start->kernel = *(const struct CUkern_st *)function;
    error = start_read(start, arguments, standin_stream_device(stream));
    if (error != cudaSuccess || start->count == 0) {
        /* On a device this is found when the kernel runs, and ends everything. */
        if (error != cudaSuccess)
            standin_lose();
        free(start);
        return error == cudaSuccess ? cudaSuccess : standin_give(error);
    }
    standin_use(start->in, start->in_bytes, false);
    standin_use(start->out, start->out_bytes, strstr(start->kernel.name, "add") == NULL);
    standin_queue(stream, start_run, start);
    return cudaSuccess;
}

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments)
{
    if (!config)
        return standin_give(cudaErrorInvalidValue);
    return cudaLaunchKernel(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                            config->stream);
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    cudaError_t error = standin_ready();

    if (error == cudaSuccess && !function)
        error = cudaErrorInvalidDeviceFunction;
    if (error != cudaSuccess)
        return standin_give(error);
    load(function, standin_current());
    *attributes = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024, .numRegs = 16};
    return standin_give(error);
}
