/* Consensus, poison, the timeout rule and settling, with ranks as threads over loopback. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backends/loopback/loopback.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "comm/manifest.h"
#include "comm/route.h"
#include "comm/session.h"
#include "tests/suite.h"

enum { MAX_RANKS = 16 };

struct actor;
typedef void actor_body(struct actor *self);

struct actor {
    int rank;
    int size;
    struct transport *transport; /* of a raw actor: no session */
    struct session *session;
    enum status status;
    struct error err;
    bool speaker;
    uint64_t took_ns;
    actor_body *body;
    struct stage *stage;
};

/* One run: who does what. */
struct stage {
    int size;
    uint64_t timeout_ns;
    const struct route_spec *routes;
    size_t route_count;
    actor_body *body;
    int odd; /* this rank does odd_body; -1: none */
    actor_body *odd_body;
    bool odd_raw; /* it has a transport, but no session */
    atomic_int present;
    struct loopback_world *world;
    struct actor actors[MAX_RANKS];
};

static void *act(void *context)
{
    struct actor *self = context;
    struct stage *stage = self->stage;
    bool odd = self->rank == stage->odd;
    struct session_options options = {.timeout_ns = stage->timeout_ns, .startup_timeout_ns = stage->timeout_ns};
    uint64_t begin_ns = clock_ns();
    enum status st = loopback_join(stage->world, self->rank, &self->transport, &self->err);

    if (st == STATUS_OK && !(odd && stage->odd_raw))
        st = session_create(&loopback_ops, self->transport, &options, &self->session, &self->err);
    self->status = st;
    if (st == STATUS_OK)
        (odd ? stage->odd_body : stage->body)(self);
    self->took_ns = clock_ns() - begin_ns;
    /* Nobody leaves before all are done: a closed rank could not be asked any more. */
    atomic_fetch_sub(&stage->present, 1);
    while (atomic_load(&stage->present))
        clock_sleep_ns(NS_PER_MS);
    if (self->session)
        (void)session_close(self->session, false, NULL);
    else
        (void)loopback_ops.close(self->transport, false, NULL);
    return NULL;
}

static void play(struct stage *stage)
{
    struct loopback_options options = {.eager_bytes = 4096};
    pthread_t threads[MAX_RANKS];

    atomic_store(&stage->present, stage->size);
    ck_assert_int_eq(loopback_world_create(stage->size, &options, &stage->world, NULL), STATUS_OK);
    for (int rank = 0; rank < stage->size; rank++) {
        stage->actors[rank] = (struct actor){.rank = rank, .size = stage->size, .stage = stage};
        ck_assert_int_eq(pthread_create(&threads[rank], NULL, act, &stage->actors[rank]), 0);
    }
    for (int rank = 0; rank < stage->size; rank++)
        pthread_join(threads[rank], NULL);
    loopback_world_destroy(stage->world);
}

/* Every rank but except ends with this status and one sentence, which contains all of the parts. */
static void all_say(const struct stage *stage, int except, enum status st, const char *part)
{
    const char *first = NULL;

    for (int rank = 0; rank < stage->size; rank++) {
        const struct actor *actor = &stage->actors[rank];

        if (rank == except)
            continue;
        ck_assert_msg(actor->status == st, "rank %d: %s: %s", rank, status_name(actor->status), actor->err.text);
        ck_assert_msg(strstr(actor->err.text, part) != NULL, "rank %d: %s", rank, actor->err.text);
        if (first)
            ck_assert_str_eq(actor->err.text, first);
        first = actor->err.text;
    }
}

static int speakers(const struct stage *stage, int *ret_who)
{
    int count = 0;

    for (int rank = 0; rank < stage->size; rank++) {
        if (stage->actors[rank].speaker) {
            *ret_who = rank;
            count++;
        }
    }
    return count;
}

static void settle(struct actor *self)
{
    self->status = session_settle(self->session, &self->err, &self->speaker);
}

static void agree(struct actor *self)
{
    struct manifest_key keys[1] = {{.key = "mesh.tensor", .digest = 2, .value = "2"}};
    struct manifest manifest = {.topology_digest = 7, .key_count = 1, .keys = keys};

    self->status = session_consensus(self->session, &manifest, &self->err);
}

static void differ(struct actor *self)
{
    struct manifest_key keys[1] = {{.key = "mesh.tensor", .digest = 4, .value = "4"}};
    struct manifest manifest = {.topology_digest = 8, .key_count = 1, .keys = keys};

    self->status = session_consensus(self->session, &manifest, &self->err);
}

static void bring_failure(struct actor *self)
{
    struct manifest manifest = {.status = STATUS_STORAGE, .why = "/m/config.json: No such file or directory"};

    self->status = session_consensus(self->session, &manifest, &self->err);
}

START_TEST(equal_ranks_agree_at_every_size)
{
    for (int size = 1; size <= MAX_RANKS; size++) {
        struct stage stage = {.size = size, .timeout_ns = 20 * NS_PER_S, .body = agree, .odd = -1};

        play(&stage);
        for (int rank = 0; rank < size; rank++)
            ck_assert_msg(stage.actors[rank].status == STATUS_OK, "%s", stage.actors[rank].err.text);
    }
}
END_TEST

START_TEST(a_difference_is_the_same_sentence_everywhere)
{
    struct stage stage = {.size = 4, .timeout_ns = 20 * NS_PER_S, .body = agree, .odd = 1, .odd_body = differ};

    play(&stage);
    all_say(&stage, -1, STATUS_MISMATCH,
            "ranks were told different things: mesh.tensor: 2 on ranks 0, 2, 3; 4 on rank 1");
    for (stage.size = 2; stage.size <= MAX_RANKS; stage.size += 3) {
        stage.odd = stage.size - 1;
        play(&stage);
        all_say(&stage, -1, STATUS_MISMATCH, "; 4 on rank");
    }
}
END_TEST

/* B40, B41, B62 */
START_TEST(a_failed_rank_strands_nobody_and_is_heard_by_all)
{
    for (int odd = 0; odd < 5; odd++) {
        struct stage stage = {
            .size = 5, .timeout_ns = 20 * NS_PER_S, .body = agree, .odd = odd, .odd_body = bring_failure};
        char part[64];

        play(&stage);
        (void)snprintf(part, sizeof part, "rank %d: /m/config.json: No such", odd);
        all_say(&stage, -1, STATUS_STORAGE, part);
        ck_assert_uint_lt(stage.actors[0].took_ns, 5 * NS_PER_S);
    }
}
END_TEST

static void wait_for_the_others(struct actor *self)
{
    while (atomic_load(&self->stage->present) > 1)
        clock_sleep_ns(NS_PER_MS);
}

/* Several ranks may find it at the same instant, each with its own part of the chain. */
static void agree_and_settle(struct actor *self)
{
    agree(self);
    if (self->status != STATUS_OK)
        settle(self);
}

/* Rank 5 of 8 stands three levels below the root. */
START_TEST(a_rank_that_never_comes_is_named)
{
    struct stage stage = {
        .size = 8, .timeout_ns = NS_PER_S, .body = agree_and_settle, .odd = 5, .odd_body = wait_for_the_others};

    play(&stage);
    all_say(&stage, 5, STATUS_TIMEOUT, "rank 5 has stood still");
    stage.odd_raw = true;
    play(&stage);
    all_say(&stage, 5, STATUS_TIMEOUT, "rank 5 has been silent");
    ck_assert_uint_lt(stage.actors[0].took_ns, 6 * NS_PER_S);
}
END_TEST

static void raw_send(struct actor *self, const void *bytes, size_t count)
{
    struct work *work = NULL;
    bool over = false;

    ck_assert_int_eq(loopback_ops.send(self->transport, 0, 0, bytes, count, &work, &self->err), STATUS_OK);
    while (!over)
        ck_assert_int_eq(loopback_ops.test(self->transport, work, &over, &self->err), STATUS_OK);
}

static void send_short_record(struct actor *self)
{
    unsigned char bytes[MANIFEST_RECORD_BYTES] = {0};

    raw_send(self, bytes, sizeof bytes - 1);
}

static void speak_another_protocol(struct actor *self)
{
    struct manifest manifest = {.status = STATUS_OK};
    unsigned char record[MANIFEST_RECORD_BYTES];

    manifest_record(&manifest, record);
    put_u32(record + 4, 9);
    raw_send(self, record, sizeof record);
}

START_TEST(a_record_of_another_size_is_refused)
{
    struct stage stage = {
        .size = 2, .timeout_ns = 5 * NS_PER_S, .body = agree, .odd = 1, .odd_raw = true, .odd_body = send_short_record};

    play(&stage);
    all_say(&stage, 1, STATUS_MISMATCH, "rank 1 sent 63 bytes, expected 64");
}
END_TEST

/* B64 */
START_TEST(another_protocol_is_named)
{
    struct stage stage = {.size = 2,
                          .timeout_ns = 5 * NS_PER_S,
                          .body = agree,
                          .odd = 1,
                          .odd_raw = true,
                          .odd_body = speak_another_protocol};

    play(&stage);
    all_say(&stage, 1, STATUS_MISMATCH, "on rank 0; protocol 9 (Ferry 0.1.0) on rank 1");
}
END_TEST

static void until_failed(struct actor *self)
{
    while (session_check(self->session, &self->err) == STATUS_OK)
        clock_sleep_ns(NS_PER_MS);
    settle(self);
}

static void fail_now(struct actor *self)
{
    session_fail(self->session, STATUS_MODEL, "token 7 is not finite");
    settle(self);
}

START_TEST(a_failure_reaches_everybody_and_the_lowest_speaks)
{
    for (int size = 2; size <= 11; size += 3) {
        struct stage stage = {
            .size = size, .timeout_ns = 20 * NS_PER_S, .body = until_failed, .odd = size - 1, .odd_body = fail_now};
        int who = -1;

        play(&stage);
        all_say(&stage, -1, STATUS_MODEL, "token 7 is not finite");
        ck_assert_int_eq(speakers(&stage, &who), 1);
        ck_assert_int_eq(who, 0);
        ck_assert_uint_lt(stage.actors[0].took_ns, 2 * NS_PER_S);
    }
}
END_TEST

static void fail_by_timeout(struct actor *self)
{
    char text[64];

    (void)snprintf(text, sizeof text, "rank %d waited", self->rank);
    session_fail(self->session, STATUS_TIMEOUT, text);
    settle(self);
}

START_TEST(of_two_failures_the_one_that_explains_more_is_everybodys)
{
    for (int i = 0; i < 20; i++) {
        struct stage stage = {
            .size = 6, .timeout_ns = 20 * NS_PER_S, .body = fail_by_timeout, .odd = 4, .odd_body = fail_now};

        play(&stage);
        for (int rank = 1; rank < 6; rank++)
            ck_assert_str_eq(stage.actors[rank].err.text, stage.actors[0].err.text);
    }
}
END_TEST

static void fail_late_at_0(struct actor *self)
{
    if (self->rank == 0)
        clock_sleep_ns(1500 * NS_PER_MS);
    fail_by_timeout(self);
}

/* Rank 3 never settles, so that rank 0, which begins 1.5 s after the others, speaks 3.5 s after they began. */
START_TEST(the_lowest_rank_is_waited_for_though_it_begins_late)
{
    struct stage stage = {
        .size = 4, .timeout_ns = 20 * NS_PER_S, .body = fail_late_at_0, .odd = 3, .odd_body = wait_for_the_others};
    int who = -1;

    play(&stage);
    all_say(&stage, 3, STATUS_TIMEOUT, "waited");
    ck_assert_int_eq(speakers(&stage, &who), 1);
    ck_assert_int_eq(who, 0);
    ck_assert_uint_lt(stage.actors[1].took_ns, 7 * NS_PER_S);
}
END_TEST

START_TEST(a_missing_rank_is_not_waited_for_longer_than_agreed)
{
    struct stage stage = {
        .size = 4, .timeout_ns = 20 * NS_PER_S, .body = fail_by_timeout, .odd = 0, .odd_body = wait_for_the_others};
    int who = -1;

    play(&stage);
    all_say(&stage, 0, STATUS_TIMEOUT, "waited");
    ck_assert_int_eq(speakers(&stage, &who), 1);
    ck_assert_int_eq(who, 1);
    ck_assert_uint_lt(stage.actors[1].took_ns, 4 * NS_PER_S);
}
END_TEST

static const struct tensor_spec one_number = {
    .role = "number", .dtype = DTYPE_U32, .ndim = 1, .dim = {{.low = 1, .high = 1, .extent = -1}}};

#define ROUTE(number, source, target)                                                                                  \
    {                                                                                                                  \
        .id = (number), .name = "route/" #source "-" #target, .from = (source), .to = (target), .tensor_count = 1,     \
        .tensors = &one_number, .depth = 1                                                                             \
    }

static const struct route_spec ring[] = {ROUTE(1, 1, 0), ROUTE(2, 2, 1), ROUTE(3, 0, 2)};

static void build(struct actor *self)
{
    self->status = session_build(self->session, NULL, 0, self->stage->routes, self->stage->route_count, &self->err);
    ck_assert_msg(self->status == STATUS_OK, "%s", self->err.text);
}

/* Wait for what comes over the route that ends here. */
static void receive_next(struct actor *self)
{
    struct shape shape = {1, {1}};
    struct completion *completion = NULL;
    uint64_t epoch;

    build(self);
    self->status = route_receive(session_route(self->session, (uint32_t)self->rank + 1), &shape, NULL, NULL, 0,
                                 &completion, &self->err);
    if (self->status == STATUS_OK)
        self->status = completion_wait(completion, DEADLINE_NONE, &self->err);
    if (self->status == STATUS_OK)
        route_return(session_route(self->session, (uint32_t)self->rank + 1), route_take(completion, &epoch));
    if (completion)
        completion_abandon(completion);
    if (self->status)
        settle(self);
}

START_TEST(a_cycle_of_waits_is_named_as_one)
{
    struct stage stage = {
        .size = 3, .timeout_ns = NS_PER_S, .routes = ring, .route_count = 3, .body = receive_next, .odd = -1};
    int who = -1;

    play(&stage);
    all_say(&stage, -1, STATUS_TIMEOUT, "ranks wait for each other");
    ck_assert_int_eq(speakers(&stage, &who), 1);
    ck_assert_uint_lt(stage.actors[0].took_ns, 5 * NS_PER_S);
}
END_TEST

/* Rank 0 waits for 1, 1 waits for 2, and 2 does something else. */
START_TEST(the_rank_at_the_end_of_the_chain_is_named)
{
    struct stage stage = {.size = 3,
                          .timeout_ns = NS_PER_S,
                          .routes = ring,
                          .route_count = 2,
                          .body = receive_next,
                          .odd = 2,
                          .odd_body = wait_for_the_others};

    play(&stage);
    all_say(&stage, 2, STATUS_TIMEOUT, "rank 2 has stood still");
    ck_assert_ptr_nonnull(strstr(stage.actors[0].err.text, "route/2-1"));
}
END_TEST

/* Compute for three timeouts, then send. */
static void send_late(struct actor *self)
{
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    uint64_t until_ns = clock_ns() + 3 * NS_PER_S;
    struct route *route;

    build(self);
    route = session_route(self->session, 1);
    while (clock_ns() < until_ns) {
        session_progress(self->session);
        clock_sleep_ns(20 * NS_PER_MS);
    }
    self->status = route_acquire(route, &bundle, &self->err);
    if (self->status == STATUS_OK)
        self->status = route_send(route, bundle, 0, &completion, &self->err);
    if (self->status == STATUS_OK)
        self->status = completion_wait(completion, DEADLINE_NONE, &self->err);
    if (completion)
        completion_abandon(completion);
}

START_TEST(a_rank_that_computes_for_long_is_waited_for)
{
    struct stage stage = {.size = 2,
                          .timeout_ns = NS_PER_S,
                          .routes = ring,
                          .route_count = 1,
                          .body = receive_next,
                          .odd = 1,
                          .odd_body = send_late};

    play(&stage);
    ck_assert_msg(stage.actors[0].status == STATUS_OK, "%s", stage.actors[0].err.text);
    ck_assert_msg(stage.actors[1].status == STATUS_OK, "%s", stage.actors[1].err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("failure");
    TCase *tests = tcase_create("failure");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, equal_ranks_agree_at_every_size);
    tcase_add_test(tests, a_difference_is_the_same_sentence_everywhere);
    tcase_add_test(tests, a_failed_rank_strands_nobody_and_is_heard_by_all);
    tcase_add_test(tests, a_rank_that_never_comes_is_named);
    tcase_add_test(tests, a_record_of_another_size_is_refused);
    tcase_add_test(tests, another_protocol_is_named);
    tcase_add_test(tests, a_failure_reaches_everybody_and_the_lowest_speaks);
    tcase_add_test(tests, of_two_failures_the_one_that_explains_more_is_everybodys);
    tcase_add_test(tests, the_lowest_rank_is_waited_for_though_it_begins_late);
    tcase_add_test(tests, a_missing_rank_is_not_waited_for_longer_than_agreed);
    tcase_add_test(tests, a_cycle_of_waits_is_named_as_one);
    tcase_add_test(tests, the_rank_at_the_end_of_the_chain_is_named);
    tcase_add_test(tests, a_rank_that_computes_for_long_is_waited_for);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
