/* Native sums of overlapping groups, and NCCL's own calls by themselves. */
#include "tests/nccl/nccl_native_calls.h"

#include <stdlib.h>

#include "comm/native.h"
#include "comm/raw.h"

static const struct device_world *world;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

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
    device_put(world, sum->device, sum->host, SUM_COUNT * sizeof *sum->host);
    sum->begun++;
    return world->ops->native->all_reduce(world->transport, sum->native, world->memory, DTYPE_F32, sum->device,
                                          sum->device, SUM_COUNT, &sum->work, NULL);
}

static void check_sum(struct sum *sum)
{
    int factor = sum->size * (sum->size + 1) / 2;

    device_get(world, sum->host, sum->device, SUM_COUNT * sizeof *sum->host);
    for (int e = 0; e < SUM_COUNT; e++)
        sum->right &= sum->host[e] == (float)(factor * (e + sum->begun - 1));
}

/* All ranks, all but the last, and all but the first: they share most of their members. */
static enum status open_sum(struct sum *sum, int group)
{
    int first = group == 2 && world->size > 1;
    int end = group == 1 && world->size > 1 ? world->size - 1 : world->size;

    *sum = (struct sum){.index = -1, .right = true};
    for (int rank = first; rank < end; rank++) {
        if (rank == world->rank)
            sum->index = sum->size;
        sum->members[sum->size++] = rank;
    }
    if (sum->index < 0)
        return STATUS_OK;
    sum->host = malloc(SUM_COUNT * sizeof *sum->host);
    sum->device = device_room(world, SUM_COUNT * sizeof *sum->host);
    return world->ops->native->open(world->transport, 100 + (uint32_t)group, 0, sum->members, sum->size, &sum->native,
                                    NULL);
}

/* Every rank goes through the groups in an order of its own, and each lets its sums of all groups run at once. */
static enum status run_sums(struct sum *sums)
{
    uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(world->rank + 1);
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
            st = world->ops->test(world->transport, sum->work, &over, NULL);
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
        st = open_sum(&sums[(i + world->rank) % GROUPS], (i + world->rank) % GROUPS);
    if (st == STATUS_OK)
        st = run_sums(sums);
    for (int i = 0; i < GROUPS && st == STATUS_OK; i++)
        built &= sums[i].index < 0 || world->ops->native->missing(world->transport, sums[i].native, missing, 64) == 0;
    device_world_barrier(world);
    ck_assert_int_eq(st, STATUS_OK);
    ck_assert(built);
    for (int i = 0; i < GROUPS; i++) {
        ck_assert_msg(sums[i].right, "group %d", i);
        if (sums[i].index >= 0)
            device_free(world, sums[i].device);
        free(sums[i].index >= 0 ? sums[i].host : NULL);
    }
    ck_assert(!world->ops->native->adds(world->transport, world->memory, DTYPE_BF16));
    ck_assert(world->ops->native->adds(world->transport, world->memory, DTYPE_I64));
    ck_assert(!world->ops->native->adds(world->transport, world->device->pinned, DTYPE_F32));
}
END_TEST

enum { RAW_COUNT = 64, RAW_RANKS = 8 };

/* One call of RAW_COUNT floats, twice; what comes is copied to out. */
static const char *run_raw(struct raw *raw, struct raw_call *call, unsigned char *recv, float *out, enum status *st)
{
    uint64_t ns = 0;
    int ways = 0;

    *st = world->ops->raw->prepare(raw, call, &ways, NULL);
    if (*st != STATUS_OK || ways != 1)
        return "";
    *st = world->ops->raw->run(raw, 0, 2, &ns, NULL);
    device_get(world, out, recv, RAW_COUNT * sizeof *out);
    return world->ops->raw->way(raw, 0);
}

/* Rank r has r + 1 everywhere; to member i goes what stands at its place. */
START_TEST(plain_calls_of_nccl_do_what_their_names_say)
{
    uint64_t counts[RAW_RANKS] = {0};
    int members[RAW_RANKS];
    unsigned char *send = device_room(world, RAW_COUNT * sizeof(float));
    unsigned char *recv = device_room(world, RAW_COUNT * sizeof(float));
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
    int total = world->size * (world->size + 1) / 2;
    int none = -1;
    enum status st[4] = {STATUS_OK};

    for (int i = 0; i < world->size; i++) {
        members[i] = i;
        counts[i] = 2;
    }
    for (int i = 0; i < RAW_COUNT; i++)
        values[i] = (float)(world->rank + 1);
    device_put(world, send, values, sizeof values);
    device_put(world, recv, values, sizeof values);
    st[0] = world->ops->raw->open(world->transport, members, world->size, &raw, NULL);
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
    call.root = world->size - 1;
    if (st[0] == STATUS_OK)
        names[3] = run_raw(raw, &call, send, roots, &st[3]);
    call.recv = values; /* of the host: NCCL does not reach it */
    if (st[0] == STATUS_OK)
        (void)world->ops->raw->prepare(raw, &call, &none, NULL);
    world->ops->raw->close(raw);
    device_world_barrier(world);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(st[i], STATUS_OK);
    ck_assert_str_eq(names[0], "ncclAllReduce");
    ck_assert_str_eq(names[1], "ncclAllGather");
    ck_assert_str_eq(names[2], "ncclSend, ncclRecv");
    ck_assert_str_eq(names[3], "ncclBroadcast");
    ck_assert_int_eq(none, 0);
    ck_assert(sums[5] == (float)total);
    for (int i = 0; i < world->size; i++)
        ck_assert(gathered[2 * i + 1] == (float)(i + 1) && parts[2 * i] == (float)(i + 1));
    ck_assert(roots[RAW_COUNT - 1] == (float)world->size);
    device_free(world, send);
    device_free(world, recv);
}
END_TEST

void native_calls_add(TCase *tests, const struct device_world *world_of)
{
    world = world_of;
    tcase_add_test(tests, overlapping_groups_sum_in_whatever_order_their_members_come);
    tcase_add_test(tests, plain_calls_of_nccl_do_what_their_names_say);
}
