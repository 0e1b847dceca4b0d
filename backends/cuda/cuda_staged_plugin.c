/* What ferry-cuda-staged.so exports: devices alone, for machines without NCCL's library. */
#include "backends/cuda/cuda_private.h"
#include "comm/plugin.h"

extern const struct plugin ferry_plugin;

__attribute__((visibility("default"))) const struct plugin ferry_plugin = {
    .name = "cuda-staged",
    .devices = &cuda_device_ops,
    .libraries = cuda_libraries,
};
