/* The processes of a host as the mpi transport introduces them, for the programs that test parts of it. */
#ifndef TESTS_MPI_NEIGHBOURS_H
#define TESTS_MPI_NEIGHBOURS_H

#include "backends/mpi/mpi_host.h"
#include "backends/mpi/mpi_mailbox.h"

struct memory;

struct neighbours {
    struct host *host;
    struct mailbox *mailbox; /* NULL: there is nobody else */
};

/* Share a mailbox, and lent unless it is NULL, with the other ranks.  Collective over the world. */
struct neighbours neighbours_open(const struct memory *lent);
void neighbours_close(struct neighbours *neighbours);

#endif
