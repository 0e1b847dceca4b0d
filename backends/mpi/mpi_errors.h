/* MPI's error codes as sentences. */
#ifndef BACKENDS_MPI_ERRORS_H
#define BACKENDS_MPI_ERRORS_H

#include "base/status.h"

enum status mpi_failure(int code, const char *call, struct error *err);

/* MPI_SUCCESS (which is 0): STATUS_OK.  Otherwise "call: what MPI says", as STATUS_NOMEM, STATUS_INTERNAL (an argument)
 * or STATUS_TRANSPORT. */
static inline enum status mpi_status(int code, const char *call, struct error *err)
{
    return code ? mpi_failure(code, call, err) : STATUS_OK;
}

#endif
