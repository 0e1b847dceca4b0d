/* Large payloads that travel from tensor to tensor behind a header of their own: whole, in pieces, and damaged. */
#include "tests/loop/ranks.h"

#include <string.h>

#include "comm/fault.h"
#include "tests/suite.h"

enum { MEMBERS = 3, PART = 20000 };

static const int members[] = {2, 0, 1};
static const struct group_spec group = GROUP(1, MEMBERS, members);

static unsigned char byte_of(int member, size_t at)
{
    return (unsigned char)((size_t)member * 91 + at * 7 + (at >> 7));
}

static void fill(struct tensor *tensor, int member)
{
    for (size_t k = 0; k < tensor->bytes; k++)
        tensor->data[k] = byte_of(member, k);
}

/* What is sent must stay as it is; what comes is each member's part. */
static enum status exchange_body(struct rank *self)
{
    const uint64_t counts[] = {PART, PART, PART};
    struct group *all = session_group(self->session, 1);
    int me = group_rank(all);
    struct tensor *send = TENSOR(DTYPE_U8, MEMBERS * PART);
    struct tensor *recv = TENSOR(DTYPE_U8, MEMBERS * PART);
    struct tensor *own = TENSOR(DTYPE_U8, PART);
    struct completion *completion = NULL;
    enum status st;

    fill(send, me);
    fill(own, me);
    st = finish(group_variable_all_to_all(all, send, recv, 0, counts, counts, &completion, &self->err), &completion,
                &self->err);
    for (size_t k = 0; st == STATUS_OK && k < recv->bytes; k++)
        EXPECT(recv->data[k] == byte_of((int)(k / PART), (size_t)me * PART + k % PART));
    if (st == STATUS_OK)
        st = finish(group_all_gather_even(all, own, recv, 0, &completion, &self->err), &completion, &self->err);
    for (size_t k = 0; st == STATUS_OK && k < recv->bytes; k++)
        EXPECT(recv->data[k] == byte_of((int)(k / PART), k % PART));
    for (size_t k = 0; st == STATUS_OK && k < send->bytes; k++)
        EXPECT(send->data[k] == byte_of(me, k));
    if (st == STATUS_OK)
        st = finish(group_broadcast(all, send, 1, &completion, &self->err), &completion, &self->err);
    for (size_t k = 0; st == STATUS_OK && k < send->bytes; k++)
        EXPECT(send->data[k] == byte_of(1, k));
    tensor_release(send);
    tensor_release(recv);
    tensor_release(own);
    return st;
}

START_TEST(large_parts_go_from_tensor_to_tensor)
{
    static const size_t limits[] = {0, 7000};

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct ranks ranks = {.size = MEMBERS,
                              .loopback.max_message = limits[i],
                              .session.checks = (enum checks)_i,
                              .groups = &group,
                              .group_count = 1,
                              .body = exchange_body};

        ranks_run(&ranks);
        ranks_check(&ranks);
    }
}
END_TEST

/* Rank 0 (member 1) is the root of one broadcast, in which its first frame is damaged. */
static enum status damaged_body(struct rank *self)
{
    struct group *all = session_group(self->session, 1);
    struct tensor *tensor = TENSOR(DTYPE_U8, PART);
    struct completion *completion = NULL;
    enum status st;

    fill(tensor, group_rank(all));
    st = finish(group_broadcast(all, tensor, 1, &completion, &self->err), &completion, &self->err);
    for (size_t k = 0; !self->rank && st == STATUS_OK && k < tensor->bytes; k++)
        EXPECT(tensor->data[k] == byte_of(1, k)); /* the sender's own memory is whole again */
    for (size_t k = 0; self->rank && st == STATUS_OK && k < tensor->bytes; k++)
        EXPECT(tensor->data[k] == (unsigned char)(byte_of(1, k) ^ (k == 8 ? 1 : 0)));
    tensor_release(tensor);
    return st;
}

static void run_damaged(struct ranks *ranks, const struct fault *fault)
{
    *ranks = (struct ranks){.size = MEMBERS,
                            .session = {.checks = CHECKS_LIGHT, .faults = fault, .fault_count = 1},
                            .groups = &group,
                            .group_count = 1,
                            .body = damaged_body};
    ranks_run(ranks);
}

START_TEST(damage_to_a_large_part_is_found_where_it_can_be)
{
    static struct ranks ranks;
    static const struct fault header = {.rank = 0, .operation = 0, .kind = FAULT_FLIP, .byte = 100};
    static const struct fault payload = {.rank = 0, .operation = 0, .kind = FAULT_FLIP, .byte = 200};
    static const struct fault cut = {.rank = 0, .operation = 0, .kind = FAULT_SHORT};

    run_damaged(&ranks, &header);
    ck_assert_msg(ranks.rank[1].status == STATUS_MISMATCH, "%s", ranks.rank[1].err.text);
    run_damaged(&ranks, &payload); /* no checksum of payloads: the byte behind the header has changed, and only there */
    ranks_check(&ranks);
    run_damaged(&ranks, &cut);
    ck_assert_msg(ranks.rank[1].status == STATUS_MISMATCH &&
                      strstr(ranks.rank[1].err.text, "message bytes: expected 20000, got 10000"),
                  "%s", ranks.rank[1].err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("detached");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, large_parts_go_from_tensor_to_tensor, CHECKS_OFF, CHECKS_FULL + 1);
    tcase_add_test(all, damage_to_a_large_part_is_found_where_it_can_be);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
