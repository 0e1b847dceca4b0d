/* Bundles that lie in a device's memory: through the host where the transport does not reach it, and as device messages
 * where it does. */
#include "tests/loop/ranks.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "comm/fault.h"
#include "tests/loop/late_memory.h"
#include "tests/suite.h"

enum { HEADER_BYTES = 192, ROUNDS = 6, LARGEST = 64 };

static const struct tensor_spec bundle_spec[] = {
    {"wave", DTYPE_U32, 1, {{2, 2, -1}}},
    {"hidden", DTYPE_F32, 2, {{0, LARGEST, -1}, {5, 5, -1}}},
    {"scales", DTYPE_BF16, 1, {{0, LARGEST, -1}}},
    {"nothing", DTYPE_U8, 1, {{0, 0, -1}}},
};
static const struct route_spec routes[] = {{.id = 1,
                                            .name = "forward",
                                            .from = 0,
                                            .to = 1,
                                            .tensor_count = 4,
                                            .tensors = bundle_spec,
                                            .depth = 2,
                                            .memory_tensors = 0xe}};

/* Of the device's tensors alone: hidden. */
static struct route_spec hidden_alone(void)
{
    struct route_spec spec = routes[0];

    spec.tensor_count = 1;
    spec.tensors = bundle_spec + 1;
    spec.memory_tensors = 1;
    return spec;
}

/* The last can take nothing back: what it holds when a session fails stays. */
static const struct transport_ops *const ways[] = {&loopback_ops, &loopback_device_ops, &loopback_job_ops};
enum { WAYS = sizeof ways / sizeof ways[0], NATIVE_WAYS = 2 };

/* Of the route's tensors, which begin somewhere in bundle_spec. */
static void shapes_of(const struct route *route, int round, struct shape *shapes)
{
    static const uint64_t rows[ROUNDS] = {LARGEST, 1, 0, 17, 33, 2};
    const struct shape all[] = {
        {1, {2}},
        {2, {rows[round], 5}},
        {1, {rows[(round + 1) % ROUNDS]}},
        {1, {0}},
    };

    memcpy(shapes, all + (route_spec(route)->tensors - bundle_spec),
           (size_t)route_spec(route)->tensor_count * sizeof all[0]);
}

/* What rank 0's bundles are copied from; it stays until its device is destroyed. */
static unsigned char sent[4][LARGEST * 20];

static unsigned char byte_of(int round, int t, size_t k)
{
    return (unsigned char)(k * 11 + k / 256 + (size_t)round * 29 + (size_t)t * 3 + 1);
}

/* Queued, not waited for: the transfer leaves behind it. */
static enum status fill(struct tensor *tensor, int round, int t, struct error *err)
{
    for (size_t k = 0; k < tensor->bytes; k++)
        sent[t][k] = byte_of(round, t, k);
    return memory_copy(tensor->memory, tensor->data, sent[t], tensor->bytes, err);
}

static bool is_filled(struct tensor *tensor, int round, int t)
{
    unsigned char bytes[LARGEST * 20] = {0};

    tensor_get(tensor, bytes);
    for (size_t k = 0; k < tensor->bytes; k++) {
        if (bytes[k] != byte_of(round, t, k))
            return false;
    }
    return true;
}

static enum status send_round(struct rank *self, int round)
{
    struct route *route = session_route(self->session, 1);
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    struct shape shapes[4];
    enum status st = route_acquire(route, &bundle, &self->err);

    shapes_of(route, round, shapes);
    for (int t = 0; st == STATUS_OK && t < bundle->count; t++) {
        bool placed = route_spec(route)->memory_tensors >> t & 1;

        EXPECT((tensor_kind(bundle->tensor[t]) == MEMORY_DEVICE) == placed);
        st = tensor_reshape(bundle->tensor[t], bundle->tensor[t]->dtype, &shapes[t], &self->err);
        if (st == STATUS_OK)
            st = fill(bundle->tensor[t], round, t, &self->err);
    }
    if (st == STATUS_OK)
        st = route_send(route, bundle, (uint64_t)round, &completion, &self->err);
    return finish(st, &completion, &self->err);
}

/* *ret: the caller's, to return to its route. */
static enum status take_round(struct rank *self, int round, struct bundle **ret)
{
    struct route *route = session_route(self->session, 1);
    struct completion *completion = NULL;
    struct shape shapes[4];
    enum status st;

    shapes_of(route, round, shapes);
    st = route_receive(route, shapes, NULL, NULL, (uint64_t)round, &completion, &self->err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, &self->err);
    if (st == STATUS_OK)
        *ret = route_take(completion, NULL);
    completion_abandon(completion);
    return st;
}

static enum status receive_round(struct rank *self, int round)
{
    struct bundle *bundle = NULL;
    enum status st = take_round(self, round, &bundle);

    EXPECT(st != STATUS_OK || bundle);
    for (int t = 0; bundle && t < bundle->count; t++)
        EXPECT(is_filled(bundle->tensor[t], round, t));
    route_return(session_route(self->session, 1), bundle);
    return st;
}

static enum status rounds_body(struct rank *self)
{
    enum status st = STATUS_OK;

    for (int round = 0; round < ROUNDS && st == STATUS_OK; round++)
        st = self->rank ? receive_round(self, round) : send_round(self, round);
    return st;
}

static void run(struct ranks *ranks, const struct transport_ops *ops, rank_body *body)
{
    ranks->size = 2;
    ranks->ops = ops;
    ranks->late_memory = true;
    ranks->routes = ranks->routes ? ranks->routes : routes;
    ranks->route_count = 1;
    ranks->body = body;
    ranks_run(ranks);
}

START_TEST(bundles_on_a_device_arrive_whole_on_every_way)
{
    static const size_t largest[] = {0, 300, 1000};

    for (int i = 0; i < 12; i++) {
        struct ranks ranks = {.loopback = {.max_message = largest[i % 3], .eager_bytes = i / 3 % 2 ? 1 << 20 : 0},
                              .session = {.payload_integrity = i / 6}};

        run(&ranks, ways[_i], rounds_body);
        ranks_check(&ranks);
    }
}
END_TEST

/* One end on the host, the other on a device: each is its own affair where the transport carries host memory. */
START_TEST(a_staged_route_may_end_in_another_kind_of_memory)
{
    struct route_spec on_host[] = {routes[0]};
    struct ranks ranks = {.other_routes = on_host};

    on_host[0].memory = memory_host();
    run(&ranks, &loopback_ops, rounds_body);
    ranks_check(&ranks);
}
END_TEST

/* Where it carries device memory, both ends must agree, and the sentence says that they do not. */
START_TEST(a_device_message_for_the_host_is_refused_by_its_flags)
{
    struct route_spec on_host[] = {routes[0]};
    struct ranks ranks = {.other_routes = on_host};

    on_host[0].memory = memory_host();
    run(&ranks, &loopback_device_ops, rounds_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_MISMATCH);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "tensor hidden: flags: expected 0x0, got 0x4"), "%s",
                  ranks.rank[1].err.text);
}
END_TEST

START_TEST(a_host_message_for_a_device_is_refused_by_its_flags)
{
    for (int integrity = 0; integrity < 2; integrity++) {
        struct route_spec on_host[] = {routes[0]};
        struct ranks ranks = {.routes = on_host, .other_routes = routes, .session = {.payload_integrity = integrity}};

        on_host[0].memory_tensors = 0xc; /* hidden lies on the host */
        run(&ranks, &loopback_device_ops, rounds_body);
        ck_assert_int_eq(ranks.rank[1].status, STATUS_MISMATCH);
        ck_assert_msg(strstr(ranks.rank[1].err.text, integrity ? "tensor hidden: flags: expected 0x5, got 0x1"
                                                               : "tensor hidden: flags: expected 0x4, got 0x0"),
                      "%s", ranks.rank[1].err.text);
    }
}
END_TEST

static enum status describe(void *context, const struct tensor *description, struct shape *shapes, struct error *err)
{
    (void)context;
    (void)description;
    (void)shapes;
    (void)err;
    return STATUS_OK;
}

static enum status describe_body(struct rank *self)
{
    struct completion *completion = NULL;

    if (!self->rank)
        return STATUS_INVALID;
    return route_receive(session_route(self->session, 1), NULL, describe, NULL, 0, &completion, &self->err);
}

START_TEST(a_description_cannot_lie_where_the_host_cannot_read)
{
    struct route_spec spec[] = {routes[0]};
    struct ranks ranks = {.routes = spec};

    spec[0].memory_tensors = 0xf;
    run(&ranks, &loopback_ops, describe_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_INVALID);
    ck_assert_str_eq(ranks.rank[1].err.text,
                     "route forward: tensor wave says the shapes of the others, and cannot lie in late:1");
}
END_TEST

static void expect_refused(const struct ranks *ranks, const char *what)
{
    ck_assert_msg(ranks->rank[1].status == STATUS_MISMATCH, "%s: %s", status_name(ranks->rank[1].status),
                  ranks->rank[1].err.text);
    ck_assert_msg(strstr(ranks->rank[1].err.text, what), "%s", ranks->rank[1].err.text);
}

/* Fault flip waits for a frame that is long enough: wave's is too short. */
START_TEST(a_flipped_payload_is_found_by_its_checksum)
{
    struct fault fault = {.rank = 0, .kind = FAULT_FLIP, .byte = HEADER_BYTES + 1000};
    struct ranks ranks = {.session = {.faults = &fault, .fault_count = 1, .payload_integrity = true}};

    run(&ranks, ways[_i], rounds_body);
    expect_refused(&ranks, "tensor hidden: payload checksum: expected 0x");
}
END_TEST

/* Without checksums nobody looks; and what the fault flipped is as it was once it has left. */
static enum status flipped_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);
    struct bundle *bundle = NULL;
    enum status st = self->rank ? take_round(self, 0, &bundle) : send_round(self, 0);

    if (st == STATUS_OK && !self->rank) /* the only bundle of the pool */
        st = route_acquire(route, &bundle, &self->err);
    EXPECT(st != STATUS_OK || bundle);
    if (bundle) /* at the receiver it was flipped on its way */
        EXPECT(is_filled(bundle->tensor[1], 0, 1) == !self->rank);
    route_return(route, bundle);
    return st;
}

START_TEST(a_rehearsed_flip_of_a_device_payload_is_undone_at_its_sender)
{
    struct fault fault = {.rank = 0, .kind = FAULT_FLIP, .byte = HEADER_BYTES + 1000};
    struct route_spec spec[] = {routes[0]};
    struct ranks ranks = {.routes = spec, .session = {.faults = &fault, .fault_count = 1}};

    spec[0].depth = 1;
    run(&ranks, &loopback_device_ops, flipped_body);
    ranks_check(&ranks);
}
END_TEST

START_TEST(a_shortened_frame_is_refused_by_its_size)
{
    struct fault fault = {.rank = 0, .kind = FAULT_SHORT};
    struct route_spec spec = hidden_alone();
    struct ranks ranks = {.routes = &spec, .session = {.faults = &fault, .fault_count = 1}};

    run(&ranks, ways[_i], rounds_body);
    expect_refused(&ranks, "message bytes: expected ");
}
END_TEST

/* Rank 1 leaves out its receipt: it gets zeros, wherever they must be written. */
static enum status skipped_body(struct rank *self)
{
    struct bundle *bundle = NULL;
    unsigned char seen[LARGEST * 20];
    enum status st = self->rank ? take_round(self, 0, &bundle) : send_round(self, 0);

    if (!self->rank)
        return st;
    EXPECT(st == STATUS_OK && bundle);
    for (int t = 0; t < bundle->count; t++) {
        memset(seen, 1, sizeof seen);
        tensor_get(bundle->tensor[t], seen);
        for (size_t k = 0; k < bundle->tensor[t]->capacity_bytes; k++)
            EXPECT(seen[k] == 0);
    }
    route_return(session_route(self->session, 1), bundle);
    return STATUS_OK;
}

START_TEST(a_skipped_receipt_gives_zeros_on_a_device)
{
    struct fault fault = {.rank = 1, .kind = FAULT_SKIP};
    struct ranks ranks = {.loopback = {.eager_bytes = 1 << 20}, .session = {.faults = &fault, .fault_count = 1}};

    run(&ranks, ways[_i], skipped_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_OK);
    ck_assert_int_eq(ranks.rank[1].closing, STATUS_MISMATCH); /* what it left out was sent */
}
END_TEST

/* A session that fails while the device still works on a bundle: it stays lent until the queue has let go. */
static enum status held_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    struct shape shapes[4];
    enum status st;

    if (self->rank) {
        (void)pthread_barrier_wait(self->context); /* its end would fail what the other has yet to post */
        return STATUS_LOST;
    }
    late_memory_hold(self->memory, true);
    shapes_of(route, 0, shapes);
    EXPECT(route_acquire(route, &bundle, &self->err) == STATUS_OK);
    for (int t = 0; t < bundle->count; t++)
        (void)fill(bundle->tensor[t], 0, t, &self->err);
    st = route_send(route, bundle, 0, &completion, &self->err);
    EXPECT(st == STATUS_OK && completion_test(completion) == COMPLETION_PENDING);
    (void)pthread_barrier_wait(self->context);
    session_fail(self->session, STATUS_LOST, "rehearsed");
    EXPECT(completion_test(completion) == COMPLETION_PENDING);
    late_memory_hold(self->memory, false);
    st = completion_wait(completion, DEADLINE_NONE, &self->err);
    EXPECT(completion_test(completion) == COMPLETION_FAILED);
    completion_release(completion);
    return st;
}

START_TEST(what_a_device_still_works_on_is_given_back_only_then)
{
    pthread_barrier_t posted;
    struct ranks ranks = {.loopback = {.eager_bytes = 1 << 20}, .context = &posted};

    ck_assert_int_eq(pthread_barrier_init(&posted, NULL, 2), 0);
    run(&ranks, &loopback_ops, held_body);
    (void)pthread_barrier_destroy(&posted);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_LOST);
}
END_TEST

/* A device that fails while a bundle is on its way. */
static enum status broken_body(struct rank *self)
{
    enum status st;

    if (self->rank)
        return receive_round(self, 0);
    late_memory_break(self->memory);
    st = send_round(self, 0);
    EXPECT(session_check(self->session, NULL) == STATUS_ENVIRONMENT);
    return st;
}

START_TEST(a_lost_device_fails_the_transfer_in_its_own_words)
{
    struct ranks ranks = {.session = {.timeout_ns = 5 * NS_PER_S}};
    /* Over device messages the receiver looks at the sender's queue by itself, and may see it before it is told. */
    const char *heard = ways[_i] == &loopback_ops ? "rank 0: late:0: the device is lost" : "late:0: the device is lost";

    run(&ranks, ways[_i], broken_body);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_ENVIRONMENT);
    ck_assert_msg(strstr(ranks.rank[0].err.text, "late:0: the device is lost"), "%s", ranks.rank[0].err.text);
    ck_assert_msg(strstr(ranks.rank[1].err.text, heard), "%s", ranks.rank[1].err.text);
}
END_TEST

/* One more than is received: named at the end, whatever memory it lies in. */
static enum status stray_body(struct rank *self)
{
    return self->rank ? STATUS_OK : send_round(self, 0);
}

START_TEST(a_device_message_that_nobody_received_is_named_at_the_end)
{
    struct route_spec spec = hidden_alone();
    struct ranks ranks = {.routes = &spec, .loopback = {.eager_bytes = 1 << 20}};

    run(&ranks, &loopback_device_ops, stray_body);
    ck_assert_int_eq(ranks.rank[1].closing, STATUS_MISMATCH);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "tensor hidden; rank 1 did not receive it"), "%s",
                  ranks.rank[1].err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_routes");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, bundles_on_a_device_arrive_whole_on_every_way, 0, WAYS);
    tcase_add_test(all, a_staged_route_may_end_in_another_kind_of_memory);
    tcase_add_test(all, a_device_message_for_the_host_is_refused_by_its_flags);
    tcase_add_test(all, a_host_message_for_a_device_is_refused_by_its_flags);
    tcase_add_test(all, a_description_cannot_lie_where_the_host_cannot_read);
    tcase_add_loop_test(all, a_flipped_payload_is_found_by_its_checksum, 0, NATIVE_WAYS);
    tcase_add_test(all, a_rehearsed_flip_of_a_device_payload_is_undone_at_its_sender);
    tcase_add_loop_test(all, a_shortened_frame_is_refused_by_its_size, 0, NATIVE_WAYS);
    tcase_add_loop_test(all, a_skipped_receipt_gives_zeros_on_a_device, 0, WAYS);
    tcase_add_test(all, what_a_device_still_works_on_is_given_back_only_then);
    tcase_add_loop_test(all, a_lost_device_fails_the_transfer_in_its_own_words, 0, NATIVE_WAYS);
    tcase_add_test(all, a_device_message_that_nobody_received_is_named_at_the_end);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
