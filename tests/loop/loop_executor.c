/* Executors: order, forks, retention, load, and what is done before a clean end. */
#include "tests/loop/work.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/suite.h"

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

    work_run(&ranks, 1, in_order_body);
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

    work_run(&ranks, 1, side_by_side_body);
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

    work_run(&ranks, 1, turns_body);
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

    work_run(&ranks, 1, own_work_body);
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

    work_run(&ranks, 1, capacity_body);
    ranks_check(&ranks);
}
END_TEST

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

    work_run(&ranks, 1, retain_body);
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

    work_run(&ranks, 1, given_up_body);
    ranks_check(&ranks);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(words_left[i], 10 + i);
}
END_TEST

/* Without a sign of life for longer than the timeout. */
static enum status stand_still(void *context, struct error *err)
{
    (void)context;
    (void)err;
    clock_sleep_ns(900 * NS_PER_MS);
    return STATUS_OK;
}

static enum status linger_body(struct rank *self)
{
    struct executor *executor = NULL;
    struct completion *completion = NULL;
    enum status st;

    if (self->rank != 1)
        return STATUS_OK;
    st = executor_create(self->session, "cpu/7", 4, &executor, &self->err);
    if (st == STATUS_OK)
        st = executor_submit(executor, stand_still, NULL, &completion, &self->err);
    if (st == STATUS_OK)
        completion_abandon(completion);
    executor_release(executor);
    return st;
}

START_TEST(a_clean_end_names_the_executor_whose_work_stands_still)
{
    struct ranks ranks = {.settle = true, .session = {.timeout_ns = 300 * NS_PER_MS}};

    work_run(&ranks, 2, linger_body);
    for (int i = 0; i < 2; i++) {
        const char *text = ranks.rank[i].err.text;

        ck_assert_int_eq(ranks.rank[i].err.status, STATUS_TIMEOUT);
        ck_assert_msg(strstr(text, "rank 1 has stood still for ") == text &&
                          strstr(text, "rank 1 waits in compute on executor cpu/7, sequence 0"),
                      "%s", text);
    }
}
END_TEST

/* The transport ends, and says that another rank has not. */
static enum status close_alone(struct transport *transport, bool clean, struct error *err)
{
    enum status st = loopback_ops.close(transport, clean, err);

    return clean ? error_set(err, STATUS_TIMEOUT, "somebody does not come") : st;
}

static enum status nothing_body(struct rank *self)
{
    (void)self;
    return STATUS_OK;
}

START_TEST(an_end_that_the_transport_misses_is_a_failure)
{
    struct transport_ops ops = loopback_ops;
    struct ranks ranks = {.settle = true, .ops = &ops};

    ops.close = close_alone;
    work_run(&ranks, 2, nothing_body);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ranks.rank[i].closing, STATUS_TIMEOUT);
        ck_assert_str_eq(ranks.rank[i].err.text,
                         i ? "rank 1: somebody does not come" : "rank 0: somebody does not come");
        ck_assert(ranks.rank[i].speaker);
    }
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

    work_run(&ranks, 2, foreign_body);
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
    tcase_add_test(all, work_of_another_session_is_refused);
    tcase_add_test(all, a_clean_end_names_the_executor_whose_work_stands_still);
    tcase_add_test(all, an_end_that_the_transport_misses_is_a_failure);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
