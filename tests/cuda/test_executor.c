/* Queues of a device as executors: order, completions, tensors promoted and demoted, failures.  The stand-in rests
 * before each piece of work, so that whatever is looked at too early is wrong. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/executor.h"
#include "tests/cuda/opened.h"
#include "tests/loop/ranks.h"

enum { COUNT = 1000, MOST_RANKS = 4 };

/* Of each rank, and the last one of nobody.  A device stays open until the session has joined its executors. */
static struct device *devices[MOST_RANKS];

/* Of one rank. */
struct stage {
    const struct device_ops *devices;
    struct device *device;
    struct transfers *transfers;
    struct executor *executor;
};

static enum status open_stage(struct rank *self, struct stage *stage, uint32_t capacity)
{
    const struct plugin *plugin = NULL;
    enum status st = plugin_open("cuda", &plugin, NULL, 0, &self->err);

    *stage = (struct stage){0};
    if (st == STATUS_OK) {
        stage->devices = plugin->devices;
        st = stage->devices->open(self->rank, &devices[self->rank], &self->err);
        stage->device = devices[self->rank];
    }
    if (st == STATUS_OK)
        st = transfers_of_device(stage->device->memory, stage->device->pinned, &stage->transfers, &self->err);
    if (st == STATUS_OK)
        st = executor_create_on(self->session, stage->devices, stage->device, capacity, &stage->executor, &self->err);
    EXPECT(st == STATUS_OK && stage->device);
    return st;
}

static void close_stage(struct stage *stage)
{
    executor_release(stage->executor);
    transfers_destroy(stage->transfers);
}

static struct tensor *tensor_in(struct memory *memory, uint64_t count)
{
    struct shape shape = {1, {count}};
    struct tensor *tensor = NULL;

    EXPECT(tensor_create_in(memory, DTYPE_U32, &shape, &tensor, NULL) == STATUS_OK);
    return tensor;
}

static struct tensor *counting(uint32_t first)
{
    struct tensor *tensor = tensor_in(NULL, COUNT);

    for (uint32_t k = 0; k < COUNT; k++)
        ((uint32_t *)(void *)tensor->data)[k] = first + k;
    return tensor;
}

/* Element k is first + k * step. */
static bool counts(const struct tensor *tensor, uint32_t first, uint32_t step)
{
    for (uint32_t k = 0; k < COUNT; k++) {
        if (((const uint32_t *)(const void *)tensor->data)[k] != first + k * step)
            return false;
    }
    return true;
}

/* sum += term, times times. */
struct addition {
    struct tensor *sum;
    struct tensor *term;
    int times;
    enum status result;
};

static enum status add(void *context, struct memory *memory, struct error *err)
{
    struct addition *addition = context;

    for (int i = 0; i < addition->times; i++) {
        enum status st = memory->ops->add(memory, DTYPE_U32, addition->sum->data, addition->term->data, COUNT, err);

        if (st != STATUS_OK)
            return st;
    }
    return addition->result == STATUS_OK ? STATUS_OK : error_set(err, addition->result, "token 7 is not finite");
}

static enum status move(struct stage *stage, struct tensor *from, struct tensor *into, struct error *err)
{
    struct completion *completion = NULL;

    return finish(executor_transfer(stage->executor, stage->transfers, from, into, &completion, err), &completion, err);
}

static enum status order_body(struct rank *self)
{
    struct stage stage;
    struct completion *completions[4] = {NULL};
    enum status st = open_stage(self, &stage, 8);
    struct tensor *host = counting(5);
    struct tensor *back = tensor_in(stage.device->pinned, COUNT);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition twice = {.sum = there, .term = there, .times = 1};

    memset(back->data, 0, back->bytes);
    if (st == STATUS_OK)
        st = executor_transfer(stage.executor, stage.transfers, host, there, &completions[0], &self->err);
    for (int i = 1; i <= 2 && st == STATUS_OK; i++)
        st = executor_submit_on(stage.executor, add, &twice, &completions[i], &self->err);
    if (st == STATUS_OK)
        st = executor_transfer(stage.executor, stage.transfers, there, back, &completions[3], &self->err);
    EXPECT(st != STATUS_OK || completion_test(completions[3]) == COMPLETION_PENDING);
    EXPECT(!counts(back, 20, 4)); /* meaningless before completion */
    if (st == STATUS_OK)
        st = completion_wait(completions[3], DEADLINE_NONE, &self->err);
    EXPECT(st != STATUS_OK || counts(back, 20, 4));
    for (int i = 0; i < 4; i++) {
        EXPECT(completion_test(completions[i]) == COMPLETION_DONE);
        completion_release(completions[i]);
    }
    tensor_release(host);
    tensor_release(back);
    tensor_release(there);
    close_stage(&stage);
    return st;
}

static void run_all(struct ranks *ranks)
{
    ranks_run(ranks);
    for (int i = 0; i < MOST_RANKS; i++)
        plugin_here()->devices->close(devices[i]);
}

static void run(int size, rank_body *body)
{
    struct ranks ranks = {.size = size, .body = body};

    run_all(&ranks);
    ranks_check(&ranks);
}

START_TEST(work_is_done_in_order_and_a_completion_says_when)
{
    run(2, order_body);
}
END_TEST

static enum status gone(struct rank *self)
{
    struct stage stage;
    struct completion *promoted = NULL;
    struct completion *demoted = NULL;
    enum status st = open_stage(self, &stage, 8);
    struct tensor *host = counting(9);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct tensor *back = tensor_in(NULL, COUNT);

    if (st == STATUS_OK)
        st = executor_transfer(stage.executor, stage.transfers, host, there, &promoted, &self->err);
    if (st == STATUS_OK)
        st = executor_transfer(stage.executor, stage.transfers, there, back, &demoted, &self->err);
    EXPECT(st != STATUS_OK || atomic_load(&there->references) >= 3); /* ours, and one of each at least */
    EXPECT(st != STATUS_OK || atomic_load(&host->references) >= 2);
    tensor_release(host); /* the completions hold them */
    tensor_release(there);
    if (st == STATUS_OK)
        st = completion_wait(demoted, DEADLINE_NONE, &self->err);
    EXPECT(st != STATUS_OK || counts(back, 9, 1));
    completion_release(promoted);
    completion_release(demoted);
    EXPECT(atomic_load(&back->references) == 1);
    tensor_release(back);
    close_stage(&stage);
    return st;
}

START_TEST(both_sides_are_retained_until_the_copy_has_happened)
{
    run(1, gone);
}
END_TEST

/* One executor adds often, the other copies what that makes of it. */
static enum status fork_body(struct rank *self)
{
    struct stage stage;
    struct executor *other = NULL;
    struct completion *slow = NULL;
    struct completion *quick = NULL;
    struct completion *copied = NULL;
    enum status st = open_stage(self, &stage, 8);
    struct tensor *host = counting(1);
    struct tensor *sum = tensor_in(stage.device->memory, COUNT);
    struct tensor *term = tensor_in(stage.device->memory, COUNT);
    struct tensor *copy = tensor_in(stage.device->memory, COUNT);
    struct tensor *back = tensor_in(NULL, COUNT);
    struct addition often = {.sum = sum, .term = term, .times = 20};
    struct addition once = {.sum = copy, .term = sum, .times = 1};
    struct addition apart = {.sum = term, .term = term, .times = 0};

    if (st == STATUS_OK)
        st = executor_fork(stage.executor, &other, &self->err);
    if (st == STATUS_OK)
        st = move(&stage, host, sum, &self->err);
    if (st == STATUS_OK)
        st = move(&stage, host, term, &self->err);
    if (st == STATUS_OK)
        st = move(&stage, host, copy, &self->err);
    if (st == STATUS_OK)
        st = executor_submit_on(stage.executor, add, &often, &slow, &self->err);
    if (st == STATUS_OK) /* not ordered after it: does not wait for it */
        st = finish(executor_submit_on(other, add, &apart, &quick, &self->err), &quick, &self->err);
    EXPECT(st != STATUS_OK || completion_test(slow) == COMPLETION_PENDING);
    if (st == STATUS_OK)
        st = executor_after(other, slow, &self->err);
    if (st == STATUS_OK)
        st = finish(executor_submit_on(other, add, &once, &copied, &self->err), &copied, &self->err);
    EXPECT(st != STATUS_OK || completion_test(slow) == COMPLETION_DONE);
    if (st == STATUS_OK)
        st = move(&stage, copy, back, &self->err);
    EXPECT(st != STATUS_OK || counts(back, 22, 22)); /* itself, and 21 times the same */
    completion_release(slow);
    tensor_release(host);
    tensor_release(sum);
    tensor_release(term);
    tensor_release(copy);
    tensor_release(back);
    executor_release(other);
    close_stage(&stage);
    return st;
}

START_TEST(forked_executors_run_side_by_side_and_after_says_when_not)
{
    run(2, fork_body);
}
END_TEST

static enum status load_body(struct rank *self)
{
    struct stage stage;
    struct completion *completions[3] = {NULL};
    struct completion *flush = NULL;
    struct error err = {0};
    enum status st = open_stage(self, &stage, 3);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition twice = {.sum = there, .term = there, .times = 1};
    struct load load = executor_load(stage.executor);

    EXPECT(st != STATUS_OK || (load.pending == 0 && load.capacity == 3));
    for (int i = 0; i < 3 && st == STATUS_OK; i++)
        st = executor_submit_on(stage.executor, add, &twice, &completions[i], &self->err);
    EXPECT(st != STATUS_OK || executor_load(stage.executor).pending == 3);
    EXPECT(session_load(self->session).pending == 3);
    EXPECT(executor_submit_on(stage.executor, add, &twice, &flush, &err) == STATUS_OVERFLOW);
    EXPECT(strstr(err.text, "3 pieces of work are unfinished"));
    if (st == STATUS_OK)
        st = finish(executor_flush(stage.executor, &flush, &self->err), &flush, &self->err);
    for (int i = 0; i < 3; i++) {
        EXPECT(completion_test(completions[i]) == COMPLETION_DONE);
        completion_release(completions[i]);
    }
    EXPECT(executor_load(stage.executor).pending == 0);
    tensor_release(there);
    close_stage(&stage);
    return st;
}

START_TEST(load_counts_what_the_device_has_not_done)
{
    run(1, load_body);
}
END_TEST

static enum status nothing(void *context, struct error *err)
{
    (void)context;
    (void)err;
    return STATUS_OK;
}

static enum status kinds_body(struct rank *self)
{
    struct stage stage;
    struct executor *cores = NULL;
    struct completion *completion = NULL;
    struct error err = {0};
    struct addition none = {0};
    enum status st = open_stage(self, &stage, 1);

    if (st == STATUS_OK)
        st = executor_create(self->session, "cpu/0", 1, &cores, &self->err);
    EXPECT(executor_submit(stage.executor, nothing, NULL, &completion, &err) == STATUS_INVALID);
    EXPECT(strstr(err.text, "executor cuda:0.1"));
    EXPECT(executor_submit_on(cores, add, &none, &completion, &err) == STATUS_INVALID);
    EXPECT(strstr(err.text, "executor cpu/0"));
    EXPECT(executor_create_on(self->session, stage.devices, stage.device, 0, &cores, &err) == STATUS_INVALID);
    executor_release(cores);
    close_stage(&stage);
    return st;
}

START_TEST(work_for_the_wrong_kind_of_executor_is_refused)
{
    run(1, kinds_body);
}
END_TEST

/* Every rank promotes, adds on its device, demotes; the group sums what comes of it, ordered after. */
static enum status sum_body(struct rank *self)
{
    struct stage stage;
    struct completion *demoted = NULL;
    struct completion *summed = NULL;
    struct group *group = session_group(self->session, 1);
    enum status st = open_stage(self, &stage, 8);
    struct tensor *host = counting((uint32_t)self->rank);
    struct tensor *back = tensor_in(stage.device->pinned, COUNT);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition twice = {.sum = there, .term = there, .times = 1};
    struct completion *added = NULL;

    memset(back->data, 0, back->bytes);
    if (st == STATUS_OK)
        st = move(&stage, host, there, &self->err);
    if (st == STATUS_OK)
        st = executor_submit_on(stage.executor, add, &twice, &added, &self->err);
    if (st == STATUS_OK)
        st = executor_transfer(stage.executor, stage.transfers, there, back, &demoted, &self->err);
    if (st == STATUS_OK)
        st = group_after(group, demoted, &self->err);
    if (st == STATUS_OK)
        st = finish(group_all_reduce_sum(group, back, back, &summed, &self->err), &summed, &self->err);
    EXPECT(st != STATUS_OK || counts(back, 2 * (0 + 1 + 2), 2 * 3));
    completion_abandon(added);
    completion_abandon(demoted);
    tensor_release(host);
    tensor_release(back);
    tensor_release(there);
    close_stage(&stage);
    return st;
}

/* The same without the host: the group sums what lies on the devices, and the device goes on behind it. */
static enum status sum_there_body(struct rank *self)
{
    struct stage stage;
    struct completion *added = NULL;
    struct completion *summed = NULL;
    struct completion *demoted = NULL;
    struct group *group = session_group(self->session, 1);
    enum status st = open_stage(self, &stage, 8);
    struct tensor *host = counting((uint32_t)self->rank);
    struct tensor *back = tensor_in(NULL, COUNT);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition twice = {.sum = there, .term = there, .times = 1};

    if (st == STATUS_OK)
        st = move(&stage, host, there, &self->err);
    if (st == STATUS_OK)
        st = executor_submit_on(stage.executor, add, &twice, &added, &self->err);
    if (st == STATUS_OK)
        st = group_after(group, added, &self->err);
    if (st == STATUS_OK)
        st = group_all_reduce_sum(group, there, there, &summed, &self->err);
    if (st == STATUS_OK)
        st = executor_after(stage.executor, summed, &self->err);
    if (st == STATUS_OK)
        st = finish(executor_transfer(stage.executor, stage.transfers, there, back, &demoted, &self->err), &demoted,
                    &self->err);
    EXPECT(st != STATUS_OK || counts(back, 2 * (0 + 1 + 2), 2 * 3));
    completion_abandon(added);
    completion_abandon(summed);
    tensor_release(host);
    tensor_release(back);
    tensor_release(there);
    close_stage(&stage);
    return st;
}

static rank_body *const sums[] = {sum_body, sum_there_body};

START_TEST(a_sum_of_the_group_waits_for_the_device)
{
    static const int members[] = {2, 0, 1};
    const struct group_spec group = {.id = 1,
                                     .name = "all",
                                     .size = 3,
                                     .members = members,
                                     .operations = 1u << OPERATION_ALL_REDUCE_SUM,
                                     .dtypes = 1u << DTYPE_U32,
                                     .max_bytes = 1 << 20};
    struct ranks ranks = {.size = 3, .body = sums[_i], .groups = &group, .group_count = 1};

    run_all(&ranks);
    ranks_check(&ranks);
}
END_TEST

static enum status elsewhere_body(struct rank *self)
{
    struct stage stage;
    enum status st = open_stage(self, &stage, 8);
    struct tensor *host = counting(0);
    struct tensor *there;

    if (st == STATUS_OK)
        st = stage.devices->open(1, &devices[MOST_RANKS - 1], &self->err);
    there = tensor_in(devices[MOST_RANKS - 1]->memory, COUNT);
    if (st == STATUS_OK)
        st = move(&stage, host, there, &self->err);
    tensor_release(host);
    tensor_release(there);
    close_stage(&stage);
    return st;
}

START_TEST(a_device_that_is_not_one_of_the_ways_is_refused_by_name)
{
    struct ranks ranks = {.size = 1, .body = elsewhere_body};

    run_all(&ranks);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_UNSUPPORTED);
    ck_assert_msg(strstr(ranks.rank[0].err.text, "executor cuda:0.1: no way from host to cuda:1"), "%s",
                  ranks.rank[0].err.text);
}
END_TEST

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
    enum status st = open_stage(self, &stage, 8);
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
    close_stage(&stage);
    return st;
}

START_TEST(work_that_fails_ends_the_session_and_keeps_what_the_device_still_writes)
{
    struct ranks ranks = {.size = 1, .body = failing_body};

    run_all(&ranks);
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
    enum status st = open_stage(self, &stage, 8);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition often = {.sum = there, .term = there, .times = 20};

    if (st == STATUS_OK)
        st = executor_submit_on(stage.executor, add, &often, &completion, &self->err);
    EXPECT(completion_wait(completion, clock_ns() + NS_PER_MS, &err) == STATUS_TIMEOUT);
    EXPECT(completion_test(completion) == COMPLETION_PENDING);
    if (st == STATUS_OK)
        st = finish(STATUS_OK, &completion, &self->err);
    tensor_release(there);
    close_stage(&stage);
    return st;
}

START_TEST(a_deadline_of_the_callers_tears_nothing_down)
{
    run(1, deadline_body);
}
END_TEST

/* The device takes longer than timeout: the session fails, and the tensor is held until the device lets go of it. */
static enum status stuck_body(struct rank *self)
{
    struct stage stage;
    struct completion *completion = NULL;
    struct error err = {0};
    enum status st = open_stage(self, &stage, 8);
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
    close_stage(&stage);
    return STATUS_TIMEOUT;
}

START_TEST(a_device_that_takes_longer_than_timeout_is_named)
{
    struct ranks ranks = {.size = 1, .body = stuck_body, .session = {.timeout_ns = 200 * NS_PER_MS}};

    run_all(&ranks);
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
    enum status st = open_stage(self, &stage, 8);
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
    close_stage(&stage);
    return st;
}

START_TEST(quarantined_work_of_a_device_ends_when_the_device_is_done)
{
    struct ranks ranks = {.size = 1,
                          .body = orphan_body,
                          .session = {.timeout_ns = 200 * NS_PER_MS, .on_timeout = ON_TIMEOUT_QUARANTINE}};

    run_all(&ranks);
    ranks_check(&ranks);
}
END_TEST

static enum status lost_body(struct rank *self)
{
    struct stage stage;
    struct completion *completion = NULL;
    enum status st = open_stage(self, &stage, 32);
    struct tensor *there = tensor_in(stage.device->memory, COUNT);
    struct addition twice = {.sum = there, .term = there, .times = 1};

    for (int i = 0; st == STATUS_OK && i < 32; i++)
        st = finish(executor_submit_on(stage.executor, add, &twice, &completion, &self->err), &completion, &self->err);
    tensor_release(there);
    close_stage(&stage);
    return st;
}

START_TEST(a_device_that_fails_fails_the_session_in_its_own_words)
{
    struct ranks ranks = {.size = 1, .body = lost_body};

    run_all(&ranks);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_LOST);
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

static TCase *machine(Suite *suite, const char *name, void (*prepare)(void))
{
    TCase *tests = tcase_create(name);

    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, prepare, NULL);
    suite_add_tcase(suite, tests);
    return tests;
}

int main(void)
{
    Suite *suite = suite_create("executor");
    TCase *tests = machine(suite, "short", lag_short);
    TCase *late = machine(suite, "long", lag_long);
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tests, work_is_done_in_order_and_a_completion_says_when);
    tcase_add_test(tests, both_sides_are_retained_until_the_copy_has_happened);
    tcase_add_test(tests, forked_executors_run_side_by_side_and_after_says_when_not);
    tcase_add_test(tests, load_counts_what_the_device_has_not_done);
    tcase_add_test(tests, work_for_the_wrong_kind_of_executor_is_refused);
    tcase_add_loop_test(tests, a_sum_of_the_group_waits_for_the_device, 0, sizeof sums / sizeof *sums);
    tcase_add_test(tests, a_device_that_is_not_one_of_the_ways_is_refused_by_name);
    tcase_add_test(tests, work_that_fails_ends_the_session_and_keeps_what_the_device_still_writes);
    tcase_add_test(tests, a_deadline_of_the_callers_tears_nothing_down);
    tcase_add_test(late, a_device_that_takes_longer_than_timeout_is_named);
    tcase_add_test(late, quarantined_work_of_a_device_ends_when_the_device_is_done);
    tcase_add_test(machine(suite, "lost", lose), a_device_that_fails_fails_the_session_in_its_own_words);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
