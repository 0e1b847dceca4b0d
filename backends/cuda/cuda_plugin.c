/* What ferry-cuda.so exports. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>

#include "backends/cuda/cuda_private.h"
#include "backends/nccl/nccl_transport.h"
#include "comm/plugin.h"

/* CUDA's numbers are 1000 * major + 10 * minor; 0 stands for none. */
static void cuda_number(char *text, size_t text_bytes, int version)
{
    if (version > 0)
        (void)snprintf(text, text_bytes, "%d.%d", version / 1000, version % 1000 / 10);
    else
        (void)snprintf(text, text_bytes, "none");
}

/* NCCL's are 10000 * major + 100 * minor + patch. */
static void nccl_number(char *text, size_t text_bytes, int version)
{
    (void)snprintf(text, text_bytes, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
}

static int cuda_libraries(struct plugin_library *list)
{
    int runtime = 0;
    int driver = 0;
    int nccl = 0;

    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    (void)ncclGetVersion(&nccl);
    list[0] = (struct plugin_library){.name = "CUDA runtime"};
    cuda_number(list[0].built, sizeof list[0].built, CUDART_VERSION);
    cuda_number(list[0].running, sizeof list[0].running, runtime);
    list[1] = (struct plugin_library){.name = "CUDA driver"};
    cuda_number(list[1].running, sizeof list[1].running, driver);
    list[2] = (struct plugin_library){.name = "NCCL"};
    nccl_number(list[2].built, sizeof list[2].built, NCCL_VERSION_CODE);
    nccl_number(list[2].running, sizeof list[2].running, nccl);
    return 3;
}

extern const struct plugin ferry_plugin;

__attribute__((visibility("default"))) const struct plugin ferry_plugin = {
    .name = "cuda",
    .transport = &nccl_transport_ops,
    .devices = &cuda_device_ops,
    .libraries = cuda_libraries,
};
