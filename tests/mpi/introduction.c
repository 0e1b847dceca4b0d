/* A rank that is lost while the processes of its host are introduced to each other: after it has told them of itself,
 * before it has told them whose memory it could map (backends/mpi/mpi_host.c).
 *
 * Linked into a program, this comes before MPI's own for all that the program opens.  INTRODUCTION="RANK SIGNAL" says
 * who is lost, and how. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int MPI_Alltoall(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                 MPI_Datatype receive_type, MPI_Comm comm)
{
    const char *lost = getenv("INTRODUCTION");
    char *rest = NULL;
    int rank = -1;

    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (lost && strtol(lost, &rest, 10) == rank)
        (void)raise((int)strtol(rest, NULL, 10));
    return PMPI_Alltoall(send, send_count, send_type, receive, receive_count, receive_type, comm);
}
