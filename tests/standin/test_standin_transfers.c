/* Sends and receives of the stand-in for libnccl: what is right moves, what NCCL would punish waits. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/nccl_rank.h"
#include "tests/standin/suite.h"

/* What the processes of a test read; set before they start. */
static size_t send_bytes;
static size_t receive_bytes;

/* Everyone to the next, more than a pipe holds. */
static int ring(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);
    int from = (rank + size - 1) % size;

    rank_fill(&r, r.device, MANY);
    NEED(ncclGroupStart() == ncclSuccess);
    NEED(ncclSend(r.device, MANY, ncclUint8, (rank + 1) % size, r.comm, r.stream) == ncclSuccess);
    NEED(ncclRecv(r.other, MANY, ncclUint8, from, r.comm, r.stream) == ncclSuccess);
    rank_ready(&r, ncclGroupEnd());
    rank_fetch(&r, r.other, MANY);
    for (size_t k = 0; k < MANY; k++)
        NEED(r.host[k] == byte_of(from, k));
    rank_end(&r);
    return 0;
}

START_TEST(transfers_in_a_group_progress_together)
{
    for (int size = 1; size <= 4; size++)
        expect_all(size, ring, 0);
}
END_TEST

/* Three messages, one empty and one larger than a pipe, from each to each, in one group; pinned memory takes part. */
static void exchange_several(const struct rank *r, size_t longer, size_t shorter)
{
    size_t all = longer + shorter;

    rank_fill(r, r->device, all);
    NEED(ncclGroupStart() == ncclSuccess);
    for (int peer = 0; peer < r->size; peer++) {
        unsigned char *to = r->host + (size_t)peer * all;

        NEED(ncclSend(r->device, longer, ncclUint8, peer, r->comm, r->stream) == ncclSuccess);
        NEED(ncclSend(r->device, 0, ncclUint8, peer, r->comm, r->stream) == ncclSuccess);
        NEED(ncclSend(r->device + longer, shorter / 4, ncclInt32, peer, r->comm, r->stream) == ncclSuccess);
        NEED(ncclRecv(to, longer, ncclUint8, peer, r->comm, r->stream) == ncclSuccess);
        NEED(ncclRecv(NULL, 0, ncclUint8, peer, r->comm, r->stream) == ncclSuccess);
        NEED(ncclRecv(to + longer, shorter / 4, ncclInt32, peer, r->comm, r->stream) == ncclSuccess);
    }
    NEED(ncclGroupEnd() == ncclSuccess);
    NEED(cudaStreamSynchronize(r->stream) == cudaSuccess);
    for (int peer = 0; peer < r->size; peer++)
        for (size_t k = 0; k < all; k++)
            NEED(r->host[(size_t)peer * all + k] == byte_of(peer, k));
}

static int several(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 1);

    exchange_several(&r, 10, 40000);
    for (int times = 0; times < 20; times++)
        exchange_several(&r, 140000, 8000);
    rank_end(&r);
    return 0;
}

START_TEST(transfers_between_two_ranks_keep_their_order)
{
    expect_all(1, several, 0);
    expect_all(2, several, 0);
}
END_TEST

/* Rank 1 never receives. */
static int lone_send(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    rank_connect(&r);
    if (rank == 0) {
        rank_ready(&r, ncclSend(r.device, send_bytes, ncclUint8, 1, r.comm, r.stream));
        rank_hang_and_abort(&r);
        board_raise(board, FLAG_FREE);
        return 0;
    }
    board_await(board, FLAG_FREE, 1);
    return ncclCommAbort(r.comm) != ncclSuccess;
}

START_TEST(a_send_waits_for_its_receive)
{
    for (send_bytes = 0; send_bytes < 2; send_bytes++)
        expect_all(2, lone_send, 0);
}
END_TEST

static int other_size(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    if (rank == 0)
        rank_ready(&r, ncclSend(r.device, send_bytes, ncclUint8, 1, r.comm, r.stream));
    else
        rank_ready(&r, ncclRecv(r.device, receive_bytes, ncclUint8, 0, r.comm, r.stream));
    if ((rank == 0) == (send_bytes > receive_bytes))
        return rank_hang_and_abort(&r);
    /* Who asked for less has it. */
    NEED(cudaStreamSynchronize(r.stream) == cudaSuccess);
    NEED(ncclCommAbort(r.comm) == ncclSuccess);
    return 0;
}

/* B27 */
START_TEST(sizes_that_differ_leave_one_waiting)
{
    static const size_t sizes[][2] = {{100, 50}, {50, 100}, {0, 1}, {1, 0}, {MANY, MANY - 1}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        send_bytes = sizes[i][0];
        receive_bytes = sizes[i][1];
        expect_all(2, other_size, 0);
    }
}
END_TEST

/* The first receive of the group asks for what the second send brings, which is not given before the first is over. */
static int next_of_group(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    NEED(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; i++) {
        if (rank == 0)
            NEED(ncclSend(r.device, 100, ncclUint8, 1, r.comm, r.stream) == ncclSuccess);
        else
            NEED(ncclRecv(r.device, i == 0 ? 200 : 100, ncclUint8, 0, r.comm, r.stream) == ncclSuccess);
    }
    rank_ready(&r, ncclGroupEnd());
    return rank_hang_and_abort(&r);
}

START_TEST(a_transfer_takes_nothing_of_the_next)
{
    expect_all(2, next_of_group, 0);
}
END_TEST

/* B165: small or large, it makes no difference here. */
static int both_send_first(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    rank_connect(&r);
    rank_ready(&r, ncclSend(r.device, send_bytes, ncclUint8, 1 - rank, r.comm, r.stream));
    rank_ready(&r, ncclRecv(r.other, send_bytes, ncclUint8, 1 - rank, r.comm, r.stream));
    return rank_hang_and_abort(&r);
}

START_TEST(two_sends_before_two_receives_wait)
{
    send_bytes = 4;
    expect_all(2, both_send_first, 0);
    send_bytes = MANY;
    expect_all(2, both_send_first, 0);
}
END_TEST

/* Nobody receives it. */
static int unmet(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    if (rank == 0) {
        NEED(ncclSend(r.device, 8, ncclUint8, 1, r.comm, r.stream) == ncclInProgress);
        NEED(rank_settle(r.comm, 300) == ncclInProgress);
        NEED(cudaStreamQuery(r.stream) == cudaSuccess);
    }
    return ncclCommAbort(r.comm) != ncclSuccess;
}

START_TEST(a_first_transfer_waits_before_it_is_queued)
{
    expect_all(2, unmet, 0);
}
END_TEST

/* Rank 0 connects with rank 1, which comes last, before it comes to connect with rank 2. */
static int connect_in_order(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    if (rank == 0) {
        NEED(ncclGroupStart() == ncclSuccess);
        NEED(ncclSend(r.device, 8, ncclUint8, 2, r.comm, r.stream) == ncclSuccess);
        NEED(ncclSend(r.device, 8, ncclUint8, 1, r.comm, r.stream) == ncclSuccess);
        rank_ready(&r, ncclGroupEnd());
    } else if (rank == 1) {
        board_await(board, FLAG_FREE, 1);
        rank_ready(&r, ncclRecv(r.other, 8, ncclUint8, 0, r.comm, r.stream));
    } else {
        NEED(ncclRecv(r.other, 8, ncclUint8, 0, r.comm, r.stream) == ncclInProgress);
        NEED(rank_settle(r.comm, 300) == ncclInProgress);
        board_raise(board, FLAG_FREE);
        rank_ready(&r, ncclInProgress);
    }
    rank_end(&r);
    return 0;
}

START_TEST(first_transfers_connect_one_after_the_other)
{
    expect_all(3, connect_in_order, 0);
}
END_TEST

/* Rank 0 sends something to all others, and second more things to rank 1.  Who receives the last waits for all before.
 */
static int one_group(int rank, int size, struct board *board, int last, int second)
{
    struct rank r = rank_begin(rank, size, board, 0);

    rank_connect(&r);
    if (rank == 0) {
        NEED(ncclGroupStart() == ncclSuccess);
        for (int i = 0; i < second; i++)
            NEED(ncclSend(r.device, 8, ncclUint8, 1, r.comm, r.stream) == ncclSuccess);
        for (int peer = 1; peer < size; peer++)
            NEED(ncclSend(r.device, 8, ncclUint8, peer, r.comm, r.stream) == ncclSuccess);
        rank_ready(&r, ncclGroupEnd());
    }
    if (rank == last) {
        for (int i = 0; i < second; i++)
            rank_ready(&r, ncclRecv(r.other, 8, ncclUint8, 0, r.comm, r.stream));
        NEED(cudaStreamSynchronize(r.stream) == cudaSuccess);
    } else if (rank > 0) {
        board_await(board, FLAG_FREE, 1);
    }
    if (rank > 0)
        rank_ready(&r, ncclRecv(r.other, 8, ncclUint8, 0, r.comm, r.stream));
    if (rank == last) {
        NEED(rank_hangs(&r));
        board_raise(board, FLAG_FREE);
    }
    rank_end(&r);
    return 0;
}

static int two_one_way(int rank, int size, struct board *board)
{
    return one_group(rank, size, board, 1, 1);
}

START_TEST(a_second_transfer_one_way_comes_behind_the_group)
{
    expect_all(3, two_one_way, 0);
}
END_TEST

static int nine(int rank, int size, struct board *board)
{
    return one_group(rank, size, board, 9, 0);
}

START_TEST(eight_transfers_of_a_group_go_side_by_side)
{
    setenv("FERRY_STANDIN_DEVICES", "10", 1);
    expect_all(10, nine, 0);
}
END_TEST

/* While the launch is in progress the stream takes other work first. */
static int overtaken(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    rank_fill(&r, r.device, MANY);
    setenv("FERRY_STANDIN_LAG", "20000", 1);
    if (rank == 0) {
        NEED(ncclSend(r.device, MANY, ncclUint8, 1, r.comm, r.stream) == ncclInProgress);
        NEED(cudaMemsetAsync(r.device, 9, MANY, r.stream) == cudaSuccess);
        NEED(ncclSend(r.device, MANY, ncclUint8, 1, r.comm, r.stream) == ncclInvalidArgument);
        rank_ready(&r, ncclInProgress);
    } else {
        rank_ready(&r, ncclRecv(r.other, MANY, ncclUint8, 0, r.comm, r.stream));
        rank_fetch(&r, r.other, MANY);
        for (size_t k = 0; k < MANY; k++)
            NEED(r.host[k] == 9);
    }
    rank_end(&r);
    return 0;
}

START_TEST(a_launch_in_progress_is_overtaken)
{
    expect_all(2, overtaken, 0);
}
END_TEST

static int refused(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 1);
    unsigned char pageable[16];
    unsigned char *elsewhere;
    cudaStream_t stream;

    NEED(ncclSend(pageable, 16, ncclUint8, 0, r.comm, r.stream) == ncclInvalidArgument);
    NEED(ncclSend(r.device, MANY + 1, ncclUint8, 0, r.comm, r.stream) == ncclInvalidArgument);
    NEED(ncclSend(r.device, SIZE_MAX / 2, ncclFloat64, 0, r.comm, r.stream) == ncclInvalidArgument);
    NEED(ncclSend(r.device, 1, ncclUint8, size, r.comm, r.stream) == ncclInvalidArgument);
    NEED(ncclSend(r.device, 1, ncclNumTypes, 0, r.comm, r.stream) == ncclInvalidArgument);
    /* Nobody to meet in this group. */
    NEED(ncclSend(r.device, 1, ncclUint8, rank, r.comm, r.stream) == ncclInvalidUsage);
    NEED(cudaSetDevice(3) == cudaSuccess);
    NEED(cudaMalloc((void **)&elsewhere, 16) == cudaSuccess);
    NEED(cudaStreamCreate(&stream) == cudaSuccess);
    NEED(ncclSend(elsewhere, 16, ncclUint8, 0, r.comm, r.stream) == ncclInvalidArgument);
    NEED(ncclSend(r.device, 16, ncclUint8, 0, r.comm, stream) == ncclUnhandledCudaError);
    return 0;
}

START_TEST(calls_that_make_no_sense_are_refused)
{
    expect_all(1, refused, 0);
}
END_TEST

/* One bad call, and nothing of its group is launched. */
static int bad_group(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 1);

    NEED(ncclGroupEnd() == ncclInvalidUsage);
    NEED(ncclGroupStart() == ncclSuccess);
    NEED(ncclGroupStart() == ncclSuccess);
    NEED(ncclSend(r.device, 4, ncclUint8, (rank + 1) % size, r.comm, r.stream) == ncclSuccess);
    NEED(ncclGroupEnd() == ncclSuccess);
    NEED(ncclRecv(r.device, 4, ncclUint8, size, r.comm, r.stream) == ncclInvalidArgument);
    NEED(ncclGroupEnd() == ncclInvalidArgument);
    NEED(cudaStreamSynchronize(r.stream) == cudaSuccess);
    rank_end(&r);
    return 0;
}

START_TEST(a_group_with_a_bad_call_launches_nothing)
{
    expect_all(2, bad_group, 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {transfers_in_a_group_progress_together,
                                  transfers_between_two_ranks_keep_their_order,
                                  a_send_waits_for_its_receive,
                                  sizes_that_differ_leave_one_waiting,
                                  a_transfer_takes_nothing_of_the_next,
                                  two_sends_before_two_receives_wait,
                                  a_first_transfer_waits_before_it_is_queued,
                                  first_transfers_connect_one_after_the_other,
                                  a_second_transfer_one_way_comes_behind_the_group,
                                  eight_transfers_of_a_group_go_side_by_side,
                                  a_launch_in_progress_is_overtaken,
                                  calls_that_make_no_sense_are_refused,
                                  a_group_with_a_bad_call_launches_nothing};

    return suite_main("standin_transfers", tests, sizeof tests / sizeof *tests);
}
