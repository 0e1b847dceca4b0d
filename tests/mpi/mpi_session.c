/* A session over real ranks: consensus, groups in member order, a route, a clean end. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/group.h"
#include "comm/route.h"
#include "tests/mpi/world.h"

static struct world world;

static enum status finish(struct completion *completion, struct error *err)
{
    enum status st = completion_wait(completion, DEADLINE_NONE, err);

    completion_abandon(completion);
    return st;
}

/* Every rank's number, summed, at several sizes; also larger than any eager limit. */
START_TEST(sums_are_right_at_every_size)
{
    static const uint64_t counts[] = {0, 1, 3, 1000, 40000, 300001};
    struct error err = {0};
    enum status st = STATUS_OK;
    bool right = true;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && st == STATUS_OK; i++) {
        struct shape shape = {1, {counts[i]}};
        struct tensor *tensor = NULL;
        struct completion *completion = NULL;
        float *values;

        st = tensor_create(DTYPE_F32, &shape, &tensor, &err);
        if (st)
            break;
        values = (float *)(void *)tensor->data;
        for (uint64_t k = 0; k < counts[i]; k++)
            values[k] = (float)(world.rank + 1);
        st = group_all_reduce_sum(session_group(world.session, 1), tensor, tensor, &completion, &err);
        if (st == STATUS_OK)
            st = finish(completion, &err);
        for (uint64_t k = 0; k < counts[i]; k++)
            right &= values[k] == (float)world.size * (float)(world.size + 1) / 2.0f;
        tensor_release(tensor);
    }
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert(right);
}
END_TEST

/* What one member has for another, in row o at k. */
static unsigned char byte_of(int from, int to, uint64_t o, uint64_t k)
{
    return (unsigned char)((uint64_t)from * 101 + (uint64_t)to * 57 + o * 13 + (o >> 8) + k * 5);
}

static bool all_right(const struct tensor *tensor, const uint64_t *counts, int to, bool write)
{
    uint64_t rows = tensor->shape.dim[0];
    uint64_t extent = tensor->shape.dim[1];
    bool right = true;
    uint64_t start = 0;

    for (int i = 0; i < world.size; i++) {
        for (uint64_t o = 0; o < rows; o++) {
            for (uint64_t k = 0; k < counts[i]; k++) {
                unsigned char *at = &tensor->data[o * extent + start + k];

                if (write)
                    *at = byte_of(to, i, o, k);
                else
                    right = right && *at == byte_of(i, to, o, k);
            }
        }
        start += counts[i];
    }
    return right;
}

/* Columns of a matrix, several times what travels at once; some members have none. */
START_TEST(columns_arrive_in_pieces)
{
    struct group *group = session_group(world.session, 1);
    int self = group_rank(group);
    uint64_t rows = 40009;
    uint64_t to[64] = {0};
    uint64_t from[64] = {0};
    uint64_t out = 0;
    uint64_t in = 0;
    struct tensor *send = NULL;
    struct tensor *recv = NULL;
    struct completion *completion = NULL;
    struct error err = {0};
    bool right = false;
    enum status st;

    for (int i = 0; i < world.size; i++) {
        out += to[i] = (uint64_t)((self + i) % 3 * 11);
        in += from[i] = (uint64_t)((i + self) % 3 * 11);
    }
    st = tensor_create(DTYPE_U8, &(struct shape){2, {rows, out}}, &send, &err);
    if (st == STATUS_OK)
        st = tensor_create(DTYPE_U8, &(struct shape){2, {rows, in}}, &recv, &err);
    if (st == STATUS_OK) {
        (void)all_right(send, to, self, true);
        st = group_variable_all_to_all(group, send, recv, 1, to, from, &completion, &err);
    }
    if (st == STATUS_OK)
        st = finish(completion, &err);
    if (st == STATUS_OK)
        right = all_right(recv, from, self, false);
    tensor_release(send);
    tensor_release(recv);
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert(right);
}
END_TEST

/* Members stand in reverse rank order; member i gives i rows. */
START_TEST(gathers_follow_member_order_and_take_zero_rows)
{
    struct group *group = session_group(world.session, 1);
    uint64_t counts[64];
    uint64_t total = 0;
    struct error err = {0};
    struct tensor *send = NULL;
    struct tensor *recv = NULL;
    struct completion *completion = NULL;
    int self = group_rank(group);
    bool right = true;
    enum status st;

    for (int i = 0; i < world.size; i++)
        total += counts[i] = (uint64_t)i;
    st = tensor_create(DTYPE_U32, &(struct shape){2, {(uint64_t)self, 2}}, &send, &err);
    if (st == STATUS_OK)
        st = tensor_create(DTYPE_U32, &(struct shape){2, {total, 2}}, &recv, &err);
    if (st == STATUS_OK) {
        uint32_t *values = (uint32_t *)(void *)send->data;

        for (int k = 0; k < 2 * self; k++)
            values[k] = (uint32_t)self;
        st = group_all_gather_uneven(group, send, recv, 0, counts, &completion, &err);
    }
    if (st == STATUS_OK)
        st = finish(completion, &err);
    if (st == STATUS_OK) {
        const uint32_t *values = (const uint32_t *)(const void *)recv->data;

        for (int i = 0; i < world.size; i++) {
            for (int k = 0; k < 2 * i; k++)
                right &= *values++ == (uint32_t)i;
        }
    }
    tensor_release(send);
    tensor_release(recv);
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert_int_eq(self, world.size - 1 - world.rank);
    ck_assert(right);
}
END_TEST

static const struct tensor_spec schema[] = {
    {.role = "hidden", .dtype = DTYPE_F32, .ndim = 2, .dim = {{1, 4096, -1}, {64, 64, -1}}},
};
static const struct tensor_spec bytes_schema[] = {
    {.role = "block", .dtype = DTYPE_U8, .ndim = 1, .dim = {{1, 16 << 20, -1}}},
};
/* The last two carry large blocks both ways. */
static const struct route_spec routes[] = {
    {.id = 2, .name = "forward/0-1", .from = 0, .to = 1, .tensor_count = 1, .tensors = schema, .depth = 2},
    {.id = 3, .name = "there/0-1", .from = 0, .to = 1, .tensor_count = 1, .tensors = bytes_schema, .depth = 1},
    {.id = 4, .name = "back/1-0", .from = 1, .to = 0, .tensor_count = 1, .tensors = bytes_schema, .depth = 1},
};

static enum status pass_bundle(uint64_t rows, struct error *err)
{
    struct route *route = session_route(world.session, 2);
    struct shape shape = {2, {rows, 64}};
    struct completion *completion = NULL;
    struct bundle *bundle = NULL;
    uint64_t epoch;
    enum status st;

    if (world.rank == 0) {
        st = route_acquire(route, &bundle, err);
        if (st == STATUS_OK)
            st = tensor_reshape(bundle->tensor[0], DTYPE_F32, &shape, err);
        if (st == STATUS_OK)
            st = route_send(route, bundle, 5, &completion, err);
        return st ? st : finish(completion, err);
    }
    st = route_receive(route, &shape, NULL, NULL, 5, &completion, err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    if (st == STATUS_OK)
        route_return(route, route_take(completion, &epoch));
    completion_abandon(completion);
    return st;
}

START_TEST(a_route_carries_bundles_of_every_size)
{
    static const uint64_t rows[] = {1, 64, 4096};
    struct error err = {0};
    enum status st = STATUS_OK;

    for (int i = 0; i < 3 && st == STATUS_OK && world.size > 1 && world.rank < 2; i++)
        st = pass_bundle(rows[i], &err);
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
}
END_TEST

/* B165: both ranks send first, then both receive. */
static enum status cross(uint64_t bytes, bool *ret_right, struct error *err)
{
    struct route *out = session_route(world.session, world.rank ? 4 : 3);
    struct route *in = session_route(world.session, world.rank ? 3 : 4);
    struct shape shape = {1, {bytes}};
    struct completion *sent = NULL;
    struct completion *received = NULL;
    struct bundle *bundle = NULL;
    enum status st = route_acquire(out, &bundle, err);

    if (st == STATUS_OK)
        st = tensor_reshape(bundle->tensor[0], DTYPE_U8, &shape, err);
    for (uint64_t k = 0; st == STATUS_OK && k < bytes; k++)
        bundle->tensor[0]->data[k] = (unsigned char)(k * 7 + k / 256 + (uint64_t)world.rank);
    if (st == STATUS_OK)
        st = route_send(out, bundle, 1, &sent, err);
    if (st == STATUS_OK)
        st = route_receive(in, &shape, NULL, NULL, 1, &received, err);
    if (st == STATUS_OK)
        st = completion_wait(received, DEADLINE_NONE, err);
    if (st == STATUS_OK) {
        bundle = route_take(received, NULL);
        for (uint64_t k = 0; k < bytes; k++)
            *ret_right &= bundle->tensor[0]->data[k] == (unsigned char)(k * 7 + k / 256 + (uint64_t)!world.rank);
        route_return(in, bundle);
    }
    completion_abandon(received);
    if (st == STATUS_OK)
        return finish(sent, err);
    completion_abandon(sent);
    return st;
}

START_TEST(both_neighbours_may_send_first_whatever_the_size)
{
    static const uint64_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};
    struct error err = {0};
    enum status st = STATUS_OK;
    bool right = true;

    for (int i = 0; i < 4 && st == STATUS_OK && world.size > 1 && world.rank < 2; i++)
        st = cross(sizes[i], &right, &err);
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert(right);
}
END_TEST

enum { MANY = 100 };

static enum status send_one(struct route *route, int number, struct error *err)
{
    const struct shape shape = {1, {8}};
    struct completion *sent = NULL;
    struct bundle *bundle = NULL;
    enum status st = route_acquire(route, &bundle, err);

    if (st == STATUS_OK)
        st = tensor_reshape(bundle->tensor[0], DTYPE_U8, &shape, err);
    if (st == STATUS_OK)
        memset(bundle->tensor[0]->data, number, 8);
    if (st == STATUS_OK)
        st = route_send(route, bundle, 1, &sent, err);
    return st == STATUS_OK ? finish(sent, err) : st;
}

static enum status receive_one(struct route *route, int number, int *ret_right, struct error *err)
{
    const struct shape shape = {1, {8}};
    struct completion *received = NULL;
    enum status st = route_receive(route, &shape, NULL, NULL, 1, &received, err);

    if (st == STATUS_OK)
        st = completion_wait(received, DEADLINE_NONE, err);
    if (st == STATUS_OK) {
        struct bundle *bundle = route_take(received, NULL);

        *ret_right += bundle->tensor[0]->data[7] == (unsigned char)number;
        route_return(route, bundle);
    }
    completion_abandon(received);
    return st;
}

/* Short ones are over when they are sent: more than there is room for must not make the two wait for each other. */
START_TEST(both_neighbours_may_send_many_before_they_receive)
{
    struct error err = {0};
    enum status st = STATUS_OK;
    bool takes_part = world.size > 1 && world.rank < 2;
    int right = 0;

    for (int i = 0; i < MANY && st == STATUS_OK && takes_part; i++)
        st = send_one(session_route(world.session, world.rank ? 4 : 3), i, &err);
    for (int i = 0; i < MANY && st == STATUS_OK && takes_part; i++)
        st = receive_one(session_route(world.session, world.rank ? 3 : 4), i, &right, &err);
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert_int_eq(right, takes_part ? MANY : 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mpi session");
    TCase *tests = tcase_create("mpi session");
    struct error err = {0};
    enum status st = world_start(&world, &err);

    if (st == STATUS_OK)
        st = world_build(&world, routes, world.size > 1 ? 3 : 0, &err);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, sums_are_right_at_every_size);
    tcase_add_test(tests, columns_arrive_in_pieces);
    tcase_add_test(tests, gathers_follow_member_order_and_take_zero_rows);
    tcase_add_test(tests, a_route_carries_bundles_of_every_size);
    tcase_add_test(tests, both_neighbours_may_send_first_whatever_the_size);
    tcase_add_test(tests, both_neighbours_may_send_many_before_they_receive);
    suite_add_tcase(suite, tests);
    return world_run(&world, suite, st, &err);
}
