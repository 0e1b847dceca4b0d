/* Executors: order, order after other work, readiness, retention, load, and what a failing producer does.
 *
 * Work is held back by gates that the test opens, never by sleeping long enough. */
#include "tests/loop/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/executor.h"

enum { ALL = 4, PATIENCE_S = 60 };

static const int all_members[ALL] = {2, 0, 3, 1};
static const struct tensor_spec page[] = {{.role = "page", .dtype = DTYPE_U32, .ndim = 1, .dim = {{1, 1 << 18, -1}}}};
static const struct route_spec there = {
    .id = 9, .name = "there", .from = 0, .to = 1, .tensor_count = 1, .tensors = page, .depth = 2};

/* What a piece of work waits for and tells; shared by the ranks of a test. */
struct gate {
    atomic_int open;
    atomic_int begun; /* pieces of work that have begun */
};

static void gate_wait(struct session *session, struct gate *gate, int open)
{
    uint64_t until_ns = clock_ns() + PATIENCE_S * NS_PER_S;

    while (atomic_load(&gate->open) < open && clock_ns() < until_ns) {
        session_progress(session);
        clock_sleep_ns(100 * NS_PER_US);
    }
    EXPECT(atomic_load(&gate->open) >= open);
}

/* One piece of work: behind its gate, write value to where. */
struct piece {
    struct session *session;
    struct gate *gate; /* NULL: none */
    uint32_t *where;
    size_t count;
    uint32_t value;
    enum status result;
};

static enum status write_values(void *context, struct error *err)
{
    const struct piece *piece = context;

    if (piece->gate) {
        atomic_fetch_add(&piece->gate->begun, 1);
        gate_wait(piece->session, piece->gate, 1);
    }
    if (piece->result != STATUS_OK)
        return error_set(err, piece->result, "token 7 is not finite");
    for (size_t i = 0; i < piece->count; i++)
        piece->where[i] = piece->value;
    return STATUS_OK;
}

static uint32_t *words(struct tensor *tensor)
{
    return (uint32_t *)(void *)tensor->data;
}

static bool all_are(struct tensor *tensor, uint32_t value)
{
    for (size_t i = 0; i < tensor->bytes / 4; i++) {
        if (words(tensor)[i] != value)
            return false;
    }
    return true;
}

static void run(struct ranks *ranks, int size, rank_body *body)
{
    ranks->size = size;
    ranks->body = body;
    ranks_run(ranks);
}

/* Everything submitted to it is over. */
static enum status drain(struct executor *executor, struct error *err)
{
    struct completion *completion = NULL;

    return finish(executor_flush(executor, &completion, err), &completion, err);
}

struct log {
    int count;
    int entry[256];
};

struct line {
    struct log *log;
    int number;
};

static enum status write_line(void *context, struct error *err)
{
    struct line *line = context;

    (void)err;
    line->log->entry[line->log->count++] = line->number;
    return STATUS_OK;
}

static enum status in_order_body(struct rank *self)
{
    static struct log log;
    struct line lines[200];
    struct executor *executor = NULL;
    struct completion *completion = NULL;
    enum status st = executor_create(self->session, "cpu/0", 200, &executor, &self->err);

    log.count = 0;
    for (int i = 0; i < 200 && st == STATUS_OK; i++) {
        lines[i] = (struct line){&log, i};
        st = executor_submit(executor, write_line, &lines[i], &completion, &self->err);
        if (st == STATUS_OK)
            completion_abandon(completion);
    }
    if (st == STATUS_OK)
        st = drain(executor, &self->err);
    EXPECT(log.count == 200);
    for (int i = 0; i < 200; i++)
        EXPECT(log.entry[i] == i);
    executor_release(executor);
    return st;
}

START_TEST(work_runs_in_the_order_of_submission)
{
    struct ranks ranks = {0};

    run(&ranks, 1, in_order_body);
    ranks_check(&ranks);
}
END_TEST

static enum status open_gate(void *context, struct error *err)
{
    (void)err;
    atomic_store(&((struct gate *)context)->open, 1);
    return STATUS_OK;
}

/* What runs on one waits for what runs on the other, which was submitted later. */
static enum status side_by_side_body(struct rank *self)
{
    struct gate gate = {0};
    uint32_t word = 0;
    struct piece piece = {.session = self->session, .gate = &gate, .where = &word, .count = 1, .value = 5};
    struct executor *one = NULL;
    struct executor *other = NULL;
    struct completion *held = NULL;
    struct completion *opener = NULL;
    enum status st = executor_create(self->session, "cpu/0", 4, &one, &self->err);

    if (st == STATUS_OK)
        st = executor_fork(one, &other, &self->err);
    if (st == STATUS_OK)
        st = executor_submit(one, write_values, &piece, &held, &self->err);
    if (st == STATUS_OK)
        st = finish(executor_submit(other, open_gate, &gate, &opener, &self->err), &opener, &self->err);
    st = finish(st, &held, &self->err);
    EXPECT(word == 5);
    executor_release(one);
    executor_release(other);
    return st;
}

START_TEST(forked_executors_run_side_by_side)
{
    struct ranks ranks = {0};

    run(&ranks, 1, side_by_side_body);
    ranks_check(&ranks);
}
END_TEST

struct change {
    uint32_t *number;
    uint32_t factor;
    uint32_t add;
};

static enum status change_number(void *context, struct error *err)
{
    const struct change *change = context;
    uint32_t number = *change->number;

    (void)err;
    /* Long enough for the other executor to come in between, were it not ordered. */
    for (volatile uint32_t i = 0; i < change->add % 64 * 20; i++)
        number ^= 0;
    *change->number = number * change->factor + change->add;
    return STATUS_OK;
}

/* Two executors change one number in turn; each turn is ordered after the other's last.  No other order gives it. */
static enum status turns_body(struct rank *self)
{
    enum { TURNS = 400 };
    struct change *changes = calloc(TURNS, sizeof *changes);
    struct executor *executors[2] = {NULL};
    struct completion *completion = NULL;
    uint32_t number = 1;
    uint32_t expected = 1;
    enum status st = executor_create(self->session, "cpu/0", TURNS, &executors[0], &self->err);

    EXPECT(changes);
    if (st == STATUS_OK)
        st = executor_fork(executors[0], &executors[1], &self->err);
    for (int i = 0; i < TURNS && st == STATUS_OK; i++) {
        changes[i] = (struct change){&number, 2 * (uint32_t)i + 3, (uint32_t)i};
        expected = expected * changes[i].factor + changes[i].add;
        if (completion) {
            st = executor_after(executors[i % 2], completion, &self->err);
            completion_abandon(completion);
        }
        if (st == STATUS_OK)
            st = executor_submit(executors[i % 2], change_number, &changes[i], &completion, &self->err);
    }
    st = finish(st, &completion, &self->err);
    EXPECT(number == expected);
    executor_release(executors[0]);
    executor_release(executors[1]);
    free(changes);
    return st;
}

START_TEST(order_between_forked_executors_shows_in_the_data)
{
    struct ranks ranks = {0};

    run(&ranks, 1, turns_body);
    ranks_check(&ranks);
}
END_TEST

/* A completion is done although later work of its executor, and work of its fork, are not. */
static enum status own_work_body(struct rank *self)
{
    struct gate gate = {0};
    uint32_t word[3] = {0};
    struct piece pieces[3] = {{.session = self->session, .where = &word[0], .count = 1, .value = 1},
                              {.session = self->session, .gate = &gate, .where = &word[1], .count = 1, .value = 2},
                              {.session = self->session, .gate = &gate, .where = &word[2], .count = 1, .value = 3}};
    struct executor *one = NULL;
    struct executor *other = NULL;
    struct completion *completions[3] = {NULL};
    enum status st = executor_create(self->session, "cpu/0", 4, &one, &self->err);

    if (st == STATUS_OK)
        st = executor_fork(one, &other, &self->err);
    for (int i = 0; i < 3 && st == STATUS_OK; i++)
        st = executor_submit(i == 2 ? other : one, write_values, &pieces[i], &completions[i], &self->err);
    if (st == STATUS_OK)
        st = completion_wait(completions[0], DEADLINE_NONE, &self->err);
    EXPECT(st == STATUS_OK && completion_test(completions[0]) == COMPLETION_DONE && word[0] == 1);
    EXPECT(completion_test(completions[1]) == COMPLETION_PENDING);
    EXPECT(completion_test(completions[2]) == COMPLETION_PENDING);
    completion_release(completions[0]);
    atomic_store(&gate.open, 1);
    for (int i = 1; i < 3; i++)
        st = finish(st, &completions[i], &self->err);
    EXPECT(word[1] == 2 && word[2] == 3);
    executor_release(one);
    executor_release(other);
    return st;
}

START_TEST(a_completion_observes_its_own_work_alone)
{
    struct ranks ranks = {0};

    run(&ranks, 1, own_work_body);
    ranks_check(&ranks);
}
END_TEST

static enum status capacity_body(struct rank *self)
{
    struct gate gate = {0};
    uint32_t word = 0;
    struct piece piece = {.session = self->session, .gate = &gate, .where = &word, .count = 1, .value = 1};
    struct executor *executor = NULL;
    struct executor *fork = NULL;
    struct completion *completions[3] = {NULL};
    struct completion *more = NULL;
    struct error err = {0};

    EXPECT(executor_create(self->session, "cpu/0", 0, &executor, &err) == STATUS_INVALID);
    EXPECT(executor_create(self->session, "cpu/0", EXECUTOR_MAX_CAPACITY + 1, &executor, &err) == STATUS_INVALID);
    EXPECT(strstr(err.text, "executor cpu/0: capacity 65537, 1 to 65536") != NULL);
    /* Who has no queue is not idle. */
    EXPECT(executor_load(NULL).pending == LOAD_UNKNOWN && executor_load(NULL).capacity == LOAD_UNKNOWN);
    EXPECT(session_load(self->session).pending == LOAD_UNKNOWN);
    EXPECT(session_load(self->session).capacity == LOAD_UNKNOWN);
    EXPECT(executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
    EXPECT(executor_load(executor).pending == 0 && executor_load(executor).capacity == 2);
    for (int i = 0; i < 2; i++)
        EXPECT(executor_submit(executor, write_values, &piece, &completions[i], &self->err) == STATUS_OK);
    EXPECT(executor_submit(executor, write_values, &piece, &more, &err) == STATUS_OVERFLOW);
    EXPECT(!more && strstr(err.text, "executor cpu/0: 2 pieces of work are unfinished") != NULL);
    EXPECT(executor_load(executor).pending == 2);
    EXPECT(executor_fork(executor, &fork, &self->err) == STATUS_OK);
    EXPECT(session_load(self->session).pending == 2 && session_load(self->session).capacity == 4);
    EXPECT(executor_flush(executor, &completions[2], &self->err) == STATUS_OK);
    EXPECT(completion_test(completions[2]) == COMPLETION_PENDING);
    atomic_store(&gate.open, 1);
    for (int i = 2; i >= 0; i--) {
        EXPECT(completion_wait(completions[i], DEADLINE_NONE, &self->err) == STATUS_OK);
        completion_release(completions[i]);
    }
    EXPECT(executor_load(executor).pending == 0 && session_load(self->session).pending == 0);
    EXPECT(executor_submit(executor, write_values, &piece, &more, &self->err) == STATUS_OK);
    executor_release(executor);
    executor_release(fork);
    return finish(STATUS_OK, &more, &self->err);
}

START_TEST(a_full_executor_says_so_and_its_load_returns_to_zero)
{
    struct ranks ranks = {0};

    run(&ranks, 1, capacity_body);
    ranks_check(&ranks);
}
END_TEST

static void count_release(void *value)
{
    atomic_fetch_add((atomic_int *)value, 1);
}

static enum status retain_body(struct rank *self)
{
    struct gate gate = {0};
    atomic_int released = 0;
    uint32_t *word = calloc(1, sizeof *word);
    struct piece piece = {.session = self->session, .gate = &gate, .where = word, .count = 1, .value = 1};
    struct executor *executor = NULL;
    struct completion *completion = NULL;

    EXPECT(word && executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
    EXPECT(executor_submit(executor, write_values, &piece, &completion, &self->err) == STATUS_OK);
    EXPECT(completion_retain(completion, word, free, &self->err) == STATUS_OK);
    EXPECT(completion_retain(completion, &released, count_release, &self->err) == STATUS_OK);
    EXPECT(completion_retain(completion, &released, count_release, &self->err) == STATUS_OK);
    EXPECT(completion_wait(completion, clock_ns() + 20 * NS_PER_MS, &self->err) == STATUS_TIMEOUT);
    EXPECT(completion_test(completion) == COMPLETION_PENDING && atomic_load(&released) == 0);
    EXPECT(session_check(self->session, &self->err) == STATUS_OK);
    atomic_store(&gate.open, 1);
    EXPECT(completion_wait(completion, DEADLINE_NONE, &self->err) == STATUS_OK);
    EXPECT(atomic_load(&released) == 2);
    EXPECT(completion_retain(completion, &released, count_release, &self->err) == STATUS_OK);
    EXPECT(atomic_load(&released) == 3);
    completion_release(completion);
    executor_release(executor);
    return STATUS_OK;
}

START_TEST(values_are_retained_until_the_completion_and_no_longer)
{
    struct ranks ranks = {0};

    run(&ranks, 1, retain_body);
    ranks_check(&ranks);
}
END_TEST

/* The executor, its work and the session's end: whoever gives up everything still gets it done. */
static enum status given_up_body(struct rank *self)
{
    static struct gate gate;
    uint32_t *words_left = self->context;
    static struct piece pieces[3];
    struct executor *executor = NULL;
    struct completion *completion = NULL;

    atomic_store(&gate.open, 0);
    EXPECT(executor_create(self->session, "cpu/0", 4, &executor, &self->err) == STATUS_OK);
    for (int i = 0; i < 3; i++) {
        pieces[i] = (struct piece){self->session, i ? NULL : &gate, &words_left[i], 1, 10 + (uint32_t)i, STATUS_OK};
        EXPECT(executor_submit(executor, write_values, &pieces[i], &completion, &self->err) == STATUS_OK);
        completion_abandon(completion);
    }
    executor_release(executor);
    /* One that has ended is joined by the next that is made. */
    EXPECT(executor_create(self->session, "cpu/1", 1, &executor, &self->err) == STATUS_OK);
    executor_release(executor);
    EXPECT(executor_create(self->session, "cpu/2", 1, &executor, &self->err) == STATUS_OK);
    EXPECT(executor_submit(executor, open_gate, &gate, &completion, &self->err) == STATUS_OK);
    completion_abandon(completion);
    executor_release(executor);
    return STATUS_OK;
}

START_TEST(what_was_given_up_is_done_before_a_clean_end)
{
    uint32_t words_left[3] = {0};
    struct ranks ranks = {.context = words_left};

    run(&ranks, 1, given_up_body);
    ranks_check(&ranks);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(words_left[i], 10 + i);
}
END_TEST

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

    run(&ranks, 2, send_after_body);
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

    run(&ranks, 2, compute_after_body);
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

    run(&ranks, _i, sum_after_body);
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

    run(&ranks, ALL, failing_body);
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

    run(&ranks, 1, stuck_body);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_TIMEOUT);
    ck_assert_msg(strstr(ranks.rank[0].err.text, "rank 0 has stood still") != NULL &&
                      strstr(ranks.rank[0].err.text, "compute on cpu/0, sequence 0") != NULL,
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

    run(&ranks, 2, long_body);
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

    run(&ranks, 2, behind_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_LOST);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "rank 0 has stood still") != NULL &&
                      strstr(ranks.rank[1].err.text, "rank 1 waits for rank 0 in send_receive on there") != NULL,
                  "%s", ranks.rank[1].err.text);
}
END_TEST

/* Each session has its own work. */
static enum status foreign_body(struct rank *self)
{
    static struct completion *_Atomic shared;
    static atomic_int done;
    struct executor *executor = NULL;
    struct completion *completion = NULL;
    struct error err = {0};

    EXPECT(executor_create(self->session, "cpu/0", 2, &executor, &self->err) == STATUS_OK);
    if (self->rank) {
        EXPECT(executor_flush(executor, &completion, &self->err) == STATUS_OK);
        atomic_store(&shared, completion);
        while (!atomic_load(&done))
            clock_sleep_ns(NS_PER_MS);
        executor_release(executor);
        return finish(STATUS_OK, &completion, &self->err);
    }
    while (!atomic_load(&shared))
        clock_sleep_ns(NS_PER_MS);
    EXPECT(executor_after(executor, atomic_load(&shared), &err) == STATUS_INVALID);
    EXPECT(strstr(err.text, "executor cpu/0: ordered after work of another session") != NULL);
    atomic_store(&done, 1);
    executor_release(executor);
    return STATUS_OK;
}

START_TEST(work_of_another_session_is_refused)
{
    struct ranks ranks = {0};

    run(&ranks, 2, foreign_body);
    ranks_check(&ranks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("executor");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_test(all, work_runs_in_the_order_of_submission);
    tcase_add_test(all, forked_executors_run_side_by_side);
    tcase_add_test(all, order_between_forked_executors_shows_in_the_data);
    tcase_add_test(all, a_completion_observes_its_own_work_alone);
    tcase_add_test(all, a_full_executor_says_so_and_its_load_returns_to_zero);
    tcase_add_test(all, values_are_retained_until_the_completion_and_no_longer);
    tcase_add_test(all, what_was_given_up_is_done_before_a_clean_end);
    tcase_add_test(all, a_send_leaves_when_its_producer_is_done_and_not_before);
    tcase_add_test(all, compute_begins_when_what_it_was_ordered_after_has_come);
    tcase_add_loop_test(all, operations_of_a_group_begin_after_their_producers, 1, ALL + 1);
    tcase_add_test(all, a_failing_producer_sends_nothing_and_fails_every_rank);
    tcase_add_test(all, compute_without_a_sign_of_life_is_named);
    tcase_add_test(all, compute_that_shows_progress_is_waited_for);
    tcase_add_test(all, the_rank_at_the_end_of_a_chain_of_local_work_is_named);
    tcase_add_test(all, work_of_another_session_is_refused);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
