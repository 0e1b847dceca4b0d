/* Versions of CUDA's libraries, for both plugins. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#include "backends/cuda/cuda_private.h"
#include "comm/plugin.h"

/* CUDA's numbers are 1000 * major + 10 * minor; 0 stands for none. */
static void cuda_number(char *text, size_t text_bytes, int version)
{
    if (version > 0)
        (void)snprintf(text, text_bytes, "%d.%d", version / 1000, version % 1000 / 10);
    else
        (void)snprintf(text, text_bytes, "none");
}

int cuda_libraries(struct plugin_library *list)
{
    int runtime = 0;
    int driver = 0;

    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    list[0] = (struct plugin_library){.name = "CUDA runtime"};
    cuda_number(list[0].built, sizeof list[0].built, CUDART_VERSION);
    cuda_number(list[0].running, sizeof list[0].running, runtime);
    list[1] = (struct plugin_library){.name = "CUDA driver"};
    cuda_number(list[1].running, sizeof list[1].running, driver);
    return 2;
}
