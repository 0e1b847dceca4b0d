/* Misuse, rehearsed faults, and a random walk through everything. */
#include "tests/loop/ranks.h"

#include <string.h>

#include "base/clock.h"
#include "comm/fault.h"
#include "tests/suite.h"

static const int pair_members[] = {0, 1};
static const int all_members[] = {2, 0, 3, 1};
static const struct group_spec groups[] = {GROUP(1, 2, pair_members), GROUP(2, 4, all_members)};

static void run(struct ranks *ranks, int size, rank_body *body)
{
    ranks->size = size;
    ranks->groups = groups;
    ranks->group_count = size == 4 ? 2 : 1;
    ranks->body = body;
    ranks_run(ranks);
}

/* At least one rank found a mismatch that says both texts, and every rank of the group ended with one. */
static void expect_mismatch(const struct ranks *ranks, const char *one, const char *other)
{
    bool found = false;

    for (int i = 0; i < ranks->size; i++) {
        ck_assert_msg(ranks->rank[i].status == STATUS_MISMATCH, "rank %d: %s: %s", i,
                      status_name(ranks->rank[i].status), ranks->rank[i].err.text);
        found = found || (strstr(ranks->rank[i].err.text, one) && strstr(ranks->rank[i].err.text, other));
    }
    ck_assert_msg(found, "%s", ranks->rank[0].err.text);
}

/* B39 and the rest of what is refused before anything is sent. */
static enum status misuse_body(struct rank *self)
{
    struct group *group = session_group(self->session, 1);
    struct tensor *tensor = TENSOR(DTYPE_F32, 4, 2);
    struct tensor *wide = TENSOR(DTYPE_F32, 8, 3);
    struct tensor *flags = TENSOR(DTYPE_BOOL, 4);
    struct tensor part = {.dtype = DTYPE_F32, .shape = {2, {2, 2}}, .bytes = 16, .data = tensor->data + 8};
    struct completion *completion = NULL;
    uint64_t counts[2] = {4, 5};
    struct error *err = &self->err;

    atomic_init(&part.references, 100);
    if (self->rank > 1) {
        EXPECT(group_rank(group) == -1);
        EXPECT(group_all_reduce_sum(group, tensor, tensor, &completion, err) == STATUS_INVALID);
        EXPECT(strstr(err->text, "is not a member of group group/1 (ranks 0, 1)") != NULL);
    } else {
        EXPECT(group_all_reduce_sum(group, flags, flags, &completion, err) == STATUS_INVALID);
        EXPECT(group_all_reduce_sum(group, tensor, wide, &completion, err) == STATUS_INVALID);
        EXPECT(group_all_reduce_sum(group, tensor, NULL, &completion, err) == STATUS_INVALID);
        EXPECT(group_all_gather_even(group, tensor, wide, 0, &completion, err) == STATUS_INVALID);
        EXPECT(group_all_gather_even(group, tensor, wide, 2, &completion, err) == STATUS_INVALID);
        EXPECT(group_all_gather_even(group, &part, tensor, 0, &completion, err) == STATUS_INVALID);
        EXPECT(strstr(err->text, "overlap") != NULL);
        EXPECT(group_all_gather_uneven(group, tensor, wide, 0, counts, &completion, err) == STATUS_INVALID);
        EXPECT(group_broadcast(group, tensor, 2, &completion, err) == STATUS_INVALID);
    }
    tensor_release(tensor);
    tensor_release(wide);
    tensor_release(flags);
    EXPECT(!completion);
    return STATUS_OK;
}

START_TEST(misuse_is_refused_before_anything_is_sent)
{
    struct ranks ranks = {0};

    run(&ranks, 4, misuse_body);
    ranks_check(&ranks);
}
END_TEST

static enum status nothing_body(struct rank *self)
{
    (void)self;
    return STATUS_OK;
}

/* An id is a tag, and the transport says which is the largest. */
START_TEST(impossible_groups_are_refused)
{
    static const int twice[] = {0, 1, 0};
    static const int absent[] = {0, 2};
    const struct group_spec specs[] = {GROUP(5, 3, twice), GROUP(5, 2, absent), GROUP(32767, 2, pair_members)};
    static const char *const texts[] = {"rank 0 is a member twice", "rank 2 is not among the 2", "largest, 32766"};

    for (int i = 0; i < 3; i++) {
        struct ranks ranks = {.size = 2, .groups = &specs[i], .group_count = 1, .body = nothing_body};

        ranks_run(&ranks);
        ck_assert_int_eq(ranks.rank[1].status, i == 2 ? STATUS_OVERFLOW : STATUS_INVALID);
        ck_assert_msg(strstr(ranks.rank[1].err.text, texts[i]) != NULL, "%s", ranks.rank[1].err.text);
    }
}
END_TEST

static enum status limits_body(struct rank *self)
{
    struct group *group = session_group(self->session, 1);
    struct tensor *tensor = TENSOR(DTYPE_F32, 5);
    struct tensor *integers = TENSOR(DTYPE_I32, 2);
    struct completion *completion = NULL;

    EXPECT(group_all_reduce_sum(group, tensor, tensor, &completion, &self->err) == STATUS_OVERFLOW);
    EXPECT(strstr(self->err.text, "20 bytes exceed its limit of 16") != NULL);
    EXPECT(group_all_reduce_sum(group, integers, integers, &completion, &self->err) == STATUS_INVALID);
    EXPECT(strstr(self->err.text, "i32 was not selected for it: its dtypes are f32") != NULL);
    EXPECT(group_barrier(group, &completion, &self->err) == STATUS_INVALID);
    EXPECT(strstr(self->err.text, "barrier was not selected for it: its operations are all_reduce_sum") != NULL);
    tensor_release(tensor);
    tensor_release(integers);
    return STATUS_OK;
}

START_TEST(what_was_not_selected_is_an_error)
{
    const struct group_spec spec = {.id = 1,
                                    .name = "few",
                                    .size = 2,
                                    .members = pair_members,
                                    .operations = OPERATION_BIT(OPERATION_ALL_REDUCE_SUM),
                                    .dtypes = DTYPE_BIT(DTYPE_F32),
                                    .max_bytes = 16};
    struct ranks ranks = {.size = 2, .groups = &spec, .group_count = 1, .body = limits_body};

    ranks_run(&ranks);
    ranks_check(&ranks);
}
END_TEST

static enum status sums_body(struct rank *self)
{
    struct group *group = session_group(self->session, 1);
    enum status st = STATUS_OK;

    for (int i = 0; i < 4 && st == STATUS_OK; i++) {
        struct tensor *tensor = TENSOR(DTYPE_F32, 100);
        struct completion *completion = NULL;

        st = finish(group_all_reduce_sum(group, tensor, tensor, &completion, &self->err), &completion, &self->err);
        tensor_release(tensor);
    }
    return st;
}

/* Two groups of equal members in equal order. */
static const struct group_spec twins[] = {GROUP(1, 2, pair_members), GROUP(2, 2, pair_members)};
enum { TWIN_VALUES = 100 };

static struct tensor *twin_values(const struct rank *self, uint32_t id)
{
    struct tensor *tensor = TENSOR(DTYPE_U32, TWIN_VALUES);

    for (int k = 0; k < TWIN_VALUES; k++)
        ((uint32_t *)(void *)tensor->data)[k] = (self->rank ? 10 : 1) * id;
    return tensor;
}

static bool are(const struct tensor *tensor, uint32_t value)
{
    for (int k = 0; k < TWIN_VALUES; k++) {
        if (((const uint32_t *)(const void *)tensor->data)[k] != value)
            return false;
    }
    return true;
}

/* Ranks post on them in opposite order. */
static enum status crosswise_body(struct rank *self)
{
    struct completion *completion[2] = {NULL};
    struct tensor *tensor[2];
    enum status st = STATUS_OK;

    for (int i = 0; i < 2; i++) {
        uint32_t id = (uint32_t)(self->rank ? 2 - i : 1 + i);

        tensor[i] = twin_values(self, id);
        if (st == STATUS_OK)
            st = group_all_reduce_sum(session_group(self->session, id), tensor[i], tensor[i], &completion[i],
                                      &self->err);
    }
    for (int i = 0; i < 2; i++) {
        st = finish(st, &completion[i], &self->err);
        EXPECT(st != STATUS_OK || are(tensor[i], self->rank ? 11 * (2 - (uint32_t)i) : 11 * (1 + (uint32_t)i)));
        tensor_release(tensor[i]);
    }
    return st;
}

/* Each waits on another one, and has nothing of its twin's. */
static enum status other_twin_body(struct rank *self)
{
    struct group *group = session_group(self->session, self->rank ? 2 : 1);
    struct tensor *send = twin_values(self, 1);
    struct tensor *recv = twin_values(self, 7);
    struct completion *completion = NULL;
    enum status st = group_all_reduce_sum(group, send, recv, &completion, &self->err);

    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, &self->err);
    completion_abandon(completion);
    EXPECT(are(recv, self->rank ? 70 : 7));
    tensor_release(send);
    tensor_release(recv);
    return st;
}

START_TEST(groups_of_equal_members_do_not_stand_for_each_other)
{
    struct ranks crosswise = {.size = 2, .groups = twins, .group_count = 2, .body = crosswise_body};
    struct ranks other = {.size = 2,
                          .groups = twins,
                          .group_count = 2,
                          .body = other_twin_body,
                          .settle = true,
                          .session = {.checks = _i ? CHECKS_FULL : CHECKS_LIGHT, .timeout_ns = 300 * NS_PER_MS}};

    crosswise.session.checks = other.session.checks;
    ranks_run(&crosswise);
    ranks_check(&crosswise);
    ranks_run(&other);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(other.rank[i].status != STATUS_OK, "rank %d took it for its own", i);
        ck_assert_msg(strstr(other.rank[i].err.text, "group/1") && strstr(other.rank[i].err.text, "group/2"), "%s",
                      other.rank[i].err.text);
    }
}
END_TEST

/* B26: one rank leaves a reduction out; the next one's sequence tells. */
START_TEST(left_out_operation_is_named_by_its_sequence)
{
    struct fault fault = {.rank = 1, .operation = 1, .kind = FAULT_SKIP};
    struct ranks ranks = {.session = {.faults = &fault, .fault_count = 1, .checks = CHECKS_FULL}};

    run(&ranks, 2, sums_body);
    expect_mismatch(&ranks, "group group/1: rank 0: sequence 1, all_reduce_sum f32[100]; ",
                    "; rank 1: sequence 2, all_reduce_sum f32[100]");
}
END_TEST

START_TEST(rehearsed_lack_of_memory_is_a_status)
{
    struct fault fault = {.rank = 1, .operation = 2, .kind = FAULT_OOM};
    struct ranks ranks = {.session = {.faults = &fault, .fault_count = 1, .timeout_ns = 500 * NS_PER_MS}};

    run(&ranks, 2, sums_body);
    ck_assert_int_eq(ranks.rank[1].status, STATUS_NOMEM);
    ck_assert_int_ne(ranks.rank[0].status, STATUS_OK);
}
END_TEST

START_TEST(delay_shorter_than_the_timeout_is_waited_for)
{
    struct fault fault = {.rank = 0, .operation = 1, .kind = FAULT_DELAY, .delay_ns = 300 * NS_PER_MS};
    struct ranks ranks = {.session = {.faults = &fault, .fault_count = 1, .checks = CHECKS_FULL}};
    uint64_t start = clock_ns();

    run(&ranks, 2, sums_body);
    ranks_check(&ranks);
    ck_assert_uint_ge(clock_ns() - start, 300 * NS_PER_MS);
}
END_TEST

/* After a failure nothing native is submitted, and each call says the first failure. */
static enum status poisoned_body(struct rank *self)
{
    struct group *group = session_group(self->session, 1);
    struct tensor *tensor = TENSOR(DTYPE_F32, 100);
    struct completion *completion = NULL;
    struct error err = {0};
    uint64_t frames = 0;

    if (!self->rank)
        session_fail(self->session, STATUS_MODEL, "token 7 is not finite");
    while (session_check(self->session, &self->err) == STATUS_OK)
        clock_sleep_ns(NS_PER_MS);
    session_fail(self->session, STATUS_STORAGE, "too late");
    frames = session_counters(self->session).frames_sent;
    EXPECT(group_all_reduce_sum(group, tensor, tensor, &completion, &err) == STATUS_MODEL);
    EXPECT(strstr(err.text, "token 7 is not finite") != NULL);
    EXPECT(session_counters(self->session).frames_sent == frames);
    tensor_release(tensor);
    return STATUS_MODEL;
}

START_TEST(first_failure_wins_and_reaches_everybody)
{
    struct ranks ranks = {0};

    run(&ranks, 2, poisoned_body);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(ranks.rank[i].err.text, "token 7 is not finite") != NULL, "%s", ranks.rank[i].err.text);
}
END_TEST

START_TEST(fault_texts_are_parsed_or_refused)
{
    static const char *const good[] = {"rank=3,op=12,kind=kill", "rank=0,op=0,kind=delay:250ms",
                                       "kind=flip:17:resealed,op=1,rank=2", "rank=1,op=1,kind=flip:0"};
    static const char *const bad[] = {"",
                                      "rank=1,op=2",
                                      "rank=1,op=2,kind=melt",
                                      "rank=-1,op=2,kind=kill",
                                      "rank=1,op=2,kind=delay:3",
                                      "rank=1,op=2,kind=kill,",
                                      "rank=1,rank=2,op=2,kind=kill",
                                      "rank=1,op=99999999999999999999,kind=kill",
                                      "rank=1,op=2,kind=delay:99999999999s",
                                      "rank=1,op=2,kind=flip:"};
    struct fault fault = {0};
    struct error err = {0};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert_msg(fault_parse(good[i], &fault, &err) == STATUS_OK, "%s", err.text);
    ck_assert_int_eq(fault_parse(good[1], &fault, &err), STATUS_OK);
    ck_assert_uint_eq(fault.delay_ns, 250 * NS_PER_MS);
    ck_assert_int_eq(fault_parse(good[2], &fault, &err), STATUS_OK);
    ck_assert(fault.kind == FAULT_FLIP && fault.byte == 17 && fault.resealed && fault.rank == 2);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(fault_parse(bad[i], &fault, &err) == STATUS_USAGE, "\"%s\" was taken", bad[i]);
}
END_TEST

/* 2000 operations in random order, sizes and groups; every rank draws the same numbers. */
static enum status random_turn(struct rank *self, uint64_t *state)
{
    struct group *group = session_group(self->session, 1 + random_next(state) % 2);
    uint32_t kind = random_next(state) % 3;
    uint64_t rows = random_next(state) % 5 == 0 ? 0 : random_next(state) % 300;
    uint64_t columns = 1 + random_next(state) % 40;
    uint32_t root = random_next(state) % 2;
    struct completion *completion = NULL;
    uint64_t counts[4];
    uint64_t total = 0;
    enum status st = STATUS_OK;
    int me = group_rank(group);

    for (int i = 0; i < 4; i++)
        counts[i] = random_next(state) % 4 * (rows / 4);
    for (int i = 0; i < group_size(group); i++)
        total += counts[i];
    if (me < 0)
        return STATUS_OK;
    struct tensor *whole = TENSOR(DTYPE_U32, kind == 1 ? total : rows, columns);
    struct tensor *part = TENSOR(DTYPE_U32, kind == 1 ? counts[me] : rows, columns);

    for (size_t k = 0; k < part->bytes / 4; k++)
        ((uint32_t *)part->data)[k] = (uint32_t)me * 1000003 + (uint32_t)k;
    if (kind == 0)
        st = group_all_reduce_sum(group, part, whole, &completion, &self->err);
    else if (kind == 1)
        st = group_all_gather_uneven(group, part, whole, 0, counts, &completion, &self->err);
    else
        st = group_broadcast(group, part, (int)root, &completion, &self->err);
    st = finish(st, &completion, &self->err);
    for (size_t k = 0; st == STATUS_OK && kind != 1 && k < part->bytes / 4; k++) {
        uint32_t size = (uint32_t)group_size(group);
        uint32_t sum = size * (size - 1) / 2 * 1000003 + size * (uint32_t)k;

        if (kind == 0)
            EXPECT(((uint32_t *)whole->data)[k] == sum);
        else
            EXPECT(((uint32_t *)part->data)[k] == root * 1000003 + (uint32_t)k);
    }
    for (uint64_t i = 0, at = 0; st == STATUS_OK && kind == 1 && i < (uint64_t)group_size(group); i++) {
        for (uint64_t k = 0; k < counts[i] * columns; k++, at++)
            EXPECT(((uint32_t *)whole->data)[at] == i * 1000003 + k);
    }
    tensor_release(whole);
    tensor_release(part);
    return st;
}

static enum status random_body(struct rank *self)
{
    uint64_t state = 20240229;
    enum status st = STATUS_OK;

    for (int turn = 0; turn < 2000 && st == STATUS_OK; turn++)
        st = random_turn(self, &state);
    return st;
}

START_TEST(random_operations_agree_with_their_definition)
{
    struct ranks ranks = {.loopback = {.max_message = 20000, .eager_bytes = 4096},
                          .session = {.checks = CHECKS_FULL, .payload_integrity = true}};

    run(&ranks, 4, random_body);
    ranks_check(&ranks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_test(all, misuse_is_refused_before_anything_is_sent);
    tcase_add_test(all, impossible_groups_are_refused);
    tcase_add_test(all, what_was_not_selected_is_an_error);
    tcase_add_loop_test(all, groups_of_equal_members_do_not_stand_for_each_other, 0, 2);
    tcase_add_test(all, left_out_operation_is_named_by_its_sequence);
    tcase_add_test(all, rehearsed_lack_of_memory_is_a_status);
    tcase_add_test(all, delay_shorter_than_the_timeout_is_waited_for);
    tcase_add_test(all, first_failure_wins_and_reaches_everybody);
    tcase_add_test(all, fault_texts_are_parsed_or_refused);
    tcase_add_test(all, random_operations_agree_with_their_definition);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
