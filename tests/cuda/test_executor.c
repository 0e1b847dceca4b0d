/* Queues of a device as executors: order, completions, tensors promoted and demoted.  The stand-in rests
 * before each piece of work, so that whatever is looked at too early is wrong. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/cuda/stage.h"
#include "tests/suite.h"

static void run(int size, rank_body *body)
{
    struct ranks ranks = {.size = size, .body = body};

    stage_run(&ranks);
    ranks_check(&ranks);
}

/* A round trip: numbers of the host, what they become on the device, and where that is seen. */
struct trip {
    struct tensor *host;
    struct tensor *there;
    struct tensor *back; /* zeros */
    struct addition twice;
};

static void trip_begin(struct trip *trip, const struct stage *stage, uint32_t first)
{
    trip->host = counting(first);
    trip->there = tensor_in(stage->device->memory, COUNT);
    trip->back = tensor_in(stage->device->pinned, COUNT);
    trip->twice = (struct addition){.sum = trip->there, .term = trip->there, .times = 1};
    memset(trip->back->data, 0, trip->back->bytes);
}

static void trip_end(struct trip *trip)
{
    tensor_release(trip->host);
    tensor_release(trip->there);
    tensor_release(trip->back);
}

static enum status order_body(struct rank *self)
{
    struct stage stage;
    struct trip trip;
    struct completion *completions[4] = {NULL};
    enum status st = stage_open(self, &stage, 8);

    trip_begin(&trip, &stage, 5);
    if (st == STATUS_OK)
        st = executor_transfer(stage.executor, stage.transfers, trip.host, trip.there, &completions[0], &self->err);
    for (int i = 1; i <= 2 && st == STATUS_OK; i++)
        st = executor_submit_on(stage.executor, add, &trip.twice, &completions[i], &self->err);
    if (st == STATUS_OK)
        st = executor_transfer(stage.executor, stage.transfers, trip.there, trip.back, &completions[3], &self->err);
    EXPECT(st != STATUS_OK || completion_test(completions[3]) == COMPLETION_PENDING);
    EXPECT(!counts(trip.back, 20, 4)); /* meaningless before completion */
    if (st == STATUS_OK)
        st = completion_wait(completions[3], DEADLINE_NONE, &self->err);
    EXPECT(st != STATUS_OK || counts(trip.back, 20, 4));
    for (int i = 0; i < 4; i++) {
        EXPECT(completion_test(completions[i]) == COMPLETION_DONE);
        completion_release(completions[i]);
    }
    trip_end(&trip);
    stage_close(&stage);
    return st;
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
    enum status st = stage_open(self, &stage, 8);
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
    stage_close(&stage);
    return st;
}

START_TEST(both_sides_are_retained_until_the_copy_has_happened)
{
    run(1, gone);
}
END_TEST

/* Two queues of one device, and tensors that both use. */
struct pair {
    struct stage stage;
    struct executor *other;
    struct tensor *host; /* 1, 2, 3 ... */
    struct tensor *sum;  /* the same on the device, as the next two */
    struct tensor *term;
    struct tensor *copy;
    struct tensor *back;
};

static enum status pair_open(struct rank *self, struct pair *pair)
{
    enum status st = stage_open(self, &pair->stage, 8);

    pair->other = NULL;
    pair->host = counting(1);
    pair->sum = tensor_in(pair->stage.device->memory, COUNT);
    pair->term = tensor_in(pair->stage.device->memory, COUNT);
    pair->copy = tensor_in(pair->stage.device->memory, COUNT);
    pair->back = tensor_in(NULL, COUNT);
    if (st == STATUS_OK)
        st = executor_fork(pair->stage.executor, &pair->other, &self->err);
    if (st == STATUS_OK)
        st = move(&pair->stage, pair->host, pair->sum, &self->err);
    if (st == STATUS_OK)
        st = move(&pair->stage, pair->host, pair->term, &self->err);
    if (st == STATUS_OK)
        st = move(&pair->stage, pair->host, pair->copy, &self->err);
    return st;
}

static void pair_close(struct pair *pair)
{
    tensor_release(pair->host);
    tensor_release(pair->sum);
    tensor_release(pair->term);
    tensor_release(pair->copy);
    tensor_release(pair->back);
    executor_release(pair->other);
    stage_close(&pair->stage);
}

/* One executor adds often, the other copies what that makes of it. */
static enum status fork_body(struct rank *self)
{
    struct pair pair;
    struct completion *slow = NULL;
    struct completion *quick = NULL;
    struct completion *copied = NULL;
    enum status st = pair_open(self, &pair);
    struct addition often = {.sum = pair.sum, .term = pair.term, .times = 20};
    struct addition once = {.sum = pair.copy, .term = pair.sum, .times = 1};
    struct addition apart = {.sum = pair.term, .term = pair.term, .times = 0};

    if (st == STATUS_OK)
        st = executor_submit_on(pair.stage.executor, add, &often, &slow, &self->err);
    if (st == STATUS_OK) /* not ordered after it: does not wait for it */
        st = finish(executor_submit_on(pair.other, add, &apart, &quick, &self->err), &quick, &self->err);
    EXPECT(st != STATUS_OK || completion_test(slow) == COMPLETION_PENDING);
    if (st == STATUS_OK)
        st = executor_after(pair.other, slow, &self->err);
    if (st == STATUS_OK)
        st = finish(executor_submit_on(pair.other, add, &once, &copied, &self->err), &copied, &self->err);
    EXPECT(st != STATUS_OK || completion_test(slow) == COMPLETION_DONE);
    if (st == STATUS_OK)
        st = move(&pair.stage, pair.copy, pair.back, &self->err);
    EXPECT(st != STATUS_OK || counts(pair.back, 22, 22)); /* itself, and 21 times the same */
    completion_release(slow);
    pair_close(&pair);
    return st;
}

START_TEST(forked_executors_run_side_by_side_and_after_says_when_not)
{
    run(2, fork_body);
}
END_TEST

/* A piece of work that leaves word of having been queued. */
struct noted {
    struct addition addition;
    bool queued;
};

static enum status note(void *context, struct memory *memory, struct error *err)
{
    struct noted *noted = context;

    noted->queued = true;
    return add(&noted->addition, memory, err);
}

/* sum doubles often on the first queue, then a copy of it on the second, then the first again: all is queued while the
 * first piece still runs, and nobody asks in between. */
static enum status chain_body(struct rank *self)
{
    struct pair pair;
    struct completion *promoted = NULL;
    struct completion *slow = NULL;
    struct completion *middle = NULL;
    struct completion *end = NULL;
    enum status st = pair_open(self, &pair);
    struct noted first = {{.sum = pair.sum, .term = pair.term, .times = 100}, false};
    struct noted second = {{.sum = pair.copy, .term = pair.sum, .times = 1}, false};
    struct noted third = {{.sum = pair.sum, .term = pair.copy, .times = 1}, false};

    if (st == STATUS_OK) /* behind a transfer, too */
        st = executor_transfer(pair.other, pair.stage.transfers, pair.host, pair.term, &promoted, &self->err);
    if (st == STATUS_OK)
        st = executor_after(pair.stage.executor, promoted, &self->err);
    if (st == STATUS_OK)
        st = executor_submit_on(pair.stage.executor, note, &first, &slow, &self->err);
    EXPECT(first.queued);
    st = finish(st, &promoted, &self->err);
    if (st == STATUS_OK)
        st = executor_after(pair.other, slow, &self->err);
    if (st == STATUS_OK)
        st = executor_submit_on(pair.other, note, &second, &middle, &self->err);
    if (st == STATUS_OK)
        st = executor_after(pair.stage.executor, middle, &self->err);
    if (st == STATUS_OK)
        st = executor_submit_on(pair.stage.executor, note, &third, &end, &self->err);
    EXPECT(first.queued && second.queued && third.queued);
    st = finish(st, &end, &self->err);
    if (st == STATUS_OK)
        st = move(&pair.stage, pair.sum, pair.back, &self->err);
    EXPECT(st != STATUS_OK ||
           counts(pair.back, 101 + 102, 101 + 102)); /* itself and 100 more; and that with the copy's one */
    completion_abandon(slow);
    completion_abandon(middle);
    pair_close(&pair);
    return st;
}

START_TEST(queues_of_one_device_wait_for_each_other_without_the_host)
{
    run(2, chain_body);
}
END_TEST

static enum status load_body(struct rank *self)
{
    struct stage stage;
    struct completion *completions[3] = {NULL};
    struct completion *flush = NULL;
    struct error err = {0};
    enum status st = stage_open(self, &stage, 3);
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
    stage_close(&stage);
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
    enum status st = stage_open(self, &stage, 1);

    if (st == STATUS_OK)
        st = executor_create(self->session, "cpu/0", 1, &cores, &self->err);
    EXPECT(executor_submit(stage.executor, nothing, NULL, &completion, &err) == STATUS_INVALID);
    EXPECT(strstr(err.text, "executor cuda:0.1"));
    EXPECT(executor_submit_on(cores, add, &none, &completion, &err) == STATUS_INVALID);
    EXPECT(strstr(err.text, "executor cpu/0"));
    EXPECT(executor_create_on(self->session, stage.devices, stage.device, 0, &cores, &err) == STATUS_INVALID);
    executor_release(cores);
    stage_close(&stage);
    return st;
}

START_TEST(work_for_the_wrong_kind_of_executor_is_refused)
{
    run(1, kinds_body);
}
END_TEST

/* Every rank promotes and adds on its device. */
static enum status double_there(struct stage *stage, struct trip *trip, struct completion **ret, struct error *err)
{
    enum status st = move(stage, trip->host, trip->there, err);

    return st == STATUS_OK ? executor_submit_on(stage->executor, add, &trip->twice, ret, err) : st;
}

/* It demotes what it has; the group sums what comes of it, ordered after. */
static enum status sum_body(struct rank *self)
{
    struct stage stage;
    struct trip trip;
    struct completion *added = NULL;
    struct completion *demoted = NULL;
    struct completion *summed = NULL;
    struct group *group = session_group(self->session, 1);
    enum status st = stage_open(self, &stage, 8);

    trip_begin(&trip, &stage, (uint32_t)self->rank);
    if (st == STATUS_OK)
        st = double_there(&stage, &trip, &added, &self->err);
    if (st == STATUS_OK)
        st = executor_transfer(stage.executor, stage.transfers, trip.there, trip.back, &demoted, &self->err);
    if (st == STATUS_OK)
        st = group_after(group, demoted, &self->err);
    if (st == STATUS_OK)
        st = finish(group_all_reduce_sum(group, trip.back, trip.back, &summed, &self->err), &summed, &self->err);
    EXPECT(st != STATUS_OK || counts(trip.back, 2 * (0 + 1 + 2), 2 * 3));
    completion_abandon(added);
    completion_abandon(demoted);
    trip_end(&trip);
    stage_close(&stage);
    return st;
}

/* The same without the host: the group sums what lies on the devices, and the device goes on behind it. */
static enum status sum_there_body(struct rank *self)
{
    struct stage stage;
    struct trip trip;
    struct completion *added = NULL;
    struct completion *summed = NULL;
    struct group *group = session_group(self->session, 1);
    enum status st = stage_open(self, &stage, 8);

    trip_begin(&trip, &stage, (uint32_t)self->rank);
    if (st == STATUS_OK)
        st = double_there(&stage, &trip, &added, &self->err);
    if (st == STATUS_OK)
        st = group_after(group, added, &self->err);
    if (st == STATUS_OK)
        st = group_all_reduce_sum(group, trip.there, trip.there, &summed, &self->err);
    if (st == STATUS_OK)
        st = executor_after(stage.executor, summed, &self->err);
    if (st == STATUS_OK)
        st = move(&stage, trip.there, trip.back, &self->err);
    EXPECT(st != STATUS_OK || counts(trip.back, 2 * (0 + 1 + 2), 2 * 3));
    completion_abandon(added);
    completion_abandon(summed);
    trip_end(&trip);
    stage_close(&stage);
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

    stage_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

static enum status elsewhere_body(struct rank *self)
{
    struct stage stage;
    struct device *other = NULL;
    enum status st = stage_open(self, &stage, 8);
    struct tensor *host = counting(0);
    struct tensor *there;

    if (st == STATUS_OK)
        st = stage_open_other(&stage, 1, &other, &self->err);
    EXPECT(other);
    there = tensor_in(other->memory, COUNT);
    if (st == STATUS_OK)
        st = move(&stage, host, there, &self->err);
    tensor_release(host);
    tensor_release(there);
    stage_close(&stage);
    return st;
}

START_TEST(a_device_that_is_not_one_of_the_ways_is_refused_by_name)
{
    struct ranks ranks = {.size = 1, .body = elsewhere_body};

    stage_run(&ranks);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_UNSUPPORTED);
    ck_assert_msg(strstr(ranks.rank[0].err.text, "executor cuda:0.1: no way from host to cuda:1"), "%s",
                  ranks.rank[0].err.text);
}
END_TEST

static void lag_short(void)
{
    (void)setenv("FERRY_STANDIN_LAG", "3000", 1);
}

int main(void)
{
    Suite *suite = suite_create("executor");
    TCase *tests = stage_machine(suite, "short", lag_short);

    tcase_add_test(tests, work_is_done_in_order_and_a_completion_says_when);
    tcase_add_test(tests, both_sides_are_retained_until_the_copy_has_happened);
    tcase_add_test(tests, forked_executors_run_side_by_side_and_after_says_when_not);
    tcase_add_test(tests, queues_of_one_device_wait_for_each_other_without_the_host);
    tcase_add_test(tests, load_counts_what_the_device_has_not_done);
    tcase_add_test(tests, work_for_the_wrong_kind_of_executor_is_refused);
    tcase_add_loop_test(tests, a_sum_of_the_group_waits_for_the_device, 0, sizeof sums / sizeof *sums);
    tcase_add_test(tests, a_device_that_is_not_one_of_the_ways_is_refused_by_name);
    return suite_run(suite);
}
