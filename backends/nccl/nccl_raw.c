/* NCCL's own calls on a communicator of the members, for measuring beside ours: enqueued one after the other, and
 * waited for at the end.  Only for tensors that NCCL reaches, and that lie in one piece: it has no calls for others. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "backends/cuda/cuda_stream.h"
#include "backends/nccl/nccl_errors.h"
#include "backends/nccl/nccl_private.h"
#include "base/clock.h"
#include "comm/raw.h"

/* Ids of communicators that are nobody's group: topologies number theirs from 1, and tags end far below. */
#define RAW_ID UINT32_C(0x80000000)

struct raw {
    struct transport *transport;
    const struct native *native;
    struct raw_call call;
    const char *name; /* of the only way; NULL: none */
    ncclResult_t (*run)(struct raw *raw);
};

static ncclComm_t comm_of(const struct raw *raw)
{
    return raw->native->comm;
}

static ncclResult_t all_reduce(struct raw *raw)
{
    const struct raw_call *call = &raw->call;

    return ncclAllReduce(call->send, call->recv, call->bytes / dtype_bytes(call->dtype), nccl_sum_type(call->dtype),
                         ncclSum, comm_of(raw), raw->transport->stream);
}

static ncclResult_t broadcast(struct raw *raw)
{
    return ncclBroadcast(raw->call.recv, raw->call.recv, raw->call.bytes, ncclInt8, raw->call.root, comm_of(raw),
                         raw->transport->stream);
}

static ncclResult_t all_gather(struct raw *raw)
{
    return ncclAllGather(raw->call.send, raw->call.recv, raw->call.recv_counts[0] * raw->call.inner_bytes, ncclInt8,
                         comm_of(raw), raw->transport->stream);
}

/* To every member its part of send, from every member its part of recv.  A gather sends the same to all. */
static ncclResult_t exchange(struct raw *raw)
{
    const struct raw_call *call = &raw->call;
    bool gather = call->operation != OPERATION_VARIABLE_ALL_TO_ALL;
    size_t from = 0;
    size_t to = 0;
    ncclResult_t result = ncclGroupStart();
    ncclResult_t end = ncclSuccess;

    if (result != ncclSuccess)
        return result;
    for (int i = 0; i < raw->native->size && (result == ncclSuccess || result == ncclInProgress); i++) {
        size_t out = (gather ? call->recv_counts[raw->native->index] : call->send_counts[i]) * call->inner_bytes;
        size_t in = call->recv_counts[i] * call->inner_bytes;

        if (out)
            result = ncclSend((const char *)call->send + from, out, ncclInt8, i, comm_of(raw), raw->transport->stream);
        if (in && (result == ncclSuccess || result == ncclInProgress))
            result = ncclRecv((char *)call->recv + to, in, ncclInt8, i, comm_of(raw), raw->transport->stream);
        from += gather ? 0 : out;
        to += in;
    }
    end = ncclGroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? end : result;
}

/* There and back between the two members: a call at a time, for the second waits for the first anyway. */
static ncclResult_t ping(struct raw *raw, bool sends)
{
    int peer = 1 - raw->native->index;

    return sends ? ncclSend(raw->call.send, raw->call.bytes, ncclInt8, peer, comm_of(raw), raw->transport->stream)
                 : ncclRecv(raw->call.recv, raw->call.bytes, ncclInt8, peer, comm_of(raw), raw->transport->stream);
}

static enum status look(struct raw *raw, ncclResult_t *ret, struct error *err)
{
    enum status st = nccl_status(ncclCommGetAsyncError(comm_of(raw), ret), "ncclCommGetAsyncError", comm_of(raw), err);

    return st == STATUS_OK ? nccl_status(*ret, raw->name, comm_of(raw), err) : st;
}

/* Until the communicator takes calls again. */
static enum status settle(struct raw *raw, ncclResult_t result, struct error *err)
{
    ncclResult_t state = result;
    enum status st = nccl_status(result, raw->name, comm_of(raw), err);

    while (st == STATUS_OK && state == ncclInProgress) {
        clock_sleep_ns(NS_PER_US);
        st = look(raw, &state, err);
    }
    return st;
}

static ncclResult_t ping_first(struct raw *raw)
{
    return ping(raw, raw->native->index == 0);
}

static enum status run_once(struct raw *raw, struct error *err)
{
    enum status st = settle(raw, raw->run(raw), err);

    if (st == STATUS_OK && raw->run == ping_first)
        st = settle(raw, ping(raw, raw->native->index != 0), err);
    return st;
}

static enum status wait_for_stream(struct raw *raw, struct error *err)
{
    cudaError_t code = cudaErrorNotReady;
    ncclResult_t state = ncclSuccess;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && (code = cudaStreamQuery(raw->transport->stream)) == cudaErrorNotReady)
        st = look(raw, &state, err);
    return st == STATUS_OK ? nccl_cuda_status(raw->transport, code, raw->name, err) : st;
}

static enum status raw_run(struct raw *raw, int way, int iterations, uint64_t *ret_ns, struct error *err)
{
    uint64_t begun = clock_ns();
    enum status st = nccl_use_device(raw->transport, err);

    CHECK(way == 0 && raw->name);
    for (int i = 0; i < iterations && st == STATUS_OK; i++)
        st = run_once(raw, err);
    if (st == STATUS_OK)
        st = wait_for_stream(raw, err);
    *ret_ns = clock_ns() - begun;
    return st;
}

/* NULL is reached: of a broadcast or a barrier. */
static bool is_reached(const struct raw *raw, const void *bytes)
{
    struct cudaPointerAttributes attributes = {0};

    if (!bytes)
        return true;
    if (nccl_use_device(raw->transport, NULL) || cudaPointerGetAttributes(&attributes, bytes) != cudaSuccess)
        return false;
    return attributes.type == cudaMemoryTypeHost ||
           (attributes.type == cudaMemoryTypeDevice && attributes.device == raw->transport->device);
}

static bool even(const uint64_t *counts, int size)
{
    for (int i = 1; i < size; i++) {
        if (counts[i] != counts[0])
            return false;
    }
    return true;
}

static void choose(struct raw *raw, const char *name, ncclResult_t (*run)(struct raw *raw))
{
    raw->name = name;
    raw->run = run;
}

static enum status raw_prepare(struct raw *raw, const struct raw_call *call, int *ret_ways, struct error *err)
{
    bool whole = call->outer <= 1;

    (void)err;
    raw->call = *call;
    raw->name = NULL;
    *ret_ways = 0;
    if (!is_reached(raw, call->send) || !is_reached(raw, call->recv))
        return STATUS_OK;
    if (call->operation == OPERATION_ALL_REDUCE_SUM && nccl_sum_type(call->dtype) != ncclNumTypes)
        choose(raw, "ncclAllReduce", all_reduce);
    else if (call->operation == OPERATION_BROADCAST)
        choose(raw, "ncclBroadcast", broadcast);
    else if (call->operation == OPERATION_SEND_RECEIVE && raw->native->size == 2)
        choose(raw, "ncclSend, ncclRecv", ping_first);
    else if (whole && (call->operation == OPERATION_ALL_GATHER_EVEN ||
                       (call->operation == OPERATION_ALL_GATHER_UNEVEN && even(call->recv_counts, raw->native->size))))
        choose(raw, "ncclAllGather", all_gather);
    else if (whole &&
             (call->operation == OPERATION_ALL_GATHER_UNEVEN || call->operation == OPERATION_VARIABLE_ALL_TO_ALL))
        choose(raw, "ncclSend, ncclRecv", exchange);
    *ret_ways = raw->name ? 1 : 0;
    return STATUS_OK;
}

static const char *raw_way(const struct raw *raw, int way)
{
    (void)way;
    return raw->name;
}

static enum status raw_open(struct transport *transport, const int *members, int size, struct raw **ret,
                            struct error *err)
{
    uint32_t id = RAW_ID | (uint32_t)XXH3_64bits(members, (size_t)size * sizeof *members);
    struct raw *raw = calloc(1, sizeof *raw);
    enum status st = STATUS_OK;

    if (!raw)
        return error_set(err, STATUS_NOMEM, "plain calls of %d members", size);
    raw->transport = transport;
    raw->native = nccl_native_find(transport, id, members, size);
    if (!raw->native) {
        struct native *native = NULL;

        st = nccl_native_ops.open(transport, id, 0, members, size, &native, err);
        raw->native = native;
    }
    while (st == STATUS_OK && !raw->native->built) {
        nccl_progress(transport);
        st = nccl_failed(transport, err);
        clock_sleep_ns(10 * NS_PER_US);
    }
    if (st != STATUS_OK) {
        free(raw);
        return st;
    }
    *ret = raw;
    return STATUS_OK;
}

/* The communicator stays for the next one with these members. */
static void raw_close(struct raw *raw)
{
    free(raw);
}

const struct raw_ops nccl_raw_ops = {
    .open = raw_open,
    .close = raw_close,
    .prepare = raw_prepare,
    .way = raw_way,
    .run = raw_run,
};
