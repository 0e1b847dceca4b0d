/* Schedules of 6 ranks that end only because of how transfers are put into groups.  Ranks come to their transfers when
 * the schedule says so: who is late lets some time pass without a look at his messages.
 *
 * Each waits no longer than PATIENCE_NS for its own: then it says what did not end, and the run fails.
 * The tests are in an order: connections are made once in a process. */
#include <check.h>
#include <stdio.h>

#include "base/clock.h"
#include "tests/nccl/transfer.h"
#include "tests/suite.h"

enum { RANKS = 6, BYTES = 20000, MAX_TRANSFERS = 40 };

#define PATIENCE_NS (10 * NS_PER_S)
#define PAUSE_NS (150 * NS_PER_MS) /* in which the others come as far as they can */

static struct device_world world;
static struct transfer transfers[MAX_TRANSFERS];
static int transfer_count;
static bool left; /* transfers that did not end: the world is torn down */

static struct transfer *transfer_of(int from, int to)
{
    for (int i = 0; i < transfer_count; i++) {
        if (transfers[i].from == from && transfers[i].to == to)
            return &transfers[i];
    }
    ck_abort_msg("the schedule has no transfer from %d to %d", from, to);
}

static struct transfer *plan(int from, int to)
{
    struct transfer *transfer = &transfers[transfer_count];

    *transfer = (struct transfer){.number = transfer_count,
                                  .from = from,
                                  .to = to,
                                  .tag = 20 + (uint32_t)transfer_count,
                                  .bytes = BYTES,
                                  .headroom_out = true,
                                  .headroom_in = true};
    transfer_count++;
    return transfer;
}

static enum status out(int to)
{
    return transfer_send(&world, transfer_of(world.rank, to));
}

/* Wait for the announcement, and answer it. */
static enum status in(int from)
{
    struct transfer *transfer = transfer_of(from, world.rank);
    uint64_t deadline_ns = clock_ns() + PATIENCE_NS;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && !transfer->asked) {
        if (clock_ns() > deadline_ns)
            return STATUS_TIMEOUT;
        st = transfer_look(&world, transfer);
        clock_sleep_ns(20 * NS_PER_US);
    }
    return st;
}

/* Make progress until everything of this rank is over, or until ns have passed: STATUS_TIMEOUT. */
static enum status drive(uint64_t ns)
{
    uint64_t deadline_ns = clock_ns() + ns;
    int open = 0;
    enum status st = STATUS_OK;

    for (int i = 0; i < transfer_count; i++)
        open += (transfers[i].send != NULL) + (transfers[i].receive != NULL);
    while (st == STATUS_OK && open) {
        if (clock_ns() > deadline_ns)
            return STATUS_TIMEOUT;
        for (int i = 0; i < transfer_count && st == STATUS_OK; i++)
            st = transfer_test(&world, &transfers[i], &open);
        clock_sleep_ns(20 * NS_PER_US);
    }
    return st;
}

/* The rest of the schedule; then every rank is in step again.  What did not end stays as it is. */
static enum status end_schedule(enum status st)
{
    if (st == STATUS_OK)
        st = drive(PATIENCE_NS);
    left |= st != STATUS_OK;
    device_world_barrier(&world);
    for (int i = 0; i < transfer_count && !left; i++) {
        struct transfer *transfer = &transfers[i];

        if (transfer->to == world.rank) {
            transfer_check(&world, transfer);
            if (!transfer->right || !transfer->header_right)
                st = STATUS_CORRUPT;
        }
        transfer_dispose(&world, transfer);
    }
    transfer_count = 0;
    return st;
}

/* Connecting waits for the peer, the nearest on the ring first: 0 would wait for 1 before it comes to 2, 2 for 0 before
 * it comes to 1, and 1 waits for 2. */
START_TEST(first_transfers_that_come_together_are_not_connected_together)
{
    enum status st = STATUS_OK;

    (void)plan(0, 2);
    (void)plan(2, 1);
    (void)plan(0, 1);
    device_world_barrier(&world);
    if (world.rank == 0) {
        if ((st = out(2)) == STATUS_OK)
            st = out(1);
        clock_sleep_ns(3 * PAUSE_NS);
    } else if (world.rank == 1) {
        if ((st = in(2)) == STATUS_OK)
            (void)drive(PAUSE_NS);
        if (st == STATUS_OK)
            st = in(0);
    } else if (world.rank == 2) {
        if ((st = in(0)) == STATUS_OK)
            st = out(1);
    }
    st = end_schedule(st);
    ck_assert_msg(st == STATUS_OK, "rank %d: %s", world.rank, status_name(st));
}
END_TEST

/* Every way that the next schedule uses.  At the end rank 0's clock is the furthest. */
static enum status connect_all(void)
{
    enum status st = STATUS_OK;

    for (int from = 1; from < RANKS; from++)
        (void)plan(from, 0);
    (void)plan(1, 2);
    for (int to = 1; to < RANKS; to++)
        (void)plan(0, to);
    for (int i = 0; i < transfer_count && st == STATUS_OK; i++) {
        if (transfers[i].from == world.rank)
            st = out(transfers[i].to);
        else if (transfers[i].to == world.rank)
            st = in(transfers[i].from);
        if (st == STATUS_OK)
            st = drive(PATIENCE_NS);
    }
    return st;
}

/* This rank's part of the schedule below. */
static enum status nine_at_once(void)
{
    enum status st = world.rank == 0 ? in(1) : out(0);

    if (world.rank == 0) {
        for (int rank = 2; rank < RANKS && st == STATUS_OK; rank++)
            st = out(rank);
        for (int rank = 2; rank < RANKS && st == STATUS_OK; rank++)
            st = in(rank);
    } else if (world.rank == 1) {
        st = st == STATUS_OK ? out(2) : st;
        clock_sleep_ns(5 * PAUSE_NS); /* all others are due before it looks */
    } else {
        if (world.rank == 2)
            clock_sleep_ns(PAUSE_NS); /* 1 hears of 0 first */
        if (world.rank == 2 && st == STATUS_OK)
            st = in(1);
        if (st == STATUS_OK)
            st = in(0);
    }
    return st;
}

/* 0 has nine transfers due at once, the first of them with 1, its furthest on the ring.  1 goes on to 2 behind that, 2
 * to 0 behind that: were all nine in one group, the one with 1 would begin when the others are over, 2's among them. */
START_TEST(what_does_not_run_side_by_side_is_not_started_together)
{
    enum status st = end_schedule(connect_all());

    (void)plan(1, 0);
    plan(1, 2)->headroom_in = false; /* two calls: it starts alone */
    for (int rank = 2; rank < RANKS; rank++) {
        (void)plan(rank, 0);
        (void)plan(0, rank);
    }
    if (st == STATUS_OK)
        st = nine_at_once();
    st = end_schedule(st);
    ck_assert_msg(st == STATUS_OK, "rank %d: %s", world.rank, status_name(st));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nccl order");
    TCase *tests = tcase_create("nccl order");
    struct error err = {0};
    int failed;

    if (device_world_open(60 * NS_PER_S, 20 * NS_PER_S, &world, &err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    CHECK(world.size == RANKS);
    tcase_add_test(tests, first_transfers_that_come_together_are_not_connected_together);
    tcase_add_test(tests, what_does_not_run_side_by_side_is_not_started_together);
    suite_add_tcase(suite, tests);
    failed = suite_run_here(suite);
    if (device_world_close(&world, !left, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return failed;
}
