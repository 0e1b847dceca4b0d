/* The stand-in for libnccl is as strict as NCCL: each test lets 1 to 4 processes, a device each, do what is right, or
 * what NCCL would punish, and sees it punished. */
#include <check.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "tests/standin/ranks.h"

enum { MANY = 300000, WORLD = 0 };

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

static ncclResult_t settle(ncclComm_t comm, int ms)
{
    ncclResult_t state = ncclInProgress;
    uint64_t until = clock_ns() + (uint64_t)ms * NS_PER_MS;

    while (state == ncclInProgress && clock_ns() < until) {
        NEED(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
        clock_sleep_ns(NS_PER_MS / 10);
    }
    return state;
}

static ncclUniqueId share_id(struct board *board, int rank)
{
    ncclUniqueId id;

    if (rank == 0) {
        NEED(ncclGetUniqueId(&id) == ncclSuccess);
        memcpy(board->bytes, &id, sizeof id);
        board_raise(board, WORLD);
    }
    board_await(board, WORLD, 1);
    memcpy(&id, board->bytes, sizeof id);
    return id;
}

static void make_comm(struct rank *r, int blocking)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = share_id(r->board, r->rank);
    ncclResult_t result;

    config.blocking = blocking;
    result = ncclCommInitRankConfig(&r->comm, r->size, id, r->rank, &config);
    NEED(result == (blocking ? ncclSuccess : ncclInProgress));
    NEED(settle(r->comm, 20000) == ncclSuccess);
}

static void make_memory(struct rank *r)
{
    NEED(cudaSetDevice(r->rank) == cudaSuccess);
    NEED(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) == cudaSuccess);
    NEED(cudaMalloc((void **)&r->device, MANY) == cudaSuccess);
    NEED(cudaMalloc((void **)&r->other, MANY) == cudaSuccess);
    NEED(cudaMallocHost((void **)&r->host, MANY) == cudaSuccess);
}

static struct rank begin(int rank, int size, struct board *board, int blocking)
{
    struct rank r = {.rank = rank, .size = size, .board = board};

    make_memory(&r);
    make_comm(&r, blocking);
    return r;
}

static void end(struct rank *r)
{
    NEED(cudaStreamSynchronize(r->stream) == cudaSuccess);
    NEED(ncclCommDestroy(r->comm) == ncclSuccess);
    NEED(cudaStreamDestroy(r->stream) == cudaSuccess);
    NEED(cudaFree(r->device) == cudaSuccess);
    NEED(cudaFree(r->other) == cudaSuccess);
    NEED(cudaFreeHost(r->host) == cudaSuccess);
}

/* Is the stream still at work after a while that is long for a transfer? */
static bool hangs(const struct rank *r)
{
    for (int ms = 0; ms < 400; ms++) {
        if (cudaStreamQuery(r->stream) == cudaSuccess)
            return false;
        clock_sleep_ns(NS_PER_MS);
    }
    return true;
}

/* It hangs, and an abort ends it. */
static int hang_and_abort(struct rank *r)
{
    NEED(hangs(r));
    NEED(ncclCommAbort(r->comm) == ncclSuccess);
    NEED(cudaStreamSynchronize(r->stream) == cudaSuccess);
    return 0;
}

static unsigned char byte_of(int rank, size_t k)
{
    return (unsigned char)((size_t)rank * 71 + k * 7 + (k >> 8));
}

static void fill(const struct rank *r, unsigned char *device, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++)
        r->host[k] = byte_of(r->rank, k);
    NEED(cudaMemcpyAsync(device, r->host, bytes, cudaMemcpyHostToDevice, r->stream) == cudaSuccess);
    NEED(cudaStreamSynchronize(r->stream) == cudaSuccess);
}

static void fetch(const struct rank *r, const void *device, size_t bytes)
{
    NEED(cudaMemcpyAsync(r->host, device, bytes, cudaMemcpyDeviceToHost, r->stream) == cudaSuccess);
    NEED(cudaStreamSynchronize(r->stream) == cudaSuccess);
}

static void ready(const struct rank *r)
{
    NEED(settle(r->comm, 20000) == ncclSuccess);
}

/* Run on so many processes, and expect that status of each. */
static void expect(int size, int (*run)(int, int, struct board *), int wanted)
{
    int status[4];

    ranks_run(size, run, status, 60);
    for (int rank = 0; rank < size; rank++)
        ck_assert_msg(status[rank] == wanted, "rank %d of %d ended with %d", rank, size, status[rank]);
}

/* --- what is right ------------------------------------------------------------------------------------------------ */

/* Everyone to the next, more than a pipe holds. */
static int ring_of_transfers(int rank, int size, struct board *board)
{
    struct rank r = begin(rank, size, board, 0);
    int from = (rank + size - 1) % size;
    ncclResult_t result;

    fill(&r, r.device, MANY);
    NEED(ncclGroupStart() == ncclSuccess);
    NEED(ncclSend(r.device, MANY, ncclUint8, (rank + 1) % size, r.comm, r.stream) == ncclSuccess);
    NEED(ncclRecv(r.other, MANY, ncclUint8, from, r.comm, r.stream) == ncclSuccess);
    result = ncclGroupEnd();
    NEED(result == ncclInProgress);
    ready(&r);
    fetch(&r, r.other, MANY);
    for (size_t k = 0; k < MANY; k++)
        NEED(r.host[k] == byte_of(from, k));
    end(&r);
    return 0;
}

START_TEST(transfers_in_a_group_progress_together)
{
    for (int size = 1; size <= 4; size++)
        expect(size, ring_of_transfers, 0);
}
END_TEST

/* Rank 1 never receives. */
static int lone_send(int rank, int size, struct board *board)
{
    struct rank r = begin(rank, size, board, 0);

    if (rank == 0) {
        NEED(ncclSend(r.device, 1, ncclUint8, 1, r.comm, r.stream) == ncclInProgress);
        ready(&r);
        hang_and_abort(&r);
        board_raise(board, 1);
        return 0;
    }
    board_await(board, 1, 1);
    return ncclCommAbort(r.comm) != ncclSuccess;
}

START_TEST(a_send_waits_for_its_receive)
{
    expect(2, lone_send, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("standin_nccl");
    TCase *moves = tcase_create("moves");
    SRunner *runner;
    int failed;

    tcase_set_timeout(moves, 60);
    tcase_add_test(moves, transfers_in_a_group_progress_together);
    tcase_add_test(moves, a_send_waits_for_its_receive);
    suite_add_tcase(suite, moves);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
