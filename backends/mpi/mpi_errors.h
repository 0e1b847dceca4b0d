/* MPI's error codes as sentences. */
#ifndef BACKENDS_MPI_ERRORS_H
#define BACKENDS_MPI_ERRORS_H

#include "base/status.h"

/* MPI_SUCCESS: STATUS_OK.  Otherwise "call: what MPI says", as STATUS_NOMEM, STATUS_INTERNAL (an argument) or
 * STATUS_TRANSPORT. */
enum status mpi_status(int code, const char *call, struct error *err);

#endif
