/* Bundles under way over loopback: ends that cross, run ahead, are given up for a while, or never come. */
#include "tests/loop/ranks.h"

#include <string.h>

#include "base/clock.h"
#include "tests/suite.h"

static const struct tensor_spec large[] = {{"block", DTYPE_U8, 1, {{0, 16 << 20, -1}}}};

#define ROUTE(number, a, b, bundles)                                                                                   \
    {                                                                                                                  \
        .id = (number), .name = "route/" #number, .from = (a), .to = (b), .tensor_count = 1, .tensors = large,         \
        .depth = (bundles)                                                                                             \
    }

static void run(struct ranks *ranks, const struct route_spec *routes, size_t count, rank_body *body)
{
    ranks->size = 2;
    ranks->routes = routes;
    ranks->route_count = count;
    ranks->body = body;
    ranks_run(ranks);
}

static void fill(struct tensor *tensor, int seed)
{
    for (size_t k = 0; k < tensor->bytes; k++)
        tensor->data[k] = (unsigned char)(k * 7 + k / 256 + (size_t)seed);
}

static bool filled(const struct tensor *tensor, int seed)
{
    for (size_t k = 0; k < tensor->bytes; k++) {
        if (tensor->data[k] != (unsigned char)(k * 7 + k / 256 + (size_t)seed))
            return false;
    }
    return true;
}

/* B165: both post their sends before either receives. */
static enum status crossing_body(struct rank *self)
{
    static const uint64_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};
    struct route *out = session_route(self->session, self->rank ? 2 : 1);
    struct route *in = session_route(self->session, self->rank ? 1 : 2);
    enum status st = STATUS_OK;

    for (size_t i = 0; i < 4 && st == STATUS_OK; i++) {
        struct shape shape = {1, {sizes[i]}};
        struct bundle *bundle = NULL;
        struct completion *sent = NULL;
        struct completion *received = NULL;

        st = route_acquire(out, &bundle, &self->err);
        if (st != STATUS_OK)
            return st;
        (void)tensor_reshape(bundle->tensor[0], DTYPE_U8, &shape, &self->err);
        fill(bundle->tensor[0], self->rank);
        st = route_send(out, bundle, i, &sent, &self->err);
        if (st == STATUS_OK)
            st = route_receive(in, &shape, NULL, NULL, i, &received, &self->err);
        if (st == STATUS_OK)
            st = completion_wait(received, DEADLINE_NONE, &self->err);
        if (st == STATUS_OK) {
            bundle = route_take(received, NULL);
            EXPECT(filled(bundle->tensor[0], !self->rank));
            route_return(in, bundle);
        }
        completion_abandon(received);
        st = finish(st, &sent, &self->err);
    }
    return st;
}

START_TEST(both_neighbours_may_send_first)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, 1), ROUTE(2, 1, 0, 1)};
    struct ranks ranks = {0};

    run(&ranks, routes, 1 + 1, crossing_body);
    ranks_check(&ranks);
}
END_TEST

/* B171: the sender runs ahead of a slow receiver, as far as its pool goes and no further. */
static enum status ahead_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);
    struct shape shape = {1, {100000}};
    struct completion *sent[8] = {NULL};
    enum status st = STATUS_OK;

    for (int i = 0; i < 8 && st == STATUS_OK; i++) {
        struct bundle *bundle = NULL;
        struct completion *received = NULL;

        if (!self->rank) {
            st = route_acquire(route, &bundle, &self->err);
            if (st != STATUS_OK)
                break;
            (void)tensor_reshape(bundle->tensor[0], DTYPE_U8, &shape, &self->err);
            fill(bundle->tensor[0], i * 31);
            st = route_send(route, bundle, 0, &sent[i], &self->err);
            continue;
        }
        clock_sleep_ns(20 * NS_PER_MS);
        st = route_receive(route, &shape, NULL, NULL, 0, &received, &self->err);
        if (st == STATUS_OK)
            st = completion_wait(received, DEADLINE_NONE, &self->err);
        if (st == STATUS_OK) {
            bundle = route_take(received, NULL);
            EXPECT(filled(bundle->tensor[0], i * 31));
            route_return(route, bundle);
        }
        completion_abandon(received);
    }
    for (int i = 0; i < 8; i++)
        st = sent[i] ? finish(st, &sent[i], &self->err) : st;
    return st;
}

START_TEST(sender_ahead_of_a_slow_receiver_keeps_every_pattern)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, 2)};
    struct ranks ranks = {0};

    run(&ranks, routes, 1, ahead_body);
    ranks_check(&ranks);
}
END_TEST

/* A caller's deadline ends the wait, not the transfer: its memory stays, and it completes later. */
static enum status deadline_body(struct rank *self)
{
    struct route *route = session_route(self->session, 11);
    struct group *pair = session_group(self->session, 7);
    struct shape shape = {1, {1 << 20}};
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    struct completion *barrier = NULL;
    enum status st = STATUS_OK;

    if (!self->rank) {
        uint64_t start = clock_ns();

        EXPECT(route_acquire(route, &bundle, &self->err) == STATUS_OK);
        (void)tensor_reshape(bundle->tensor[0], DTYPE_U8, &shape, &self->err);
        fill(bundle->tensor[0], 3);
        st = route_send(route, bundle, 0, &completion, &self->err);
        EXPECT(clock_ns() - start < 2 * NS_PER_S);
        EXPECT(completion_wait(completion, clock_ns() + 30 * NS_PER_MS, &self->err) == STATUS_TIMEOUT);
        EXPECT(completion_test(completion) == COMPLETION_PENDING);
        EXPECT(session_check(self->session, &self->err) == STATUS_OK);
    }
    if (st == STATUS_OK)
        st = finish(group_barrier(pair, &barrier, &self->err), &barrier, &self->err);
    if (self->rank && st == STATUS_OK) {
        st = route_receive(route, &shape, NULL, NULL, 0, &completion, &self->err);
        if (st == STATUS_OK)
            st = completion_wait(completion, DEADLINE_NONE, &self->err);
        if (st == STATUS_OK)
            EXPECT(filled(route_take(completion, NULL)->tensor[0], 3));
        completion_abandon(completion);
        return st;
    }
    return finish(st, &completion, &self->err);
}

START_TEST(deadline_leaves_the_transfer_and_its_memory_alone)
{
    static const int members[] = {0, 1};
    static const struct group_spec groups[] = {GROUP(7, 2, members)};
    static const struct route_spec routes[] = {ROUTE(11, 0, 1, 1)};
    struct ranks ranks = {.groups = groups, .group_count = 1};

    run(&ranks, routes, 1, deadline_body);
    ranks_check(&ranks);
}
END_TEST

/* Nobody receives.  Abort fails the send and gives its memory back; with a teardown by job it stays pending. */
static enum status stuck_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);
    bool job = *(const bool *)self->context;
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    struct error err = {0};
    enum status st = STATUS_OK;

    if (self->rank) {
        /* Alive on the control channel, and moving nothing. */
        while (session_check(self->session, &self->err) == STATUS_OK)
            clock_sleep_ns(5 * NS_PER_MS);
        EXPECT(route_receive(route, &(struct shape){1, {9}}, NULL, NULL, 0, &completion, &err) == STATUS_TIMEOUT);
        /* Take the message after all, so that no memory stays behind. */
        clock_sleep_ns(200 * NS_PER_MS);
        return STATUS_TIMEOUT;
    }
    st = route_acquire(route, &bundle, &self->err);
    if (st != STATUS_OK)
        return st;
    (void)tensor_reshape(bundle->tensor[0], DTYPE_U8, &(struct shape){1, {1 << 20}}, &self->err);
    st = route_send(route, bundle, 0, &completion, &self->err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, &self->err);
    EXPECT(st == (job ? STATUS_TIMEOUT : STATUS_LOST));
    EXPECT(completion_test(completion) == (job ? COMPLETION_PENDING : COMPLETION_FAILED));
    uint64_t operations = session_counters(self->session).frames_sent;

    EXPECT(route_acquire(route, &bundle, &err) == STATUS_TIMEOUT);
    EXPECT(session_counters(self->session).frames_sent == operations);
    /* Once the transport lets go of it, it is failed and its memory is back. */
    for (int i = 0; i < 600 && job && completion_test(completion) == COMPLETION_PENDING; i++)
        clock_sleep_ns(5 * NS_PER_MS);
    EXPECT(completion_test(completion) == COMPLETION_FAILED);
    completion_release(completion);
    return st;
}

START_TEST(stuck_peer_ends_the_session_by_the_timeout)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, 2)};
    bool job = _i;
    struct ranks ranks = {.context = &job, .job_teardown = job, .session = {.timeout_ns = 400 * NS_PER_MS}};

    run(&ranks, routes, 1, stuck_body);
    ck_assert_int_eq(ranks.rank[0].status, job ? STATUS_TIMEOUT : STATUS_LOST);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_TIMEOUT);
}
END_TEST

/* Quarantine: the work stays, the route refuses more until it has ended, and the session lives. */
static enum status quarantine_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);
    struct shape shape = {1, {1 << 20}};
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    struct error err = {0};
    enum status st = STATUS_OK;

    if (self->rank) {
        clock_sleep_ns(1500 * NS_PER_MS);
        st = route_receive(route, &shape, NULL, NULL, 0, &completion, &self->err);
        return finish(st, &completion, &self->err);
    }
    st = route_acquire(route, &bundle, &self->err);
    if (st != STATUS_OK)
        return st;
    (void)tensor_reshape(bundle->tensor[0], DTYPE_U8, &shape, &self->err);
    st = route_send(route, bundle, 0, &completion, &self->err);
    EXPECT(st == STATUS_OK);
    EXPECT(completion_wait(completion, DEADLINE_NONE, &self->err) == STATUS_TIMEOUT);
    EXPECT(completion_test(completion) == COMPLETION_PENDING);
    EXPECT(route_acquire(route, &bundle, &err) == STATUS_TIMEOUT);
    EXPECT(strstr(err.text, "quarantined") != NULL);
    EXPECT(session_check(self->session, &self->err) == STATUS_OK);
    while (completion_test(completion) == COMPLETION_PENDING)
        clock_sleep_ns(5 * NS_PER_MS);
    completion_release(completion);
    st = route_acquire(route, &bundle, &self->err);
    if (st == STATUS_OK)
        route_return(route, bundle);
    return st;
}

START_TEST(quarantine_keeps_the_work_and_refuses_more)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, 2)};
    struct ranks ranks = {.session = {.timeout_ns = 300 * NS_PER_MS, .on_timeout = ON_TIMEOUT_QUARANTINE}};

    run(&ranks, routes, 1, quarantine_body);
    ck_assert_msg(ranks.rank[0].status == STATUS_OK, "%s", ranks.rank[0].err.text);
    ck_assert_msg(ranks.rank[1].status == STATUS_OK, "%s", ranks.rank[1].err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flow");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_test(all, both_neighbours_may_send_first);
    tcase_add_test(all, sender_ahead_of_a_slow_receiver_keeps_every_pattern);
    tcase_add_test(all, deadline_leaves_the_transfer_and_its_memory_alone);
    tcase_add_loop_test(all, stuck_peer_ends_the_session_by_the_timeout, 0, 2);
    tcase_add_test(all, quarantine_keeps_the_work_and_refuses_more);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
