/* Work ordered after other work: transfers behind compute, compute behind transfers, a failing producer, and who is to
 * blame at the end of such a chain. */
#include "tests/loop/work.h"

#include <string.h>

#include "base/clock.h"
#include "tests/suite.h"

enum { ALL = 4 };

static const int all_members[ALL] = {2, 0, 3, 1};
static const struct tensor_spec page[] = {{.role = "page", .dtype = DTYPE_U32, .ndim = 1, .dim = {{1, 1 << 18, -1}}}};
static const struct route_spec there = {
    .id = 9, .name = "there", .from = 0, .to = 1, .tensor_count = 1, .tensors = page, .depth = 2};

/* The producer fills the bundle that has been posted already. */
static enum status send_after_body(struct rank *self)
{
    struct gate *gate = self->context;
    struct route *route = session_route(self->session, 9);
    struct shape shape = {1, {_Alignof(int) * 50000}};
    struct bundle *bundle = NULL;
    struct executor *executor = NULL;
    struct completion *producer = NULL;
    struct completion *sent = NULL;
    struct piece piece = {.session = self->session, .gate = gate, .value = 77};
    uint64_t frames = 0;

    if (self->rank) {
        struct completion *received = NULL;
        enum status st = route_receive(route, &shape, NULL, NULL, 0, &received, &self->err);

        if (st == STATUS_OK)
            st = completion_wait(received, DEADLINE_NONE, &self->err);
        if (st == STATUS_OK) {
            bundle = route_take(received, NULL);
            EXPECT(all_are(bundle->tensor[0], 77));
            route_return(route, bundle);
        }
        completion_abandon(received);
        return st;
    }
    EXPECT(executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
    EXPECT(route_acquire(route, &bundle, &self->err) == STATUS_OK);
    EXPECT(tensor_reshape(bundle->tensor[0], DTYPE_U32, &shape, &self->err) == STATUS_OK);
    piece.where = words(bundle->tensor[0]);
    piece.count = shape.dim[0];
    EXPECT(executor_submit(executor, write_values, &piece, &producer, &self->err) == STATUS_OK);
    EXPECT(route_after(route, producer, &self->err) == STATUS_OK);
    completion_abandon(producer);
    executor_release(executor);
    frames = session_counters(self->session).frames_sent;
    EXPECT(route_send(route, bundle, 0, &sent, &self->err) == STATUS_OK);
    for (int i = 0; i < 50; i++) {
        session_progress(self->session);
        EXPECT(completion_test(sent) == COMPLETION_PENDING);
        EXPECT(session_counters(self->session).frames_sent == frames);
        clock_sleep_ns(NS_PER_MS);
    }
    atomic_store(&gate->open, 1);
    return finish(STATUS_OK, &sent, &self->err);
}

START_TEST(a_send_leaves_when_its_producer_is_done_and_not_before)
{
    struct gate gate = {0};
    struct ranks ranks = {.routes = &there, .route_count = 1, .context = &gate};

    work_run(&ranks, 2, send_after_body);
    ranks_check(&ranks);
}
END_TEST

struct consumer {
    struct completion *received;
    struct route *route;
    struct gate *gate;
    uint32_t sum;
};

static enum status consume(void *context, struct error *err)
{
    struct consumer *consumer = context;
    struct bundle *bundle = route_take(consumer->received, NULL);

    (void)err;
    atomic_fetch_add(&consumer->gate->begun, 1);
    for (size_t i = 0; i < bundle->tensor[0]->bytes / 4; i++)
        consumer->sum += words(bundle->tensor[0])[i];
    route_return(consumer->route, bundle);
    return STATUS_OK;
}

/* Compute that was queued before its input came; nobody waits for the transfer but the worker. */
static enum status compute_after_body(struct rank *self)
{
    struct gate *gate = self->context;
    struct route *route = session_route(self->session, 9);
    struct consumer consumer = {.route = route, .gate = gate};
    struct shape shape = {1, {1000}};
    struct executor *executor = NULL;
    struct completion *completion = NULL;
    struct bundle *bundle = NULL;
    enum status st = STATUS_OK;

    if (!self->rank) {
        gate_wait(self->session, gate, 1);
        EXPECT(route_acquire(route, &bundle, &self->err) == STATUS_OK);
        EXPECT(tensor_reshape(bundle->tensor[0], DTYPE_U32, &shape, &self->err) == STATUS_OK);
        for (uint32_t i = 0; i < 1000; i++)
            words(bundle->tensor[0])[i] = i;
        return finish(route_send(route, bundle, 0, &completion, &self->err), &completion, &self->err);
    }
    EXPECT(executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
    EXPECT(route_receive(route, &shape, NULL, NULL, 0, &consumer.received, &self->err) == STATUS_OK);
    EXPECT(executor_after(executor, consumer.received, &self->err) == STATUS_OK);
    EXPECT(executor_submit(executor, consume, &consumer, &completion, &self->err) == STATUS_OK);
    EXPECT(completion_wait(completion, clock_ns() + 30 * NS_PER_MS, &self->err) == STATUS_TIMEOUT);
    EXPECT(atomic_load(&gate->begun) == 0);
    atomic_store(&gate->open, 1);
    for (int i = 0; i < PATIENCE_S * 1000 && !atomic_load(&gate->begun); i++)
        clock_sleep_ns(NS_PER_MS);
    st = finish(STATUS_OK, &completion, &self->err);
    EXPECT(consumer.sum == 999 * 1000 / 2);
    completion_release(consumer.received);
    executor_release(executor);
    return st;
}

START_TEST(compute_begins_when_what_it_was_ordered_after_has_come)
{
    struct gate gate = {0};
    struct ranks ranks = {.routes = &there, .route_count = 1, .context = &gate};

    work_run(&ranks, 2, compute_after_body);
    ranks_check(&ranks);
}
END_TEST

/* First the producers, then the vote, then payload: while any rank's producer works, that rank sends nothing. */
static enum status sum_after_body(struct rank *self)
{
    struct gate *gate = self->context;
    struct group *group = session_group(self->session, 1);
    struct tensor *tensor = TENSOR(DTYPE_U32, 3000);
    struct piece piece = {.session = self->session,
                          .gate = gate,
                          .where = words(tensor),
                          .count = 3000,
                          .value = (uint32_t)self->rank + 1};
    struct executor *executor = NULL;
    struct completion *producer = NULL;
    struct completion *sum = NULL;
    uint32_t expected = (uint32_t)(self->size * (self->size + 1) / 2);

    EXPECT(executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
    EXPECT(executor_submit(executor, write_values, &piece, &producer, &self->err) == STATUS_OK);
    EXPECT(group_after(group, producer, &self->err) == STATUS_OK);
    EXPECT(group_all_reduce_sum(group, tensor, tensor, &sum, &self->err) == STATUS_OK);
    for (int i = 0; i < 20; i++) {
        session_progress(self->session);
        EXPECT(completion_test(sum) == COMPLETION_PENDING);
        EXPECT(session_counters(self->session).frames_sent == 0);
        clock_sleep_ns(NS_PER_MS);
    }
    /* The last to come opens it. */
    if (atomic_fetch_add(&gate->begun, 100) / 100 == self->size - 1)
        atomic_store(&gate->open, 1);
    EXPECT(finish(STATUS_OK, &sum, &self->err) == STATUS_OK);
    EXPECT(all_are(tensor, expected));
    EXPECT(finish(STATUS_OK, &producer, &self->err) == STATUS_OK);
    executor_release(executor);
    tensor_release(tensor);
    return STATUS_OK;
}

START_TEST(operations_of_a_group_begin_after_their_producers)
{
    static const int members[ALL][ALL] = {{0}, {1, 0}, {2, 0, 1}, {2, 0, 3, 1}};
    struct gate gate = {0};
    struct group_spec spec = GROUP(1, _i, members[_i - 1]);
    struct ranks ranks = {.groups = &spec, .group_count = 1, .context = &gate, .session = {.checks = CHECKS_FULL}};

    work_run(&ranks, _i, sum_after_body);
    ranks_check(&ranks);
}
END_TEST

/* Rank 0's producer fails: its send and its part of the sum never leave, and its sentence is everybody's. */
static enum status failing_body(struct rank *self)
{
    struct gate *gate = self->context;
    struct group *group = session_group(self->session, 1);
    struct route *route = session_route(self->session, 9);
    struct tensor *tensor = TENSOR(DTYPE_U32, 64);
    struct piece piece = {.session = self->session, .gate = gate, .result = STATUS_MODEL};
    struct shape shape = {1, {64}};
    struct executor *executor = NULL;
    struct completion *producer = NULL;
    struct completion *transfer = NULL;
    struct completion *sum = NULL;
    struct bundle *bundle = NULL;
    atomic_int released = 0;
    bool speaker = false;
    enum status st = STATUS_OK;

    if (!self->rank) {
        EXPECT(executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
        EXPECT(route_acquire(route, &bundle, &self->err) == STATUS_OK);
        EXPECT(tensor_reshape(bundle->tensor[0], DTYPE_U32, &shape, &self->err) == STATUS_OK);
        EXPECT(executor_submit(executor, write_values, &piece, &producer, &self->err) == STATUS_OK);
        EXPECT(route_after(route, producer, &self->err) == STATUS_OK);
        EXPECT(group_after(group, producer, &self->err) == STATUS_OK);
        EXPECT(route_send(route, bundle, 0, &transfer, &self->err) == STATUS_OK);
        EXPECT(completion_retain(transfer, &released, count_release, &self->err) == STATUS_OK);
    } else if (self->rank == 1) {
        EXPECT(route_receive(route, &shape, NULL, NULL, 0, &transfer, &self->err) == STATUS_OK);
    }
    EXPECT(group_all_reduce_sum(group, tensor, tensor, &sum, &self->err) == STATUS_OK);
    if (!self->rank)
        atomic_store(&gate->open, 1);
    st = completion_wait(sum, DEADLINE_NONE, &self->err);
    EXPECT(st == STATUS_MODEL && strstr(self->err.text, "executor cpu/0: token 7 is not finite") != NULL);
    EXPECT(all_are(tensor, 0xa5a5a5a5));
    if (transfer)
        EXPECT(completion_wait(transfer, DEADLINE_NONE, &self->err) == STATUS_MODEL);
    if (!self->rank) {
        EXPECT(completion_wait(producer, DEADLINE_NONE, &self->err) == STATUS_MODEL);
        EXPECT(session_counters(self->session).frames_sent == 0 && atomic_load(&released) == 1);
        EXPECT(executor_submit(executor, write_values, &piece, &sum, &self->err) == STATUS_MODEL);
        EXPECT(executor_after(executor, transfer, &self->err) == STATUS_MODEL);
    }
    st = session_settle(self->session, &self->err, &speaker);
    EXPECT(speaker == !self->rank);
    completion_release(sum);
    completion_release(transfer);
    completion_release(producer);
    executor_release(executor);
    tensor_release(tensor);
    return st;
}

START_TEST(a_failing_producer_sends_nothing_and_fails_every_rank)
{
    struct gate gate = {0};
    struct group_spec spec = GROUP(1, ALL, all_members);
    struct ranks ranks = {.groups = &spec,
                          .group_count = 1,
                          .routes = &there,
                          .route_count = 1,
                          .context = &gate,
                          .session = {.checks = CHECKS_FULL}};

    work_run(&ranks, ALL, failing_body);
    for (int i = 0; i < ALL; i++) {
        ck_assert_int_eq(ranks.rank[i].status, STATUS_MODEL);
        ck_assert_str_eq(ranks.rank[i].err.text, "rank 0: executor cpu/0: token 7 is not finite");
    }
}
END_TEST

/* Silent. */
static enum status stand_still(void *context, struct error *err)
{
    struct gate *gate = context;

    (void)err;
    while (!atomic_load(&gate->open))
        clock_sleep_ns(NS_PER_MS);
    return STATUS_OK;
}

/* Compute that gives no sign of life for the whole timeout is what the rank stands still in; while it runs nothing can
 * give its memory back. */
static enum status stuck_body(struct rank *self)
{
    struct gate gate = {0};
    uint32_t word = 0;
    struct piece piece = {.session = self->session, .where = &word, .count = 1, .value = 1};
    struct executor *executor = NULL;
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    EXPECT(executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
    EXPECT(executor_submit(executor, stand_still, &gate, &completion, &self->err) == STATUS_OK);
    st = completion_wait(completion, DEADLINE_NONE, &self->err);
    EXPECT(completion_test(completion) == COMPLETION_PENDING);
    EXPECT(executor_submit(executor, write_values, &piece, &completion, NULL) == STATUS_TIMEOUT);
    atomic_store(&gate.open, 1);
    while (completion_test(completion) == COMPLETION_PENDING)
        clock_sleep_ns(NS_PER_MS);
    EXPECT(completion_test(completion) == COMPLETION_FAILED);
    completion_release(completion);
    executor_release(executor);
    return st;
}

START_TEST(compute_without_a_sign_of_life_is_named)
{
    struct ranks ranks = {.session = {.timeout_ns = 300 * NS_PER_MS}};

    work_run(&ranks, 1, stuck_body);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_TIMEOUT);
    ck_assert_msg(strstr(ranks.rank[0].err.text, "rank 0 has stood still") != NULL &&
                      strstr(ranks.rank[0].err.text, "compute on executor cpu/0, sequence 0") != NULL,
                  "%s", ranks.rank[0].err.text);
}
END_TEST

static enum status long_work(void *context, struct error *err)
{
    uint64_t until_ns = clock_ns() + 4500 * NS_PER_MS;

    (void)err;
    while (clock_ns() < until_ns) {
        session_progress(context);
        clock_sleep_ns(5 * NS_PER_MS);
    }
    return STATUS_OK;
}

/* Rank 0 computes for longer than the timeout, rank 1 waits for the sum behind it. */
static enum status long_body(struct rank *self)
{
    struct group *group = session_group(self->session, 1);
    struct tensor *tensor = TENSOR(DTYPE_U32, 4);
    struct executor *executor = NULL;
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    if (!self->rank) {
        EXPECT(executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
        EXPECT(executor_submit(executor, long_work, self->session, &completion, &self->err) == STATUS_OK);
        EXPECT(group_after(group, completion, &self->err) == STATUS_OK);
        completion_abandon(completion);
        executor_release(executor);
    }
    st = finish(group_all_reduce_sum(group, tensor, tensor, &completion, &self->err), &completion, &self->err);
    tensor_release(tensor);
    return st;
}

START_TEST(compute_that_shows_progress_is_waited_for)
{
    static const int members[] = {0, 1};
    struct group_spec spec = GROUP(1, 2, members);
    struct ranks ranks = {.groups = &spec, .group_count = 1, .session = {.timeout_ns = 3 * NS_PER_S}};

    work_run(&ranks, 2, long_body);
    ranks_check(&ranks);
}
END_TEST

/* Rank 0 waits for compute that waits for a transfer of rank 1, which never comes: rank 1 is to blame. */
static enum status behind_body(struct rank *self)
{
    struct gate *gate = self->context;
    struct route *route = session_route(self->session, 9);
    struct consumer consumer = {.route = route, .gate = gate};
    struct shape shape = {1, {8}};
    struct executor *executor = NULL;
    struct executor *behind = NULL;
    struct completion *completion = NULL;
    struct completion *last = NULL;
    enum status st = STATUS_OK;

    if (!self->rank) {
        while (session_check(self->session, &self->err) == STATUS_OK)
            clock_sleep_ns(NS_PER_MS);
        return STATUS_TIMEOUT;
    }
    EXPECT(executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
    EXPECT(executor_fork(executor, &behind, &self->err) == STATUS_OK);
    EXPECT(route_receive(route, &shape, NULL, NULL, 0, &consumer.received, &self->err) == STATUS_OK);
    EXPECT(executor_after(executor, consumer.received, &self->err) == STATUS_OK);
    EXPECT(executor_submit(executor, consume, &consumer, &completion, &self->err) == STATUS_OK);
    EXPECT(executor_after(behind, completion, &self->err) == STATUS_OK);
    EXPECT(executor_flush(behind, &last, &self->err) == STATUS_OK);
    st = completion_wait(last, DEADLINE_NONE, &self->err);
    EXPECT(completion_test(last) == COMPLETION_FAILED && atomic_load(&gate->begun) == 0);
    completion_release(last);
    completion_release(completion);
    completion_release(consumer.received);
    executor_release(executor);
    executor_release(behind);
    return st;
}

START_TEST(the_rank_at_the_end_of_a_chain_of_local_work_is_named)
{
    struct gate gate = {0};
    struct ranks ranks = {
        .routes = &there, .route_count = 1, .context = &gate, .session = {.timeout_ns = 400 * NS_PER_MS}};

    work_run(&ranks, 2, behind_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_LOST);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "rank 0 has stood still") != NULL &&
                      strstr(ranks.rank[1].err.text, "rank 1 waits for rank 0 in send_receive on there") != NULL,
                  "%s", ranks.rank[1].err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("readiness");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_test(all, a_send_leaves_when_its_producer_is_done_and_not_before);
    tcase_add_test(all, compute_begins_when_what_it_was_ordered_after_has_come);
    tcase_add_loop_test(all, operations_of_a_group_begin_after_their_producers, 1, ALL + 1);
    tcase_add_test(all, a_failing_producer_sends_nothing_and_fails_every_rank);
    tcase_add_test(all, compute_without_a_sign_of_life_is_named);
    tcase_add_test(all, compute_that_shows_progress_is_waited_for);
    tcase_add_test(all, the_rank_at_the_end_of_a_chain_of_local_work_is_named);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
