/* Ranks that wait for each other are found out however they ask; ranks that work meanwhile are not accused. */
#include "tests/loop/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/executor.h"
#include "tests/suite.h"

#define TIMEOUT_NS NS_PER_S
/* For how long a rank works while others wait for it. */
#define WORK_NS (5 * TIMEOUT_NS / 2)

static const int pair_01[] = {0, 1};
static const int pair_12[] = {1, 2};
static const int pair_20[] = {2, 0};
static const struct group_spec groups[] = {GROUP(1, 2, pair_01), GROUP(2, 2, pair_12), GROUP(3, 2, pair_20)};
static const struct group_spec two[] = {GROUP(1, 2, pair_01), GROUP(2, 2, pair_01)};

static struct completion *post(struct rank *self, uint32_t id)
{
    struct completion *completion = NULL;

    EXPECT(group_barrier(session_group(self->session, id), &completion, &self->err) == STATUS_OK);
    return completion;
}

/* Ask as programs do, with a call between two questions that they take for harmless. */
static enum status ask_until_told(struct rank *self, struct completion *completion)
{
    uint64_t end_ns = clock_ns() + 20 * TIMEOUT_NS;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && completion_test(completion) == COMPLETION_PENDING && clock_ns() < end_ns) {
        for (int i = 0; i < 5; i++) {
            clock_sleep_ns(100 * NS_PER_US);
            session_progress(self->session);
        }
        session_phase(self->session, "asking");
        st = session_check(self->session, &self->err);
    }
    return session_check(self->session, &self->err);
}

/* Each rank waits for the next one, which waits for the one after it. */
static enum status cycle_body(struct rank *self)
{
    struct completion *completion = post(self, (uint32_t)self->rank + 1);
    bool asks = self->rank || !*(bool *)self->context;
    enum status st = asks ? ask_until_told(self, completion) : completion_wait(completion, DEADLINE_NONE, &self->err);

    completion_abandon(completion);
    return st;
}

static void expect_cycle(struct ranks *ranks)
{
    uint64_t start_ns = clock_ns();

    ranks->body = cycle_body;
    ranks->session.timeout_ns = TIMEOUT_NS;
    ranks->settle = true;
    ranks_run(ranks);
    ck_assert_uint_ge(clock_ns() - start_ns, TIMEOUT_NS);
    ck_assert_uint_lt(clock_ns() - start_ns, TIMEOUT_NS + 10 * NS_PER_S);
    for (int i = 0; i < ranks->size; i++) {
        ck_assert_msg(ranks->rank[i].status == STATUS_TIMEOUT || ranks->rank[i].status == STATUS_LOST,
                      "rank %d ended with %d", i, (int)ranks->rank[i].status);
        ck_assert_msg(strstr(ranks->rank[i].err.text, "ranks wait for each other since ") != NULL, "%s",
                      ranks->rank[i].err.text);
    }
}

START_TEST(ranks_that_ask_for_each_other_are_found_out)
{
    bool one_waits = _i == 1;
    struct ranks ranks = {.size = 2, .groups = two, .group_count = 2, .context = &one_waits};

    expect_cycle(&ranks);
}
END_TEST

START_TEST(so_are_three)
{
    bool one_waits = false;
    struct ranks ranks = {.size = 3, .groups = groups, .group_count = 3, .context = &one_waits};

    expect_cycle(&ranks);
}
END_TEST

/* Rank 1 works in turns with questions for what rank 0 does later, and says what it works at. */
static enum status phases_body(struct rank *self)
{
    struct completion *later = NULL;
    struct completion *first = NULL;
    uint64_t end_ns = clock_ns() + WORK_NS;
    char phase[32];

    if (self->rank) {
        later = post(self, 2);
        for (int tile = 0; clock_ns() < end_ns; tile++) {
            clock_sleep_ns(20 * NS_PER_MS);
            (void)snprintf(phase, sizeof phase, "tile %d", tile);
            session_phase(self->session, phase);
            EXPECT(completion_test(later) == COMPLETION_PENDING);
        }
    }
    first = post(self, 1);
    EXPECT(finish(STATUS_OK, &first, &self->err) == STATUS_OK);
    if (!self->rank)
        later = post(self, 2);
    return finish(STATUS_OK, &later, &self->err);
}

START_TEST(who_says_what_it_works_at_may_ask_meanwhile)
{
    struct ranks ranks = {
        .size = 2, .groups = two, .group_count = 2, .body = phases_body, .session = {.timeout_ns = TIMEOUT_NS}};

    ranks_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

struct waiter {
    struct completion *completion;
    struct error err;
    enum status status;
};

static void *wait_for(void *context)
{
    struct waiter *waiter = context;

    waiter->status = completion_wait(waiter->completion, DEADLINE_NONE, &waiter->err);
    return NULL;
}

/* A thread of rank 1 waits for what rank 0 does later; another one works. */
static enum status threads_body(struct rank *self)
{
    struct waiter waiter = {0};
    struct completion *first = NULL;
    uint64_t end_ns = clock_ns() + WORK_NS;
    pthread_t thread = 0;

    if (self->rank) {
        waiter.completion = post(self, 2);
        EXPECT(pthread_create(&thread, NULL, wait_for, &waiter) == 0);
        while (clock_ns() < end_ns) {
            clock_sleep_ns(NS_PER_MS);
            session_progress(self->session);
        }
    }
    first = post(self, 1);
    EXPECT(finish(STATUS_OK, &first, &self->err) == STATUS_OK);
    if (!self->rank) {
        waiter.completion = post(self, 2);
        return finish(STATUS_OK, &waiter.completion, &self->err);
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(waiter.status == STATUS_OK);
    completion_release(waiter.completion);
    return STATUS_OK;
}

START_TEST(a_thread_that_waits_is_no_excuse_to_accuse_one_that_works)
{
    struct ranks ranks = {
        .size = 2, .groups = two, .group_count = 2, .body = threads_body, .session = {.timeout_ns = TIMEOUT_NS}};

    ranks_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

static enum status ask_in_work(void *context, struct error *err)
{
    struct rank *self = context;
    struct completion *completion = post(self, (uint32_t)self->rank + 1);

    (void)err;
    (void)ask_until_told(self, completion);
    completion_abandon(completion);
    return STATUS_OK;
}

/* Each rank's executor asks for what the other one never does, while the rank waits for its executor. */
static enum status work_body(struct rank *self)
{
    struct executor *executor = NULL;
    struct completion *completion = NULL;
    enum status st = executor_create(self->session, "cpu/0", 1, &executor, &self->err);

    if (st == STATUS_OK)
        st = executor_submit(executor, ask_in_work, self, &completion, &self->err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, &self->err);
    while (completion_test(completion) == COMPLETION_PENDING)
        clock_sleep_ns(NS_PER_MS);
    completion_abandon(completion);
    executor_release(executor);
    return st;
}

START_TEST(work_that_asks_is_no_sign_of_life)
{
    uint64_t start_ns = clock_ns();
    struct ranks ranks = {.size = 2,
                          .groups = two,
                          .group_count = 2,
                          .body = work_body,
                          .session = {.timeout_ns = TIMEOUT_NS},
                          .settle = true};

    ranks_run(&ranks);
    ck_assert_uint_lt(clock_ns() - start_ns, TIMEOUT_NS + 10 * NS_PER_S);
    for (int i = 0; i < ranks.size; i++)
        ck_assert_msg(strstr(ranks.rank[i].err.text, " has stood still for ") != NULL, "%s", ranks.rank[i].err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deadlock");
    TCase *tests = tcase_create("deadlock");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, ranks_that_ask_for_each_other_are_found_out, 0, 2);
    tcase_add_test(tests, so_are_three);
    tcase_add_test(tests, who_says_what_it_works_at_may_ask_meanwhile);
    tcase_add_test(tests, a_thread_that_waits_is_no_excuse_to_accuse_one_that_works);
    tcase_add_test(tests, work_that_asks_is_no_sign_of_life);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
