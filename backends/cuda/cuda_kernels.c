/* Loads the image that nvcc made and starts its kernels.  The image is plain data to this plugin, so that nothing here
 * needs C++ or nvcc's host code.  cudaLaunchKernel takes the handle of a kernel in place of a function's address.
 *
 * CUDA loads a kernel when it is used first, which may wait for all work of the device, and some of that may wait for
 * another rank.  Asking for its attributes loads it: that is done while nothing runs yet. */
#include <stdint.h>

#include "backends/cuda/cuda_private.h"

enum { THREADS = 256 };

#define KERNEL_NAME(name) [KERNEL_##name] = "ferry_" #name,
static const char *const kernel_names[KERNEL_COUNT] = {KERNELS(KERNEL_NAME)};

static enum status find_kernel(struct cuda_device *device, int kernel, struct error *err)
{
    struct cudaFuncAttributes attributes;
    enum status st = cuda_status(cudaLibraryGetKernel(&device->kernels[kernel], device->library, kernel_names[kernel]),
                                 "cudaLibraryGetKernel", err);

    if (st == STATUS_OK)
        st = cuda_status(cudaFuncGetAttributes(&attributes, (const void *)device->kernels[kernel]),
                         "cudaFuncGetAttributes", err);
    return st == STATUS_OK ? st : error_wrap(err, st, "%s", kernel_names[kernel]);
}

enum status cuda_kernels_load(struct cuda_device *device, struct error *err)
{
    enum status st = cuda_status(cudaLibraryLoadData(&device->library, cuda_kernel_image, NULL, NULL, 0, NULL, NULL, 0),
                                 "cudaLibraryLoadData", err);

    for (int i = 0; st == STATUS_OK && i < KERNEL_COUNT; i++)
        st = find_kernel(device, i, err);
    return st;
}

enum status cuda_kernel_launch(struct cuda_memory *memory, enum kernel kernel, void *out, const void *in, size_t count,
                               struct error *err)
{
    const struct cuda_device *device = memory->device;
    uint64_t elements = count;
    uint64_t blocks = (elements - 1) / THREADS + 1;
    dim3 grid = {blocks < device->grid ? (unsigned int)blocks : device->grid, 1, 1};
    dim3 block = {THREADS, 1, 1};
    void *arguments[] = {&out, &in, &elements};
    enum status st =
        cuda_status(cudaLaunchKernel((const void *)device->kernels[kernel], grid, block, arguments, 0, memory->stream),
                    "cudaLaunchKernel", err);

    return st == STATUS_OK ? st : error_wrap(err, st, "%s: %s", memory->name, kernel_names[kernel]);
}
