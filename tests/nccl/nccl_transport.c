/* The NCCL transport's table by itself, on every rank of a real world.  All communication of a test comes before its
 * first assertion, and a barrier after it, so that a failing rank stays in step. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/tensor.h"
#include "comm/native.h"
#include "comm/raw.h"
#include "tests/nccl/device_world.h"

enum { HEADER = 192, MAX_TRANSFERS = 400, ODD_BYTES = 424 /* of an announcement: the one size that needs a word */ };

static struct device_world world;
static int cases = 1;

static enum status finish(struct work *work)
{
    bool over = false;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && !over)
        st = world.ops->test(world.transport, work, &over, NULL);
    return st;
}

static size_t await(int peer, uint32_t tag, struct message **message)
{
    size_t bytes = 0;

    *message = NULL;
    while (!*message) {
        if (world.ops->probe(world.transport, peer, tag, message, &bytes, NULL))
            return SIZE_MAX;
    }
    return bytes;
}

static void barrier(void)
{
    int right = (world.rank + 1) % world.size;
    int left = (world.rank + world.size - 1) % world.size;

    for (int round = 0; round < 2; round++) {
        struct work *work = NULL;
        struct message *message;
        char token = 0;

        if (world.rank == 0 && world.ops->send(world.transport, right, 1, &token, 1, &work, NULL) == STATUS_OK)
            (void)finish(work);
        if (await(left, 1, &message) == 1 &&
            world.ops->receive(world.transport, message, &token, 1, &work, NULL) == STATUS_OK)
            (void)finish(work);
        if (world.rank != 0 && world.ops->send(world.transport, right, 1, &token, 1, &work, NULL) == STATUS_OK)
            (void)finish(work);
    }
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* One transfer, the same on both ranks; what it carries follows from its number. */
struct transfer {
    int number;
    int from;
    int to;
    uint32_t tag;
    size_t bytes;
    bool headroom_out;
    bool headroom_in;
    unsigned char header[HEADER];
    unsigned char in_band[HEADER];
    unsigned char *host;
    unsigned char *out; /* device */
    unsigned char *in;
    struct work *send;
    struct work *receive;
    bool asked;
    bool header_right;
    bool size_right;
    bool right;
};

static void fill(const struct transfer *transfer, unsigned char *bytes, size_t count)
{
    uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(transfer->number + 1);

    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(next(&state) >> 24);
}

static enum status begin_send(struct transfer *transfer)
{
    fill(transfer, transfer->header, HEADER);
    transfer->host = malloc(transfer->bytes + 1);
    fill(transfer, transfer->host, transfer->bytes);
    transfer->out = device_room(&world, transfer->bytes);
    if (transfer->bytes)
        device_put(&world, transfer->out, transfer->host, transfer->bytes);
    return world.ops->device->send(world.transport, transfer->to, transfer->tag, transfer->header, HEADER, world.memory,
                                   transfer->out, transfer->bytes, transfer->headroom_out, &transfer->send, NULL);
}

/* Look once; the receive is posted when the message is there. */
static enum status look_for(struct transfer *transfer)
{
    struct message *message = NULL;
    const unsigned char *ahead = NULL;
    unsigned char expected[HEADER];
    size_t bytes = 0;
    size_t header_bytes = 0;
    enum status st = world.ops->probe(world.transport, transfer->from, transfer->tag, &message, &bytes, NULL);

    if (st != STATUS_OK || !message)
        return st;
    ahead = world.ops->device->ahead(message, &header_bytes);
    fill(transfer, expected, HEADER);
    transfer->size_right = bytes == HEADER + transfer->bytes;
    transfer->header_right = ahead && header_bytes == HEADER && memcmp(ahead, expected, HEADER) == 0;
    transfer->in = device_room(&world, transfer->bytes);
    transfer->asked = true;
    return world.ops->device->receive(world.transport, message, world.memory, transfer->in, transfer->bytes,
                                      transfer->headroom_in, transfer->in_band, &transfer->receive, NULL);
}

static void check_bytes(struct transfer *transfer)
{
    unsigned char *expected = malloc(transfer->bytes + 1);
    unsigned char *got = malloc(transfer->bytes + 1);

    fill(transfer, expected, transfer->bytes);
    if (transfer->bytes)
        device_get(&world, got, transfer->in, transfer->bytes);
    transfer->right = memcmp(expected, got, transfer->bytes) == 0;
    fill(transfer, expected, HEADER < transfer->bytes ? HEADER : transfer->bytes);
    free(expected);
    expected = malloc(HEADER);
    fill(transfer, expected, HEADER);
    transfer->right &= memcmp(expected, transfer->in_band, HEADER) == 0;
    free(expected);
    free(got);
}

static enum status test_once(struct work **work, int *open)
{
    bool over = false;
    enum status st = *work ? world.ops->test(world.transport, *work, &over, NULL) : STATUS_OK;

    if (over) {
        *work = NULL;
        (*open)--;
    }
    return st;
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
            st = begin_send(&transfers[order[i]]);
    }
    while (open && st == STATUS_OK) {
        for (int i = 0; i < count && st == STATUS_OK; i++) {
            struct transfer *transfer = &transfers[order[i]];

            if (transfer->to == world.rank && !transfer->asked && is_next(transfers, order, i))
                st = look_for(transfer);
            if (st == STATUS_OK)
                st = test_once(&transfer->send, &open);
            if (st == STATUS_OK)
                st = test_once(&transfer->receive, &open);
        }
    }
    for (int i = 0; i < count && st == STATUS_OK; i++) {
        if (transfers[i].to == world.rank)
            check_bytes(&transfers[i]);
    }
    return st;
}

static void dispose(struct transfer *transfers, int count)
{
    for (int i = 0; i < count; i++) {
        free(transfers[i].host);
        if (transfers[i].out)
            device_free(&world, transfers[i].out);
        if (transfers[i].in)
            device_free(&world, transfers[i].in);
    }
}

static void run_and_check(struct transfer *transfers, int count, uint64_t seed)
{
    enum status st = run(transfers, count, seed);

    barrier();
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
            st = begin_send(&device[i]);
    }
    for (int i = 0; i < TURNS && st == STATUS_OK; i++) {
        struct message *message = NULL;
        struct transfer got = {.number = i, .from = left, .to = world.rank, .tag = 50, .bytes = 64};
        struct work *work = NULL;
        size_t header_bytes = 0;
        size_t bytes = await(left, 50, &message);

        order &= bytes == (i % 2 ? (size_t)ODD_BYTES : 7) && !world.ops->device->ahead(message, &header_bytes);
        st = world.ops->receive(world.transport, message, in[i], bytes, &work, NULL);
        if (st == STATUS_OK)
            st = finish(work);
        while (st == STATUS_OK && !got.asked)
            st = look_for(&got);
        if (st == STATUS_OK)
            st = finish(got.receive);
        if (st == STATUS_OK)
            check_bytes(&got);
        order &= got.right && got.header_right;
        device_free(&world, got.in);
    }
    for (int i = 0; i < TURNS && st == STATUS_OK; i++) {
        st = finish(works[i]);
        if (st == STATUS_OK)
            st = finish(device[i].send);
    }
    barrier();
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
    enum status st = begin_send(&out[0]);

    if (st == STATUS_OK)
        st = begin_send(&out[1]);
    if (await(left, 60, &message) == HEADER + 100)
        world.ops->device->refuse(world.transport, message);
    while (st == STATUS_OK && !in.asked)
        st = look_for(&in);
    if (st == STATUS_OK)
        st = finish(in.receive);
    if (st == STATUS_OK)
        check_bytes(&in);
    if (st == STATUS_OK)
        st = finish(out[1].send);
    barrier();
    ck_assert_int_eq(st, STATUS_OK);
    ck_assert(in.right);
    device_free(&world, in.in);
    dispose(&out[1], 1); /* the first is on offer until the end */
    free(out[0].host);
}
END_TEST

/* Sum number k of a group: member with index i gives (i + 1) * (e + k) for element e. */
enum { SUM_COUNT = 1000, SUMS = 6, GROUPS = 3 };

struct sum {
    struct native *native;
    int size;
    int members[64];
    int index; /* -1: not a member */
    int begun;
    struct work *work;
    float *host;
    unsigned char *device;
    bool right;
};

static enum status begin_sum(struct sum *sum)
{
    for (int e = 0; e < SUM_COUNT; e++)
        sum->host[e] = (float)((sum->index + 1) * (e + sum->begun));
    device_put(&world, sum->device, sum->host, SUM_COUNT * sizeof *sum->host);
    sum->begun++;
    return world.ops->native->all_reduce(world.transport, sum->native, world.memory, DTYPE_F32, sum->device,
                                         sum->device, SUM_COUNT, &sum->work, NULL);
}

static void check_sum(struct sum *sum)
{
    int factor = sum->size * (sum->size + 1) / 2;

    device_get(&world, sum->host, sum->device, SUM_COUNT * sizeof *sum->host);
    for (int e = 0; e < SUM_COUNT; e++)
        sum->right &= sum->host[e] == (float)(factor * (e + sum->begun - 1));
}

/* All ranks, all but the last, and all but the first: they share most of their members. */
static enum status open_sum(struct sum *sum, int group)
{
    int first = group == 2 && world.size > 1;
    int end = group == 1 && world.size > 1 ? world.size - 1 : world.size;

    *sum = (struct sum){.index = -1, .right = true};
    for (int rank = first; rank < end; rank++) {
        if (rank == world.rank)
            sum->index = sum->size;
        sum->members[sum->size++] = rank;
    }
    if (sum->index < 0)
        return STATUS_OK;
    sum->host = malloc(SUM_COUNT * sizeof *sum->host);
    sum->device = device_room(&world, SUM_COUNT * sizeof *sum->host);
    return world.ops->native->open(world.transport, 100 + (uint32_t)group, sum->members, sum->size, &sum->native, NULL);
}

/* Every rank goes through the groups in an order of its own, and each lets its sums of all groups run at once. */
static enum status run_sums(struct sum *sums)
{
    uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(world.rank + 1);
    int open = 0;
    enum status st = STATUS_OK;

    for (int group = 0; group < GROUPS; group++)
        open += sums[group].index >= 0 ? SUMS : 0;
    while (open && st == STATUS_OK) {
        struct sum *sum = &sums[next(&state) % GROUPS];
        bool over = false;

        if (sum->index < 0)
            continue;
        if (!sum->work && sum->begun < SUMS)
            st = begin_sum(sum);
        if (st == STATUS_OK && sum->work)
            st = world.ops->test(world.transport, sum->work, &over, NULL);
        if (!over)
            continue;
        sum->work = NULL;
        open--;
        check_sum(sum);
    }
    return st;
}

START_TEST(overlapping_groups_sum_in_whatever_order_their_members_come)
{
    struct sum sums[GROUPS];
    int missing[64];
    bool built = true;
    enum status st = STATUS_OK;

    for (int i = 0; i < GROUPS && st == STATUS_OK; i++)
        st = open_sum(&sums[(i + world.rank) % GROUPS], (i + world.rank) % GROUPS);
    if (st == STATUS_OK)
        st = run_sums(sums);
    for (int i = 0; i < GROUPS && st == STATUS_OK; i++)
        built &= sums[i].index < 0 || world.ops->native->missing(world.transport, sums[i].native, missing, 64) == 0;
    barrier();
    ck_assert_int_eq(st, STATUS_OK);
    ck_assert(built);
    for (int i = 0; i < GROUPS; i++) {
        ck_assert_msg(sums[i].right, "group %d", i);
        if (sums[i].index >= 0)
            device_free(&world, sums[i].device);
        free(sums[i].index >= 0 ? sums[i].host : NULL);
    }
    ck_assert(!world.ops->native->adds(world.transport, world.memory, DTYPE_BF16));
    ck_assert(world.ops->native->adds(world.transport, world.memory, DTYPE_I64));
    ck_assert(!world.ops->native->adds(world.transport, world.device->pinned, DTYPE_F32));
}
END_TEST

enum { RAW_COUNT = 64, RAW_RANKS = 8 };

/* One call of RAW_COUNT floats, twice; what comes is copied to out. */
static const char *run_raw(struct raw *raw, struct raw_call *call, unsigned char *recv, float *out, enum status *st)
{
    int ways = 0;

    *st = world.ops->raw->prepare(raw, call, &ways, NULL);
    if (*st != STATUS_OK || ways != 1)
        return "";
    *st = world.ops->raw->run(raw, 0, 2, NULL);
    device_get(&world, out, recv, RAW_COUNT * sizeof *out);
    return world.ops->raw->way(raw, 0);
}

/* Rank r has r + 1 everywhere; to member i goes what stands at its place. */
START_TEST(plain_calls_of_nccl_do_what_their_names_say)
{
    uint64_t counts[RAW_RANKS] = {0};
    int members[RAW_RANKS];
    unsigned char *send = device_room(&world, RAW_COUNT * sizeof(float));
    unsigned char *recv = device_room(&world, RAW_COUNT * sizeof(float));
    float values[RAW_COUNT];
    float sums[RAW_COUNT] = {0};
    float roots[RAW_COUNT] = {0};
    float parts[RAW_COUNT] = {0};
    float gathered[RAW_COUNT] = {0};
    struct raw *raw = NULL;
    struct raw_call call = {.operation = OPERATION_ALL_REDUCE_SUM,
                            .dtype = DTYPE_F32,
                            .send = send,
                            .recv = recv,
                            .outer = 1,
                            .inner_bytes = sizeof(float),
                            .send_counts = counts,
                            .recv_counts = counts,
                            .bytes = sizeof values};
    const char *names[4] = {"", "", "", ""};
    int total = world.size * (world.size + 1) / 2;
    int none = -1;
    enum status st[4] = {STATUS_OK};

    for (int i = 0; i < world.size; i++) {
        members[i] = i;
        counts[i] = 2;
    }
    for (int i = 0; i < RAW_COUNT; i++)
        values[i] = (float)(world.rank + 1);
    device_put(&world, send, values, sizeof values);
    device_put(&world, recv, values, sizeof values);
    st[0] = world.ops->raw->open(world.transport, members, world.size, &raw, NULL);
    if (st[0] == STATUS_OK)
        names[0] = run_raw(raw, &call, recv, sums, &st[0]);
    call.operation = OPERATION_ALL_GATHER_EVEN;
    if (st[0] == STATUS_OK)
        names[1] = run_raw(raw, &call, recv, gathered, &st[1]);
    call.operation = OPERATION_VARIABLE_ALL_TO_ALL;
    if (st[0] == STATUS_OK)
        names[2] = run_raw(raw, &call, recv, parts, &st[2]);
    call.operation = OPERATION_BROADCAST;
    call.send = NULL;
    call.recv = send;
    call.root = world.size - 1;
    if (st[0] == STATUS_OK)
        names[3] = run_raw(raw, &call, send, roots, &st[3]);
    call.recv = values; /* of the host: NCCL does not reach it */
    if (st[0] == STATUS_OK)
        (void)world.ops->raw->prepare(raw, &call, &none, NULL);
    world.ops->raw->close(raw);
    barrier();
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(st[i], STATUS_OK);
    ck_assert_str_eq(names[0], "ncclAllReduce");
    ck_assert_str_eq(names[1], "ncclAllGather");
    ck_assert_str_eq(names[2], "ncclSend, ncclRecv");
    ck_assert_str_eq(names[3], "ncclBroadcast");
    ck_assert_int_eq(none, 0);
    ck_assert(sums[5] == (float)total);
    for (int i = 0; i < world.size; i++)
        ck_assert(gathered[2 * i + 1] == (float)(i + 1) && parts[2 * i] == (float)(i + 1));
    ck_assert(roots[RAW_COUNT - 1] == (float)world.size);
    device_free(&world, send);
    device_free(&world, recv);
}
END_TEST

START_TEST(the_transport_says_what_it_is)
{
    struct error err = {0};
    struct work *work = NULL;
    unsigned char header[1000] = {0};

    barrier();
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
    SRunner *runner = srunner_create(suite);
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
    tcase_add_test(tests, overlapping_groups_sum_in_whatever_order_their_members_come);
    tcase_add_test(tests, plain_calls_of_nccl_do_what_their_names_say);
    suite_add_tcase(suite, tests);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, world.rank == 0 ? CK_NORMAL : CK_MINIMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    device_world_close(&world, true);
    return failed ? 1 : 0;
}
