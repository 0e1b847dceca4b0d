/* The processes of this host, and the memories that they share with each other.
 *
 * All that share something are introduced at once.  What one of them has a peer maps, or it does not, and both know
 * which: each memory of each ordered pair is by itself. */
#ifndef BACKENDS_MPI_HOST_H
#define BACKENDS_MPI_HOST_H

#include <mpi.h>
#include <stdbool.h>

#include "base/shared_file.h"

struct host;

/* What a process may share, at most one of each kind. */
enum host_kind {
    HOST_MAIL,    /* its mailbox: peers write there, too, and all are of one length */
    HOST_TENSORS, /* for reading alone, of any length */
    HOST_KINDS
};

/* Find them.  Collective over comm, blocks.  *ret_count: the hosts of comm, 0: that is not known.  NULL on all
 * processes where one of them has no memory for its lists, or MPI fails: nobody shares anything.  The other functions
 * take it, too. */
struct host *host_open(MPI_Comm comm, int *ret_count);
/* Unmaps what was mapped. */
void host_close(struct host *host);

/* Processes of this host; 1: no other, 0: they are not known. */
int host_size(const struct host *host);
/* A rank of comm among them; -1: it is not. */
int host_place(const struct host *host, int rank);
/* This process. */
int host_own_place(const struct host *host);

/* Tell them what this process shares and map what they do, unless takes is false.  Once, collective over the host's
 * processes, blocks for two exchanges between them.  files[HOST_KINDS] are borrowed until it returns; without a mailbox
 * the length of one still counts. */
void host_share(struct host *host, const struct shared_file files[HOST_KINDS], bool takes);

/* Where a peer's memory is mapped, until host_close; *ret_bytes: its length (NULL is allowed).  NULL: it is not. */
void *host_memory(const struct host *host, enum host_kind kind, int rank, uint64_t *ret_bytes);
/* Has this peer mapped ours? */
bool host_reads(const struct host *host, enum host_kind kind, int rank);

#endif
