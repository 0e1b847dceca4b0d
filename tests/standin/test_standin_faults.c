/* Faults on demand, and that nothing is heard of a peer's death. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/standin/nccl_rank.h"
#include "tests/standin/suite.h"

enum { NOWHERE = -1 };

/* What lies there are the bytes of that rank, but for the flipped one. */
static void fetched(const struct rank *r, const void *device, int from, int flipped)
{
    rank_fetch(r, device, 1000);
    for (size_t k = 0; k < 1000; k++)
        NEED(r->host[k] == (byte_of(from, k) ^ ((int)k == flipped)));
}

/* Two transfers from rank 1 to rank 0; the second has the fault. */
static void transfer(struct rank *r)
{
    if (r->rank == 1)
        rank_ready(r, ncclSend(r->device, 1000, ncclUint8, 0, r->comm, r->stream));
    else
        rank_ready(r, ncclRecv(r->other, 1000, ncclUint8, 1, r->comm, r->stream));
}

static struct rank faulty_pair(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    rank_fill(&r, r.device, 1000);
    transfer(&r);
    NEED(cudaStreamSynchronize(r.stream) == cudaSuccess);
    return r;
}

static int flipped(int rank, int size, struct board *board)
{
    struct rank r = faulty_pair(rank, size, board);

    if (rank == 0)
        fetched(&r, r.other, 1, NOWHERE);
    transfer(&r);
    if (rank == 0)
        fetched(&r, r.other, 1, 17);
    /* What was sent is as it was. */
    fetched(&r, r.device, rank, NOWHERE);
    rank_end(&r);
    return 0;
}

START_TEST(flip_turns_one_bit_in_transit)
{
    setenv("FERRY_STANDIN_FAULT", "rank=0,op=40,kind=kill;rank=1,op=1,kind=flip:17", 1);
    expect_all(2, flipped, 0);
}
END_TEST

/* Rank 1 sends less than rank 0 receives. */
static int shortened(int rank, int size, struct board *board)
{
    struct rank r = faulty_pair(rank, size, board);

    transfer(&r);
    if (rank == 0)
        return rank_hang_and_abort(&r);
    NEED(cudaStreamSynchronize(r.stream) == cudaSuccess);
    return ncclCommAbort(r.comm) != ncclSuccess;
}

START_TEST(short_leaves_the_receiver_waiting)
{
    setenv("FERRY_STANDIN_FAULT", "rank=1,op=1,kind=short:3", 1);
    expect_all(2, shortened, 0);
}
END_TEST

static int delayed(int rank, int size, struct board *board)
{
    struct rank r = faulty_pair(rank, size, board);
    uint64_t start = clock_ns();

    /* The delay begins with rank 1's call: not before rank 0 counts. */
    if (rank == 0)
        board_raise(board, FLAG_FREE);
    else
        board_await(board, FLAG_FREE, 1);
    transfer(&r);
    NEED(cudaStreamSynchronize(r.stream) == cudaSuccess);
    NEED(clock_ns() - start >= 200 * NS_PER_MS);
    rank_end(&r);
    return 0;
}

START_TEST(delay_begins_later)
{
    setenv("FERRY_STANDIN_FAULT", "rank=1,op=1,kind=delay:200", 1);
    expect_all(2, delayed, 0);
}
END_TEST

static int killed(int rank, int size, struct board *board)
{
    struct rank r = faulty_pair(rank, size, board);
    ncclResult_t state = ncclInternalError;

    transfer(&r);
    NEED(rank_hangs(&r));
    NEED(rank == 0);
    NEED(ncclCommGetAsyncError(r.comm, &state) == ncclSuccess && state == ncclSuccess);
    return rank_hang_and_abort(&r);
}

START_TEST(a_dead_peer_is_not_reported)
{
    int status[2];

    setenv("FERRY_STANDIN_FAULT", "rank=1,op=1,kind=kill", 1);
    ranks_run(2, killed, status, 60);
    ck_assert_int_eq(status[0], 0);
    ck_assert_int_eq(status[1], RANKS_STATUS_KILLED + SIGKILL);
}
END_TEST

static int failed(int rank, int size, struct board *board)
{
    struct rank r = faulty_pair(rank, size, board);

    if (rank == 1) {
        NEED(rank_hangs(&r) == false);
        return ncclCommAbort(r.comm) != ncclSuccess;
    }
    NEED(ncclRecv(r.other, 1000, ncclUint8, 1, r.comm, r.stream) == ncclInProgress);
    for (int ms = 0; ms < SETTLE_MS && rank_settle(r.comm, 1) != ncclRemoteError; ms++)
        clock_sleep_ns(NS_PER_MS);
    NEED(rank_settle(r.comm, 1) == ncclRemoteError);
    NEED(ncclRecv(r.other, 1000, ncclUint8, 1, r.comm, r.stream) == ncclRemoteError);
    NEED(ncclCommDestroy(r.comm) == ncclRemoteError);
    return rank_hang_and_abort(&r);
}

START_TEST(an_asynchronous_error_stays)
{
    setenv("FERRY_STANDIN_FAULT", "rank=0,op=1,kind=error", 1);
    expect_all(2, failed, 0);
}
END_TEST

static int not_coming(int rank, int size, struct board *board)
{
    struct rank r = rank_alone(rank, size, board);

    NEED(rank_init(&r, 0) == ncclInProgress);
    NEED(rank_settle(r.comm, 300) == ncclInProgress);
    /* With the process of rank 0 the meeting ends, and that the others would hear. */
    board_raise(board, FLAG_FREE);
    board_await(board, FLAG_FREE, (uint32_t)size);
    return ncclCommAbort(r.comm) != ncclSuccess;
}

START_TEST(an_init_may_never_complete)
{
    setenv("FERRY_STANDIN_FAULT", "rank=2,kind=init", 1);
    expect_all(3, not_coming, 0);
}
END_TEST

static int split_fails(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);
    ncclComm_t child = NULL;

    NEED(ncclCommSplit(r.comm, 0, rank, &child, NULL) == ncclInProgress);
    NEED(rank_settle(r.comm, 300) == (rank == 1 ? ncclSystemError : ncclInProgress));
    NEED(ncclCommAbort(r.comm) == ncclSuccess);
    NEED(child != NULL);
    return ncclCommAbort(child) != ncclSuccess;
}

START_TEST(a_split_may_fail)
{
    setenv("FERRY_STANDIN_FAULT", "rank=1,op=0,kind=split", 1);
    expect_all(2, split_fails, 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {flip_turns_one_bit_in_transit,
                                  short_leaves_the_receiver_waiting,
                                  delay_begins_later,
                                  a_dead_peer_is_not_reported,
                                  an_asynchronous_error_stays,
                                  an_init_may_never_complete,
                                  a_split_may_fail};

    return suite_main("standin_faults", tests, sizeof tests / sizeof *tests);
}
