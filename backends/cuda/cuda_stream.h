/* What the transport of the same plugin needs to know of a memory. */
#ifndef BACKENDS_CUDA_STREAM_H
#define BACKENDS_CUDA_STREAM_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "base/memory.h"

/* The device that the memory belongs to; -1: none of this plugin's, or memory of the host. */
int cuda_memory_device(const struct memory *memory);

/* The stream that carries its queue; lent until the memory is closed.  The memory must be a device's. */
cudaStream_t cuda_memory_stream(const struct memory *memory);

/* STATUS_OK, or the failed call ("cudaMalloc") with CUDA's own words: STATUS_NOMEM when memory ran out, else
 * STATUS_ENVIRONMENT. */
enum status cuda_status(cudaError_t code, const char *call, struct error *err);

/* The device takes no work from this process any more. */
bool cuda_has_failed(cudaError_t code);

#endif
