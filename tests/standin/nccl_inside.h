/* Shared by the files of the stand-in for libnccl. */
#ifndef TESTS_STANDIN_NCCL_INSIDE_H
#define TESTS_STANDIN_NCCL_INSIDE_H

#include <nccl.h>
#include <pthread.h>

#include "tests/standin/standin.h"

#define EXPORT STANDIN_API

enum { RANKS_MAX = 64, SIDE_BY_SIDE = 8, PIPE_BYTES = 128 << 10, NAME_BYTES = 64, MS_OF_A_LOOK = 1 };

/* --- shared between the processes of one communicator ---------------------------------------------------------- */

/* One direction between two ranks: a stream of bytes, how many sends and receives have begun on it, and whether its
 * receiver and its sender have come to connect it. */
struct pipe {
    uint64_t sends;
    uint64_t receives;
    uint64_t written;
    uint64_t read;
    uint32_t came[2]; /* [is the sender] */
    char bytes[PIPE_BYTES];
};

/* How far a member has come: it holds the table; it wants to end. */
enum stage { STAGE_NONE, STAGE_ARRIVED, STAGE_LEAVING };

struct seat {
    char bus[STANDIN_BUS_BYTES];
    uint32_t bell; /* rung by whoever moved something for this rank */
    uint32_t asleep;
    uint32_t stage; /* enum stage */
    /* How many splits it has come to, and what it wants of the latest two: nobody comes to the next but one before all
     * have read this one. */
    uint32_t splits;
    int32_t color[2];
    int32_t key[2];
};

struct table {
    int size;
    struct seat seats[RANKS_MAX];
    struct pipe pipes[]; /* [from * size + to], then the ring's: [size * size + from] */
};

static inline size_t table_bytes(int size)
{
    return sizeof(struct table) + sizeof(struct pipe) * ((size_t)size * (size_t)size + (size_t)size);
}

/* --- a communicator -------------------------------------------------------------------------------------------- */

struct ncclComm {
    struct ncclComm *next;
    char name[NAME_BYTES]; /* of the meeting it came from */
    int rank;
    int size;
    int device;
    bool blocking;
    struct table *table; /* NULL until all have met */

    /* under comms_lock */
    ncclResult_t state;
    int holders; /* the caller, launches, jobs */
    int jobs;    /* threads that work for it */
    int running; /* launches that have begun and not ended */
    int waiting; /* launches that have not ended */
    bool finalized;
    bool revoked;
    uint32_t splits;
    uint64_t collectives; /* begun */

    uint32_t stop;           /* enum comm_stop; atomic */
    struct ncclComm *parent; /* while it is being split off */
};

enum comm_stop { STOP_NOTHING, STOP_REVOKED, STOP_ABORTED };

extern pthread_mutex_t comms_lock;
extern pthread_cond_t comms_changed;

/* Text for ncclGetLastError; returns result. */
ncclResult_t comm_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A new one, held by the caller; it is let go by comm_bury. */
struct ncclComm *comm_make(int device, bool blocking);
void comm_bury(struct ncclComm *comm);
/* Is it one that was made and not buried?  With comms_lock. */
bool comm_live(const struct ncclComm *comm);
/* Run the job here, or start it; then how the communicator is. */
ncclResult_t comm_perform(struct ncclComm *comm, void *(*job)(void *), void *argument);
/* May calls be made on it now? */
ncclResult_t comm_ready(struct ncclComm *comm);
/* A job begins to work for it: from now on it is in progress.  The job has ended. */
void comm_begin(struct ncclComm *comm);
void comm_end(struct ncclComm *comm, ncclResult_t result);
/* With comms_lock. */
void comm_drop(struct ncclComm *comm);
static inline bool comm_aborted(const struct ncclComm *comm)
{
    return __atomic_load_n(&comm->stop, __ATOMIC_ACQUIRE) == STOP_ABORTED;
}
/* Must what runs on it end? */
static inline bool comm_stopped(const struct ncclComm *comm)
{
    return __atomic_load_n(&comm->stop, __ATOMIC_ACQUIRE) != STOP_NOTHING ||
           (comm->parent && comm_aborted(comm->parent));
}

/* Run job(argument) in a thread of its own that nobody joins; in this one where that cannot be had. */
void job_start(void *(*job)(void *), void *argument);

/* --- the meeting ----------------------------------------------------------------------------------------------- */

/* Serve the meeting of that name from a thread, until all have come or the process ends. */
ncclResult_t meeting_serve(const char *name);
/* Come to the meeting: the table that all share, or NULL when comm was stopped first. */
struct table *meeting_attend(struct ncclComm *comm, const char *name, ncclResult_t *result);

/* --- pipes ----------------------------------------------------------------------------------------------------- */

struct pipe *pipe_between(struct ncclComm *comm, int from, int to);
struct pipe *pipe_of_ring(struct ncclComm *comm, int from);
/* Move what can be moved: bytes moved, 0: none. */
size_t pipe_put(struct pipe *pipe, const char *bytes, size_t count);
size_t pipe_take(struct pipe *pipe, char *bytes, size_t count);
/* Something moved for that rank. */
void seat_ring(struct ncclComm *comm, int rank);
/* Nothing moved: rest until the bell rings or a look is due. */
void seat_rest(struct ncclComm *comm, uint32_t bell, int idle);
uint32_t seat_bell(struct ncclComm *comm);

/* --- operations ------------------------------------------------------------------------------------------------ */

enum op_kind { OP_SEND, OP_RECEIVE, OP_ALL_REDUCE, OP_ALL_GATHER, OP_BROADCAST, OP_REDUCE_SCATTER };

struct op {
    enum op_kind kind;
    struct ncclComm *comm;
    int peer; /* or root */
    ncclDataType_t type;
    size_t count;
    char *from; /* aliases */
    size_t from_bytes;
    char *to;
    size_t to_bytes;
    cudaStream_t stream;
    struct standin_fault fault;
    /* of a send or receive under way */
    int pass;  /* so many of the group come before it from the same rank to the same rank */
    int batch; /* it begins when all of lower batches are over */
    uint64_t index;
    size_t moved;
    uint64_t end;
    bool begun;
    bool over;
    struct op *next;
};

size_t type_bytes(ncclDataType_t type);
/* left[k] = left[k] + right[k], halves in halves. */
void sum_into(ncclDataType_t type, void *left, const void *right, size_t count);
static inline bool is_transfer(const struct op *op)
{
    return op->kind == OP_SEND || op->kind == OP_RECEIVE;
}
/* Every transfer has a round, in which its sender and its receiver have the same distance on the ring. */
static inline int round_of(const struct op *op)
{
    int ahead = op->kind == OP_SEND ? op->peer - op->comm->rank : op->comm->rank - op->peer;

    return (ahead + op->comm->size) % op->comm->size;
}
/* All sends and receives of the list, batch by batch; a collective.  They return early when the communicator stops. */
void run_transfers(struct ncclComm *comm, struct op *ops);
void run_collective(struct op *op);

#endif
