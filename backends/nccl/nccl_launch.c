/* Groups of calls on the one stream.
 *
 * Before the group: the stream waits for what was queued on the memory before each work was posted; a header goes in
 * front of its payload.  Behind it: an arrived header comes to the host, and an event.  The host sees the event, and
 * the works of the group are over: nothing else says that the bytes have come.
 *
 * ncclGroupEnd is called whatever happened since ncclGroupStart.  The communicators are not blocking: calls return
 * ncclInProgress while NCCL connects ranks in threads of its own; then neither the communicator nor the stream is
 * touched until ncclCommGetAsyncError says otherwise. */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda_stream.h"
#include "backends/nccl/nccl_errors.h"
#include "backends/nccl/nccl_private.h"
#include "base/clock.h"

ncclDataType_t nccl_sum_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return ncclFloat32;
    case DTYPE_F64:
        return ncclFloat64;
    case DTYPE_I8:
        return ncclInt8;
    case DTYPE_U8:
        return ncclUint8;
    case DTYPE_I32:
        return ncclInt32;
    case DTYPE_U32:
        return ncclUint32;
    case DTYPE_I64:
        return ncclInt64;
    case DTYPE_U64:
        return ncclUint64;
    default:
        return ncclNumTypes;
    }
}

static bool to_itself(const struct transport *transport, const struct work *work)
{
    return work->kind == WORK_RECEIVE && work->peer == transport->rank;
}

/* This rank's own message: its other half is a work here. */
static struct work *other_half(const struct transport *transport, const struct work *work)
{
    struct work *other = transport->works;

    while (other && !(other->kind == WORK_SEND && other->peer == transport->rank && other->number == work->number &&
                      other->state == WORK_STARTED))
        other = other->next;
    return other;
}

/* In order behind what was queued on the memory. */
static enum status order_behind(struct transport *transport, struct work *work, struct error *err)
{
    enum status st;

    if (!work->before)
        return STATUS_OK;
    st = nccl_cuda_status(transport, cudaStreamWaitEvent(transport->stream, work->before, 0), "cudaStreamWaitEvent",
                          err);
    nccl_event_give(transport, work->before);
    work->before = NULL;
    return st;
}

static enum status copy_on_stream(struct transport *transport, void *to, const void *from, size_t bytes,
                                  struct error *err)
{
    return nccl_cuda_status(transport, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, transport->stream),
                            "cudaMemcpyAsync", err);
}

static enum status prepare(struct transport *transport, struct work *work, struct error *err)
{
    struct work *other = to_itself(transport, work) ? other_half(transport, work) : NULL;
    enum status st = order_behind(transport, work, err);

    if (st == STATUS_OK && other) {
        st = order_behind(transport, other, err);
        if (st == STATUS_OK && work->bytes)
            st = copy_on_stream(transport, work->payload, other->payload, work->bytes, err);
        if (st == STATUS_OK)
            memcpy(work->slot, other->slot, work->header_bytes);
    } else if (st == STATUS_OK && work->kind == WORK_SEND && work->joined) {
        st = copy_on_stream(transport, work->payload - work->header_bytes, work->slot, work->header_bytes, err);
    }
    return st;
}

static ncclResult_t move(struct transport *transport, const struct work *work, void *bytes, size_t count)
{
    return work->kind == WORK_SEND ? ncclSend(bytes, count, ncclInt8, work->peer, transport->comm, transport->stream)
                                   : ncclRecv(bytes, count, ncclInt8, work->peer, transport->comm, transport->stream);
}

/* NCCL's calls for one work, within a group; *ret_call names the last. */
static ncclResult_t call(struct transport *transport, const struct work *work, const char **ret_call)
{
    ncclResult_t result = ncclSuccess;

    if (to_itself(transport, work))
        return ncclSuccess;
    *ret_call = work->kind == WORK_SEND ? "ncclSend" : work->kind == WORK_RECEIVE ? "ncclRecv" : "ncclAllReduce";
    if (work->kind == WORK_SUM)
        return ncclAllReduce(work->send, work->recv, work->count, nccl_sum_type(work->dtype), ncclSum,
                             work->native->comm, transport->stream);
    if (work->joined)
        return move(transport, work, work->payload - work->header_bytes, work->header_bytes + work->bytes);
    result = move(transport, work, work->slot, work->header_bytes);
    if (work->bytes && (result == ncclSuccess || result == ncclInProgress))
        result = move(transport, work, work->payload, work->bytes);
    return result;
}

static enum status group(struct transport *transport, struct launch *launch, struct error *err)
{
    const char *name = "ncclGroupStart";
    ncclResult_t result = ncclGroupStart();
    ncclResult_t end = ncclSuccess;
    bool started = result == ncclSuccess;

    for (size_t i = 0; i < launch->count && (result == ncclSuccess || result == ncclInProgress); i++)
        result = call(transport, launch->works[i], &name);
    if (started)
        end = ncclGroupEnd();
    if (result != ncclSuccess && result != ncclInProgress)
        return nccl_failure(result, name, launch->comm, err);
    launch->in_progress = end == ncclInProgress;
    return nccl_status(end, "ncclGroupEnd", launch->comm, err);
}

/* What lies behind the group on the stream. */
static enum status mark(struct transport *transport, struct launch *launch, struct error *err)
{
    enum status st = STATUS_OK;

    for (size_t i = 0; i < launch->count && st == STATUS_OK; i++) {
        struct work *work = launch->works[i];

        if (work->kind == WORK_RECEIVE && work->joined)
            st = copy_on_stream(transport, work->slot, work->payload - work->header_bytes, work->header_bytes, err);
    }
    if (st == STATUS_OK)
        st = nccl_event_take(transport, &launch->after, err);
    return st == STATUS_OK
               ? nccl_cuda_status(transport, cudaEventRecord(launch->after, transport->stream), "cudaEventRecord", err)
               : st;
}

static void connected(struct transport *transport, const struct work *work)
{
    if (work->kind == WORK_SEND)
        transport->peers[work->peer].sends_connected = true;
    else if (work->kind == WORK_RECEIVE)
        transport->peers[work->peer].receives_connected = true;
}

static enum status start(struct transport *transport, struct launch *launch, struct error *err)
{
    uint64_t now_ns = clock_ns();
    enum status st = STATUS_OK;

    launch->comm = launch->works[0]->kind == WORK_SUM ? launch->works[0]->native->comm : transport->comm;
    for (size_t i = 0; i < launch->count; i++) {
        launch->works[i]->state = WORK_STARTED;
        launch->works[i]->started_ns = now_ns;
    }
    for (size_t i = 0; i < launch->count && st == STATUS_OK; i++) {
        connected(transport, launch->works[i]);
        st = prepare(transport, launch->works[i], err);
    }
    if (st == STATUS_OK)
        st = group(transport, launch, err);
    return st == STATUS_OK && !launch->in_progress ? mark(transport, launch, err) : st;
}

/* The entries that are due, as works. */
static enum status start_next(struct transport *transport, bool *ret_any, struct error *err)
{
    struct entry *entries[QUEUE_GROUP];
    struct launch **end = &transport->launches;
    struct launch *launch = calloc(1, sizeof *launch);

    if (!launch)
        return error_set(err, STATUS_NOMEM, "a group of NCCL calls");
    launch->count = queue_take(&transport->queue, entries);
    *ret_any = launch->count > 0;
    if (!launch->count) {
        free(launch);
        return STATUS_OK;
    }
    for (size_t i = 0; i < launch->count; i++)
        launch->works[i] = (struct work *)((char *)entries[i] - offsetof(struct work, entry));
    while (*end)
        end = &(*end)->next;
    *end = launch;
    return start(transport, launch, err);
}

static void end_work(struct transport *transport, struct work *work)
{
    struct work *other = to_itself(transport, work) ? other_half(transport, work) : NULL;

    if (work->kind == WORK_RECEIVE && work->state == WORK_STARTED)
        memcpy(work->in_band, work->slot, work->header_bytes);
    if (other)
        other->state = WORK_OVER;
    if (work->state == WORK_STARTED)
        work->state = WORK_OVER;
}

/* The oldest launches whose event the device has passed. */
static enum status end_launches(struct transport *transport, struct error *err)
{
    while (transport->launches && !transport->launches->in_progress) {
        struct launch *launch = transport->launches;
        cudaError_t code = cudaEventQuery(launch->after);

        if (code == cudaErrorNotReady)
            return STATUS_OK;
        if (code != cudaSuccess)
            return nccl_cuda_status(transport, code, "a transfer of NCCL", err);
        for (size_t i = 0; i < launch->count; i++)
            end_work(transport, launch->works[i]);
        nccl_event_give(transport, launch->after);
        transport->launches = launch->next;
        free(launch);
    }
    return STATUS_OK;
}

/* Is a group still in progress?  If it no longer is, what lies behind it is queued now. */
static enum status look_at_progress(struct transport *transport, bool *ret_busy, struct error *err)
{
    struct launch *launch = transport->launches;
    ncclResult_t state = ncclSuccess;
    enum status st;

    while (launch && launch->next)
        launch = launch->next;
    *ret_busy = launch && launch->in_progress;
    if (!*ret_busy)
        return STATUS_OK;
    st = nccl_status(ncclCommGetAsyncError(launch->comm, &state), "ncclCommGetAsyncError", launch->comm, err);
    if (st == STATUS_OK)
        st = nccl_status(state, "ncclGroupEnd", launch->comm, err);
    if (st != STATUS_OK || state == ncclInProgress)
        return st;
    launch->in_progress = *ret_busy = false;
    return mark(transport, launch, err);
}

void nccl_launch_step(struct transport *transport)
{
    struct error err;
    bool busy = false;
    bool any = true;
    enum status st;

    error_init(&err);
    st = look_at_progress(transport, &busy, &err);
    busy |= nccl_lines_busy(transport);
    while (st == STATUS_OK && !busy && any && transport->queue.first) {
        st = start_next(transport, &any, &err);
        if (st == STATUS_OK)
            st = look_at_progress(transport, &busy, &err);
    }
    if (st == STATUS_OK)
        st = end_launches(transport, &err);
    if (st != STATUS_OK)
        nccl_fail(transport, st, err.text);
}
