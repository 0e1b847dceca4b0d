/* Blocking MPI calls on a communicator of the members, for measuring beside ours.
 *
 * Where several calls give the same result each is a way of its own, and the caller keeps the fastest.  Runs that do
 * not lie together travel as derived datatypes, committed before the clock starts. */
#include <limits.h>
#include <stdlib.h>

#include "backends/mpi/mpi_errors.h"
#include "backends/mpi/mpi_private.h"
#include "base/clock.h"
#include "base/rewrite.h"
#include "base/size.h"

enum { MAX_WAYS = 3, RAW_TAG = 0 };

struct raw {
    MPI_Comm comm;
    int rank;
    int size;
    struct raw_call call;
    int count;               /* of elements, or bytes */
    int *ints;               /* [4 * size]: send counts, send starts, recv counts, recv starts, in extents */
    int *units;              /* [4 * size]: counts of one, byte displacements; send, then recv: for MPI_Alltoallw */
    MPI_Datatype extent_out; /* one extent: outer blocks of inner bytes, resized so that the next lies beside it */
    MPI_Datatype extent_in;
    MPI_Datatype packed; /* the same, contiguous: a gather's own part */
    MPI_Datatype *slots; /* [2 * size]: one member's whole part, send then recv */
    int way_count;
    struct {
        const char *name;
        int (*call)(struct raw *raw);
    } ways[MAX_WAYS];
};

static MPI_Datatype sum_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return MPI_FLOAT;
    case DTYPE_F64:
        return MPI_DOUBLE;
    case DTYPE_I8:
        return MPI_INT8_T;
    case DTYPE_U8:
        return MPI_UINT8_T;
    case DTYPE_I32:
        return MPI_INT32_T;
    case DTYPE_U32:
        return MPI_UINT32_T;
    case DTYPE_I64:
        return MPI_INT64_T;
    case DTYPE_U64:
        return MPI_UINT64_T;
    default:
        return MPI_DATATYPE_NULL;
    }
}

static int *send_counts(const struct raw *raw)
{
    return raw->ints;
}

static int *send_starts(const struct raw *raw)
{
    return raw->ints + raw->size;
}

static int *recv_counts(const struct raw *raw)
{
    return raw->ints + 2 * raw->size;
}

static int *recv_starts(const struct raw *raw)
{
    return raw->ints + 3 * raw->size;
}

static int allreduce(struct raw *raw)
{
    return MPI_Allreduce(raw->call.send, raw->call.recv, raw->count, sum_type(raw->call.dtype), MPI_SUM, raw->comm);
}

static int reduce_bcast(struct raw *raw)
{
    MPI_Datatype type = sum_type(raw->call.dtype);
    int code = MPI_Reduce(raw->call.send, raw->call.recv, raw->count, type, MPI_SUM, 0, raw->comm);

    return code == MPI_SUCCESS ? MPI_Bcast(raw->call.recv, raw->count, type, 0, raw->comm) : code;
}

static int bcast(struct raw *raw)
{
    return MPI_Bcast(raw->call.recv, raw->count, MPI_BYTE, raw->call.root, raw->comm);
}

static int barrier(struct raw *raw)
{
    return MPI_Barrier(raw->comm);
}

static int agree(struct raw *raw)
{
    unsigned mine = ~0u;
    unsigned all = 0;

    return MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED, MPI_BAND, raw->comm);
}

/* There and back between the two members. */
static int ping_pong(struct raw *raw)
{
    int other = 1 - raw->rank;
    int code = MPI_SUCCESS;

    if (raw->rank == 0)
        code = MPI_Send(raw->call.send, raw->count, MPI_BYTE, other, RAW_TAG, raw->comm);
    if (code == MPI_SUCCESS)
        code = MPI_Recv(raw->call.recv, raw->count, MPI_BYTE, other, RAW_TAG, raw->comm, MPI_STATUS_IGNORE);
    if (raw->rank == 1 && code == MPI_SUCCESS)
        code = MPI_Send(raw->call.send, raw->count, MPI_BYTE, other, RAW_TAG, raw->comm);
    return code;
}

static int allgather(struct raw *raw)
{
    return MPI_Allgather(raw->call.send, 1, raw->packed, raw->call.recv, 1, raw->slots[raw->size], raw->comm);
}

/* Extent by extent on both sides: then displacements are whole extents, and counts may differ. */
static int allgatherv(struct raw *raw)
{
    return MPI_Allgatherv(raw->call.send, recv_counts(raw)[raw->rank], raw->extent_out, raw->call.recv,
                          recv_counts(raw), recv_starts(raw), raw->extent_in, raw->comm);
}

static int alltoall(struct raw *raw)
{
    return MPI_Alltoall(raw->call.send, 1, raw->slots[0], raw->call.recv, 1, raw->slots[raw->size], raw->comm);
}

static int alltoallv(struct raw *raw)
{
    return MPI_Alltoallv(raw->call.send, send_counts(raw), send_starts(raw), raw->extent_out, raw->call.recv,
                         recv_counts(raw), recv_starts(raw), raw->extent_in, raw->comm);
}

static int alltoallw(struct raw *raw)
{
    return MPI_Alltoallw(raw->call.send, raw->units, raw->units + raw->size, raw->slots, raw->call.recv,
                         raw->units + 2 * raw->size, raw->units + 3 * raw->size, raw->slots + raw->size, raw->comm);
}

static void add_way(struct raw *raw, const char *name, int (*call)(struct raw *raw))
{
    raw->ways[raw->way_count].name = name;
    raw->ways[raw->way_count++].call = call;
}

static void free_types(struct raw *raw)
{
    MPI_Datatype *one[] = {&raw->extent_out, &raw->extent_in, &raw->packed};

    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        if (*one[i] != MPI_DATATYPE_NULL)
            (void)MPI_Type_free(one[i]);
    }
    for (int i = 0; i < 2 * raw->size; i++) {
        if (raw->slots[i] != MPI_DATATYPE_NULL)
            (void)MPI_Type_free(&raw->slots[i]);
    }
}

/* outer blocks of count extents, one every stride bytes; the next element of it lies count extents on. */
static enum status block_type(const struct raw_call *call, int count, size_t stride, MPI_Datatype *ret,
                              struct error *err)
{
    MPI_Datatype plain = MPI_DATATYPE_NULL;
    int outer = 0;
    int run = 0;
    size_t run_bytes = 0;
    enum status st;

    if (size_to_int(call->outer, &outer) || size_mul((size_t)count, call->inner_bytes, &run_bytes) ||
        size_to_int(run_bytes, &run))
        return error_set(err, STATUS_OVERFLOW, "%zu runs of %d x %zu bytes", call->outer, count, call->inner_bytes);
    /* A contiguous type is MPI's fast path, and what a program would write. */
    if (stride == run_bytes || outer == 1)
        st = mpi_status(MPI_Type_contiguous(outer * run, MPI_BYTE, &plain), "MPI_Type_contiguous", err);
    else
        st = mpi_status(MPI_Type_create_hvector(outer, run, (MPI_Aint)stride, MPI_BYTE, &plain),
                        "MPI_Type_create_hvector", err);
    if (st == STATUS_OK)
        st = mpi_status(MPI_Type_create_resized(plain, 0, (MPI_Aint)run_bytes, ret), "MPI_Type_create_resized", err);
    if (plain != MPI_DATATYPE_NULL)
        (void)MPI_Type_free(&plain);
    return st == STATUS_OK ? mpi_status(MPI_Type_commit(ret), "MPI_Type_commit", err) : st;
}

static enum status fill_counts(const struct raw *raw, const uint64_t *counts, int *extents, int *units, int *ret_total,
                               struct error *err)
{
    size_t start = 0;

    for (int i = 0; i < raw->size; i++) {
        size_t bytes = 0;

        if (size_mul(start, raw->call.inner_bytes, &bytes) || size_to_int(bytes, &units[raw->size + i]) ||
            size_to_int(start, &extents[raw->size + i]) || size_to_int((size_t)counts[i], &extents[i]) ||
            size_add(start, (size_t)counts[i], &start))
            return error_set(err, STATUS_OVERFLOW, "counts that exceed MPI's int");
        units[i] = 1;
    }
    return size_to_int(start, ret_total) ? error_set(err, STATUS_OVERFLOW, "%zu extents", start) : STATUS_OK;
}

/* One side's types: of an extent, and of every member's part. */
static enum status side_types(struct raw *raw, const int *extents, int total, MPI_Datatype *extent, MPI_Datatype *slots,
                              struct error *err)
{
    size_t stride = (size_t)total * raw->call.inner_bytes;
    enum status st = block_type(&raw->call, 1, stride, extent, err);

    for (int i = 0; i < raw->size && st == STATUS_OK; i++)
        st = block_type(&raw->call, extents[i], stride, &slots[i], err);
    return st;
}

/* Of what a member of a gather sends: the whole, and one extent. */
static enum status own_types(struct raw *raw, int count, struct error *err)
{
    size_t stride = (size_t)count * raw->call.inner_bytes;
    enum status st = block_type(&raw->call, count, stride, &raw->packed, err);

    for (int i = 0; i < raw->size && st == STATUS_OK; i++) {
        raw->units[i] = 1;
        raw->units[raw->size + i] = 0;
        st = mpi_status(MPI_Type_dup(raw->packed, &raw->slots[i]), "MPI_Type_dup", err);
    }
    return st == STATUS_OK ? block_type(&raw->call, 1, stride, &raw->extent_out, err) : st;
}

static bool even(const int *counts, int size)
{
    for (int i = 1; i < size; i++) {
        if (counts[i] != counts[0])
            return false;
    }
    return true;
}

static enum status prepare_parts(struct raw *raw, struct error *err)
{
    const struct raw_call *call = &raw->call;
    bool gather = call->operation != OPERATION_VARIABLE_ALL_TO_ALL;
    int total = 0;
    enum status st = fill_counts(raw, call->recv_counts, recv_counts(raw), raw->units + 2 * raw->size, &total, err);

    if (st == STATUS_OK)
        st = side_types(raw, recv_counts(raw), total, &raw->extent_in, raw->slots + raw->size, err);
    if (st == STATUS_OK && gather)
        st = own_types(raw, recv_counts(raw)[raw->rank], err);
    if (st == STATUS_OK && !gather)
        st = fill_counts(raw, call->send_counts, send_counts(raw), raw->units, &total, err);
    if (st == STATUS_OK && !gather)
        st = side_types(raw, send_counts(raw), total, &raw->extent_out, raw->slots, err);
    if (st != STATUS_OK)
        return st;
    if (gather && even(recv_counts(raw), raw->size))
        add_way(raw, "MPI_Allgather", allgather);
    if (gather)
        add_way(raw, "MPI_Allgatherv", allgatherv);
    if (!gather && even(recv_counts(raw), raw->size) && even(send_counts(raw), raw->size))
        add_way(raw, "MPI_Alltoall", alltoall);
    if (!gather)
        add_way(raw, "MPI_Alltoallv", alltoallv);
    add_way(raw, "MPI_Alltoallw", alltoallw); /* of a gather: the own part to everybody */
    return STATUS_OK;
}

/* Sums, broadcasts and transfers: whole tensors. */
static enum status prepare_whole(struct raw *raw, struct error *err)
{
    bool sum = raw->call.operation == OPERATION_ALL_REDUCE_SUM;
    size_t count = sum ? raw->call.bytes / dtype_bytes(raw->call.dtype) : raw->call.bytes;

    if (size_to_int(count, &raw->count))
        return error_set(err, STATUS_OVERFLOW, "%zu elements in one MPI call", count);
    if (sum && sum_type(raw->call.dtype) != MPI_DATATYPE_NULL) {
        add_way(raw, "MPI_Allreduce", allreduce);
        add_way(raw, "MPI_Reduce, MPI_Bcast", reduce_bcast);
    } else if (raw->call.operation == OPERATION_BROADCAST) {
        add_way(raw, "MPI_Bcast", bcast);
    } else if (raw->call.operation == OPERATION_SEND_RECEIVE && raw->size == 2) {
        add_way(raw, "MPI_Send, MPI_Recv", ping_pong);
    }
    return STATUS_OK;
}

static enum status raw_prepare(struct raw *raw, const struct raw_call *call, int *ret_ways, struct error *err)
{
    enum status st = STATUS_OK;

    free_types(raw);
    raw->call = *call;
    raw->way_count = 0;
    switch (call->operation) {
    case OPERATION_ALL_GATHER_EVEN:
    case OPERATION_ALL_GATHER_UNEVEN:
    case OPERATION_VARIABLE_ALL_TO_ALL:
        st = prepare_parts(raw, err);
        break;
    case OPERATION_BARRIER:
        add_way(raw, "MPI_Barrier", barrier);
        break;
    case OPERATION_FAILURE_AGREEMENT:
        add_way(raw, "MPI_Allreduce", agree);
        break;
    default:
        st = prepare_whole(raw, err);
        break;
    }
    *ret_ways = st == STATUS_OK ? raw->way_count : 0;
    return st;
}

static const char *raw_way(const struct raw *raw, int way)
{
    return raw->ways[way].name;
}

static enum status raw_run(struct raw *raw, int way, int iterations, uint64_t *ret_ns, struct error *err)
{
    int code = MPI_SUCCESS;

    *ret_ns = 0;
    for (int i = 0; i < iterations && code == MPI_SUCCESS; i++) {
        uint64_t begun;

        rewrite(raw->call.sent, raw->call.sent_bytes);
        if (raw->call.meet)
            code = MPI_Barrier(raw->comm);
        begun = clock_ns();
        if (code == MPI_SUCCESS)
            code = raw->ways[way].call(raw);
        *ret_ns += clock_ns() - begun;
    }
    return mpi_status(code, raw->ways[way].name, err);
}

static void raw_close(struct raw *raw)
{
    if (!raw)
        return;
    if (raw->slots)
        free_types(raw);
    if (raw->comm != MPI_COMM_NULL)
        (void)MPI_Comm_free(&raw->comm);
    free(raw->slots);
    free(raw->units);
    free(raw->ints);
    free(raw);
}

static enum status make_comm(struct transport *transport, const int *members, int size, MPI_Comm *ret,
                             struct error *err)
{
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    enum status st = mpi_status(MPI_Comm_group(transport->payload, &world), "MPI_Comm_group", err);

    if (st == STATUS_OK)
        st = mpi_status(MPI_Group_incl(world, size, members, &group), "MPI_Group_incl", err);
    if (st == STATUS_OK)
        st = mpi_status(MPI_Comm_create_group(transport->payload, group, RAW_TAG, ret), "MPI_Comm_create_group", err);
    if (group != MPI_GROUP_NULL)
        (void)MPI_Group_free(&group);
    if (world != MPI_GROUP_NULL)
        (void)MPI_Group_free(&world);
    return st;
}

static enum status raw_open(struct transport *transport, const int *members, int size, struct raw **ret,
                            struct error *err)
{
    struct raw *raw = calloc(1, sizeof *raw);
    enum status st = STATUS_OK;

    if (!raw)
        return error_set(err, STATUS_NOMEM, "raw calls of %d members", size);
    raw->comm = MPI_COMM_NULL;
    raw->size = size;
    raw->extent_out = raw->extent_in = raw->packed = MPI_DATATYPE_NULL;
    raw->ints = calloc((size_t)size, 4 * sizeof *raw->ints);
    raw->units = calloc((size_t)size, 4 * sizeof *raw->units);
    raw->slots = calloc((size_t)size, 2 * sizeof *raw->slots);
    for (int i = 0; raw->slots && i < 2 * size; i++)
        raw->slots[i] = MPI_DATATYPE_NULL;
    if (!raw->ints || !raw->units || !raw->slots)
        st = error_set(err, STATUS_NOMEM, "raw calls of %d members", size);
    if (st == STATUS_OK)
        st = make_comm(transport, members, size, &raw->comm, err);
    if (st == STATUS_OK)
        st = mpi_status(MPI_Comm_rank(raw->comm, &raw->rank), "MPI_Comm_rank", err);
    if (st != STATUS_OK) {
        raw_close(raw);
        return st;
    }
    *ret = raw;
    return STATUS_OK;
}

const struct raw_ops mpi_raw_ops = {
    .open = raw_open,
    .close = raw_close,
    .prepare = raw_prepare,
    .way = raw_way,
    .run = raw_run,
};
