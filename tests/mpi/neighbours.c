/* See neighbours.h. */
#include "tests/mpi/neighbours.h"

#include "base/memory_shared.h"

struct neighbours neighbours_open(const struct memory *lent)
{
    struct shared_file files[HOST_KINDS] = {[HOST_TENSORS] = {.fd = -1}};
    struct neighbours ret = {0};
    int count = 0;
    int size = 0;

    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    ret.host = host_open(MPI_COMM_WORLD, &count);
    ret.mailbox = mailbox_create(ret.host, size);
    files[HOST_MAIL] = mailbox_file(ret.mailbox);
    if (lent)
        files[HOST_TENSORS] = memory_shared_file(lent);
    host_share(ret.host, files, true);
    mailbox_open(ret.mailbox);
    return ret;
}

void neighbours_close(struct neighbours *neighbours)
{
    mailbox_close(neighbours->mailbox);
    host_close(neighbours->host);
}
