/* What a completion promises, sentence by sentence: nothing but a wait blocks, everything is retained, deadlines leave
 * work alone, quarantine ends, and after the first failure nothing native is submitted. */
#include "tests/loop/ranks.h"

#include <string.h>

#include "base/clock.h"
#include "tests/suite.h"

enum { LARGE = 64 << 20 };

static const int members[] = {1, 0};
static const struct group_spec groups[] = {GROUP(1, 2, members), GROUP(2, 2, members)};
static const struct tensor_spec bytes_spec[] = {
    {.role = "bytes", .dtype = DTYPE_U8, .ndim = 1, .dim = {{0, LARGE, -1}}}};
static const struct route_spec routes[] = {
    {.id = 5, .name = "there", .from = 0, .to = 1, .tensor_count = 1, .tensors = bytes_spec, .depth = 1}};

static void run(struct ranks *ranks, rank_body *body)
{
    ranks->size = 2;
    ranks->groups = groups;
    ranks->group_count = 2;
    ranks->routes = routes;
    ranks->route_count = 1;
    ranks->body = body;
    ranks_run(ranks);
}

static void until(atomic_int *flag)
{
    uint64_t end_ns = clock_ns() + 60 * NS_PER_S;

    while (!atomic_load(flag) && clock_ns() < end_ns)
        clock_sleep_ns(NS_PER_MS);
    EXPECT(atomic_load(flag));
}

/* The receiver posts nothing before the sender's call has returned. */
static enum status returns_at_once_body(struct rank *self)
{
    atomic_int *returned = self->context;
    struct route *route = session_route(self->session, 5);
    struct shape shape = {1, {LARGE}};
    struct completion *completion = NULL;
    struct bundle *bundle = NULL;

    if (!self->rank) {
        EXPECT(route_acquire(route, &bundle, &self->err) == STATUS_OK);
        EXPECT(tensor_reshape(bundle->tensor[0], DTYPE_U8, &shape, &self->err) == STATUS_OK);
        memset(bundle->tensor[0]->data, 0x5e, LARGE);
        EXPECT(route_send(route, bundle, 0, &completion, &self->err) == STATUS_OK);
        EXPECT(completion_test(completion) == COMPLETION_PENDING);
        atomic_store(returned, 1);
        return finish(STATUS_OK, &completion, &self->err);
    }
    until(returned);
    EXPECT(route_receive(route, &shape, NULL, NULL, 0, &completion, &self->err) == STATUS_OK);
    EXPECT(completion_wait(completion, DEADLINE_NONE, &self->err) == STATUS_OK);
    bundle = route_take(completion, NULL);
    for (size_t i = 0; i < LARGE; i += 4093)
        EXPECT(bundle->tensor[0]->data[i] == 0x5e);
    route_return(route, bundle);
    completion_release(completion);
    return STATUS_OK;
}

START_TEST(submitting_to_a_peer_that_has_posted_nothing_returns_at_once)
{
    atomic_int returned = 0;
    struct ranks ranks = {.context = &returned, .job_teardown = _i};

    run(&ranks, returns_at_once_body);
    ranks_check(&ranks);
}
END_TEST

/* Both give up their tensors and completions at once; rank 1 keeps only what tells it the sum. */
static enum status retained_body(struct rank *self)
{
    atomic_int *given_up = self->context;
    struct group *group = session_group(self->session, 1);
    struct tensor *send = TENSOR(DTYPE_I64, 100000);
    struct tensor *recv = TENSOR(DTYPE_I64, 100000);
    int64_t *values = (int64_t *)(void *)send->data;
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    for (int64_t i = 0; i < 100000; i++)
        values[i] = i * (self->rank + 1);
    if (self->rank)
        until(given_up);
    st = group_all_reduce_sum(group, send, recv, &completion, &self->err);
    tensor_release(send);
    if (!self->rank) {
        tensor_release(recv);
        completion_abandon(completion);
        atomic_store(given_up, 1);
        /* The abandoned sum must be over before the group does this. */
        return st ? st : finish(group_barrier(group, &completion, &self->err), &completion, &self->err);
    }
    st = finish(st, &completion, &self->err);
    values = (int64_t *)(void *)recv->data;
    for (int64_t i = 0; i < 100000; i++)
        EXPECT(values[i] == 3 * i);
    tensor_release(recv);
    return st ? st : finish(group_barrier(group, &completion, &self->err), &completion, &self->err);
}

START_TEST(callers_may_release_and_abandon_at_once)
{
    atomic_int given_up = 0;
    struct ranks ranks = {.context = &given_up, .session = {.checks = CHECKS_FULL}};

    run(&ranks, retained_body);
    ranks_check(&ranks);
}
END_TEST

/* Several waits with a deadline, then one without. */
static enum status deadlines_body(struct rank *self)
{
    atomic_int *waited = self->context;
    struct group *group = session_group(self->session, 1);
    struct tensor *tensor = TENSOR(DTYPE_U32, 50000);
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    memset(tensor->data, self->rank + 1, tensor->bytes);
    if (self->rank)
        until(waited);
    EXPECT(group_all_reduce_sum(group, tensor, tensor, &completion, &self->err) == STATUS_OK);
    for (int i = 0; !self->rank && i < 3; i++) {
        uint64_t start_ns = clock_ns();

        EXPECT(completion_wait(completion, start_ns + 10 * NS_PER_MS, &self->err) == STATUS_TIMEOUT);
        EXPECT(clock_ns() >= start_ns + 10 * NS_PER_MS);
        EXPECT(completion_wait(completion, 0, &self->err) == STATUS_TIMEOUT);
        EXPECT(completion_test(completion) == COMPLETION_PENDING);
        EXPECT(session_check(self->session, &self->err) == STATUS_OK);
    }
    atomic_store(waited, 1);
    st = finish(STATUS_OK, &completion, &self->err);
    for (size_t i = 0; i < tensor->bytes; i++)
        EXPECT(tensor->data[i] == 3);
    tensor_release(tensor);
    return st;
}

START_TEST(a_deadline_tears_nothing_down)
{
    atomic_int waited = 0;
    struct ranks ranks = {.context = &waited};

    run(&ranks, deadlines_body);
    ranks_check(&ranks);
}
END_TEST

/* Rank 1 comes late to the barrier of group 1: the group is quarantined, group 2 works on, and then both do. */
static enum status quarantine_body(struct rank *self)
{
    atomic_int *refused = self->context;
    struct group *late = session_group(self->session, 1);
    struct group *other = session_group(self->session, 2);
    struct completion *orphan = NULL;
    struct completion *completion = NULL;
    struct error err = {0};

    if (self->rank) {
        until(refused);
        EXPECT(finish(group_barrier(other, &completion, &self->err), &completion, &self->err) == STATUS_OK);
        EXPECT(finish(group_barrier(late, &completion, &self->err), &completion, &self->err) == STATUS_OK);
        return finish(group_barrier(late, &completion, &self->err), &completion, &self->err);
    }
    EXPECT(group_barrier(late, &orphan, &self->err) == STATUS_OK);
    EXPECT(completion_wait(orphan, DEADLINE_NONE, &err) == STATUS_TIMEOUT);
    EXPECT(strstr(err.text, "rank 1 has stood still") != NULL);
    EXPECT(completion_test(orphan) == COMPLETION_PENDING && completion_quarantined(orphan));
    EXPECT(completion_wait(orphan, clock_ns() + NS_PER_MS, &err) == STATUS_TIMEOUT);
    EXPECT(strstr(err.text, "group group/1 is quarantined: barrier, sequence 0, has not ended") != NULL);
    EXPECT(group_barrier(late, &completion, &err) == STATUS_TIMEOUT);
    EXPECT(strstr(err.text, "group group/1 is quarantined: barrier, sequence 0, has not ended") != NULL);
    EXPECT(session_check(self->session, &self->err) == STATUS_OK);
    atomic_store(refused, 1);
    EXPECT(finish(group_barrier(other, &completion, &self->err), &completion, &self->err) == STATUS_OK);
    for (int i = 0; i < 30000 && completion_test(orphan) == COMPLETION_PENDING; i++)
        clock_sleep_ns(NS_PER_MS);
    EXPECT(completion_test(orphan) == COMPLETION_DONE && !completion_quarantined(orphan));
    completion_release(orphan);
    return finish(group_barrier(late, &completion, &self->err), &completion, &self->err);
}

START_TEST(a_quarantined_group_refuses_work_until_the_orphan_ends)
{
    atomic_int refused = 0;
    struct ranks ranks = {.context = &refused,
                          .session = {.timeout_ns = NS_PER_S, .on_timeout = ON_TIMEOUT_QUARANTINE}};

    run(&ranks, quarantine_body);
    ranks_check(&ranks);
}
END_TEST

/* The same seen by a caller who never waits: he is told in time, and sees the end all the same. */
static enum status asked_into_quarantine_body(struct rank *self)
{
    atomic_int *refused = self->context;
    struct group *late = session_group(self->session, 1);
    struct completion *first = NULL;
    struct completion *second = NULL;
    uint64_t start_ns = clock_ns();

    if (self->rank)
        until(refused);
    EXPECT(group_barrier(late, &first, &self->err) == STATUS_OK);
    EXPECT(group_barrier(late, &second, &self->err) == STATUS_OK);
    while (!self->rank && !completion_quarantined(second) && clock_ns() < start_ns + 20 * NS_PER_S) {
        EXPECT(completion_test(first) == COMPLETION_PENDING);
        clock_sleep_ns(NS_PER_MS);
    }
    EXPECT(self->rank || (completion_quarantined(first) && completion_quarantined(second)));
    EXPECT(self->rank || clock_ns() >= start_ns + NS_PER_S);
    atomic_store(refused, 1);
    for (int i = 0; i < 30000 && completion_test(second) == COMPLETION_PENDING; i++)
        clock_sleep_ns(NS_PER_MS);
    EXPECT(completion_test(first) == COMPLETION_DONE && completion_test(second) == COMPLETION_DONE);
    completion_release(first);
    completion_release(second);
    return STATUS_OK;
}

START_TEST(who_only_asks_is_told_of_quarantine)
{
    atomic_int refused = 0;
    struct ranks ranks = {.context = &refused,
                          .session = {.timeout_ns = NS_PER_S, .on_timeout = ON_TIMEOUT_QUARANTINE}};

    run(&ranks, asked_into_quarantine_body);
    ranks_check(&ranks);
}
END_TEST

/* How a caller may wait without a call that lasts. */
enum polling { POLL_TEST, POLL_TEST_AND_PROGRESS, POLL_SHORT_WAITS, POLL_TWO_IN_TURN, POLLINGS };

struct polled {
    enum polling how;
    atomic_int ended;
};

/* Rank 1 never comes; rank 0 asks until it is told. */
static enum status polling_body(struct rank *self)
{
    struct polled *polled = self->context;
    struct completion *barrier[2] = {NULL};
    uint64_t start_ns = clock_ns();
    enum status st = STATUS_OK;

    if (self->rank) {
        until(&polled->ended);
        return STATUS_TIMEOUT;
    }
    for (uint32_t i = 0; i < 2; i++)
        EXPECT(group_barrier(session_group(self->session, i + 1), &barrier[i], &self->err) == STATUS_OK);
    for (int turn = 0; st == STATUS_OK && clock_ns() < start_ns + 20 * NS_PER_S; turn++) {
        struct completion *asked = barrier[polled->how == POLL_TWO_IN_TURN ? turn % 2 : 0];

        if (polled->how == POLL_SHORT_WAITS)
            EXPECT(completion_wait(asked, clock_ns() + 10 * NS_PER_MS, &self->err) != STATUS_OK);
        else
            EXPECT(completion_test(asked) != COMPLETION_DONE);
        if (polled->how == POLL_TEST_AND_PROGRESS)
            session_progress(self->session);
        clock_sleep_ns(NS_PER_MS);
        st = session_check(self->session, &self->err);
    }
    EXPECT(st == STATUS_TIMEOUT && strstr(self->err.text, "rank 1 has stood still for") != NULL);
    EXPECT(clock_ns() >= start_ns + NS_PER_S);
    EXPECT(completion_test(barrier[0]) == COMPLETION_FAILED);
    for (int i = 0; i < 2; i++)
        completion_abandon(barrier[i]);
    atomic_store(&polled->ended, 1);
    return st;
}

START_TEST(the_timeout_rule_holds_however_a_caller_waits)
{
    struct polled polled = {.how = (enum polling)_i};
    struct ranks ranks = {.context = &polled, .session = {.timeout_ns = NS_PER_S}};

    run(&ranks, polling_body);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_TIMEOUT);
}
END_TEST

/* Rank 0 asks once and then does something else for too long: it does not pass for one that waits. */
static enum status asked_once_body(struct rank *self)
{
    atomic_int *ended = self->context;
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    EXPECT(group_barrier(session_group(self->session, self->rank ? 1 : 2), &completion, &self->err) == STATUS_OK);
    if (self->rank) {
        st = completion_wait(completion, DEADLINE_NONE, &self->err);
        EXPECT(strstr(self->err.text, "rank 0 has stood still for") != NULL);
        atomic_store(ended, 1);
    } else {
        EXPECT(completion_wait(completion, clock_ns() + 10 * NS_PER_MS, &self->err) == STATUS_TIMEOUT);
        EXPECT(completion_test(completion) == COMPLETION_PENDING);
        until(ended);
        st = STATUS_TIMEOUT;
    }
    completion_abandon(completion);
    return st;
}

START_TEST(who_has_asked_once_does_not_wait_for_ever)
{
    atomic_int ended = 0;
    struct ranks ranks = {.context = &ended, .session = {.timeout_ns = NS_PER_S}};

    run(&ranks, asked_once_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_LOST);
}
END_TEST

/* Loopback, counting what rank 0 submits. */
static atomic_int native_sends;
static atomic_int native_receives;
static atomic_int control_sends;

static enum status counting_send(struct transport *transport, int peer, uint32_t tag, const void *bytes, size_t count,
                                 struct work **ret, struct error *err)
{
    atomic_fetch_add(&native_sends, loopback_ops.rank(transport) == 0);
    return loopback_ops.send(transport, peer, tag, bytes, count, ret, err);
}

static enum status counting_receive(struct transport *transport, struct message *message, void *bytes, size_t count,
                                    struct work **ret, struct error *err)
{
    atomic_fetch_add(&native_receives, loopback_ops.rank(transport) == 0);
    return loopback_ops.receive(transport, message, bytes, count, ret, err);
}

static enum status counting_control_send(struct transport *transport, int peer, const void *bytes, struct error *err)
{
    atomic_fetch_add(&control_sends, loopback_ops.rank(transport) == 0);
    return loopback_ops.control_send(transport, peer, bytes, err);
}

/* Rank 0 has work under way and work queued when it fails; it asks for more of every kind afterwards. */
static enum status poisoned_body(struct rank *self)
{
    struct group *group = session_group(self->session, 1);
    struct route *route = session_route(self->session, 5);
    atomic_int *posted = self->context;
    struct tensor *tensor = TENSOR(DTYPE_F32, 50000);
    struct completion *sum = NULL;
    struct completion *sent = NULL;
    struct completion *none = NULL;
    struct bundle *bundle = NULL;
    struct shape shape = {1, {1000}};
    struct error err = {0};
    bool speaker = false;
    int sends = 0;
    int controls = 0;

    if (self->rank) {
        /* Gives rank 0 something that it could receive. */
        EXPECT(group_all_reduce_sum(group, tensor, tensor, &sum, &self->err) == STATUS_OK);
        atomic_store(posted, 1);
        EXPECT(completion_wait(sum, DEADLINE_NONE, &self->err) == STATUS_MODEL);
        completion_release(sum);
        tensor_release(tensor);
        return session_settle(self->session, &self->err, &speaker);
    }
    EXPECT(route_acquire(route, &bundle, &self->err) == STATUS_OK);
    EXPECT(tensor_reshape(bundle->tensor[0], DTYPE_U8, &shape, &self->err) == STATUS_OK);
    EXPECT(route_send(route, bundle, 0, &sent, &self->err) == STATUS_OK);
    until(posted);
    session_fail(self->session, STATUS_MODEL, "token 7 is not finite");
    sends = atomic_load(&native_sends);
    EXPECT(sends == 1);
    EXPECT(group_all_reduce_sum(group, tensor, tensor, &none, &err) == STATUS_MODEL);
    EXPECT(group_barrier(session_group(self->session, 2), &none, &err) == STATUS_MODEL);
    EXPECT(group_failure_agreement(group, 1, &none, &err) == STATUS_MODEL);
    EXPECT(group_broadcast(group, tensor, 0, &none, &err) == STATUS_MODEL);
    EXPECT(route_acquire(route, &bundle, &err) == STATUS_MODEL);
    EXPECT(group_after(group, sent, &err) == STATUS_MODEL);
    EXPECT(completion_wait(sent, DEADLINE_NONE, &err) == STATUS_MODEL);
    EXPECT(!none && strstr(err.text, "token 7 is not finite") != NULL);
    EXPECT(session_settle(self->session, &self->err, &speaker) == STATUS_MODEL && speaker);
    controls = atomic_load(&control_sends);
    /* There is one recovery agreement: asked again it answers from memory. */
    EXPECT(session_settle(self->session, &err, &speaker) == STATUS_MODEL && speaker);
    EXPECT(!strcmp(err.text, self->err.text) && atomic_load(&control_sends) == controls);
    for (int i = 0; i < 50; i++) {
        session_progress(self->session);
        clock_sleep_ns(NS_PER_MS);
    }
    EXPECT(atomic_load(&native_sends) == sends && atomic_load(&native_receives) == 0);
    completion_release(sent);
    tensor_release(tensor);
    return STATUS_MODEL;
}

START_TEST(after_the_first_failure_nothing_native_is_submitted)
{
    struct transport_ops counting = loopback_ops;
    atomic_int posted = 0;
    struct ranks ranks = {.ops = &counting, .context = &posted};

    counting.send = counting_send;
    counting.receive = counting_receive;
    counting.control_send = counting_control_send;
    run(&ranks, poisoned_body);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ranks.rank[i].status, STATUS_MODEL);
        ck_assert_str_eq(ranks.rank[i].err.text, "rank 0: token 7 is not finite");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("completion");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, submitting_to_a_peer_that_has_posted_nothing_returns_at_once, 0, 2);
    tcase_add_test(all, callers_may_release_and_abandon_at_once);
    tcase_add_test(all, a_deadline_tears_nothing_down);
    tcase_add_test(all, a_quarantined_group_refuses_work_until_the_orphan_ends);
    tcase_add_test(all, who_only_asks_is_told_of_quarantine);
    tcase_add_loop_test(all, the_timeout_rule_holds_however_a_caller_waits, 0, POLLINGS);
    tcase_add_test(all, who_has_asked_once_does_not_wait_for_ever);
    tcase_add_test(all, after_the_first_failure_nothing_native_is_submitted);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
