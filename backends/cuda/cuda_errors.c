/* CUDA's codes as statuses and sentences. */
#include "backends/cuda/cuda_stream.h"

bool cuda_has_failed(cudaError_t code)
{
    switch (code) {
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
        return true;
    default:
        return false;
    }
}

enum status cuda_status(cudaError_t code, const char *call, struct error *err)
{
    if (code == cudaSuccess)
        return STATUS_OK;
    return error_set(err, code == cudaErrorMemoryAllocation ? STATUS_NOMEM : STATUS_ENVIRONMENT, "%s: %s (%s)", call,
                     cudaGetErrorString(code), cudaGetErrorName(code));
}
