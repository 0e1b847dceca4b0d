/* What the device would do: transfers in batches, collectives along the ring.
 *
 * Of a group's transfers at most 8 run side by side, no two of them from one rank to the same other: a batch.  The next
 * batch begins when all of it are over.  NCCL deals them alike (ncclAddWorkBatchToPlan), though to several channels:
 * all first transfers each way in the order of their rounds, then all second ones.
 *
 * A transfer's bytes leave once the other side has
 * begun the receive, and a send is over when they have been taken.  So of two sizes that differ the greater waits: the
 * next transfer does not begin before this one is over.
 *
 * A collective begins with each rank telling its neighbour on the ring what it is about to do: after a disagreement it
 * waits until its communicator is stopped. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tests/standin/nccl_inside.h"

struct head {
    uint64_t sequence;
    uint64_t count;
    uint32_t kind;
    uint32_t type;
    uint32_t root;
    uint32_t zero;
};

static void wait_forever(struct ncclComm *comm)
{
    while (!comm_stopped(comm))
        seat_rest(comm, seat_bell(comm), 20);
}

/* --- transfers ------------------------------------------------------------------------------------------------- */

static int pass_of(const struct op *ops, const struct op *op)
{
    int pass = 0;

    for (const struct op *each = ops; each != op; each = each->next)
        pass += each->kind == op->kind && each->peer == op->peer;
    return pass;
}

/* The send and the receive of one pass and round, if there are such; how many. */
static int find_pair(struct op *ops, int pass, int round, struct op **pair)
{
    int count = 0;

    for (struct op *op = ops; op; op = op->next)
        if (op->pass == pass && round_of(op) == round)
            pair[count++] = op;
    return count;
}

/* A round's send and receive stay together: else two ranks could each wait for the other's send. */
static void deal_batches(const struct ncclComm *comm, struct op *ops)
{
    int last_batch[RANKS_MAX];
    int batch = 0;
    int in_batch = 0;
    int passes = 0;

    for (struct op *op = ops; op; op = op->next) {
        op->pass = pass_of(ops, op);
        passes = op->pass < passes ? passes : op->pass + 1;
    }
    memset(last_batch, -1, sizeof last_batch);
    for (int k = 0; k < passes * comm->size; k++) {
        struct op *pair[2];
        int round = k % comm->size;
        int count = find_pair(ops, k / comm->size, round, pair);

        if (count == 0)
            continue;
        if (in_batch + count > SIDE_BY_SIDE || last_batch[round] == batch) {
            batch++;
            in_batch = 0;
        }
        for (int i = 0; i < count; i++)
            pair[i]->batch = batch;
        last_batch[round] = batch;
        in_batch += count;
    }
}

/* Is one of an earlier batch not over? */
static bool is_behind(const struct op *ops, const struct op *op)
{
    for (const struct op *each = ops; each; each = each->next)
        if (each->batch < op->batch && !each->over)
            return true;
    return false;
}

/* As pipe_put, with the fault between writing and being seen. */
static size_t put_faulty(struct pipe *pipe, const struct op *op, size_t count)
{
    char *copy;
    size_t moved;

    if (op->fault.kind != FAULT_FLIP)
        return pipe_put(pipe, op->from + op->moved, count);
    copy = malloc(count ? count : 1);
    if (!copy)
        abort();
    memcpy(copy, op->from + op->moved, count);
    if ((size_t)op->fault.value >= op->moved && (size_t)op->fault.value < op->moved + count)
        copy[(size_t)op->fault.value - op->moved] ^= 1;
    moved = pipe_put(pipe, copy, count);
    free(copy);
    return moved;
}

static bool send_step(struct op *op)
{
    struct pipe *pipe = pipe_between(op->comm, op->comm->rank, op->peer);
    size_t bytes = op->from_bytes;
    size_t moved;
    bool any = false;

    if (op->fault.kind == FAULT_SHORT)
        bytes -= (size_t)op->fault.value < bytes ? (size_t)op->fault.value : bytes;
    if (!op->begun) {
        op->begun = true;
        op->index = __atomic_fetch_add(&pipe->sends, 1, __ATOMIC_SEQ_CST);
        op->end = pipe->written + bytes;
        any = true;
    }
    if (__atomic_load_n(&pipe->receives, __ATOMIC_SEQ_CST) <= op->index)
        return any;
    while (op->moved < bytes && (moved = put_faulty(pipe, op, bytes - op->moved))) {
        op->moved += moved;
        any = true;
    }
    if (op->moved == bytes && __atomic_load_n(&pipe->read, __ATOMIC_ACQUIRE) >= op->end) {
        op->over = true;
        any = true;
    }
    return any;
}

static bool receive_step(struct op *op)
{
    struct pipe *pipe = pipe_between(op->comm, op->peer, op->comm->rank);
    size_t moved;
    bool any = false;

    if (!op->begun) {
        op->begun = true;
        op->index = __atomic_fetch_add(&pipe->receives, 1, __ATOMIC_SEQ_CST);
        any = true;
    }
    if (__atomic_load_n(&pipe->sends, __ATOMIC_SEQ_CST) <= op->index)
        return any;
    while (op->moved < op->to_bytes && (moved = pipe_take(pipe, op->to + op->moved, op->to_bytes - op->moved))) {
        op->moved += moved;
        any = true;
    }
    if (op->moved == op->to_bytes) {
        op->over = true;
        any = true;
    }
    return any;
}

static bool transfer_step(const struct op *ops, struct op *op)
{
    bool any;

    if (op->over || is_behind(ops, op))
        return false;
    any = op->kind == OP_SEND ? send_step(op) : receive_step(op);
    if (any)
        seat_ring(op->comm, op->peer);
    return any;
}

void run_transfers(struct ncclComm *comm, struct op *ops)
{
    int idle = 0;
    bool left = true;

    deal_batches(comm, ops);
    while (left && !comm_stopped(comm)) {
        uint32_t bell = seat_bell(comm);
        bool any = false;

        left = false;
        for (struct op *op = ops; op; op = op->next) {
            any |= transfer_step(ops, op);
            left |= !op->over;
        }
        idle = any ? 0 : idle + 1;
        if (left && !any)
            seat_rest(comm, bell, idle);
    }
}

/* --- collectives ----------------------------------------------------------------------------------------------- */

/* Send to the right while receiving from the left; either may be nothing.  false: stopped. */
static bool exchange(struct ncclComm *comm, const char *out, size_t out_bytes, char *in, size_t in_bytes)
{
    int right = (comm->rank + 1) % comm->size;
    int left = (comm->rank + comm->size - 1) % comm->size;
    int idle = 0;

    while (out_bytes + in_bytes > 0) {
        uint32_t bell = seat_bell(comm);
        size_t put = pipe_put(pipe_of_ring(comm, comm->rank), out, out_bytes);
        size_t taken = pipe_take(pipe_of_ring(comm, left), in, in_bytes);

        if (put) {
            out += put;
            out_bytes -= put;
            seat_ring(comm, right);
        }
        if (taken) {
            in += taken;
            in_bytes -= taken;
            seat_ring(comm, left);
        }
        idle = put || taken ? 0 : idle + 1;
        if (comm_stopped(comm))
            return false;
        if (idle)
            seat_rest(comm, bell, idle);
    }
    return true;
}

/* The part that a rank works on in a step of the ring. */
static int part_of(const struct ncclComm *comm, int steps_back)
{
    return ((comm->rank - steps_back) % comm->size + comm->size) % comm->size;
}

static size_t part_start(const struct op *op, int part)
{
    return (size_t)share_start(op->count, (uint64_t)op->comm->size, (uint64_t)part) * type_bytes(op->type);
}

static size_t part_count(const struct op *op, int part)
{
    return (size_t)share_count(op->count, (uint64_t)op->comm->size, (uint64_t)part);
}

/* After size - 1 steps this rank holds the sum of part rank + 1 - back, added along the ring. */
static bool reduce_parts(const struct op *op, char *sums, int back)
{
    struct ncclComm *comm = op->comm;
    size_t bytes = type_bytes(op->type);
    char *came = malloc((part_count(op, 0) + 1) * bytes);
    bool going = came != NULL;

    for (int step = 0; going && step < comm->size - 1; step++) {
        int out = part_of(comm, step + back);
        int in = part_of(comm, step + 1 + back);
        size_t count = part_count(op, in);

        going = exchange(comm, sums + part_start(op, out), part_count(op, out) * bytes, came, count * bytes);
        if (going)
            sum_into(op->type, sums + part_start(op, in), came, count);
    }
    free(came);
    return going;
}

static void all_reduce(struct op *op)
{
    struct ncclComm *comm = op->comm;
    size_t bytes = type_bytes(op->type);
    char *sums = malloc(op->from_bytes);
    bool going = sums != NULL;

    if (going) {
        memcpy(sums, op->from, op->from_bytes);
        going = reduce_parts(op, sums, 0);
    }
    for (int step = 0; going && step < comm->size - 1; step++) {
        int out = part_of(comm, step - 1);
        int in = part_of(comm, step);

        going = exchange(comm, sums + part_start(op, out), part_count(op, out) * bytes, sums + part_start(op, in),
                         part_count(op, in) * bytes);
    }
    if (going)
        memcpy(op->to, sums, op->to_bytes);
    free(sums);
}

static void reduce_scatter(struct op *op)
{
    char *sums = malloc(op->from_bytes);

    /* The caller counted one part. */
    op->count *= (size_t)op->comm->size;
    if (sums) {
        memcpy(sums, op->from, op->from_bytes);
        if (reduce_parts(op, sums, 1))
            memcpy(op->to, sums + part_start(op, op->comm->rank), op->to_bytes);
    }
    free(sums);
}

static void all_gather(struct op *op)
{
    struct ncclComm *comm = op->comm;
    bool going = true;

    memmove(op->to + (size_t)comm->rank * op->from_bytes, op->from, op->from_bytes);
    for (int step = 0; going && step < comm->size - 1; step++)
        going = exchange(comm, op->to + (size_t)part_of(comm, step) * op->from_bytes, op->from_bytes,
                         op->to + (size_t)part_of(comm, step + 1) * op->from_bytes, op->from_bytes);
}

static void broadcast(struct op *op)
{
    struct ncclComm *comm = op->comm;
    bool is_root = comm->rank == op->peer;
    bool is_last = (comm->rank + 1) % comm->size == op->peer;
    bool going = true;

    if (is_root && op->to != op->from)
        memmove(op->to, op->from, op->from_bytes);
    if (!is_root)
        going = exchange(comm, NULL, 0, op->to, op->to_bytes);
    if (going && !is_last)
        exchange(comm, op->to, op->to_bytes, NULL, 0);
}

static bool agree(struct op *op)
{
    struct ncclComm *comm = op->comm;
    struct head mine = {.sequence = comm->collectives++,
                        .count = op->count,
                        .kind = op->kind,
                        .type = op->type,
                        .root = (uint32_t)op->peer};
    struct head left = {0};

    if (comm->size == 1)
        return true;
    if (!exchange(comm, (const char *)&mine, sizeof mine, (char *)&left, sizeof left))
        return false;
    if (memcmp(&mine, &left, sizeof mine) == 0)
        return true;
    wait_forever(comm);
    return false;
}

void run_collective(struct op *op)
{
    if (!agree(op))
        return;
    switch (op->kind) {
    case OP_ALL_REDUCE:
        all_reduce(op);
        break;
    case OP_ALL_GATHER:
        all_gather(op);
        break;
    case OP_BROADCAST:
        broadcast(op);
        break;
    case OP_REDUCE_SCATTER:
        reduce_scatter(op);
        break;
    default:
        break;
    }
}
