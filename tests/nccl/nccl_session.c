/* Sessions over NCCL: bundles in device memory between all ranks at once, and NCCL's own sums of groups that share most
 * of their members among them, whatever order the ranks come to them in. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/group.h"
#include "comm/route.h"
#include "comm/session.h"
#include "tests/nccl/device_world.h"
#include "tests/suite.h"

enum {
    MAX_RANKS = 4,
    MAX_ROUTES = MAX_RANKS * (MAX_RANKS - 1),
    LARGEST = 3000,
    TENSORS = 3,
    DEPTH = 3,
    OVERLAPPING = 3,
    GROUPS = OVERLAPPING + 4,
    SUMS = 4,
    SUM_COUNT = 700
};

static struct device_world world;
static struct session *session;
static int rounds = 1;

static const struct tensor_spec bundle_spec[TENSORS] = {
    {"wave", DTYPE_U32, 1, {{4, 4, -1}}},
    {"hidden", DTYPE_F32, 2, {{0, LARGEST, -1}, {3, 3, -1}}},
    {"scales", DTYPE_BF16, 1, {{0, LARGEST, -1}}},
};
static struct route_spec routes[MAX_ROUTES];
static char names[MAX_ROUTES][32];
static int route_count;

static uint64_t mix(uint64_t value)
{
    value ^= value >> 33;
    value *= UINT64_C(0xff51afd7ed558ccd);
    value ^= value >> 33;
    return value;
}

/* What every rank knows of a transfer: its extents and its bytes. */
static void shapes_of(int route, int round, struct shape *shapes)
{
    uint64_t state = mix((uint64_t)(route * 1000 + round + 1));

    shapes[0] = (struct shape){1, {4}};
    shapes[1] = (struct shape){2, {state % 5 ? state % LARGEST : 0, 3}};
    shapes[2] = (struct shape){1, {mix(state) % LARGEST}};
}

static unsigned char byte_of(int route, int round, int t, size_t k)
{
    return (unsigned char)(mix((uint64_t)(route * 7919 + round * 31 + t)) + k * 13 + k / 256);
}

static void put(struct tensor *tensor, int route, int round, int t)
{
    unsigned char *bytes = malloc(tensor->bytes + 1);

    for (size_t k = 0; k < tensor->bytes; k++)
        bytes[k] = byte_of(route, round, t, k);
    if (tensor->memory && tensor->bytes)
        device_put(&world, tensor->data, bytes, tensor->bytes);
    else
        memcpy(tensor->data, bytes, tensor->bytes);
    free(bytes);
}

static bool holds(const struct tensor *tensor, int route, int round, int t)
{
    unsigned char *bytes = malloc(tensor->bytes + 1);
    bool same = true;

    if (tensor->memory && tensor->bytes)
        device_get(&world, bytes, tensor->data, tensor->bytes);
    else
        memcpy(bytes, tensor->data, tensor->bytes);
    for (size_t k = 0; k < tensor->bytes; k++)
        same &= bytes[k] == byte_of(route, round, t, k);
    free(bytes);
    return same;
}

static enum status begin_send(int r, int round, struct completion **ret, struct error *err)
{
    struct route *route = session_route(session, routes[r].id);
    struct bundle *bundle = NULL;
    struct shape shapes[TENSORS];
    enum status st = route_acquire(route, &bundle, err);

    shapes_of(r, round, shapes);
    for (int t = 0; t < TENSORS && st == STATUS_OK; t++) {
        st = tensor_reshape(bundle->tensor[t], bundle->tensor[t]->dtype, &shapes[t], err);
        if (st == STATUS_OK)
            put(bundle->tensor[t], r, round, t);
    }
    return st == STATUS_OK ? route_send(route, bundle, (uint64_t)round, ret, err) : st;
}

static enum status begin_receive(int r, int round, struct completion **ret, struct error *err)
{
    struct shape shapes[TENSORS];

    shapes_of(r, round, shapes);
    return route_receive(session_route(session, routes[r].id), shapes, NULL, NULL, (uint64_t)round, ret, err);
}

static enum status end_receive(int r, int round, struct completion *completion, bool *ret_right, struct error *err)
{
    struct bundle *bundle = NULL;
    enum status st = completion_wait(completion, DEADLINE_NONE, err);

    if (st != STATUS_OK)
        return st;
    bundle = route_take(completion, NULL);
    for (int t = 0; t < TENSORS; t++)
        *ret_right &= holds(bundle->tensor[t], r, round, t);
    route_return(session_route(session, routes[r].id), bundle);
    return STATUS_OK;
}

/* Every rank posts all of a round, in an order of its own, before it waits for any. */
static enum status run_round(int round, bool *ret_right, struct error *err)
{
    struct completion *completions[MAX_ROUTES] = {NULL};
    uint64_t first = mix((uint64_t)(round * 64 + world.rank)) % (uint64_t)route_count;
    enum status st = STATUS_OK;

    for (int i = 0; i < route_count && st == STATUS_OK; i++) {
        int r = (int)((first + (uint64_t)i) % (uint64_t)route_count);

        if (routes[r].from == world.rank)
            st = begin_send(r, round, &completions[r], err);
        else if (routes[r].to == world.rank)
            st = begin_receive(r, round, &completions[r], err);
    }
    for (int i = 0; i < route_count && st == STATUS_OK; i++) {
        int r = (int)((first * 3 + (uint64_t)i) % (uint64_t)route_count);

        if (completions[r] && routes[r].to == world.rank)
            st = end_receive(r, round, completions[r], ret_right, err);
        else if (completions[r])
            st = completion_wait(completions[r], DEADLINE_NONE, err);
    }
    for (int r = 0; r < route_count; r++)
        completion_abandon(completions[r]);
    return st;
}

START_TEST(bundles_cross_between_all_ranks_at_once)
{
    struct error err = {0};
    bool right = true;
    enum status st = STATUS_OK;

    for (int round = 0; round < rounds && st == STATUS_OK && route_count; round++)
        st = run_round(round, &right, &err);
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert(right);
}
END_TEST

static struct group_spec groups[GROUPS];
static int group_members[GROUPS][MAX_RANKS];

static size_t group_count;

static void add_group(const char *name, int size, uint32_t first_line)
{
    groups[group_count] = (struct group_spec){.id = 1 + (uint32_t)group_count,
                                              .name = name,
                                              .size = size,
                                              .members = group_members[group_count],
                                              .operations = OPERATIONS_ALL,
                                              .dtypes = DTYPES_ALL,
                                              .max_bytes = 1 << 20,
                                              .first_line = first_line};
    group_count++;
}

/* Four ranks as a square: its rows from right to left, then its columns. */
static void draw_lines(void)
{
    static const int members[4][2] = {{1, 0}, {3, 2}, {0, 2}, {1, 3}};
    static const char *const line_names[4] = {"row/0", "row/1", "column/0", "column/1"};
    uint32_t first = 1 + (uint32_t)group_count;

    for (int line = 0; line < 4; line++) {
        memcpy(group_members[group_count], members[line], sizeof members[line]);
        add_group(line_names[line], 2, line < 2 ? first : first + 2);
    }
}

/* All ranks; all but the last; all but the first, the other way round. */
static void draw_groups(void)
{
    static const char *const group_names[OVERLAPPING] = {"all/0", "front/0", "back/0"};

    for (int g = 0; g < OVERLAPPING; g++) {
        int skipped = world.size < 2 || g == 0 ? -1 : g == 1 ? world.size - 1 : 0;
        int count = 0;

        for (int i = 0; i < world.size; i++) {
            int rank = g == 2 ? world.size - 1 - i : i;

            if (rank != skipped)
                group_members[g][count++] = rank;
        }
        add_group(group_names[g], count, 0);
    }
    if (world.size == 4)
        draw_lines();
}

static int index_in(int g)
{
    for (int i = 0; i < groups[g].size; i++) {
        if (group_members[g][i] == world.rank)
            return i;
    }
    return -1;
}

/* Small whole numbers: every order of additions, and bf16, give the same. */
static int value_of(int g, int sum, int member, int k)
{
    return (member + 1) * ((k + sum + g) % 5);
}

static const enum dtype sum_types[SUMS] = {DTYPE_F32, DTYPE_BF16, DTYPE_I64, DTYPE_U8};

/* A value of this type at data; small ones alone, so that bf16 is the upper half of f32. */
static void store(enum dtype dtype, unsigned char *data, int k, int value)
{
    float real = (float)value;
    int64_t wide = value;

    if (dtype == DTYPE_F32)
        memcpy(data + 4 * (size_t)k, &real, 4);
    else if (dtype == DTYPE_BF16)
        memcpy(data + 2 * (size_t)k, (const unsigned char *)&real + 2, 2);
    else if (dtype == DTYPE_I64)
        memcpy(data + 8 * (size_t)k, &wide, 8);
    else
        data[k] = (unsigned char)value;
}

static enum status begin_sum(int g, int sum, struct tensor **ret, struct completion **ret_completion, struct error *err)
{
    struct shape shape = {1, {SUM_COUNT}};
    unsigned char bytes[SUM_COUNT * 8];
    enum status st = tensor_create_in(world.memory, sum_types[sum], &shape, ret, err);

    for (int k = 0; k < SUM_COUNT; k++)
        store(sum_types[sum], bytes, k, value_of(g, sum, index_in(g), k));
    if (st != STATUS_OK)
        return st;
    device_put(&world, (*ret)->data, bytes, (*ret)->bytes);
    return group_all_reduce_sum(session_group(session, groups[g].id), *ret, *ret, ret_completion, err);
}

static bool is_sum(int g, int sum, const struct tensor *tensor)
{
    unsigned char expected[SUM_COUNT * 8];
    unsigned char got[SUM_COUNT * 8];

    for (int k = 0; k < SUM_COUNT; k++) {
        int total = 0;

        for (int member = 0; member < groups[g].size; member++)
            total += value_of(g, sum, member, k);
        store(sum_types[sum], expected, k, total);
    }
    device_get(&world, got, tensor->data, tensor->bytes);
    return memcmp(expected, got, tensor->bytes) == 0;
}

/* Posted all at once, the groups in an order of this rank's own. */
static enum status run_sums(bool *ret_right, struct error *err)
{
    struct tensor *tensors[GROUPS][SUMS] = {{NULL}};
    struct completion *completions[GROUPS][SUMS] = {{NULL}};
    enum status st = STATUS_OK;

    for (int i = 0; i < GROUPS * SUMS && st == STATUS_OK; i++) {
        int g = (i + world.rank) % GROUPS;

        if (index_in(g) >= 0)
            st = begin_sum(g, i / GROUPS, &tensors[g][i / GROUPS], &completions[g][i / GROUPS], err);
    }
    for (int i = 0; i < GROUPS * SUMS && st == STATUS_OK; i++) {
        int g = i % GROUPS;

        if (!completions[g][i / GROUPS])
            continue;
        st = completion_wait(completions[g][i / GROUPS], DEADLINE_NONE, err);
        *ret_right &= st == STATUS_OK && is_sum(g, i / GROUPS, tensors[g][i / GROUPS]);
    }
    for (int i = 0; i < GROUPS * SUMS; i++) {
        completion_abandon(completions[i % GROUPS][i / GROUPS]);
        tensor_release(tensors[i % GROUPS][i / GROUPS]);
    }
    return st;
}

START_TEST(native_sums_of_overlapping_groups_and_lines_end_in_whatever_order)
{
    struct error err = {0};
    bool right = true;
    enum status st = STATUS_OK;

    for (int round = 0; round < rounds && st == STATUS_OK; round++) {
        st = run_sums(&right, &err);
        if (st == STATUS_OK && route_count)
            st = run_round(1000 + round, &right, &err);
    }
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert(right);
}
END_TEST

/* Every ordered pair. */
static void draw_routes(void)
{
    for (int from = 0; from < world.size; from++) {
        for (int to = 0; to < world.size; to++) {
            if (from == to)
                continue;
            (void)snprintf(names[route_count], sizeof names[0], "route/%d-%d", from, to);
            routes[route_count] = (struct route_spec){.id = 10 + (uint32_t)route_count,
                                                      .name = names[route_count],
                                                      .from = from,
                                                      .to = to,
                                                      .tensor_count = TENSORS,
                                                      .tensors = bundle_spec,
                                                      .depth = DEPTH,
                                                      .memory_tensors = 6};
            route_count++;
        }
    }
}

static enum status start(struct error *err)
{
    struct session_options options = {.timeout_ns = 30 * NS_PER_S, .startup_timeout_ns = 30 * NS_PER_S};
    struct manifest manifest = {.topology_digest = 1};
    enum status st = device_world_open(60 * NS_PER_S, 30 * NS_PER_S, &world, err);

    if (st != STATUS_OK)
        return st;
    options.memory = world.memory;
    options.pinned = world.device->pinned;
    options.payload_integrity = getenv("PAYLOAD_INTEGRITY") != NULL;
    options.reduction = REDUCTION_NATIVE;
    draw_routes();
    draw_groups();
    st = session_create(world.ops, world.transport, &options, &session, err);
    if (st == STATUS_OK)
        st = session_consensus(session, &manifest, err);
    return st == STATUS_OK ? session_build(session, groups, group_count, routes, (size_t)route_count, err) : st;
}

int main(int argc, char **argv)
{
    Suite *suite = suite_create("nccl session");
    TCase *tests = tcase_create("nccl session");
    struct error err = {0};
    int failed;

    if (argc > 1)
        rounds = (int)strtol(argv[1], NULL, 10);
    if (start(&err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, bundles_cross_between_all_ranks_at_once);
    tcase_add_test(tests, native_sums_of_overlapping_groups_and_lines_end_in_whatever_order);
    suite_add_tcase(suite, tests);
    failed = suite_run_here(suite);
    if (session_close(session, true, &err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    device_world_end(&world);
    return failed;
}
