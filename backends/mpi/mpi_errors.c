#include "backends/mpi/mpi_errors.h"

#include <mpi.h>

static enum status kind_of(int code)
{
    int class = MPI_ERR_OTHER;

    (void)MPI_Error_class(code, &class);
    switch (class) {
    case MPI_ERR_NO_MEM:
        return STATUS_NOMEM;
    case MPI_ERR_RANK:
    case MPI_ERR_TAG:
    case MPI_ERR_COUNT:
        return STATUS_INTERNAL;
    default:
        return STATUS_TRANSPORT;
    }
}

enum status mpi_failure(int code, const char *call, struct error *err)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;

    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        return error_set(err, kind_of(code), "%s failed with code %d", call, code);
    return error_set(err, kind_of(code), "%s failed: %s", call, text);
}
