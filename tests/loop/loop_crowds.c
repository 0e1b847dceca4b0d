/* Large groups whose members are called with different things: every one that differs is named, the rest counted, and
 * the sentence has an end. */
#include "tests/loop/call.h"
#include "tests/suite.h"

#include <stdio.h>

/* Who is called with what, by rank, and the sentence that all of them end with. */
struct crowd {
    int size;
    const char *calls; /* one letter a rank */
    const char *sentence;
};

#define SUM "all_reduce_sum f32[4]"
static const struct crowd crowds[] = {
    {9, "sssbssssa", "ranks 0, 1, 2, 4, 5, 6, 7: " SUM "; rank 3: barrier; rank 8: failure_agreement"},
    {12, "sssbsssssbsr", "ranks 3, 9: barrier; rank 11: broadcast u8[5] root 1; the other 9 ranks: " SUM},
    {16, "ssssssssssbbbbbb", "ranks 10, 11, 12, 13, 14, 15: barrier; the other 10 ranks: " SUM},
    {16, "bbbbsbbbssssssss", "ranks 0, 1, 2, 3, 5, 6, 7: barrier; the other 9 ranks: " SUM},
    {9, "bbbbbbbbb", NULL},
    {16, "0123456789012345",
     "ranks 0, 10: all_reduce_sum f32[1]; ranks 1, 11: all_reduce_sum f32[2]; ranks 2, 12: all_reduce_sum f32[3]; "
     "ranks 3, 13: all_reduce_sum f32[4]; ranks 4, 14: all_reduce_sum f32[5]; ranks 5, 15: all_reduce_sum f32[6]; "
     "4 more ranks with other calls"},
};
enum { CROWDS = sizeof crowds / sizeof crowds[0] };

static struct call call_of(char letter)
{
    switch (letter) {
    case 'b':
        return call_barrier();
    case 'a':
        return call_agreement();
    case 'r':
        return call_broadcast(1);
    case 's':
        return call_sum(DTYPE_F32, 4);
    default:
        return call_sum(DTYPE_F32, 1 + (uint64_t)(letter - '0'));
    }
}

static enum status crowd_body(struct rank *self)
{
    const struct crowd *crowd = self->context;
    struct completion *completion = NULL;
    struct tensor *send = NULL;
    struct tensor *recv = NULL;
    struct call call = call_of(crowd->calls[self->rank]);
    enum status st;

    st = call_post(&call, session_group(self->session, 1), &send, &recv, &completion, &self->err);
    st = finish(st, &completion, &self->err);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

START_TEST(all_who_differ_in_a_large_group_are_named)
{
    static const enum checks depths[] = {CHECKS_FULL, CHECKS_LIGHT};
    const struct crowd *crowd = &crowds[_i % CROWDS];
    int members[MOST] = {0};
    struct group_spec group = GROUP(1, crowd->size, members);
    struct ranks ranks = {.size = crowd->size,
                          .session = {.checks = depths[_i / CROWDS]},
                          .groups = &group,
                          .group_count = 1,
                          .settle = true,
                          .body = crowd_body,
                          .context = (void *)(uintptr_t)crowd};
    char expected[800];

    for (int i = 0; i < crowd->size; i++)
        members[i] = (i + 5) % crowd->size;
    ranks_run(&ranks);
    (void)snprintf(expected, sizeof expected, "group group/1, sequence 0: %s", crowd->sentence ? crowd->sentence : "");
    if (!crowd->sentence)
        ranks_check(&ranks);
    for (int i = 0; i < crowd->size && crowd->sentence; i++) {
        ck_assert_int_eq(ranks.rank[i].closing, STATUS_MISMATCH);
        ck_assert_str_eq(ranks.rank[i].err.text, expected);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crowds");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, all_who_differ_in_a_large_group_are_named, 0, 2 * CROWDS);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
