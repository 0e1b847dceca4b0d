#include "tests/standin/nccl_rank.h"

#include <check.h>
#include <string.h>

#include "base/clock.h"

ncclResult_t rank_settle(ncclComm_t comm, int ms)
{
    ncclResult_t state = ncclInProgress;
    uint64_t until = clock_ns() + (uint64_t)ms * NS_PER_MS;

    while (state == ncclInProgress && clock_ns() < until) {
        NEED(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
        clock_sleep_ns(NS_PER_MS / 10);
    }
    return state;
}

ncclUniqueId rank_share_id(struct board *board, int rank)
{
    ncclUniqueId id;

    if (rank == 0) {
        NEED(ncclGetUniqueId(&id) == ncclSuccess);
        memcpy(board->bytes, &id, sizeof id);
        board_raise(board, FLAG_ID);
    }
    board_await(board, FLAG_ID, 1);
    memcpy(&id, board->bytes, sizeof id);
    return id;
}

struct rank rank_alone(int rank, int size, struct board *board)
{
    struct rank r = {.rank = rank, .size = size, .board = board};

    NEED(cudaSetDevice(r.rank) == cudaSuccess);
    NEED(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking) == cudaSuccess);
    NEED(cudaMalloc((void **)&r.device, MANY) == cudaSuccess);
    NEED(cudaMalloc((void **)&r.other, MANY) == cudaSuccess);
    NEED(cudaMallocHost((void **)&r.host, MANY) == cudaSuccess);
    return r;
}

ncclResult_t rank_init(struct rank *r, int blocking)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = rank_share_id(r->board, r->rank);

    config.blocking = blocking;
    return ncclCommInitRankConfig(&r->comm, r->size, id, r->rank, &config);
}

struct rank rank_begin(int rank, int size, struct board *board, int blocking)
{
    struct rank r = rank_alone(rank, size, board);

    NEED(rank_init(&r, blocking) == (blocking ? ncclSuccess : ncclInProgress));
    NEED(rank_settle(r.comm, SETTLE_MS) == ncclSuccess);
    return r;
}

void rank_end(struct rank *r)
{
    NEED(cudaStreamSynchronize(r->stream) == cudaSuccess);
    NEED(ncclCommDestroy(r->comm) == ncclSuccess);
    NEED(cudaStreamDestroy(r->stream) == cudaSuccess);
    NEED(cudaFree(r->device) == cudaSuccess);
    NEED(cudaFree(r->other) == cudaSuccess);
    NEED(cudaFreeHost(r->host) == cudaSuccess);
}

ncclComm_t rank_split(const struct rank *r)
{
    ncclComm_t child = NULL;

    NEED(ncclCommSplit(r->comm, 0, r->rank, &child, NULL) == ncclInProgress);
    NEED(rank_settle(r->comm, SETTLE_MS) == ncclSuccess);
    NEED(rank_settle(child, SETTLE_MS) == ncclSuccess);
    return child;
}

void rank_ready(const struct rank *r, ncclResult_t result)
{
    NEED(result == ncclSuccess || result == ncclInProgress);
    NEED(rank_settle(r->comm, SETTLE_MS) == ncclSuccess);
}

void rank_connect(const struct rank *r)
{
    NEED(ncclGroupStart() == ncclSuccess);
    for (int peer = 0; peer < r->size; peer++) {
        NEED(ncclSend(NULL, 0, ncclUint8, peer, r->comm, r->stream) == ncclSuccess);
        NEED(ncclRecv(NULL, 0, ncclUint8, peer, r->comm, r->stream) == ncclSuccess);
    }
    rank_ready(r, ncclGroupEnd());
}

unsigned char byte_of(int rank, size_t k)
{
    return (unsigned char)((size_t)rank * 71 + k * 7 + (k >> 8));
}

void rank_put(const struct rank *r, void *device, const void *values, size_t bytes)
{
    memmove(r->host, values, bytes);
    NEED(cudaMemcpyAsync(device, r->host, bytes, cudaMemcpyHostToDevice, r->stream) == cudaSuccess);
    NEED(cudaStreamSynchronize(r->stream) == cudaSuccess);
}

void rank_fill(const struct rank *r, unsigned char *device, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++)
        r->host[k] = byte_of(r->rank, k);
    rank_put(r, device, r->host, bytes);
}

void rank_fetch(const struct rank *r, const void *device, size_t bytes)
{
    NEED(cudaMemcpyAsync(r->host, device, bytes, cudaMemcpyDeviceToHost, r->stream) == cudaSuccess);
    NEED(cudaStreamSynchronize(r->stream) == cudaSuccess);
}

bool rank_hangs(const struct rank *r)
{
    for (int ms = 0; ms < 300; ms++) {
        if (cudaStreamQuery(r->stream) == cudaSuccess)
            return false;
        clock_sleep_ns(NS_PER_MS);
    }
    return true;
}

int rank_hang_and_abort(struct rank *r)
{
    NEED(rank_hangs(r));
    NEED(ncclCommAbort(r->comm) == ncclSuccess);
    NEED(cudaStreamSynchronize(r->stream) == cudaSuccess);
    return 0;
}

void expect_all(int size, rank_function *run, int wanted)
{
    int status[16];

    ranks_run(size, run, status, 60);
    for (int rank = 0; rank < size; rank++)
        ck_assert_msg(status[rank] == wanted, "rank %d of %d ended with %d", rank, size, status[rank]);
}
