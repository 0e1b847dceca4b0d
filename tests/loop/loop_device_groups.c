/* Collectives on tensors in a device's memory: when they are over, and what becomes of them when the session fails. */
#include "tests/loop/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/loop/late_memory.h"
#include "tests/suite.h"

enum { SIZE = 3, ROWS = 2 };

static const int members[] = {1, 2, 0};
static const struct group_spec groups[] = {GROUP(5, SIZE, members)};
static const struct transport_ops *const ways[] = {&loopback_ops, &loopback_device_ops};
enum { WAYS = sizeof ways / sizeof ways[0] };

enum { SUM, GATHER, EXCHANGE, BROADCAST, COLLECTIVES };

static void run(struct ranks *ranks, const struct transport_ops *ops, rank_body *body)
{
    ranks->size = SIZE;
    ranks->ops = ops;
    ranks->late_memory = true;
    ranks->groups = groups;
    ranks->group_count = 1;
    ranks->body = body;
    ranks_run(ranks);
}

static struct tensor *tensor_in(struct memory *memory, enum dtype dtype, uint64_t rows)
{
    struct shape shape = {2, {2, rows}};
    struct tensor *tensor = NULL;

    EXPECT(tensor_create_in(memory, dtype, &shape, &tensor, NULL) == STATUS_OK);
    return tensor;
}

/* Along the inner axis, so that parts are packed. */
static enum status post(struct rank *self, int kind, struct tensor *send, struct tensor *recv, struct completion **ret)
{
    static const uint64_t counts[] = {ROWS, ROWS, ROWS};
    struct group *group = session_group(self->session, 5);

    switch (kind) {
    case GATHER:
        return group_all_gather_even(group, send, recv, 1, ret, &self->err);
    case EXCHANGE:
        return group_variable_all_to_all(group, send, recv, 1, counts, counts, ret, &self->err);
    case BROADCAST:
        return group_broadcast(group, send, 1, ret, &self->err);
    default:
        return group_all_reduce_sum(group, send, recv, ret, &self->err);
    }
}

/* Over means over: nothing of it is queued any more. */
static enum status idle_body(struct rank *self)
{
    enum status st = STATUS_OK;

    for (int kind = 0; kind < COLLECTIVES && st == STATUS_OK; kind++) {
        enum dtype dtype = kind == SUM ? DTYPE_BF16 : DTYPE_U32;
        struct tensor *send = tensor_in(self->memory, dtype, kind == GATHER ? ROWS : SIZE * ROWS);
        struct tensor *recv = tensor_in(self->memory, dtype, SIZE * ROWS);
        struct completion *completion = NULL;

        st = finish(post(self, kind, send, recv, &completion), &completion, &self->err);
        EXPECT(late_memory_idle(self->memory));
        tensor_release(send);
        tensor_release(recv);
        EXPECT(memory_wait(self->memory, UINT64_MAX, NULL) == STATUS_OK);
    }
    return st;
}

START_TEST(a_collective_is_over_when_the_device_has_done_its_last_part)
{
    static const enum checks checks[] = {CHECKS_FULL, CHECKS_LIGHT, CHECKS_OFF};

    for (int i = 0; i < 3; i++) {
        struct ranks ranks = {.session = {.checks = checks[i]}};

        run(&ranks, ways[_i], idle_body);
        ranks_check(&ranks);
    }
}
END_TEST

/* Every device stands still when the session fails: tensors are held until it moves again. */
static enum status held_body(struct rank *self)
{
    struct tensor *send = tensor_in(self->memory, DTYPE_F32, SIZE * ROWS);
    struct tensor *recv = tensor_in(self->memory, DTYPE_F32, SIZE * ROWS);
    struct completion *completion = NULL;
    enum status st;

    EXPECT(memory_wait(self->memory, UINT64_MAX, NULL) == STATUS_OK);
    late_memory_hold(self->memory, true);
    st = post(self, SUM, send, recv, &completion);
    EXPECT(st == STATUS_OK && completion_test(completion) == COMPLETION_PENDING);
    (void)pthread_barrier_wait(self->context); /* a failed session would refuse what others have yet to post */
    session_fail(self->session, STATUS_LOST, "rehearsed");
    EXPECT(completion_test(completion) == COMPLETION_PENDING);
    EXPECT(send->references > 1 && recv->references > 1);
    late_memory_hold(self->memory, false);
    st = completion_wait(completion, DEADLINE_NONE, &self->err);
    EXPECT(completion_test(completion) == COMPLETION_FAILED);
    completion_release(completion);
    EXPECT(late_memory_idle(self->memory));
    EXPECT(send->references == 1 && recv->references == 1);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

START_TEST(a_collective_of_a_failed_session_holds_its_tensors_until_the_device_has_let_go)
{
    pthread_barrier_t posted;
    struct ranks ranks = {.session = {.checks = CHECKS_LIGHT}, .context = &posted};

    ck_assert_int_eq(pthread_barrier_init(&posted, NULL, SIZE), 0);
    run(&ranks, ways[_i], held_body);
    (void)pthread_barrier_destroy(&posted);
    for (int i = 0; i < SIZE; i++) {
        ck_assert_int_eq(ranks.rank[i].status, STATUS_LOST);
        ck_assert_msg(strstr(ranks.rank[i].err.text, "rehearsed"), "%s", ranks.rank[i].err.text);
    }
}
END_TEST

/* One of them loses its device. */
static enum status broken_body(struct rank *self)
{
    struct tensor *send = tensor_in(self->memory, DTYPE_F32, SIZE * ROWS);
    struct tensor *recv = tensor_in(self->memory, DTYPE_F32, SIZE * ROWS);
    struct completion *completion = NULL;
    enum status st;

    if (self->rank == 1)
        late_memory_break(self->memory);
    st = finish(post(self, SUM, send, recv, &completion), &completion, &self->err);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

START_TEST(a_lost_device_fails_the_collective_of_every_member)
{
    struct ranks ranks = {.session = {.timeout_ns = 10 * NS_PER_S}};

    run(&ranks, ways[_i], broken_body);
    for (int i = 0; i < SIZE; i++) {
        ck_assert_int_eq(ranks.rank[i].status, STATUS_ENVIRONMENT);
        ck_assert_msg(strstr(ranks.rank[i].err.text, "late:1: the device is lost"), "%s", ranks.rank[i].err.text);
    }
}
END_TEST

static enum status apart_body(struct rank *self)
{
    struct tensor *here = tensor_in(NULL, DTYPE_F32, ROWS);
    struct tensor *there = tensor_in(self->memory, DTYPE_F32, ROWS);
    struct completion *completion = NULL;
    enum status st = post(self, SUM, here, there, &completion);
    char expected[96];

    (void)snprintf(expected, sizeof expected, "group group/5: sends out of memory host, receives into late:%d",
                   self->rank);
    EXPECT(st == STATUS_INVALID && !strcmp(self->err.text, expected));
    tensor_release(here);
    tensor_release(there);
    return STATUS_OK;
}

START_TEST(both_tensors_of_a_call_lie_in_the_same_memory)
{
    struct ranks ranks = {0};

    run(&ranks, &loopback_ops, apart_body);
    ranks_check(&ranks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_groups");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, a_collective_is_over_when_the_device_has_done_its_last_part, 0, WAYS);
    tcase_add_loop_test(all, a_collective_of_a_failed_session_holds_its_tensors_until_the_device_has_let_go, 0, WAYS);
    tcase_add_loop_test(all, a_lost_device_fails_the_collective_of_every_member, 0, WAYS);
    tcase_add_test(all, both_tensors_of_a_call_lie_in_the_same_memory);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
