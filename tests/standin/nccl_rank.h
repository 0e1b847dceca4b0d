/* One rank of a test of the stand-in for libnccl: a process with a device, a communicator and some memory. */
#ifndef TESTS_STANDIN_NCCL_RANK_H
#define TESTS_STANDIN_NCCL_RANK_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/standin/ranks.h"

enum { MANY = 300000, SETTLE_MS = 20000, FLAG_ID = 0, FLAG_FREE = 1 };

struct rank {
    int rank;
    int size;
    struct board *board;
    ncclComm_t comm;
    cudaStream_t stream;
    unsigned char *device; /* MANY bytes */
    unsigned char *other;
    unsigned char *host; /* pinned, MANY bytes */
};

typedef int rank_function(int rank, int size, struct board *board);

/* Device, stream and memory; with a communicator of all; and all given back, which is collective. */
struct rank rank_alone(int rank, int size, struct board *board);
struct rank rank_begin(int rank, int size, struct board *board, int blocking);
void rank_end(struct rank *r);

/* An id from rank 0 to all. */
ncclUniqueId rank_share_id(struct board *board, int rank);
/* The call alone that begins the communicator of all: r->comm. */
ncclResult_t rank_init(struct rank *r, int blocking);
/* Another communicator of the same ranks, ready.  Collective. */
ncclComm_t rank_split(const struct rank *r);
/* The state once it is none of progress, or after so long. */
ncclResult_t rank_settle(ncclComm_t comm, int ms);
/* Connect all ways between the ranks: a first transfer waits for its peer within the call.  Collective. */
void rank_connect(const struct rank *r);
/* It was launched and is ready for more. */
void rank_ready(const struct rank *r, ncclResult_t result);

unsigned char byte_of(int rank, size_t k);
/* Bytes of byte_of(this rank) to device memory; bytes from it to host. */
void rank_fill(const struct rank *r, unsigned char *device, size_t bytes);
void rank_fetch(const struct rank *r, const void *device, size_t bytes);
/* The same with values of the caller's. */
void rank_put(const struct rank *r, void *device, const void *values, size_t bytes);

/* Is the stream still at work after a while that is long for a transfer? */
bool rank_hangs(const struct rank *r);
/* It hangs, and an abort ends it.  Returns 0. */
int rank_hang_and_abort(struct rank *r);

/* Run on so many processes; each must end with that status. */
void expect_all(int size, rank_function *run, int wanted);

#endif
