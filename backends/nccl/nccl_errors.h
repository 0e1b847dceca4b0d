/* NCCL's results as sentences: which call, NCCL's own words, what to do. */
#ifndef BACKENDS_NCCL_ERRORS_H
#define BACKENDS_NCCL_ERRORS_H

#include <nccl.h>

#include "base/status.h"

/* A call has failed, or comm reports an asynchronous error; comm may be NULL.  STATUS_LOST: another process or the
 * network between; STATUS_INTERNAL: we have called NCCL wrongly; STATUS_ENVIRONMENT: CUDA, the system or NCCL itself.
 */
enum status nccl_failure(ncclResult_t result, const char *call, ncclComm_t comm, struct error *err);

/* ncclSuccess and ncclInProgress: STATUS_OK.  Else nccl_failure. */
static inline enum status nccl_status(ncclResult_t result, const char *call, ncclComm_t comm, struct error *err)
{
    return result == ncclSuccess || result == ncclInProgress ? STATUS_OK : nccl_failure(result, call, comm, err);
}

#endif
