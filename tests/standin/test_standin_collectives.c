/* Collectives of the stand-in for libnccl: their results, and that members who disagree wait. */
#include <check.h>
#include <string.h>

#include "tests/standin/nccl_rank.h"
#include "tests/standin/suite.h"

/* --- results ------------------------------------------------------------------------------------------------------ */

/* Small integers in f32: exact in any order. */
static int sums(int rank, int size, struct board *board)
{
    static const size_t counts[] = {1, 3, 1000, 70000};
    struct rank r = rank_begin(rank, size, board, 1);
    static float values[70000];

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t bytes = counts[i] * sizeof(float);
        int shares = size * (size + 1) / 2;

        for (size_t k = 0; k < counts[i]; k++)
            values[k] = (float)(rank + 1) * (float)(k % 97);
        rank_put(&r, r.device, values, bytes);
        NEED(ncclAllReduce(r.device, r.other, counts[i], ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
        NEED(ncclAllReduce(r.device, r.device, counts[i], ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
        for (int place = 0; place < 2; place++) {
            rank_fetch(&r, place ? r.device : r.other, bytes);
            for (size_t k = 0; k < counts[i]; k++)
                NEED(((float *)(void *)r.host)[k] == (float)shares * (float)(k % 97));
        }
    }
    NEED(ncclAllReduce(r.device, r.device, 0, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
    rank_end(&r);
    return 0;
}

START_TEST(all_reduce_adds)
{
    for (int size = 1; size <= 4; size++)
        expect_all(size, sums, 0);
}
END_TEST

/* One large and two ones: which of them meet first decides, for the type holds no odd number so large.  Element k is
 * added from rank k on, along the ring; in f32 every sum would be large + 2. */
static int sums_of_halves(int rank, int size, struct board *board)
{
    static const struct {
        ncclDataType_t type;
        uint16_t large, one, large_and_two;
    } types[] = {{ncclFloat16, 0x6800, 0x3c00, 0x6801}, {ncclBfloat16, 0x4380, 0x3f80, 0x4381}};
    struct rank r = rank_begin(rank, size, board, 1);

    for (size_t i = 0; i < 2; i++) {
        uint16_t own = rank == 0 ? types[i].large : types[i].one;
        uint16_t values[] = {own, own, own};
        uint16_t wanted[] = {types[i].large, types[i].large_and_two, types[i].large};

        rank_put(&r, r.device, values, sizeof values);
        NEED(ncclAllReduce(r.device, r.other, 3, types[i].type, ncclSum, r.comm, r.stream) == ncclSuccess);
        rank_fetch(&r, r.other, sizeof values);
        NEED(memcmp(r.host, wanted, sizeof wanted) == 0);
    }
    rank_end(&r);
    return 0;
}

START_TEST(halves_are_added_in_halves_along_the_ring)
{
    expect_all(3, sums_of_halves, 0);
}
END_TEST

static int integers(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 1);
    int32_t words[] = {INT32_MAX, -5, rank};
    int8_t small[] = {100, -100};

    rank_put(&r, r.device, words, sizeof words);
    NEED(ncclAllReduce(r.device, r.other, 3, ncclInt32, ncclSum, r.comm, r.stream) == ncclSuccess);
    rank_fetch(&r, r.other, sizeof words);
    memcpy(words, r.host, sizeof words);
    NEED(words[0] == -2 && words[1] == -10 && words[2] == 1);
    rank_put(&r, r.device, small, sizeof small);
    NEED(ncclAllReduce(r.device, r.other, 2, ncclInt8, ncclSum, r.comm, r.stream) == ncclSuccess);
    rank_fetch(&r, r.other, sizeof small);
    NEED((int8_t)r.host[0] == -56 && r.host[1] == 56);
    rank_end(&r);
    return 0;
}

START_TEST(integers_wrap)
{
    expect_all(2, integers, 0);
}
END_TEST

static int moves(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 1);
    size_t part = 50000;

    rank_fill(&r, r.device, part);
    NEED(ncclAllGather(r.device, r.other, part, ncclUint8, r.comm, r.stream) == ncclSuccess);
    rank_fetch(&r, r.other, part * (size_t)size);
    for (size_t k = 0; k < part * (size_t)size; k++)
        NEED(r.host[k] == byte_of((int)(k / part), k % part));
    for (int root = 0; root < size; root++) {
        NEED(ncclBroadcast(r.device, r.other, part, ncclUint8, root, r.comm, r.stream) == ncclSuccess);
        rank_fetch(&r, r.other, part);
        for (size_t k = 0; k < part; k++)
            NEED(r.host[k] == byte_of(root, k));
    }
    rank_fill(&r, r.device, part * (size_t)size);
    NEED(ncclReduceScatter(r.device, r.other, part, ncclUint8, ncclSum, r.comm, r.stream) == ncclSuccess);
    rank_fetch(&r, r.other, part);
    for (size_t k = 0; k < part; k++) {
        unsigned char sum = 0;

        for (int member = 0; member < size; member++)
            sum = (unsigned char)(sum + byte_of(member, (size_t)rank * part + k));
        NEED(r.host[k] == sum);
    }
    rank_end(&r);
    return 0;
}

START_TEST(gather_broadcast_and_reduce_scatter_move)
{
    for (int size = 1; size <= 4; size++)
        expect_all(size, moves, 0);
}
END_TEST

/* --- disagreements ------------------------------------------------------------------------------------------------ */

enum mistake { COUNT, TYPE, KIND, ROOT, ORDER };
static enum mistake mistake;

static int disagree(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);
    bool odd = rank == 1;

    switch (mistake) {
    case COUNT:
        rank_ready(&r, ncclAllReduce(r.device, r.device, odd ? 8 : 10, ncclFloat32, ncclSum, r.comm, r.stream));
        break;
    case TYPE:
        rank_ready(&r, ncclAllReduce(r.device, r.device, 8, odd ? ncclInt32 : ncclFloat32, ncclSum, r.comm, r.stream));
        break;
    case KIND:
        rank_ready(&r, odd ? ncclBroadcast(r.device, r.device, 8, ncclFloat32, 0, r.comm, r.stream)
                           : ncclAllReduce(r.device, r.device, 8, ncclFloat32, ncclSum, r.comm, r.stream));
        break;
    case ROOT:
        rank_ready(&r, ncclBroadcast(r.device, r.device, 8, ncclFloat32, odd, r.comm, r.stream));
        break;
    case ORDER:
        rank_ready(&r, ncclAllReduce(r.device, r.device, odd ? 8 : 9, ncclFloat32, ncclSum, r.comm, r.stream));
        rank_ready(&r, ncclAllReduce(r.device, r.device, odd ? 9 : 8, ncclFloat32, ncclSum, r.comm, r.stream));
        break;
    }
    return rank_hang_and_abort(&r);
}

/* B26, B27 */
START_TEST(members_that_disagree_wait)
{
    for (mistake = COUNT; mistake <= ORDER; mistake++)
        expect_all(mistake == COUNT ? 3 : 2, disagree, 0);
}
END_TEST

static int missing(int rank, int size, struct board *board)
{
    struct rank r = rank_begin(rank, size, board, 0);

    if (rank > 0) {
        rank_ready(&r, ncclAllReduce(r.device, r.device, 8, ncclFloat32, ncclSum, r.comm, r.stream));
        return rank_hang_and_abort(&r);
    }
    return ncclCommAbort(r.comm) != ncclSuccess;
}

START_TEST(members_wait_for_who_does_not_call)
{
    expect_all(3, missing, 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {all_reduce_adds,
                                  halves_are_added_in_halves_along_the_ring,
                                  integers_wrap,
                                  gather_broadcast_and_reduce_scatter_move,
                                  members_that_disagree_wait,
                                  members_wait_for_who_does_not_call};

    return suite_main("standin_collectives", tests, sizeof tests / sizeof *tests);
}
