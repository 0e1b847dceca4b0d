#include "backends/nccl/nccl_errors.h"

#include <stdbool.h>

static const struct {
    enum status status;
    const char *advice;
} table[ncclNumResults] = {
    [ncclUnhandledCudaError] = {STATUS_ENVIRONMENT,
                                "look at nvidia-smi and the kernel's log for a failed GPU; NCCL_DEBUG=WARN says more"},
    [ncclSystemError] = {STATUS_ENVIRONMENT,
                         "NCCL_DEBUG=WARN names the failed call; a wrong network interface is set by "
                         "NCCL_SOCKET_IFNAME, little shared memory by the size of /dev/shm"},
    [ncclInternalError] = {STATUS_ENVIRONMENT, "NCCL_DEBUG=WARN says more"},
    [ncclInvalidArgument] = {STATUS_INTERNAL, "NCCL_DEBUG=WARN says more"},
    [ncclInvalidUsage] = {STATUS_ENVIRONMENT,
                          "one GPU for two ranks, or libraries of two versions; NCCL_DEBUG=WARN says which"},
    [ncclRemoteError] = {STATUS_LOST, "another rank or the network failed: see what the other ranks say"},
};

enum status nccl_failure(ncclResult_t result, const char *call, ncclComm_t comm, struct error *err)
{
    bool known = result > ncclSuccess && result < ncclNumResults && table[result].advice;
    const char *last = ncclGetLastError(comm);

    return error_set(err, known ? table[result].status : STATUS_ENVIRONMENT, "%s failed: %s%s%.400s%s: %s", call,
                     ncclGetErrorString(result), last && last[0] ? " (" : "", last ? last : "",
                     last && last[0] ? ")" : "", known ? table[result].advice : "NCCL_DEBUG=WARN says more");
}
