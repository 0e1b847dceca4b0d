/* The NCCL transport's table by itself, on every rank of a real world.  All communication of a test comes before its
 * first assertion, and a barrier after it, so that a failing rank stays in step. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/nccl/nccl_native_calls.h"
#include "tests/nccl/transfer.h"
#include "tests/suite.h"

enum { MAX_TRANSFERS = 400, ODD_BYTES = 424 /* of an announcement: the one size that needs a word */ };

static struct device_world world;
static int cases = 1;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* An earlier one of the same rank and tag comes first. */
static bool is_next(const struct transfer *transfers, const int *order, int place)
{
    const struct transfer *transfer = &transfers[order[place]];

    for (int i = 0; i < place; i++) {
        const struct transfer *other = &transfers[order[i]];

        if (other->to == world.rank && other->from == transfer->from && other->tag == transfer->tag && !other->asked)
            return false;
    }
    return true;
}

/* All transfers of this rank at once: sends in an order of its own, receives as they come. */
static enum status run(struct transfer *transfers, int count, uint64_t seed)
{
    uint64_t state = seed * 77 + (uint64_t)world.rank + 1;
    int order[MAX_TRANSFERS] = {0};
    int open = 0;
    enum status st = STATUS_OK;

    for (int i = 0; i < count; i++)
        order[i] = i;
    /* The order of one tag must stay. */
    for (int i = count - 1; i > 0; i--) {
        int other = (int)(next(&state) % (uint64_t)(i + 1));

        if (transfers[order[i]].tag != transfers[order[other]].tag) {
            int kept = order[i];

            order[i] = order[other];
            order[other] = kept;
        }
    }
    for (int i = 0; i < count; i++)
        open += (transfers[i].from == world.rank) + (transfers[i].to == world.rank);
    for (int i = 0; i < count && st == STATUS_OK; i++) {
        if (transfers[order[i]].from == world.rank)
            st = transfer_send(&world, &transfers[order[i]]);
    }
    while (open && st == STATUS_OK) {
        for (int i = 0; i < count && st == STATUS_OK; i++) {
            struct transfer *transfer = &transfers[order[i]];

            if (transfer->to == world.rank && !transfer->asked && is_next(transfers, order, i))
                st = transfer_look(&world, transfer);
            if (st == STATUS_OK)
                st = transfer_test(&world, transfer, &open);
        }
    }
    for (int i = 0; i < count && st == STATUS_OK; i++) {
        if (transfers[i].to == world.rank)
            transfer_check(&world, &transfers[i]);
    }
    return st;
}

static void dispose(struct transfer *transfers, int count)
{
    for (int i = 0; i < count; i++)
        transfer_dispose(&world, &transfers[i]);
}

static void run_and_check(struct transfer *transfers, int count, uint64_t seed)
{
    enum status st = run(transfers, count, seed);

    device_world_barrier(&world);
    ck_assert_int_eq(st, STATUS_OK);
    for (int i = 0; i < count; i++) {
        if (transfers[i].to != world.rank)
            continue;
        ck_assert_msg(transfers[i].size_right, "transfer %d: another size", i);
        ck_assert_msg(transfers[i].header_right, "transfer %d: another header ahead", i);
        ck_assert_msg(transfers[i].right, "transfer %d of %zu bytes, %d to %d: other bytes", i, transfers[i].bytes,
                      transfers[i].from, transfers[i].to);
    }
    dispose(transfers, count);
}

static const size_t sizes[] = {0, 1, 64, 4097, 65536, (1 << 20) + 3};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

START_TEST(a_ring_carries_every_size_with_and_without_headroom)
{
    for (int size = 0; size < SIZES; size++) {
        struct transfer transfers[16] = {0};
        int count = 0;

        for (int way = 0; way < 4; way++) {
            for (int rank = 0; rank < world.size && count < 16; rank++, count++)
                transfers[count] = (struct transfer){.number = count + 100 * size,
                                                     .from = rank,
                                                     .to = (rank + 1) % world.size,
                                                     .tag = 20 + (uint32_t)way,
                                                     .bytes = sizes[size],
                                                     .headroom_out = way & 1,
                                                     .headroom_in = way & 2};
        }
        run_and_check(transfers, count, 1);
    }
}
END_TEST

/* Both directions at once between all: with streams in another order on two ranks this would wait for ever. */
START_TEST(all_pairs_exchange_both_ways_at_once)
{
    struct transfer transfers[MAX_TRANSFERS] = {0};
    int count = 0;

    for (int turn = 0; turn < 4; turn++) {
        for (int from = 0; from < world.size; from++) {
            for (int to = 0; to < world.size; to++, count++)
                transfers[count] = (struct transfer){.number = count,
                                                     .from = from,
                                                     .to = to,
                                                     .tag = 30,
                                                     .bytes = 20000,
                                                     .headroom_out = true,
                                                     .headroom_in = true};
        }
    }
    run_and_check(transfers, count, 2);
}
END_TEST

START_TEST(random_schedules_over_many_tags_end)
{
    for (int round = 0; round < cases; round++) {
        static struct transfer transfers[MAX_TRANSFERS];
        uint64_t state = 0x2545f4914f6cdd1du * (uint64_t)(round + 1);
        int count = 20 + (int)(next(&state) % 60);

        memset(transfers, 0, sizeof transfers);
        for (int i = 0; i < count; i++)
            transfers[i] = (struct transfer){.number = i + 1000 * round,
                                             .from = (int)(next(&state) % (uint64_t)world.size),
                                             .to = (int)(next(&state) % (uint64_t)world.size),
                                             .tag = 40 + (uint32_t)i,
                                             .bytes = next(&state) % 3 ? next(&state) % 5000 : 0,
                                             .headroom_out = next(&state) % 4 != 0,
                                             .headroom_in = next(&state) % 4 != 0};
        run_and_check(transfers, count, (uint64_t)round + 3);
    }
}
END_TEST

/* A header in host memory, a payload in device memory, a header: one tag, one order, whatever their sizes. */
START_TEST(messages_in_host_and_device_memory_keep_their_order)
{
    enum { TURNS = 6 };
    int right = (world.rank + 1) % world.size;
    int left = (world.rank + world.size - 1) % world.size;
    struct transfer device[TURNS] = {0};
    struct work *works[TURNS];
    unsigned char out[TURNS][ODD_BYTES];
    unsigned char in[TURNS][ODD_BYTES] = {0};
    bool order = true;
    enum status st = STATUS_OK;

    for (int i = 0; i < TURNS; i++) {
        size_t bytes = i % 2 ? ODD_BYTES : 7;

        memset(out[i], world.rank * 16 + i, bytes);
        if (st == STATUS_OK)
            st = world.ops->send(world.transport, right, 50, out[i], bytes, &works[i], NULL);
        device[i] = (struct transfer){.number = i, .from = world.rank, .to = right, .tag = 50, .bytes = 64};
        if (st == STATUS_OK)
            st = transfer_send(&world, &device[i]);
    }
    for (int i = 0; i < TURNS && st == STATUS_OK; i++) {
        struct message *message = NULL;
        struct transfer got = {.number = i, .from = left, .to = world.rank, .tag = 50, .bytes = 64};
        struct work *work = NULL;
        size_t header_bytes = 0;
        size_t bytes = device_world_await(&world, left, 50, &message);

        order &= bytes == (i % 2 ? (size_t)ODD_BYTES : 7) && !world.ops->device->ahead(message, &header_bytes);
        st = world.ops->receive(world.transport, message, in[i], bytes, &work, NULL);
        if (st == STATUS_OK)
            st = device_world_finish(&world, work);
        while (st == STATUS_OK && !got.asked)
            st = transfer_look(&world, &got);
        if (st == STATUS_OK)
            st = device_world_finish(&world, got.receive);
        if (st == STATUS_OK)
            transfer_check(&world, &got);
        order &= got.right && got.header_right;
        device_free(&world, got.in);
    }
    for (int i = 0; i < TURNS && st == STATUS_OK; i++) {
        st = device_world_finish(&world, works[i]);
        if (st == STATUS_OK)
            st = device_world_finish(&world, device[i].send);
    }
    device_world_barrier(&world);
    ck_assert_int_eq(st, STATUS_OK);
    ck_assert(order);
    for (int i = 0; i < TURNS; i++)
        ck_assert_int_eq(in[i][i % 2 ? ODD_BYTES - 1 : 6], left * 16 + i);
    dispose(device, TURNS);
}
END_TEST

/* Messages that nobody takes are let go: what comes behind them on the same tag arrives. */
START_TEST(a_refused_message_leaves_the_next_one_alone)
{
    int right = (world.rank + 1) % world.size;
    int left = (world.rank + world.size - 1) % world.size;
    struct transfer out[2] = {{.number = 1, .from = world.rank, .to = right, .tag = 60, .bytes = 100},
                              {.number = 2, .from = world.rank, .to = right, .tag = 60, .bytes = 200}};
    struct transfer in = {.number = 2, .from = left, .to = world.rank, .tag = 60, .bytes = 200};
    struct message *message = NULL;
    enum status st = transfer_send(&world, &out[0]);

    if (st == STATUS_OK)
        st = transfer_send(&world, &out[1]);
    if (device_world_await(&world, left, 60, &message) == TRANSFER_HEADER + 100)
        world.ops->device->refuse(world.transport, message);
    while (st == STATUS_OK && !in.asked)
        st = transfer_look(&world, &in);
    if (st == STATUS_OK)
        st = device_world_finish(&world, in.receive);
    if (st == STATUS_OK)
        transfer_check(&world, &in);
    if (st == STATUS_OK)
        st = device_world_finish(&world, out[1].send);
    device_world_barrier(&world);
    ck_assert_int_eq(st, STATUS_OK);
    ck_assert(in.right);
    device_free(&world, in.in);
    dispose(&out[1], 1); /* the first is on offer until the end */
    free(out[0].host);
}
END_TEST

START_TEST(the_transport_says_what_it_is)
{
    struct error err = {0};
    struct work *work = NULL;
    unsigned char header[1000] = {0};

    device_world_barrier(&world);
    ck_assert_str_eq(world.ops->name, "nccl");
    ck_assert_ptr_nonnull(strstr(world.ops->describe(world.transport), "NCCL 2."));
    ck_assert_ptr_nonnull(strstr(world.ops->describe(world.transport), "MPI"));
    ck_assert(world.ops->device->reaches(world.transport, world.memory));
    ck_assert(!world.ops->device->reaches(world.transport, world.device->pinned));
    ck_assert(!world.ops->device->reaches(world.transport, NULL));
    ck_assert_int_eq(world.ops->device->send(world.transport, 0, 70, header, sizeof header, world.memory, NULL, 0,
                                             false, &work, &err),
                     STATUS_OVERFLOW);
    ck_assert_ptr_nonnull(strstr(err.text, "header of 1000 bytes"));
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("nccl transport");
    TCase *tests = tcase_create("nccl transport");
    struct error err = {0};
    int failed;

    if (argc > 1)
        cases = (int)strtol(argv[1], NULL, 10);
    if (device_world_open(60 * NS_PER_S, 20 * NS_PER_S, &world, &err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, the_transport_says_what_it_is);
    tcase_add_test(tests, a_ring_carries_every_size_with_and_without_headroom);
    tcase_add_test(tests, all_pairs_exchange_both_ways_at_once);
    tcase_add_test(tests, random_schedules_over_many_tags_end);
    tcase_add_test(tests, messages_in_host_and_device_memory_keep_their_order);
    tcase_add_test(tests, a_refused_message_leaves_the_next_one_alone);
    native_calls_add(tests, &world);
    suite_add_tcase(suite, tests);
    failed = suite_run_here(suite);
    if (device_world_close(&world, true, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return failed;
}
