/* Executors and completions over real ranks: sends and sums behind their producers, compute behind its input, large
 * sends that nobody has asked for yet. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/executor.h"
#include "comm/group.h"
#include "comm/route.h"
#include "tests/mpi/world.h"

enum { LARGE = 64 << 20, LARGE_ROUTE = 2, SMALL_ROUTE = 3, SUM_COUNT = 30000 };

static struct world world;

static const struct tensor_spec large_bytes[] = {
    {.role = "bytes", .dtype = DTYPE_U8, .ndim = 1, .dim = {{1, LARGE, -1}}}};
static const struct tensor_spec small_words[] = {
    {.role = "words", .dtype = DTYPE_U32, .ndim = 1, .dim = {{1, 1 << 16, -1}}}};
static const struct route_spec routes[] = {
    {.id = LARGE_ROUTE, .name = "large", .from = 0, .to = 1, .tensor_count = 1, .tensors = large_bytes, .depth = 1},
    {.id = SMALL_ROUTE, .name = "small", .from = 0, .to = 1, .tensor_count = 1, .tensors = small_words, .depth = 2}};

/* The first failure of what a test does; everything after it is left out. */
struct doing {
    enum status st;
    struct error err;
    bool right;
};

static void wait_for(struct doing *doing, struct completion *completion)
{
    if (doing->st == STATUS_OK)
        doing->st = completion_wait(completion, DEADLINE_NONE, &doing->err);
    completion_abandon(completion);
}

static void expect(struct doing *doing, bool right)
{
    doing->right = doing->right && right;
}

static void done(const struct doing *doing)
{
    ck_assert_msg(doing->st == STATUS_OK, "rank %d: %s", world.rank, doing->err.text);
    ck_assert_msg(doing->right, "rank %d: a value is wrong", world.rank);
}

/* Writes value to where[count], once it may. */
struct piece {
    uint32_t *where;
    size_t count;
    uint32_t value;
    atomic_int open;
};

static enum status write_values(void *context, struct error *err)
{
    struct piece *piece = context;

    while (!atomic_load(&piece->open)) {
        session_progress(world.session);
        clock_sleep_ns(100 * NS_PER_US);
    }
    for (size_t i = 0; i < piece->count; i++)
        piece->where[i] = piece->value;
    return session_check(world.session, err);
}

static struct bundle *acquire(struct doing *doing, uint32_t id, enum dtype dtype, uint64_t count)
{
    struct shape shape = {1, {count}};
    struct bundle *bundle = NULL;

    if (doing->st == STATUS_OK)
        doing->st = route_acquire(session_route(world.session, id), &bundle, &doing->err);
    if (doing->st == STATUS_OK)
        doing->st = tensor_reshape(bundle->tensor[0], dtype, &shape, &doing->err);
    return bundle;
}

static struct completion *post_send(struct doing *doing, uint32_t id, struct bundle *bundle)
{
    struct completion *completion = NULL;

    if (doing->st == STATUS_OK)
        doing->st = route_send(session_route(world.session, id), bundle, 0, &completion, &doing->err);
    return completion;
}

static struct completion *post_receive(struct doing *doing, uint32_t id, uint64_t count)
{
    struct shape shape = {1, {count}};
    struct completion *completion = NULL;

    if (doing->st == STATUS_OK)
        doing->st = route_receive(session_route(world.session, id), &shape, NULL, NULL, 0, &completion, &doing->err);
    return completion;
}

/* Rank 1 asks for the large bundle only when a message has come that rank 0 posts after it. */
START_TEST(a_large_send_that_nobody_has_asked_for_returns_at_once)
{
    struct doing doing = {.right = true};
    struct completion *large = NULL;

    if (world.rank == 0) {
        struct bundle *bundle = acquire(&doing, LARGE_ROUTE, DTYPE_U8, LARGE);

        if (doing.st == STATUS_OK)
            memset(bundle->tensor[0]->data, 0x5e, LARGE);
        large = post_send(&doing, LARGE_ROUTE, bundle);
        if (large)
            expect(&doing, completion_wait(large, clock_ns() + NS_PER_MS, &doing.err) == STATUS_TIMEOUT &&
                               completion_test(large) == COMPLETION_PENDING);
        wait_for(&doing, post_send(&doing, SMALL_ROUTE, acquire(&doing, SMALL_ROUTE, DTYPE_U32, 1)));
        wait_for(&doing, large);
    } else if (world.rank == 1) {
        struct completion *small = post_receive(&doing, SMALL_ROUTE, 1);

        if (doing.st == STATUS_OK)
            doing.st = completion_wait(small, DEADLINE_NONE, &doing.err);
        if (doing.st == STATUS_OK)
            route_return(session_route(world.session, SMALL_ROUTE), route_take(small, NULL));
        completion_abandon(small);
        large = post_receive(&doing, LARGE_ROUTE, LARGE);
        if (doing.st == STATUS_OK)
            doing.st = completion_wait(large, DEADLINE_NONE, &doing.err);
        if (doing.st == STATUS_OK) {
            struct bundle *bundle = route_take(large, NULL);

            for (size_t i = 0; i < LARGE; i += 4093)
                expect(&doing, bundle->tensor[0]->data[i] == 0x5e);
            route_return(session_route(world.session, LARGE_ROUTE), bundle);
        }
        completion_abandon(large);
    }
    done(&doing);
}
END_TEST

struct consumer {
    struct completion *received;
    uint32_t sum;
};

static enum status consume(void *context, struct error *err)
{
    struct consumer *consumer = context;
    struct bundle *bundle = route_take(consumer->received, NULL);
    const uint32_t *words = (const uint32_t *)(const void *)bundle->tensor[0]->data;

    for (size_t i = 0; i < bundle->tensor[0]->bytes / 4; i++)
        consumer->sum += words[i];
    route_return(session_route(world.session, SMALL_ROUTE), bundle);
    return session_check(world.session, err);
}

/* Rank 0: a producer, and the send behind it, posted before the producer may work.  Rank 1: compute behind the receipt,
 * ordered before anything has come, on a fork of an executor that is busy. */
static void produce(struct doing *doing, struct executor *executor)
{
    struct bundle *bundle = acquire(doing, SMALL_ROUTE, DTYPE_U32, 50000);
    struct piece piece = {.count = 50000, .value = 3};
    struct completion *producer = NULL;
    struct completion *sent = NULL;
    uint64_t frames = session_counters(world.session).frames_sent;

    if (doing->st != STATUS_OK)
        return;
    piece.where = (uint32_t *)(void *)bundle->tensor[0]->data;
    doing->st = executor_submit(executor, write_values, &piece, &producer, &doing->err);
    if (doing->st == STATUS_OK)
        doing->st = route_after(session_route(world.session, SMALL_ROUTE), producer, &doing->err);
    completion_abandon(producer);
    sent = post_send(doing, SMALL_ROUTE, bundle);
    for (int i = 0; i < 30 && doing->st == STATUS_OK; i++) {
        session_progress(world.session);
        expect(doing, completion_test(sent) == COMPLETION_PENDING);
        expect(doing, session_counters(world.session).frames_sent == frames);
        clock_sleep_ns(NS_PER_MS);
    }
    atomic_store(&piece.open, 1);
    wait_for(doing, sent);
}

static void consume_behind(struct doing *doing, struct executor *busy)
{
    struct consumer consumer = {0};
    uint32_t word = 0;
    struct piece piece = {.where = &word, .count = 1, .value = 1};
    struct executor *executor = NULL;
    struct completion *held = NULL;
    struct completion *consumed = NULL;

    doing->st = executor_fork(busy, &executor, &doing->err);
    consumer.received = post_receive(doing, SMALL_ROUTE, 50000);
    if (doing->st == STATUS_OK)
        doing->st = executor_submit(busy, write_values, &piece, &held, &doing->err);
    if (doing->st == STATUS_OK)
        doing->st = executor_after(executor, consumer.received, &doing->err);
    if (doing->st == STATUS_OK)
        doing->st = executor_submit(executor, consume, &consumer, &consumed, &doing->err);
    wait_for(doing, consumed);
    expect(doing, consumer.sum == 3 * 50000);
    expect(doing, executor_load(executor).pending == 0 && executor_load(busy).pending == 1);
    completion_abandon(consumer.received);
    atomic_store(&piece.open, 1);
    wait_for(doing, held);
    expect(doing, word == 1 && session_load(world.session).pending == 0);
    executor_release(executor);
}

START_TEST(transfers_and_compute_wait_for_each_other)
{
    struct doing doing = {.right = true};
    struct executor *executor = NULL;

    doing.st = executor_create(world.session, "cpu/0", 2, &executor, &doing.err);
    if (doing.st == STATUS_OK && world.rank == 0)
        produce(&doing, executor);
    else if (doing.st == STATUS_OK && world.rank == 1)
        consume_behind(&doing, executor);
    executor_release(executor);
    done(&doing);
}
END_TEST

/* Every rank's producer first, then the vote, then payload; tensors and completions are given up at once. */
START_TEST(a_sum_begins_after_its_producers)
{
    struct doing doing = {.right = true};
    struct group *group = session_group(world.session, 1);
    struct shape shape = {1, {SUM_COUNT}};
    struct tensor *tensor = NULL;
    struct piece piece = {.count = SUM_COUNT, .value = (uint32_t)world.rank + 1};
    struct executor *executor = NULL;
    struct completion *producer = NULL;
    struct completion *sum = NULL;
    uint64_t frames = session_counters(world.session).frames_sent;

    doing.st = tensor_create(DTYPE_U32, &shape, &tensor, &doing.err);
    if (doing.st == STATUS_OK)
        doing.st = executor_create(world.session, "cpu/0", 2, &executor, &doing.err);
    piece.where = tensor ? (uint32_t *)(void *)tensor->data : NULL;
    if (doing.st == STATUS_OK)
        doing.st = executor_submit(executor, write_values, &piece, &producer, &doing.err);
    if (doing.st == STATUS_OK)
        doing.st = group_after(group, producer, &doing.err);
    if (doing.st == STATUS_OK)
        doing.st = group_all_reduce_sum(group, tensor, tensor, &sum, &doing.err);
    for (int i = 0; i < 20 && doing.st == STATUS_OK; i++) {
        session_progress(world.session);
        expect(&doing, completion_test(sum) == COMPLETION_PENDING);
        expect(&doing, session_counters(world.session).frames_sent == frames);
        clock_sleep_ns(NS_PER_MS);
    }
    atomic_store(&piece.open, 1);
    wait_for(&doing, sum);
    for (size_t i = 0; doing.st == STATUS_OK && i < SUM_COUNT; i++)
        expect(&doing, piece.where[i] == (uint32_t)(world.size * (world.size + 1) / 2));
    completion_abandon(producer);
    executor_release(executor);
    tensor_release(tensor);
    done(&doing);
}
END_TEST

static void meet(void)
{
    struct doing doing = {.right = true};
    struct completion *completion = NULL;

    doing.st = group_barrier(session_group(world.session, 1), &completion, &doing.err);
    wait_for(&doing, completion);
    done(&doing);
}

int main(void)
{
    Suite *suite = suite_create("mpi executor");
    TCase *tests = tcase_create("mpi executor");
    struct error err = {0};
    enum status st = world_start(&world, &err);

    if (st == STATUS_OK)
        st = world_build(&world, routes, world.size > 1 ? 2 : 0, &err);
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, NULL, meet);
    if (world.size > 1) {
        tcase_add_test(tests, a_large_send_that_nobody_has_asked_for_returns_at_once);
        tcase_add_test(tests, transfers_and_compute_wait_for_each_other);
    }
    tcase_add_test(tests, a_sum_begins_after_its_producers);
    suite_add_tcase(suite, tests);
    return world_run(&world, suite, st, &err);
}
