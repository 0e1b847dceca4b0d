/* Sums that the transport's library adds: when it is asked, what goes ahead, and what becomes of them in a failure. */
#include "tests/loop/ranks.h"

#include <string.h>

#include "base/clock.h"
#include "tests/loop/late_memory.h"
#include "tests/loop/native_sums.h"
#include "tests/suite.h"

enum { SIZE = 3, COUNT = 700 };

static const int members[] = {2, 0, 1};
static const struct group_spec groups[] = {GROUP(5, SIZE, members)};

static void run_groups(struct ranks *ranks, int size, const struct group_spec *specs, size_t count, rank_body *body)
{
    struct transport_ops ops = native_sums_transport(&loopback_device_ops);

    ranks->size = size;
    ranks->ops = &ops;
    ranks->late_memory = true;
    ranks->groups = specs;
    ranks->group_count = count;
    ranks->body = body;
    ranks_run(ranks);
    ck_assert_int_eq(native_sums_open(), 0);
    ck_assert_int_eq(native_sums_pending(), 0);
}

static void run(struct ranks *ranks, rank_body *body)
{
    run_groups(ranks, SIZE, groups, 1, body);
}

/* Small whole numbers: every order gives the same sum. */
static void put(enum dtype dtype, int value, unsigned char *bytes)
{
    float single = (float)value;
    double full = value;
    uint16_t half = dtype == DTYPE_BF16 ? f32_to_bf16(single) : f32_to_f16(single);
    uint64_t whole = (uint64_t)value;

    if (dtype == DTYPE_F32)
        memcpy(bytes, &single, 4);
    else if (dtype == DTYPE_F64)
        memcpy(bytes, &full, 8);
    else if (dtype == DTYPE_F16 || dtype == DTYPE_BF16)
        memcpy(bytes, &half, 2);
    else
        memcpy(bytes, &whole, dtype_bytes(dtype));
}

static struct tensor *tensor_in(struct memory *memory, enum dtype dtype)
{
    struct shape shape = {1, {COUNT}};
    struct tensor *tensor = NULL;

    EXPECT(tensor_create_in(memory, dtype, &shape, &tensor, NULL) == STATUS_OK);
    return tensor;
}

static enum status sum_of(struct rank *self, struct memory *memory, enum dtype dtype, const char *algorithm)
{
    struct tensor *send = tensor_in(memory, dtype);
    struct tensor *recv = tensor_in(memory, dtype);
    struct completion *completion = NULL;
    unsigned char bytes[COUNT * 8];
    unsigned char expected[8];
    enum status st;

    for (int k = 0; k < COUNT; k++)
        put(dtype, (self->rank + 1) * (k % 7), bytes + (size_t)k * dtype_bytes(dtype));
    tensor_put(send, bytes);
    st = group_all_reduce_sum(session_group(self->session, 5), send, recv, &completion, &self->err);
    if (st == STATUS_OK)
        EXPECT(!strcmp(group_algorithm(completion), algorithm));
    st = finish(st, &completion, &self->err);
    if (st == STATUS_OK)
        tensor_get(recv, bytes);
    for (int k = 0; st == STATUS_OK && k < COUNT; k++) {
        put(dtype, 6 * (k % 7), expected);
        EXPECT(!memcmp(bytes + (size_t)k * dtype_bytes(dtype), expected, dtype_bytes(dtype)));
    }
    tensor_release(send);
    tensor_release(recv);
    return st;
}

static enum status every_dtype_body(struct rank *self)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F64, DTYPE_I8,
                                        DTYPE_U8,  DTYPE_I32, DTYPE_U32,  DTYPE_U64};
    enum status st = STATUS_OK;

    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0] && st == STATUS_OK; i++)
        st = sum_of(self, self->memory, dtypes[i], "native");
    return st;
}

START_TEST(the_library_adds_every_dtype_that_it_can)
{
    static const enum checks checks[] = {CHECKS_FULL, CHECKS_LIGHT, CHECKS_OFF};
    int before = native_sums_calls();

    for (int i = 0; i < 3; i++) {
        struct ranks ranks = {.session = {.reduction = i % 2 ? REDUCTION_NATIVE : REDUCTION_AUTO, .checks = checks[i]}};

        run(&ranks, every_dtype_body);
        ranks_check(&ranks);
    }
    ck_assert_int_eq(native_sums_calls() - before, 3 * 9 * SIZE);
}
END_TEST

/* 256 + 1 + 1: in bf16 each step is lost, in f32 none, and 258 is a bf16. */
static enum status halves_body(struct rank *self)
{
    struct tensor *tensor = tensor_in(self->memory, DTYPE_BF16);
    struct completion *completion = NULL;
    uint16_t bytes[COUNT];
    enum status st;

    for (int k = 0; k < COUNT; k++)
        bytes[k] = f32_to_bf16(self->rank == 1 ? 256 : 1); /* rank 1 is the last member */
    tensor_put(tensor, bytes);
    st = group_all_reduce_sum(session_group(self->session, 5), tensor, tensor, &completion, &self->err);
    st = finish(st, &completion, &self->err);
    tensor_get(tensor, bytes);
    for (int k = 0; st == STATUS_OK && k < COUNT; k++)
        EXPECT(bf16_to_f32(bytes[k]) == 258);
    tensor_release(tensor);
    return st;
}

START_TEST(halves_are_added_as_singles_and_rounded_once)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_NATIVE}};

    run(&ranks, halves_body);
    ranks_check(&ranks);
}
END_TEST

static enum status others_body(struct rank *self)
{
    enum status st = sum_of(self, self->memory, DTYPE_I64, "direct");

    return st == STATUS_OK ? sum_of(self, NULL, DTYPE_F32, "direct") : st;
}

START_TEST(auto_falls_to_the_tree_where_the_library_cannot)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_AUTO}};
    int before = native_sums_calls();

    run(&ranks, others_body);
    ranks_check(&ranks);
    ck_assert_int_eq(native_sums_calls(), before);
}
END_TEST

START_TEST(ordered_never_asks_the_library)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_ORDERED}};
    int before = native_sums_calls();

    run(&ranks, others_body);
    ranks_check(&ranks);
    ck_assert_int_eq(native_sums_calls(), before);
}
END_TEST

static enum status refused_body(struct rank *self)
{
    enum status st = sum_of(self, NULL, DTYPE_F32, "none");

    EXPECT(st == STATUS_INVALID &&
           !strcmp(self->err.text, "group group/5: transport loopback cannot add f32 in memory host by itself"));
    st = sum_of(self, self->memory, DTYPE_I64, "none");
    EXPECT(st == STATUS_INVALID && strstr(self->err.text, "cannot add i64 in memory late:"));
    return STATUS_OK;
}

START_TEST(native_refuses_what_the_library_cannot_add)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_NATIVE}};

    run(&ranks, refused_body);
    ranks_check(&ranks);
}
END_TEST

/* One member adds another dtype: the vote finds it, and the library is not called. */
static enum status different_body(struct rank *self)
{
    return sum_of(self, self->memory, self->rank ? DTYPE_F32 : DTYPE_U32, "native");
}

START_TEST(a_difference_is_found_before_the_library_is_called)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_AUTO, .checks = _i ? CHECKS_LIGHT : CHECKS_FULL}};
    int before = native_sums_calls();

    run(&ranks, different_body);
    for (int i = 0; i < SIZE; i++) {
        ck_assert_msg(ranks.rank[i].status == STATUS_MISMATCH, "%s", ranks.rank[i].err.text);
        ck_assert_msg(strstr(ranks.rank[i].err.text, "rank 0: all_reduce_sum u32[700] native") &&
                          strstr(ranks.rank[i].err.text, "ranks 1, 2: all_reduce_sum f32[700] native"),
                      "%s", ranks.rank[i].err.text);
    }
    ck_assert_int_eq(native_sums_calls(), before);
}
END_TEST

/* One member's tensors lie on the host, where the library does not add. */
static enum status elsewhere_body(struct rank *self)
{
    return sum_of(self, self->rank ? self->memory : NULL, DTYPE_F32, self->rank ? "native" : "direct");
}

START_TEST(a_member_that_adds_otherwise_is_named)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_AUTO, .checks = CHECKS_FULL}};
    int before = native_sums_calls();

    run(&ranks, elsewhere_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_MISMATCH);
    ck_assert_int_eq(native_sums_calls(), before);
}
END_TEST

/* Without checks a member that never comes is only missed: the others end, and their memory is back. */
static enum status absent_body(struct rank *self)
{
    if (self->rank == 2) {
        struct error err = {0};

        while (session_check(self->session, &err) == STATUS_OK)
            clock_sleep_ns(NS_PER_MS);
        return STATUS_LOST;
    }
    if (self->rank == 1) {
        enum status st = sum_of(self, self->memory, DTYPE_F16, "native");

        EXPECT(st != STATUS_OK);
        return st;
    }
    clock_sleep_ns(50 * NS_PER_MS);
    session_fail(self->session, STATUS_LOST, "rehearsed");
    return STATUS_LOST;
}

START_TEST(a_sum_under_way_is_given_up_when_the_session_fails)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_NATIVE, .checks = CHECKS_OFF}};

    run(&ranks, absent_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_LOST);
    ck_assert_msg(strstr(ranks.rank[1].err.text, "rehearsed"), "%s", ranks.rank[1].err.text);
}
END_TEST

/* Rank 2 does something else: whoever waits in the sum asks on in a ring, and nobody accuses itself. */
static enum status elsewhere_for_long(struct rank *self)
{
    struct error err = {0};

    if (self->rank < 2)
        return sum_of(self, self->memory, DTYPE_F32, "native");
    while (session_check(self->session, &err) == STATUS_OK)
        clock_sleep_ns(NS_PER_MS);
    return STATUS_LOST;
}

START_TEST(a_sum_that_does_not_end_names_who_is_not_in_it)
{
    struct ranks ranks = {
        .session = {.reduction = REDUCTION_NATIVE, .checks = CHECKS_OFF, .timeout_ns = 1000 * NS_PER_MS}};

    run(&ranks, elsewhere_for_long);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(ranks.rank[i].err.text, "rank 2 ") &&
                          !strstr(ranks.rank[i].err.text, "rank 0 has stood") &&
                          !strstr(ranks.rank[i].err.text, "rank 1 has stood"),
                      "%s", ranks.rank[i].err.text);
}
END_TEST

/* Rank 0's device has no room for the partial results: everybody is told so in the memory's own words. */
static enum status full_body(struct rank *self)
{
    struct tensor *tensor = tensor_in(self->memory, DTYPE_BF16);
    struct completion *completion = NULL;
    enum status st;

    if (self->rank == 0)
        late_memory_fill(self->memory);
    st = group_all_reduce_sum(session_group(self->session, 5), tensor, tensor, &completion, &self->err);
    st = finish(st, &completion, &self->err);
    tensor_release(tensor);
    return st;
}

START_TEST(memory_that_runs_out_is_told_in_its_own_words)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_NATIVE}};

    run(&ranks, full_body);
    for (int i = 0; i < SIZE; i++) {
        ck_assert_int_eq(ranks.rank[i].status, STATUS_NOMEM);
        ck_assert_msg(strstr(ranks.rank[i].err.text, "2800 bytes of partial results: late:0: ") &&
                          strstr(ranks.rank[i].err.text, "and it is full"),
                      "%s", ranks.rank[i].err.text);
    }
}
END_TEST

/* Two lines of two ranks, over all four of which the library divides what it has. */
static const int first_line[] = {1, 0};
static const int second_line[] = {2, 3};

static void run_lines(struct ranks *ranks, rank_body *body)
{
    struct group_spec lines[] = {GROUP(5, 2, first_line), GROUP(6, 2, second_line)};

    lines[0].first_line = lines[1].first_line = 5;
    run_groups(ranks, 4, lines, 2, body);
    native_sums_build_late(-1, 0);
}

static enum status line_body(struct rank *self)
{
    uint32_t id = self->rank < 2 ? 5 : 6;
    struct tensor *tensor = tensor_in(self->memory, DTYPE_F32);
    struct completion *completion = NULL;
    unsigned char bytes[COUNT * 4];
    float sum = 0;
    enum status st = STATUS_OK;

    EXPECT(native_sums_opened(id) == (self->rank < 2 ? 3 : 12)); /* before anything moves */
    for (int i = 0; i < COUNT; i++)
        put(DTYPE_F32, self->rank + 1, bytes + 4 * (size_t)i);
    st = memory_copy(self->memory, tensor->data, bytes, sizeof bytes, &self->err);
    if (st == STATUS_OK)
        st = group_all_reduce_sum(session_group(self->session, id), tensor, tensor, &completion, &self->err);
    st = finish(st, &completion, &self->err);
    if (st == STATUS_OK)
        st = memory_copy(self->memory, &sum, tensor->data, sizeof sum, &self->err);
    if (st == STATUS_OK)
        st = memory_wait(self->memory, clock_ns() + 10 * NS_PER_S, &self->err);
    EXPECT(st != STATUS_OK || sum == (self->rank < 2 ? 1 + 2 : 3 + 4));
    tensor_release(tensor);
    return st;
}

START_TEST(lines_are_built_before_anything_else_moves)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_NATIVE}};

    native_sums_build_late(_i, 100);
    run_lines(&ranks, line_body);
    ranks_check(&ranks);
}
END_TEST

START_TEST(a_line_that_is_never_built_is_told_with_the_ranks_that_lack_it)
{
    struct ranks ranks = {.session = {.reduction = REDUCTION_NATIVE, .startup_timeout_ns = 300 * NS_PER_MS}};

    native_sums_build_late(3, -1);
    run_lines(&ranks, line_body);
    for (int i = 0; i < 4; i++) {
        if (ranks.rank[i].status == STATUS_OK) /* the other line's members may have been done */
            continue;
        ck_assert_msg(strstr(ranks.rank[i].err.text, "group group/6: its communicator is not built after 300 ms "
                                                     "(startup_timeout): not on rank 3"),
                      "%s", ranks.rank[i].err.text);
    }
    ck_assert_int_eq(ranks.rank[2].status, STATUS_TIMEOUT);
    ck_assert_int_eq(ranks.rank[3].status, STATUS_TIMEOUT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("native");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 60);
    tcase_add_test(all, the_library_adds_every_dtype_that_it_can);
    tcase_add_test(all, halves_are_added_as_singles_and_rounded_once);
    tcase_add_test(all, auto_falls_to_the_tree_where_the_library_cannot);
    tcase_add_test(all, ordered_never_asks_the_library);
    tcase_add_test(all, native_refuses_what_the_library_cannot_add);
    tcase_add_loop_test(all, a_difference_is_found_before_the_library_is_called, 0, 2);
    tcase_add_test(all, a_member_that_adds_otherwise_is_named);
    tcase_add_test(all, a_sum_under_way_is_given_up_when_the_session_fails);
    tcase_add_test(all, a_sum_that_does_not_end_names_who_is_not_in_it);
    tcase_add_test(all, memory_that_runs_out_is_told_in_its_own_words);
    tcase_add_loop_test(all, lines_are_built_before_anything_else_moves, 0, 4);
    tcase_add_test(all, a_line_that_is_never_built_is_told_with_the_ranks_that_lack_it);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
