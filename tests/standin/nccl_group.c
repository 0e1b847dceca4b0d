/* Calls, gathered into groups, launched on streams.
 *
 * The calls of a group on one communicator are one launch.  The launches of a device run one at a time, in the order
 * in which they were issued, on whatever streams: as kernels do that leave no room for others.  So two ranks that issue
 * operations of two communicators in different orders wait for each other.
 *
 * Before it is issued, the ways between ranks that it is the first to use are connected, which waits for the peers.
 *
 * A group of communicators that do not block is issued by a thread of its own, a little later: what the caller queues
 * on the stream meanwhile comes before it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "tests/standin/nccl_inside.h"

/* The header leaves their arguments open. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum { ISSUE_LATER_US = 50 };

struct launch {
    struct ncclComm *comm;
    struct op *collectives;
    struct op *transfers;
    uint64_t ticket;
};

/* The operations of a group on their way to the streams. */
struct batch {
    struct op *ops;
    bool blocking;
};

static _Thread_local struct {
    int depth;
    ncclResult_t error;
    struct op *ops;
    struct op **tail;
} group;

static pthread_mutex_t issue_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_ticket[64];
static uint64_t serving[64]; /* under comms_lock */
static long ops_issued;

/* --- a launch runs ------------------------------------------------------------------------------------------------ */

static void suffer(const struct op *op)
{
    uint64_t until = clock_ns() + (uint64_t)op->fault.value * NS_PER_MS;

    switch (op->fault.kind) {
    case FAULT_KILL:
        raise(SIGKILL);
        break;
    case FAULT_DELAY:
        while (clock_ns() < until && !comm_stopped(op->comm))
            clock_sleep_ns(NS_PER_MS);
        break;
    case FAULT_ERROR:
        pthread_mutex_lock(&comms_lock);
        op->comm->state = ncclRemoteError;
        pthread_mutex_unlock(&comms_lock);
        while (!comm_stopped(op->comm))
            clock_sleep_ns(NS_PER_MS);
        break;
    default:
        break;
    }
}

static void suffer_all(const struct op *ops)
{
    for (const struct op *op = ops; op; op = op->next)
        suffer(op);
}

/* Collectives first, one after the other; then the transfers. */
static void launch_work(struct launch *launch)
{
    suffer_all(launch->collectives);
    suffer_all(launch->transfers);
    for (struct op *op = launch->collectives; op && !comm_stopped(launch->comm); op = op->next)
        run_collective(op);
    run_transfers(launch->comm, launch->transfers);
}

static void free_list(struct op *ops)
{
    while (ops) {
        struct op *next = ops->next;

        free(ops);
        ops = next;
    }
}

static void finish(struct op *ops)
{
    for (struct op *op = ops; op; op = op->next) {
        standin_unuse(op->from, op->from_bytes);
        standin_unuse(op->to, op->to_bytes);
    }
    free_list(ops);
}

static void launch_run(void *argument)
{
    struct launch *launch = argument;
    struct ncclComm *comm = launch->comm;
    int device = comm->device;

    pthread_mutex_lock(&comms_lock);
    while (serving[device] != launch->ticket)
        pthread_cond_wait(&comms_changed, &comms_lock);
    comm->running++;
    pthread_mutex_unlock(&comms_lock);

    launch_work(launch);
    finish(launch->collectives);
    finish(launch->transfers);
    free(launch);

    pthread_mutex_lock(&comms_lock);
    comm->running--;
    comm->waiting--;
    serving[device]++;
    pthread_cond_broadcast(&comms_changed);
    comm_drop(comm);
    pthread_mutex_unlock(&comms_lock);
}

/* --- a launch is issued ------------------------------------------------------------------------------------------- */

static bool stream_seen(const struct op *ops, const struct op *op)
{
    for (const struct op *each = ops; each != op; each = each->next)
        if (each->stream == op->stream)
            return true;
    return false;
}

static void note_uses(struct op *ops)
{
    for (struct op *op = ops; op; op = op->next) {
        standin_use(op->from, op->from_bytes, false);
        op->fault = standin_fault_at(FAULT_NONE, __atomic_fetch_add(&ops_issued, 1, __ATOMIC_RELAXED));
    }
    for (struct op *op = ops; op; op = op->next)
        standin_use(op->to, op->to_bytes, true);
}

/* What is queued on stream from now on begins when all that is queued on before is done. */
static void follow(cudaStream_t stream, cudaStream_t before)
{
    struct standin_mark *mark = standin_mark(before);

    standin_wait(stream, mark);
    standin_forget(mark);
}

/* Collectives and transfers apart, each in order. */
static void sort_out(struct op *ops, struct launch *launch)
{
    struct op **ends[] = {&launch->collectives, &launch->transfers};
    struct op *next;

    for (struct op *op = ops; op; op = next) {
        next = op->next;
        op->next = NULL;
        *ends[is_transfer(op)] = op;
        ends[is_transfer(op)] = &op->next;
    }
}

/* The streams that the calls name, each once (returns). */
static size_t list_streams(const struct op *ops, cudaStream_t **ret)
{
    size_t count = 1;

    for (const struct op *op = ops->next; op; op = op->next)
        count++;
    *ret = malloc(count * sizeof **ret);
    if (!*ret)
        abort();
    count = 0;
    for (const struct op *op = ops; op; op = op->next)
        if (!stream_seen(ops, op))
            (*ret)[count++] = op->stream;
    return count;
}

/* Takes ops, all of one communicator. */
static void launch_issue(struct ncclComm *comm, struct op *ops)
{
    struct launch *launch = calloc(1, sizeof *launch);
    cudaStream_t *streams;
    size_t stream_count = list_streams(ops, &streams);

    if (!launch)
        abort();
    note_uses(ops);
    launch->comm = comm;
    sort_out(ops, launch);
    pthread_mutex_lock(&comms_lock);
    comm->holders++;
    comm->waiting++;
    pthread_mutex_unlock(&comms_lock);
    pthread_mutex_lock(&issue_lock);
    launch->ticket = next_ticket[comm->device]++;
    for (size_t i = 1; i < stream_count; i++)
        follow(streams[0], streams[i]);
    standin_queue(streams[0], launch_run, launch);
    for (size_t i = 1; i < stream_count; i++)
        follow(streams[i], streams[0]);
    pthread_mutex_unlock(&issue_lock);
    free(streams);
}

/* --- a group ------------------------------------------------------------------------------------------------------ */

static ncclResult_t check_self(const struct op *ops)
{
    int sends = 0;
    int receives = 0;

    for (const struct op *op = ops; op; op = op->next) {
        sends += op->kind == OP_SEND && op->peer == op->comm->rank;
        receives += op->kind == OP_RECEIVE && op->peer == op->comm->rank;
    }
    return sends == receives ? ncclSuccess : ncclInvalidUsage;
}

/* The calls of the first communicator in the list; the others stay. */
static struct op *take_first(struct op **ops)
{
    const struct ncclComm *comm = (*ops)->comm;
    struct op *taken = NULL;
    struct op **last = &taken;

    while (*ops) {
        struct op *op = *ops;

        if (op->comm == comm) {
            *ops = op->next;
            *last = op;
            last = &op->next;
        } else {
            ops = &op->next;
        }
    }
    *last = NULL;
    return taken;
}

static bool comm_seen(const struct op *ops, const struct op *op)
{
    for (const struct op *each = ops; each != op; each = each->next)
        if (each->comm == op->comm)
            return true;
    return false;
}

/* Come to connect that way.  Has its other end come, too? */
static bool way_connects(const struct op *op)
{
    bool sends = op->kind == OP_SEND;
    int rank = op->comm->rank;
    struct pipe *pipe = sends ? pipe_between(op->comm, rank, op->peer) : pipe_between(op->comm, op->peer, rank);

    if (__atomic_exchange_n(&pipe->came[sends], 1, __ATOMIC_SEQ_CST) == 0)
        seat_ring(op->comm, op->peer);
    return __atomic_load_n(&pipe->came[!sends], __ATOMIC_SEQ_CST);
}

/* Connect what comm's transfers need, round by round: nobody comes to a round before the last one's peers have come. */
static bool comm_connects(const struct ncclComm *comm, const struct op *ops)
{
    bool connected = true;

    for (int round = 1; connected && round < comm->size; round++)
        for (const struct op *op = ops; op; op = op->next)
            if (op->comm == comm && is_transfer(op) && round_of(op) == round)
                connected &= way_connects(op);
    return connected || comm_stopped(comm);
}

/* Every communicator of the group for itself, until all are connected or stopped. */
static void connect_ways(const struct op *ops)
{
    bool connected;

    do {
        uint32_t bell = seat_bell(ops->comm);

        connected = true;
        for (const struct op *op = ops; op; op = op->next)
            if (!comm_seen(ops, op))
                connected &= comm_connects(op->comm, ops);
        if (!connected)
            seat_rest(ops->comm, bell, 20);
    } while (!connected);
}

static ncclResult_t batch_issue(struct batch *batch)
{
    ncclResult_t worst = ncclSuccess;

    connect_ways(batch->ops);
    while (batch->ops) {
        struct op *ops = take_first(&batch->ops);
        struct ncclComm *comm = ops->comm;
        ncclResult_t result = check_self(ops);

        cudaSetDevice(comm->device);
        if (result == ncclSuccess)
            launch_issue(comm, ops);
        else
            free_list(ops);
        comm_end(comm, comm->blocking ? ncclSuccess : result);
        if (result != ncclSuccess)
            worst = comm_fail(result, "a send to oneself without a receive, or a receive without a send");
    }
    return worst;
}

static void *batch_job(void *argument)
{
    struct batch *batch = argument;

    clock_sleep_ns((ISSUE_LATER_US + standin_lag_us()) * NS_PER_US);
    batch_issue(batch);
    free(batch);
    return NULL;
}

/* Takes ops. */
static ncclResult_t group_launch(struct op *ops)
{
    struct batch *batch;
    bool blocking = ops->comm->blocking;
    int device = 0;
    ncclResult_t result;

    for (const struct op *op = ops; op; op = op->next) {
        if (op->comm->blocking != blocking) {
            free_list(ops);
            return comm_fail(ncclInvalidArgument, "blocking and non-blocking communicators in one group");
        }
    }
    if (!(batch = malloc(sizeof *batch)))
        abort();
    *batch = (struct batch){.ops = ops, .blocking = blocking};
    for (const struct op *op = ops; op; op = op->next)
        if (!comm_seen(ops, op))
            comm_begin(op->comm);
    if (!blocking) {
        job_start(batch_job, batch);
        return ncclInProgress;
    }
    cudaGetDevice(&device);
    result = batch_issue(batch);
    cudaSetDevice(device);
    free(batch);
    return result;
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    if (group.depth++ == 0) {
        group.error = ncclSuccess;
        group.ops = NULL;
        group.tail = &group.ops;
    }
    return ncclSuccess;
}

/* The first error of a call in the group is the group's; then nothing is launched. */
EXPORT ncclResult_t ncclGroupEnd(void)
{
    struct op *ops;

    if (group.depth == 0)
        return comm_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0)
        return ncclSuccess;
    ops = group.ops;
    group.ops = NULL;
    if (group.error != ncclSuccess) {
        free_list(ops);
        return group.error;
    }
    return ops ? group_launch(ops) : ncclSuccess;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static ncclResult_t reach(const struct op *op, const void *address, size_t bytes, char **ret)
{
    *ret = NULL;
    if (bytes == 0)
        return ncclSuccess;
    *ret = standin_reach(address, bytes, op->comm->device);
    if (*ret)
        return ncclSuccess;
    return comm_fail(ncclInvalidArgument, "%zu bytes at %p are not memory of device %d, nor pinned", bytes, address,
                     op->comm->device);
}

/* op: kind, comm, peer, type, count, stream and the bytes at both ends. */
static ncclResult_t op_check(struct op *op, const void *from, void *to)
{
    ncclResult_t result = comm_ready(op->comm);

    if (result != ncclSuccess)
        return result;
    if (op->comm->revoked || op->comm->finalized)
        return comm_fail(ncclInvalidUsage, "the communicator was %s", op->comm->revoked ? "revoked" : "finalized");
    if (type_bytes(op->type) == 0)
        return comm_fail(ncclInvalidArgument, "type %d", (int)op->type);
    if (op->peer < 0 || op->peer >= op->comm->size)
        return comm_fail(ncclInvalidArgument, "rank %d of %d", op->peer, op->comm->size);
    if (standin_stream_device(op->stream) != op->comm->device)
        return comm_fail(ncclUnhandledCudaError, "the stream is not one of device %d", op->comm->device);
    result = reach(op, from, op->from_bytes, &op->from);
    return result == ncclSuccess ? reach(op, to, op->to_bytes, &op->to) : result;
}

static ncclResult_t op_call(struct op call, const void *from, size_t from_parts, void *to, size_t to_parts)
{
    ncclResult_t result = ncclSuccess;
    struct op *op;

    ncclGroupStart();
    if (size_mul(call.count, type_bytes(call.type), &call.from_bytes) != STATUS_OK ||
        size_mul(call.from_bytes, to_parts, &call.to_bytes) != STATUS_OK ||
        size_mul(call.from_bytes, from_parts, &call.from_bytes) != STATUS_OK)
        result = comm_fail(ncclInvalidArgument, "%zu elements of type %d", call.count, (int)call.type);
    if (result == ncclSuccess)
        result = op_check(&call, from, to);
    /* Empty collectives are nothing; empty transfers meet. */
    if (result == ncclSuccess && (call.count > 0 || is_transfer(&call))) {
        if (!(op = malloc(sizeof *op)))
            abort();
        *op = call;
        *group.tail = op;
        group.tail = &op->next;
    }
    if (result != ncclSuccess && group.error == ncclSuccess)
        group.error = result;
    if (group.depth > 1) {
        group.depth--;
        return result;
    }
    return ncclGroupEnd();
}

EXPORT ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    return op_call(
        (struct op){.kind = OP_SEND, .comm = comm, .peer = peer, .type = type, .count = count, .stream = stream}, from,
        1, NULL, 0);
}

EXPORT ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    return op_call(
        (struct op){.kind = OP_RECEIVE, .comm = comm, .peer = peer, .type = type, .count = count, .stream = stream},
        NULL, 0, to, 1);
}

EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                                  ncclComm_t comm, cudaStream_t stream)
{
    if (reduction != ncclSum)
        return comm_fail(ncclInvalidArgument, "the stand-in only adds");
    return op_call((struct op){.kind = OP_ALL_REDUCE, .comm = comm, .type = type, .count = count, .stream = stream},
                   from, 1, to, 1);
}

EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream)
{
    bool sends = comm_ready(comm) == ncclSuccess && comm->rank == root;

    return op_call(
        (struct op){.kind = OP_BROADCAST, .comm = comm, .peer = root, .type = type, .count = count, .stream = stream},
        from, sends, to, 1);
}

EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream)
{
    size_t parts = comm_ready(comm) == ncclSuccess ? (size_t)comm->size : 1;

    return op_call((struct op){.kind = OP_ALL_GATHER, .comm = comm, .type = type, .count = count, .stream = stream},
                   from, 1, to, parts);
}

EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                                      ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream)
{
    size_t parts = comm_ready(comm) == ncclSuccess ? (size_t)comm->size : 1;
    size_t all;

    if (reduction != ncclSum || size_mul(count, parts, &all) != STATUS_OK)
        return comm_fail(ncclInvalidArgument, "the stand-in only adds");
    return op_call((struct op){.kind = OP_REDUCE_SCATTER, .comm = comm, .type = type, .count = count, .stream = stream},
                   from, parts, to, 1);
}
