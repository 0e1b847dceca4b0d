/* Queues of a device as executors, when something goes wrong: work that fails, that takes too long, a device that is
 * lost. Until the device is done it writes where it was told to: nothing is given back before. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/cuda/stage.h"
#include "tests/suite.h"

static void count_return(void *value)
{
    atomic_fetch_add((atomic_int *)value, 1);
}

/* Its second piece fails when it is queued; the third never begins. */
static enum status failing_body(struct rank *self)
{
    static atomic_int returned;
    struct stage stage;
    struct completion *completions[3] = {NULL};
    struct error err = {0};
    enum status st = stage_open(self, &stage, 8);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition first = {.sum = there, .term = there, .times = 4};
    struct addition failing = {.sum = there, .term = there, .times = 4, .result = STATUS_INVALID};

    atomic_store(&returned, 0);
    if (st == STATUS_OK)
        st = executor_submit_on(stage.executor, add, &first, &completions[0], &self->err);
    if (st == STATUS_OK)
        st = executor_submit_on(stage.executor, add, &failing, &completions[1], &self->err);
    EXPECT(st != STATUS_OK || completion_retain(completions[1], &returned, count_return, &err) == STATUS_OK);
    EXPECT(completion_test(completions[1]) == COMPLETION_PENDING); /* what it had queued still happens */
    EXPECT(atomic_load(&returned) == 0);
    EXPECT(executor_submit_on(stage.executor, add, &first, &completions[2], &err) == STATUS_INVALID);
    st = completion_wait(completions[1], DEADLINE_NONE, &self->err);
    for (int turn = 0; turn < 10000 && completion_test(completions[1]) == COMPLETION_PENDING; turn++)
        clock_sleep_ns(NS_PER_MS);
    EXPECT(completion_test(completions[1]) == COMPLETION_FAILED);
    EXPECT(atomic_load(&returned) == 1);
    completion_abandon(completions[0]);
    completion_release(completions[1]);
    tensor_release(there);
    stage_close(&stage);
    return st;
}

START_TEST(work_that_fails_ends_the_session_and_keeps_what_the_device_still_writes)
{
    struct ranks ranks = {.size = 1, .body = failing_body};

    stage_run(&ranks);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_INVALID);
    ck_assert_msg(strstr(ranks.rank[0].err.text, "executor cuda:0.1: token 7 is not finite"), "%s",
                  ranks.rank[0].err.text);
}
END_TEST

static enum status deadline_body(struct rank *self)
{
    struct stage stage;
    struct completion *completion = NULL;
    struct error err = {0};
    enum status st = stage_open(self, &stage, 8);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition often = {.sum = there, .term = there, .times = 20};

    if (st == STATUS_OK)
        st = executor_submit_on(stage.executor, add, &often, &completion, &self->err);
    EXPECT(completion_wait(completion, clock_ns() + NS_PER_MS, &err) == STATUS_TIMEOUT);
    EXPECT(completion_test(completion) == COMPLETION_PENDING);
    if (st == STATUS_OK)
        st = finish(STATUS_OK, &completion, &self->err);
    tensor_release(there);
    stage_close(&stage);
    return st;
}

START_TEST(a_deadline_of_the_callers_tears_nothing_down)
{
    struct ranks ranks = {.size = 1, .body = deadline_body};

    stage_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

/* The device takes longer than timeout: the session fails, and the tensor is held until the device lets go of it. */
static enum status stuck_body(struct rank *self)
{
    struct stage stage;
    struct completion *completion = NULL;
    struct error err = {0};
    enum status st = stage_open(self, &stage, 8);
    struct tensor *host = counting(0);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition long_work = {.sum = there, .term = there, .times = 1};

    if (st == STATUS_OK)
        st = executor_submit_on(stage.executor, add, &long_work, &completion, &self->err);
    EXPECT(st != STATUS_OK || completion_wait(completion, DEADLINE_NONE, &self->err) == STATUS_TIMEOUT);
    EXPECT(session_check(self->session, &err) == STATUS_TIMEOUT);
    EXPECT(completion_test(completion) == COMPLETION_PENDING);
    completion_abandon(completion);
    tensor_release(host);
    tensor_release(there);
    stage_close(&stage);
    return STATUS_TIMEOUT;
}

START_TEST(a_device_that_takes_longer_than_timeout_is_named)
{
    struct ranks ranks = {.size = 1, .body = stuck_body, .session = {.timeout_ns = 200 * NS_PER_MS}};

    stage_run(&ranks);
    ck_assert_msg(strstr(ranks.rank[0].err.text, "cuda:0.1"), "%s", ranks.rank[0].err.text);
}
END_TEST

/* The same with quarantine: the work is an orphan until the device is done, then the executor takes work again. */
static enum status orphan_body(struct rank *self)
{
    struct stage stage;
    struct completion *completion = NULL;
    struct completion *next = NULL;
    struct error err = {0};
    enum status st = stage_open(self, &stage, 8);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition once = {.sum = there, .term = there, .times = 1};

    if (st == STATUS_OK)
        st = executor_submit_on(stage.executor, add, &once, &completion, &self->err);
    EXPECT(completion_wait(completion, DEADLINE_NONE, &err) == STATUS_TIMEOUT);
    EXPECT(session_check(self->session, &err) == STATUS_OK);
    EXPECT(executor_submit_on(stage.executor, add, &once, &next, &err) == STATUS_TIMEOUT);
    EXPECT(strstr(err.text, "cuda:0.1 is quarantined"));
    EXPECT(executor_transfer(stage.executor, stage.transfers, there, there, &next, &err) == STATUS_TIMEOUT);
    EXPECT(atomic_load(&there->references) == 1); /* what was refused is retained no more */
    while (executor_load(stage.executor).pending)
        session_progress(self->session);
    EXPECT(completion_test(completion) == COMPLETION_DONE);
    completion_release(completion);
    if (st == STATUS_OK)
        st = executor_flush(stage.executor, &next, &self->err);
    while (executor_load(stage.executor).pending)
        session_progress(self->session);
    EXPECT(st != STATUS_OK || completion_test(next) == COMPLETION_DONE);
    completion_release(next);
    tensor_release(there);
    stage_close(&stage);
    return st;
}

START_TEST(quarantined_work_of_a_device_ends_when_the_device_is_done)
{
    struct ranks ranks = {.size = 1,
                          .body = orphan_body,
                          .session = {.timeout_ns = 200 * NS_PER_MS, .on_timeout = ON_TIMEOUT_QUARANTINE}};

    stage_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

static enum status lost_body(struct rank *self)
{
    struct stage stage;
    struct completion *completion = NULL;
    enum status st = stage_open(self, &stage, 32);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition twice = {.sum = there, .term = there, .times = 1};

    for (int i = 0; st == STATUS_OK && i < 32; i++)
        st = finish(executor_submit_on(stage.executor, add, &twice, &completion, &self->err), &completion, &self->err);
    tensor_release(there);
    stage_close(&stage);
    return st;
}

START_TEST(a_device_that_fails_fails_the_session_in_its_own_words)
{
    struct ranks ranks = {.size = 1, .body = lost_body};

    stage_run(&ranks);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_ENVIRONMENT);
    ck_assert_msg(strstr(ranks.rank[0].err.text, "executor cuda:0.1: ") &&
                      strstr(ranks.rank[0].err.text, "cudaErrorIllegalAddress"),
                  "%s", ranks.rank[0].err.text);
}
END_TEST

static void lag_short(void)
{
    (void)setenv("FERRY_STANDIN_LAG", "3000", 1);
}

static void lag_long(void)
{
    (void)setenv("FERRY_STANDIN_LAG", "400000", 1);
}

static void lose(void)
{
    (void)setenv("FERRY_STANDIN_FAULT", "op=9,kind=lost", 1);
}

int main(void)
{
    Suite *suite = suite_create("executor_faults");
    TCase *tests = stage_machine(suite, "short", lag_short);
    TCase *late = stage_machine(suite, "long", lag_long);

    tcase_add_test(tests, work_that_fails_ends_the_session_and_keeps_what_the_device_still_writes);
    tcase_add_test(tests, a_deadline_of_the_callers_tears_nothing_down);
    tcase_add_test(late, a_device_that_takes_longer_than_timeout_is_named);
    tcase_add_test(late, quarantined_work_of_a_device_ends_when_the_device_is_done);
    tcase_add_test(stage_machine(suite, "lost", lose), a_device_that_fails_fails_the_session_in_its_own_words);
    return suite_run(suite);
}
