// The kernels as nvcc compiles them: threads stride over the elements, so that any grid is right for any count.
#include "backends/cuda/kernels.h"

#define KERNEL(name)                                                                                                   \
    extern "C" __global__ void ferry_##name(void *out, const void *in, kernel_u64 count)                               \
    {                                                                                                                  \
        const kernel_u64 step = (kernel_u64)gridDim.x * blockDim.x;                                                    \
                                                                                                                       \
        for (kernel_u64 k = (kernel_u64)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += step)                   \
            kernel_##name(out, in, k);                                                                                 \
    }

KERNELS(KERNEL)
