/* What ferry-cuda.so exports: devices, and messages between them. */
#include <nccl.h>
#include <stdio.h>

#include "backends/cuda/cuda_private.h"
#include "backends/nccl/nccl_transport.h"
#include "comm/plugin.h"

/* NCCL's are 10000 * major + 100 * minor + patch. */
static void nccl_number(char *text, size_t text_bytes, int version)
{
    (void)snprintf(text, text_bytes, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
}

static int libraries(struct plugin_library *list)
{
    int count = cuda_libraries(list);
    int nccl = 0;

    (void)ncclGetVersion(&nccl);
    list[count] = (struct plugin_library){.name = "NCCL"};
    nccl_number(list[count].built, sizeof list[count].built, NCCL_VERSION_CODE);
    nccl_number(list[count].running, sizeof list[count].running, nccl);
    return count + 1;
}

extern const struct plugin ferry_plugin;

__attribute__((visibility("default"))) const struct plugin ferry_plugin = {
    .name = "cuda",
    .transport = &nccl_transport_ops,
    .devices = &cuda_device_ops,
    .libraries = libraries,
};
