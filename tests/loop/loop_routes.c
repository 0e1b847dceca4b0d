/* Framed bundles over loopback: what arrives, what is refused, and that nothing refused is delivered. */
#include "tests/loop/ranks.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "comm/fault.h"
#include "comm/frame.h"
#include "tests/suite.h"

/* "hidden" [rows, 4] beside a description of fixed shape, and the mixed bundle. */
static const struct extent_spec rows_extent[] = {{"rows", 0, 200}};
static const struct tensor_spec wave[] = {
    {"wave", DTYPE_U32, 2, {{2, 2, -1}, {4, 4, -1}}},
    {"hidden", DTYPE_F32, 2, {{0, 200, 0}, {4, 4, -1}}},
};
static const struct tensor_spec mixed[] = {
    {"scales", DTYPE_F32, 1, {{2, 2, -1}}},
    {"positions", DTYPE_I32, 2, {{1, 1, -1}, {2, 2, -1}}},
    {"flags", DTYPE_U32, 1, {{1, 1, -1}}},
};

#define ROUTE(number, a, b, list, count, bundles)                                                                      \
    {                                                                                                                  \
        .id = (number), .name = "route/" #number, .from = (a), .to = (b), .tensor_count = (count), .tensors = (list),  \
        .extent_count = 1, .extents = rows_extent, .depth = (bundles)                                                  \
    }

static void run(struct ranks *ranks, int size, const struct route_spec *routes, size_t count, rank_body *body)
{
    ranks->size = size;
    ranks->routes = routes;
    ranks->route_count = count;
    ranks->body = body;
    ranks_run(ranks);
}

static enum status send_mixed(struct rank *self, struct route *route, uint64_t epoch)
{
    static const float scales[2] = {1.5f, -2.25f};
    static const int32_t positions[2] = {-7, 123456};
    static const uint32_t flags[1] = {0xdeadbeef};
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    enum status st = route_acquire(route, &bundle, &self->err);

    if (st != STATUS_OK)
        return st;
    memcpy(bundle->tensor[0]->data, scales, sizeof scales);
    memcpy(bundle->tensor[1]->data, positions, sizeof positions);
    memcpy(bundle->tensor[2]->data, flags, sizeof flags);
    return finish(route_send(route, bundle, epoch, &completion, &self->err), &completion, &self->err);
}

static const struct shape mixed_shapes[] = {{1, {2}}, {2, {1, 2}}, {1, {1}}};

static enum status receive_mixed(struct rank *self, struct route *route, uint64_t epoch)
{
    struct completion *completion = NULL;
    uint64_t got_epoch = 0;
    enum status st = route_receive(route, mixed_shapes, NULL, NULL, epoch, &completion, &self->err);

    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, &self->err);
    if (st == STATUS_OK) {
        struct bundle *bundle = route_take(completion, &got_epoch);

        EXPECT(got_epoch == 5);
        EXPECT(((float *)bundle->tensor[0]->data)[1] == -2.25f);
        EXPECT(((int32_t *)bundle->tensor[1]->data)[0] == -7);
        EXPECT(((uint32_t *)bundle->tensor[2]->data)[0] == 0xdeadbeef);
        route_return(route, bundle);
    }
    completion_abandon(completion);
    return st;
}

static enum status mixed_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);

    return self->rank ? receive_mixed(self, route, self->context ? EPOCH_ANY : 5) : send_mixed(self, route, 5);
}

START_TEST(mixed_bundle_arrives)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, mixed, 3, 2)};
    struct ranks exact = {0};
    struct ranks open = {.context = &open, .session.payload_integrity = true};

    run(&exact, 2, routes, 1, mixed_body);
    ranks_check(&exact);
    run(&open, 2, routes, 1, mixed_body);
    ranks_check(&open);
}
END_TEST

/* Every bit of the first header in turn, as it is and with the checksum recomputed over the damage. */
static void flip_byte(uint64_t byte, bool resealed)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, mixed, 3, 2)};
    struct fault fault = {.rank = 0, .kind = FAULT_FLIP, .byte = byte, .resealed = resealed};
    struct ranks ranks = {.session = {.faults = &fault, .fault_count = 1}};
    bool own_checksum = byte >= 176 && byte < 184;

    run(&ranks, 2, routes, 1, mixed_body);
    if (resealed && own_checksum) {
        ranks_check(&ranks);
        return;
    }
    ck_assert_msg(ranks.rank[1].status == STATUS_MISMATCH, "byte %d: %s", (int)byte, status_name(ranks.rank[1].status));
    ck_assert_msg(strstr(ranks.rank[1].err.text, "route route/1 (rank 0 to rank 1)") != NULL, "%s",
                  ranks.rank[1].err.text);
    ck_assert_msg(strstr(ranks.rank[1].err.text, ": expected ") != NULL, "%s", ranks.rank[1].err.text);
    ck_assert_msg((strstr(ranks.rank[1].err.text, "header checksum") != NULL) == own_checksum, "%s",
                  ranks.rank[1].err.text);
}

START_TEST(every_damaged_header_byte_is_refused_by_name)
{
    for (uint64_t byte = (uint64_t)_i * 32; byte < (uint64_t)_i * 32 + 32; byte++) {
        flip_byte(byte, false);
        flip_byte(byte, true);
    }
}
END_TEST

START_TEST(damaged_payload_is_refused_where_payloads_are_checked)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, mixed, 3, 2)};
    struct fault fault = {.rank = 0, .kind = FAULT_FLIP, .byte = FRAME_FIXED_BYTES + 3};
    struct ranks ranks = {.session = {.faults = &fault, .fault_count = 1, .payload_integrity = true}};

    run(&ranks, 2, routes, 1, mixed_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_MISMATCH);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "payload checksum: expected 0x") != NULL, "%s",
                  ranks.rank[1].err.text);
}
END_TEST

/* The sender has damaged a frame, and then failed and said so, before the receiver looks at anything. */
static enum status failing_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);
    enum status st = STATUS_OK;

    if (self->rank) {
        (void)pthread_barrier_wait(self->context);
        return receive_mixed(self, route, 5);
    }
    st = send_mixed(self, route, 5);
    session_fail(self->session, STATUS_LOST, "rehearsed");
    (void)pthread_barrier_wait(self->context);
    return st == STATUS_OK ? STATUS_LOST : st;
}

START_TEST(what_a_failing_sender_has_told_comes_before_what_is_found)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, mixed, 3, 2)};
    struct fault fault = {.rank = 0, .kind = FAULT_FLIP, .byte = 8};
    pthread_barrier_t told;
    struct ranks ranks = {
        .loopback = {.eager_bytes = 1 << 20}, .session = {.faults = &fault, .fault_count = 1}, .context = &told};

    ck_assert_int_eq(pthread_barrier_init(&told, NULL, 2), 0);
    run(&ranks, 2, routes, 1, failing_body);
    (void)pthread_barrier_destroy(&told);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_LOST);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "rehearsed") != NULL, "%s", ranks.rank[1].err.text);
}
END_TEST

START_TEST(short_frame_is_refused_by_its_size)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, mixed, 3, 2)};
    struct fault fault = {.rank = 0, .kind = FAULT_SHORT};
    struct ranks ranks = {.session = {.faults = &fault, .fault_count = 1}};

    run(&ranks, 2, routes, 1, mixed_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_MISMATCH);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "message bytes: expected 200, got 196") != NULL, "%s",
                  ranks.rank[1].err.text);
}
END_TEST

/* B35: the sender leaves out its second message and sends the third. */
static enum status skipped_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);
    int count = *(const int *)self->context;
    enum status st = STATUS_OK;

    for (int i = 0; i < (self->rank ? 2 : count) && st == STATUS_OK; i++)
        st = self->rank ? receive_mixed(self, route, 5) : send_mixed(self, route, 5);
    /* The sender waits, too, so that it is told. */
    for (int i = 0; !self->rank && i < 300 && st == STATUS_OK; i++) {
        clock_sleep_ns(10 * NS_PER_MS);
        st = session_check(self->session, &self->err);
    }
    return st;
}

START_TEST(skipped_message_is_named_by_expected_and_got_sequence)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, mixed, 3, 2)};
    int count = 3;
    struct fault fault = {.rank = 0, .operation = 1, .kind = FAULT_SKIP};
    struct ranks ranks = {.session = {.faults = &fault, .fault_count = 1}, .context = &count};

    run(&ranks, 2, routes, 1, skipped_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_MISMATCH);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "sequence: expected 1, got 2") != NULL, "%s", ranks.rank[1].err.text);
    ck_assert_int_eq(ranks.rank[0].status, STATUS_MISMATCH);
}
END_TEST

START_TEST(skipped_last_message_times_out_naming_expected_and_last_seen_sequence)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, mixed, 3, 2)};
    int count = 2;
    struct fault fault = {.rank = 0, .operation = 1, .kind = FAULT_SKIP};
    struct ranks ranks = {.session = {.faults = &fault, .fault_count = 1, .timeout_ns = 500 * NS_PER_MS},
                          .context = &count};
    uint64_t start = clock_ns();

    run(&ranks, 2, routes, 1, skipped_body);
    ck_assert_uint_lt(clock_ns() - start, 10 * NS_PER_S);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_LOST);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "expected sequence 1, last seen 0") != NULL, "%s",
                  ranks.rank[1].err.text);
}
END_TEST

/* A wave whose rows are told by its description. */
static enum status tell_rows(void *context, const struct tensor *description, struct shape *shapes, struct error *err)
{
    uint64_t rows = ((const uint32_t *)description->data)[2];

    (void)context;
    if (rows > 200)
        return error_set(err, STATUS_MISMATCH, "%d rows", (int)rows);
    shapes[1] = (struct shape){2, {rows, 4}};
    return STATUS_OK;
}

static enum status send_wave(struct rank *self, struct route *route, uint32_t told, uint64_t rows, uint64_t epoch)
{
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    struct shape shape = {2, {rows, 4}};
    enum status st = route_acquire(route, &bundle, &self->err);

    if (st != STATUS_OK)
        return st;
    memset(bundle->tensor[0]->data, 0, bundle->tensor[0]->bytes);
    ((uint32_t *)bundle->tensor[0]->data)[2] = told;
    st = tensor_reshape(bundle->tensor[1], DTYPE_F32, &shape, &self->err);
    if (st != STATUS_OK)
        return st;
    for (uint64_t k = 0; k < rows * 4; k++)
        ((float *)bundle->tensor[1]->data)[k] = (float)(rows * 1000 + k);
    return finish(route_send(route, bundle, epoch, &completion, &self->err), &completion, &self->err);
}

static enum status receive_wave(struct rank *self, struct route *route, uint64_t rows, uint64_t epoch)
{
    struct completion *completion = NULL;
    enum status st = route_receive(route, NULL, tell_rows, NULL, EPOCH_ANY, &completion, &self->err);
    uint64_t got = 0;

    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, &self->err);
    if (st == STATUS_OK) {
        struct bundle *bundle = route_take(completion, &got);

        EXPECT(got == epoch);
        EXPECT(bundle->tensor[1]->shape.dim[0] == rows);
        for (uint64_t k = 0; k < rows * 4; k++)
            EXPECT(((float *)bundle->tensor[1]->data)[k] == (float)(rows * 1000 + k));
        route_return(route, bundle);
    }
    completion_abandon(completion);
    return st;
}

/* B167, B168: the size changes from bundle to bundle, within one pool. */
static enum status sizes_body(struct rank *self)
{
    static const uint64_t rows[] = {128, 129, 5, 0, 3, 3, 2, 200};
    struct route *route = session_route(self->session, 1);
    enum status st = STATUS_OK;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && st == STATUS_OK; i++)
        st = self->rank ? receive_wave(self, route, rows[i], i / 2)
                        : send_wave(self, route, (uint32_t)rows[i], rows[i], i / 2);
    return st;
}

START_TEST(bundles_of_changing_sizes_follow_their_description)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, wave, 2, 3)};
    struct ranks ranks = {.loopback = {.max_message = 700, .eager_bytes = 500}};
    struct ranks whole = {0};

    run(&whole, 2, routes, 1, sizes_body);
    ranks_check(&whole);
    run(&ranks, 2, routes, 1, sizes_body);
    ranks_check(&ranks);
}
END_TEST

/* B36: one row more than the plan of this wave says. */
static enum status rows_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);

    session_phase(self->session, "step 12, stage 1");
    return self->rank ? receive_wave(self, route, 7, 1) : send_wave(self, route, 7, 8, 1);
}

START_TEST(one_row_too_many_is_named_with_both_sizes)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, wave, 2, 1)};
    struct ranks ranks = {0};
    const char *text = ranks.rank[1].err.text;

    run(&ranks, 2, routes, 1, rows_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_MISMATCH);
    ck_assert_msg(strstr(text, "step 12, stage 1, send_receive, sequence 0, tensor hidden") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "message bytes: expected 304, got 320") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "extent 0: expected 7, got 8") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "payload bytes: expected 112, got 128") != NULL, "%s", text);
}
END_TEST

/* B170: the two ends were given different dtypes for one route. */
START_TEST(other_dtype_is_named_with_both_types)
{
    static const struct tensor_spec halves[] = {
        {"scales", DTYPE_BF16, 1, {{4, 4, -1}}},
        {"positions", DTYPE_I32, 2, {{1, 1, -1}, {2, 2, -1}}},
        {"flags", DTYPE_U32, 1, {{1, 1, -1}}},
    };
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, halves, 3, 1)};
    static const struct route_spec others[] = {ROUTE(1, 0, 1, mixed, 3, 1)};
    struct ranks ranks = {.other_routes = others};
    const char *text = ranks.rank[1].err.text;

    run(&ranks, 2, routes, 1, mixed_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_MISMATCH);
    ck_assert_msg(strstr(text, "dtype: expected f32, got bf16") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "schema digest: expected 0x") != NULL, "%s", text);
}
END_TEST

static enum status falling_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);
    enum status st = self->rank ? receive_wave(self, route, 3, 9) : send_wave(self, route, 3, 3, 9);

    if (st == STATUS_OK)
        st = self->rank ? receive_wave(self, route, 3, 8) : send_wave(self, route, 3, 3, 8);
    return st;
}

START_TEST(epoch_below_the_last_one_is_refused)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, wave, 2, 1)};
    struct ranks ranks = {0};

    run(&ranks, 2, routes, 1, falling_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_MISMATCH);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "epoch: expected 9, got 8") != NULL, "%s", ranks.rank[1].err.text);
}
END_TEST

/* What is wrong before anything is sent. */
static enum status refuse_body(struct rank *self)
{
    struct route *route = session_route(self->session, 1);
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    struct shape shapes[] = {{2, {2, 4}}, {2, {201, 4}}};
    struct shape six = {2, {6, 4}};

    EXPECT(session_route(self->session, 99) == NULL);
    if (self->rank) {
        EXPECT(route_acquire(route, &bundle, &self->err) == STATUS_INVALID);
        EXPECT(strstr(self->err.text, "rank 1 cannot send on route route/1 (rank 0 to rank 1)") != NULL);
        EXPECT(route_receive(route, shapes, NULL, NULL, 0, &completion, &self->err) == STATUS_INVALID);
        EXPECT(strstr(self->err.text, "tensor hidden: dimension 0 is 201, the plan says 0 to 200") != NULL);
        return STATUS_OK;
    }
    EXPECT(route_receive(route, shapes, NULL, NULL, 0, &completion, &self->err) == STATUS_INVALID);
    EXPECT(route_acquire(route, &bundle, &self->err) == STATUS_OK);
    EXPECT(tensor_reshape(bundle->tensor[1], DTYPE_F16, &six, &self->err) == STATUS_OK);
    EXPECT(route_send(route, bundle, 0, &completion, &self->err) == STATUS_INVALID);
    EXPECT(strstr(self->err.text, "tensor hidden: f16, the plan says f32") != NULL);
    route_return(route, bundle);
    return STATUS_OK;
}

START_TEST(misuse_is_refused_before_anything_is_sent)
{
    static const struct route_spec routes[] = {ROUTE(1, 0, 1, wave, 2, 1)};
    struct ranks ranks = {0};

    run(&ranks, 2, routes, 1, refuse_body);
    ranks_check(&ranks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("routes");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_test(all, what_a_failing_sender_has_told_comes_before_what_is_found);
    tcase_add_test(all, mixed_bundle_arrives);
    tcase_add_loop_test(all, every_damaged_header_byte_is_refused_by_name, 0, FRAME_FIXED_BYTES / 32);
    tcase_add_test(all, damaged_payload_is_refused_where_payloads_are_checked);
    tcase_add_test(all, short_frame_is_refused_by_its_size);
    tcase_add_test(all, skipped_message_is_named_by_expected_and_got_sequence);
    tcase_add_test(all, skipped_last_message_times_out_naming_expected_and_last_seen_sequence);
    tcase_add_test(all, bundles_of_changing_sizes_follow_their_description);
    tcase_add_test(all, one_row_too_many_is_named_with_both_sizes);
    tcase_add_test(all, other_dtype_is_named_with_both_types);
    tcase_add_test(all, epoch_below_the_last_one_is_refused);
    tcase_add_test(all, misuse_is_refused_before_anything_is_sent);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
