/* Communicators of the stand-in for libnccl: in progress, split, finalized, revoked, aborted; two on one device. */
#include <check.h>
#include <string.h>

#include "tests/standin/hold.h"
#include "tests/standin/nccl_rank.h"
#include "tests/standin/suite.h"

/* Rank 1 comes late. */
static int late(int rank, int size, struct board *board)
{
    struct rank r = rank_alone(rank, size, board);
    ncclComm_t child;
    int count = 0;

    if (rank == 1)
        board_await(board, FLAG_FREE, 1);
    NEED(rank_init(&r, 0) == ncclInProgress);
    if (rank == 0) {
        NEED(rank_settle(r.comm, 100) == ncclInProgress);
        NEED(ncclCommCount(r.comm, &count) == ncclInvalidArgument);
        NEED(ncclSend(r.device, 1, ncclUint8, 1, r.comm, r.stream) == ncclInvalidArgument);
        NEED(ncclCommSplit(r.comm, 0, 0, &child, NULL) == ncclInvalidArgument);
        NEED(ncclCommFinalize(r.comm) == ncclInvalidArgument);
        NEED(ncclCommDestroy(r.comm) == ncclInvalidArgument);
        board_raise(board, FLAG_FREE);
    }
    NEED(rank_settle(r.comm, SETTLE_MS) == ncclSuccess);
    NEED(ncclCommCount(r.comm, &count) == ncclSuccess && count == size);
    rank_end(&r);
    return 0;
}

START_TEST(a_communicator_in_progress_takes_no_calls)
{
    expect_all(2, late, 0);
}
END_TEST

/* Rank 1 never comes. */
static int alone(int rank, int size, struct board *board)
{
    struct rank r = rank_alone(rank, size, board);

    if (rank == 1)
        return 0;
    NEED(rank_init(&r, 0) == ncclInProgress);
    NEED(rank_settle(r.comm, 100) == ncclInProgress);
    NEED(ncclCommAbort(r.comm) == ncclSuccess);
    return 0;
}

START_TEST(an_init_that_waits_can_be_aborted)
{
    expect_all(2, alone, 0);
}
END_TEST

static int on_one_device(int rank, int size, struct board *board)
{
    struct rank r = rank_alone(rank, size, board);

    NEED(cudaSetDevice(0) == cudaSuccess);
    NEED(rank_init(&r, 0) == ncclInProgress);
    NEED(rank_settle(r.comm, SETTLE_MS) == ncclInvalidUsage);
    NEED(strstr(ncclGetLastError(r.comm), "Duplicate GPU detected : rank") != NULL);
    NEED(ncclSend(r.device, 1, ncclUint8, 1, r.comm, r.stream) == ncclInvalidUsage);
    NEED(ncclCommAbort(r.comm) == ncclSuccess);
    return 0;
}

START_TEST(two_ranks_on_one_device_are_refused)
{
    expect_all(2, on_one_device, 0);
}
END_TEST

static int odd_configurations(int rank, int size, struct board *board)
{
    struct rank r = rank_alone(rank, size, board);
    ncclConfig_t config = {0};
    ncclUniqueId id = rank_share_id(board, rank);

    NEED(ncclCommInitRankConfig(&r.comm, 1, id, 0, &config) == ncclInvalidArgument);
    NEED(ncclCommInitRank(&r.comm, 0, id, 0) == ncclInvalidArgument);
    NEED(ncclCommInitRank(&r.comm, 1, id, 1) == ncclInvalidArgument);
    NEED(ncclCommInitRank(&r.comm, 1, id, 0) == ncclSuccess);
    NEED(ncclCommDestroy(r.comm) == ncclSuccess);
    NEED(ncclCommDestroy(r.comm) == ncclInvalidArgument);
    return 0;
}

START_TEST(configurations_are_looked_at)
{
    expect_all(1, odd_configurations, 0);
}
END_TEST

/* --- splits ------------------------------------------------------------------------------------------------------- */

/* Odd and even ranks, numbered from the end; the last takes no part. */
static int split_in_three(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);
    ncclComm_t world = r.comm;
    ncclComm_t child = NULL;
    int color = rank == 3 ? NCCL_SPLIT_NOCOLOR : rank % 2;
    int members = 0;
    int number = 0;
    float value = (float)(1 << rank);

    for (int times = 0; times < 3; times++) {
        NEED(ncclCommSplit(world, color, -rank, &child, NULL) == ncclInProgress);
        NEED(rank_settle(world, SETTLE_MS) == ncclSuccess);
        NEED((child == NULL) == (rank == 3));
        if (!child)
            continue;
        NEED(rank_settle(child, SETTLE_MS) == ncclSuccess);
        NEED(ncclCommCount(child, &members) == ncclSuccess && members == (rank == 1 ? 1 : 2));
        NEED(ncclCommUserRank(child, &number) == ncclSuccess && number == (rank == 0));
        r.comm = child;
        rank_put(&r, r.device, &value, sizeof value);
        rank_ready(&r, ncclAllReduce(r.device, r.other, 1, ncclFloat32, ncclSum, child, r.stream));
        rank_fetch(&r, r.other, sizeof value);
        NEED(*(float *)(void *)r.host == (rank == 1 ? 2.0f : 5.0f));
        NEED(ncclCommDestroy(child) == ncclSuccess);
    }
    r.comm = world;
    rank_end(&r);
    return 0;
}

START_TEST(a_split_numbers_by_key)
{
    expect_all(4, split_in_three, 0);
}
END_TEST

static int split_alone(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);
    ncclComm_t child = NULL;

    if (rank == 0) {
        NEED(ncclCommSplit(r.comm, 0, 0, &child, NULL) == ncclInProgress);
        NEED(rank_settle(r.comm, 300) == ncclInProgress);
        NEED(child == NULL);
    }
    NEED(ncclCommAbort(r.comm) == ncclSuccess);
    return 0;
}

START_TEST(a_split_waits_for_all_of_the_parent)
{
    expect_all(3, split_alone, 0);
}
END_TEST

/* A transfer of the parent is held back by its stream. */
static int split_busy(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);
    ncclComm_t child = NULL;
    atomic_bool let_go = false;

    if (rank == 0) {
        NEED(cudaLaunchHostFunc(r.stream, hold_here, &let_go) == cudaSuccess);
        rank_ready(&r, ncclSend(r.device, 8, ncclUint8, 1, r.comm, r.stream));
    } else {
        rank_ready(&r, ncclRecv(r.device, 8, ncclUint8, 0, r.comm, r.stream));
    }
    NEED(ncclCommSplit(r.comm, 0, rank, &child, NULL) == ncclInProgress);
    NEED(rank_settle(r.comm, 300) == ncclInProgress);
    NEED(child == NULL);
    board_raise(board, FLAG_FREE);
    board_await(board, FLAG_FREE, (uint32_t)size);
    atomic_store(&let_go, true);
    NEED(rank_settle(r.comm, SETTLE_MS) == ncclSuccess);
    NEED(rank_settle(child, SETTLE_MS) == ncclSuccess);
    NEED(ncclCommDestroy(child) == ncclSuccess);
    rank_end(&r);
    return 0;
}

START_TEST(a_split_waits_while_the_parent_is_busy)
{
    expect_all(2, split_busy, 0);
}
END_TEST

/* --- two communicators on one device ------------------------------------------------------------------------------ */

static bool crossed;

static int two_orders(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);
    ncclComm_t other = rank_split(&r);
    ncclComm_t pair[2] = {r.comm, other};
    cudaStream_t streams[2] = {r.stream};
    bool turned = crossed && rank == 1;

    NEED(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking) == cudaSuccess);
    for (int i = 0; i < 2; i++) {
        int at = turned ? 1 - i : i;

        NEED(ncclAllReduce(r.device, r.device, 8, ncclFloat32, ncclSum, pair[at], streams[at]) == ncclInProgress);
        NEED(rank_settle(pair[at], SETTLE_MS) == ncclSuccess);
    }
    if (crossed) {
        NEED(rank_hangs(&r));
        NEED(ncclCommAbort(r.comm) == ncclSuccess && ncclCommAbort(other) == ncclSuccess);
        NEED(cudaDeviceSynchronize() == cudaSuccess);
        return 0;
    }
    NEED(cudaDeviceSynchronize() == cudaSuccess);
    NEED(ncclCommDestroy(other) == ncclSuccess);
    rank_end(&r);
    return 0;
}

START_TEST(launches_of_two_communicators_keep_one_order)
{
    crossed = false;
    expect_all(2, two_orders, 0);
    crossed = true;
    expect_all(2, two_orders, 0);
}
END_TEST

/* A call on each of two streams, one launch: the work behind either waits for it. */
static int two_streams(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 1);
    cudaStream_t second;

    NEED(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking) == cudaSuccess);
    rank_fill(&r, r.device, 1000);
    NEED(ncclGroupStart() == ncclSuccess);
    NEED(ncclSend(r.device, 1000, ncclUint8, 1 - rank, r.comm, r.stream) == ncclSuccess);
    NEED(ncclRecv(r.other, 1000, ncclUint8, 1 - rank, r.comm, second) == ncclSuccess);
    NEED(ncclGroupEnd() == ncclSuccess);
    NEED(cudaMemcpyAsync(r.host, r.other, 1000, cudaMemcpyDeviceToHost, second) == cudaSuccess);
    NEED(cudaStreamSynchronize(second) == cudaSuccess);
    for (size_t k = 0; k < 1000; k++)
        NEED(r.host[k] == byte_of(1 - rank, k));
    rank_end(&r);
    return 0;
}

START_TEST(a_group_joins_the_streams_that_it_names)
{
    expect_all(2, two_streams, 0);
}
END_TEST

static int mixed(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 1);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t other = NULL;

    config.blocking = 0;
    NEED(ncclCommSplit(r.comm, 0, 0, &other, &config) == ncclSuccess);
    NEED(rank_settle(other, SETTLE_MS) == ncclSuccess);
    NEED(ncclGroupStart() == ncclSuccess);
    NEED(ncclAllReduce(r.device, r.device, 8, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
    NEED(ncclAllReduce(r.device, r.device, 8, ncclFloat32, ncclSum, other, r.stream) == ncclSuccess);
    NEED(ncclGroupEnd() == ncclInvalidArgument);
    NEED(ncclCommDestroy(other) == ncclSuccess);
    rank_end(&r);
    return 0;
}

START_TEST(blocking_and_non_blocking_do_not_mix)
{
    expect_all(1, mixed, 0);
}
END_TEST

/* --- ends --------------------------------------------------------------------------------------------------------- */

static int finalize(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    if (rank == 1)
        board_await(board, FLAG_FREE, 1);
    NEED(ncclCommFinalize(r.comm) == ncclInProgress);
    if (rank == 0) {
        NEED(rank_settle(r.comm, 100) == ncclInProgress);
        board_raise(board, FLAG_FREE);
    }
    NEED(rank_settle(r.comm, SETTLE_MS) == ncclSuccess);
    NEED(ncclAllReduce(r.device, r.device, 8, ncclFloat32, ncclSum, r.comm, r.stream) == ncclInvalidUsage);
    NEED(ncclCommFinalize(r.comm) == ncclInvalidArgument);
    rank_end(&r);
    return 0;
}

START_TEST(finalize_waits_for_everyone)
{
    expect_all(2, finalize, 0);
}
END_TEST

static int revoke(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);
    ncclComm_t child;

    rank_connect(&r);
    if (rank == 0) {
        rank_ready(&r, ncclSend(r.device, 8, ncclUint8, 1, r.comm, r.stream));
        NEED(rank_hangs(&r));
    }
    NEED(ncclCommRevoke(r.comm, 1) == ncclInvalidArgument);
    NEED(ncclCommRevoke(r.comm, NCCL_REVOKE_DEFAULT) == ncclInProgress);
    NEED(rank_settle(r.comm, SETTLE_MS) == ncclSuccess);
    NEED(cudaStreamSynchronize(r.stream) == cudaSuccess);
    NEED(ncclCommRevoke(r.comm, NCCL_REVOKE_DEFAULT) == ncclInvalidArgument);
    NEED(ncclSend(r.device, 8, ncclUint8, 1, r.comm, r.stream) == ncclInvalidUsage);
    NEED(ncclCommFinalize(r.comm) == ncclInvalidArgument);
    child = rank_split(&r);
    NEED(ncclCommDestroy(r.comm) == ncclSuccess);
    r.comm = child;
    rank_ready(&r, ncclAllReduce(r.device, r.device, 8, ncclFloat32, ncclSum, r.comm, r.stream));
    rank_end(&r);
    return 0;
}

START_TEST(revoke_ends_what_runs_and_refuses_more)
{
    expect_all(2, revoke, 0);
}
END_TEST

/* Launches that their stream has not reached do not hold an abort, and end by themselves. */
static int abort_queued(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);
    atomic_bool let_go = false;

    NEED(cudaLaunchHostFunc(r.stream, hold_here, &let_go) == cudaSuccess);
    rank_ready(&r, ncclAllReduce(r.device, r.device, 8, ncclFloat32, ncclSum, r.comm, r.stream));
    rank_ready(&r, ncclAllReduce(r.device, r.device, 8, ncclFloat32, ncclSum, r.comm, r.stream));
    NEED(ncclCommAbort(r.comm) == ncclSuccess);
    NEED(cudaStreamQuery(r.stream) == cudaErrorNotReady);
    atomic_store(&let_go, true);
    NEED(cudaStreamSynchronize(r.stream) == cudaSuccess);
    NEED(ncclCommAbort(r.comm) == ncclInvalidArgument);
    return 0;
}

START_TEST(abort_does_not_wait_for_what_has_not_begun)
{
    expect_all(2, abort_queued, 0);
}
END_TEST

/* In the test's own process, whose end the leak sanitizer sees. */
START_TEST(all_memory_is_given_back)
{
    struct board board = {0};
    struct rank r = rank_begin(0, 1, &board, 0);
    ncclComm_t child;

    rank_ready(&r, ncclAllReduce(r.device, r.other, 10, ncclFloat32, ncclSum, r.comm, r.stream));
    NEED(ncclGroupStart() == ncclSuccess);
    NEED(ncclSend(r.device, 10, ncclUint8, 0, r.comm, r.stream) == ncclSuccess);
    NEED(ncclRecv(r.other, 10, ncclUint8, 0, r.comm, r.stream) == ncclSuccess);
    rank_ready(&r, ncclGroupEnd());
    child = rank_split(&r);
    NEED(ncclCommAbort(child) == ncclSuccess);
    NEED(ncclCommRevoke(r.comm, NCCL_REVOKE_DEFAULT) == ncclInProgress);
    NEED(rank_settle(r.comm, SETTLE_MS) == ncclSuccess);
    rank_end(&r);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_communicator_in_progress_takes_no_calls,
                                  an_init_that_waits_can_be_aborted,
                                  two_ranks_on_one_device_are_refused,
                                  configurations_are_looked_at,
                                  a_split_numbers_by_key,
                                  a_split_waits_for_all_of_the_parent,
                                  a_split_waits_while_the_parent_is_busy,
                                  launches_of_two_communicators_keep_one_order,
                                  a_group_joins_the_streams_that_it_names,
                                  blocking_and_non_blocking_do_not_mix,
                                  finalize_waits_for_everyone,
                                  revoke_ends_what_runs_and_refuses_more,
                                  abort_does_not_wait_for_what_has_not_begun,
                                  all_memory_is_given_back};

    return suite_main("standin_comms", tests, sizeof tests / sizeof *tests);
}
