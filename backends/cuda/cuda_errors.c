/* CUDA's codes as statuses and sentences. */
#include "backends/cuda/cuda_stream.h"

static enum status kind_of(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return STATUS_NOMEM;
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
        return STATUS_LOST; /* the device takes no work from this process any more */
    default:
        return STATUS_ENVIRONMENT;
    }
}

enum status cuda_status(cudaError_t code, const char *call, struct error *err)
{
    if (code == cudaSuccess)
        return STATUS_OK;
    return error_set(err, kind_of(code), "%s: %s (%s)", call, cudaGetErrorString(code), cudaGetErrorName(code));
}
