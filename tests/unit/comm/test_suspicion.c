/* The timeout rule, told step by step what a rank waits for and what others answer. */
#include <check.h>
#include <string.h>

#include "base/clock.h"
#include "comm/suspicion.h"
#include "tests/suite.h"

#define S NS_PER_S
#define MS NS_PER_MS

static uint64_t heard[8];
static struct suspicion suspicion;
static struct wait_state own;

static void begin(uint64_t timeout_ns, int peer)
{
    memset(heard, 0, sizeof heard);
    suspicion_init(&suspicion, 0, timeout_ns, heard);
    own = (struct wait_state){.waiting = true,
                              .operation = OPERATION_ALL_REDUCE_SUM,
                              .object_id = 1,
                              .sequence = 4,
                              .object_name = "tensor/0",
                              .peer = peer,
                              .since_ns = 100 * S};
}

static int answer(int rank, int waits_for, uint64_t still_ns, uint64_t now_ns)
{
    struct answer answer = {.inquiry = suspicion.inquiry, .still_ns = still_ns};

    answer.state.waiting = waits_for >= 0;
    answer.state.peer = waits_for;
    answer.state.counter = 77;
    (void)strcpy(answer.state.phase, "step 12");
    heard[rank] = now_ns;
    return suspicion_answer(&suspicion, rank, &answer, now_ns);
}

static bool expired(uint64_t now_ns, struct cause *cause)
{
    *cause = (struct cause){0};
    return suspicion_expired(&suspicion, &own, now_ns - own.since_ns, now_ns - own.since_ns, now_ns, cause);
}

START_TEST(nobody_is_asked_before_a_quarter_of_the_timeout)
{
    begin(8 * S, 1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 101 * S), -1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 102 * S), 1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 102 * S + MS), -1);
}
END_TEST

START_TEST(a_silent_rank_is_blamed_after_the_timeout_and_not_before)
{
    struct cause cause;

    begin(8 * S, 1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 102 * S), 1);
    for (uint64_t t = 102 * S; t < 108 * S; t += 100 * MS) {
        (void)suspicion_step(&suspicion, &own, t);
        ck_assert(!expired(t, &cause));
    }
    (void)suspicion_step(&suspicion, &own, 108 * S);
    ck_assert(expired(108 * S, &cause));
    ck_assert_int_eq(cause.rank, 1);
    ck_assert_int_eq(cause.status, STATUS_TIMEOUT);
    ck_assert_str_eq(cause.text, "rank 1 has been silent for 8.0 s (timeout 8.0 s); rank 0 waits for rank 1 in "
                                 "all_reduce_sum on tensor/0, sequence 4");
}
END_TEST

START_TEST(the_rank_behind_a_neighbour_is_blamed_never_the_neighbour)
{
    struct cause cause;

    begin(4 * S, 1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 104 * S), 1);
    ck_assert_int_eq(answer(1, 2, 9 * S, 104 * S), 2);
    ck_assert_int_eq(answer(2, 3, 9 * S, 104 * S), 3);
    ck_assert(!expired(104 * S, &cause));
    ck_assert_int_eq(answer(3, -1, 5 * S, 104 * S), -1);
    ck_assert(expired(104 * S, &cause));
    ck_assert_int_eq(cause.rank, 3);
    ck_assert_ptr_nonnull(strstr(cause.text, "rank 3 has stood still"));
    ck_assert_ptr_nonnull(strstr(cause.text, "rank 1 waits for rank 2"));
    ck_assert_ptr_nonnull(strstr(cause.text, "rank 3 does not wait (step 12)"));
}
END_TEST

START_TEST(an_end_that_moves_starts_the_clock_anew)
{
    struct cause cause;

    begin(4 * S, 1);
    for (uint64_t t = 101 * S; t < 160 * S; t += 500 * MS) {
        if (suspicion_step(&suspicion, &own, t) == 1)
            (void)answer(1, -1, 10 * MS, t);
        ck_assert(!expired(t, &cause));
    }
    for (uint64_t t = 160 * S; t < 163 * S; t += 500 * MS) {
        if (suspicion_step(&suspicion, &own, t) == 1)
            (void)answer(1, -1, t - 160 * S, t);
        ck_assert(!expired(t, &cause));
    }
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 164 * S), 1);
    (void)answer(1, -1, 4 * S, 164 * S);
    ck_assert(expired(164 * S, &cause));
}
END_TEST

START_TEST(a_neighbour_that_moves_between_its_waits_is_not_stuck)
{
    struct cause cause;

    begin(4 * S, 1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 110 * S), 1);
    ck_assert_int_eq(answer(1, 2, 100 * MS, 110 * S), 2);
    (void)answer(2, -1, 30 * S, 110 * S);
    ck_assert(!expired(110 * S, &cause));
}
END_TEST

START_TEST(a_cycle_is_its_own_cause)
{
    struct cause cause;

    begin(4 * S, 3);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 110 * S), 3);
    ck_assert_int_eq(answer(3, 2, 9 * S, 110 * S), 2);
    ck_assert_int_eq(answer(2, 0, 9 * S, 110 * S), -1);
    ck_assert(expired(110 * S, &cause));
    ck_assert_int_eq(cause.rank, -1);
    ck_assert_ptr_nonnull(strstr(cause.text, "ranks wait for each other since 9.0 s: 0, 3, 2 (timeout"));

    begin(4 * S, 1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 110 * S), 1);
    ck_assert_int_eq(answer(1, 2, 9 * S, 110 * S), 2);
    ck_assert_int_eq(answer(2, 3, 9 * S, 110 * S), 3);
    ck_assert_int_eq(answer(3, 2, 9 * S, 110 * S), -1);
    ck_assert(expired(110 * S, &cause));
    ck_assert_int_eq(cause.rank, -1);
    ck_assert_ptr_nonnull(strstr(cause.text, "wait for each other since 9.0 s: 2, 3 (timeout"));
}
END_TEST

/* Signs of life of whoever asks say nothing about the one that is asked, but where the chain comes back to it. */
START_TEST(who_works_while_it_waits_may_blame_others_but_no_cycle_of_its_own)
{
    struct cause cause;

    begin(4 * S, 1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 110 * S), 1);
    (void)answer(1, -1, 9 * S, 110 * S);
    ck_assert(suspicion_expired(&suspicion, &own, 0, 10 * S, 110 * S, &cause));
    ck_assert_int_eq(cause.rank, 1);
    ck_assert(!suspicion_expired(&suspicion, &own, 0, 3 * S, 110 * S, &cause));
    begin(4 * S, 1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 110 * S), 1);
    (void)answer(1, 0, 9 * S, 110 * S);
    ck_assert(!suspicion_expired(&suspicion, &own, 0, 10 * S, 110 * S, &cause));
    ck_assert(suspicion_expired(&suspicion, &own, 9 * S, 10 * S, 110 * S, &cause));
}
END_TEST

START_TEST(a_late_answer_takes_the_silence_back)
{
    struct cause cause;

    begin(8 * S, 1);
    (void)suspicion_step(&suspicion, &own, 102 * S);
    (void)suspicion_step(&suspicion, &own, 105 * S);
    ck_assert_int_eq(suspicion.end, CHAIN_SILENT);
    (void)answer(1, -1, 100 * MS, 107 * S + 900 * MS);
    (void)suspicion_step(&suspicion, &own, 108 * S);
    ck_assert(!expired(108 * S, &cause));
    for (uint64_t t = 108 * S; t < 115 * S + 900 * MS; t += 100 * MS) {
        (void)suspicion_step(&suspicion, &own, t);
        ck_assert(!expired(t, &cause));
    }
}
END_TEST

START_TEST(another_wait_is_another_suspicion)
{
    struct cause cause;

    begin(4 * S, 1);
    (void)suspicion_step(&suspicion, &own, 110 * S);
    (void)answer(1, -1, 9 * S, 110 * S);
    own.since_ns = 109 * S;
    own.peer = 2;
    ck_assert(!expired(114 * S, &cause));
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 114 * S), 2);
    ck_assert(!expired(114 * S, &cause));
}
END_TEST

START_TEST(a_wait_for_nobody_ends_at_ourselves)
{
    struct cause cause;

    begin(4 * S, -1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 110 * S), -1);
    ck_assert(expired(110 * S, &cause));
    ck_assert_int_eq(cause.rank, 0);
}
END_TEST

START_TEST(a_person_is_told_before_anybody_is_blamed)
{
    char line[512] = "";

    begin(600 * S, 1);
    ck_assert(!suspicion_tell(&suspicion, &own, 101 * S, line, sizeof line));
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 102 * S), -1);
    ck_assert_int_eq(suspicion_step(&suspicion, &own, 103 * S), 1); /* 3 s, not a quarter of ten minutes */
    ck_assert(!suspicion_tell(&suspicion, &own, 103 * S, line, sizeof line));
    ck_assert_int_eq(answer(1, 2, 9 * S, 103 * S), 2);
    ck_assert(!suspicion_tell(&suspicion, &own, 103 * S, line, sizeof line));
    (void)answer(2, -1, S, 103 * S);
    ck_assert(suspicion_tell(&suspicion, &own, 105 * S, line, sizeof line));
    ck_assert_str_eq(line,
                     "waiting for 5.0 s: rank 2 works, its last sign of progress 3.0 s ago; rank 0 waits for rank "
                     "1 in all_reduce_sum on tensor/0, sequence 4; rank 1 waits for rank 2 (step 12); rank 2 does "
                     "not wait (step 12)");
    begin(600 * S, 1);
    (void)suspicion_step(&suspicion, &own, 110 * S);
    (void)suspicion_step(&suspicion, &own, 113 * S);
    ck_assert(suspicion_tell(&suspicion, &own, 113 * S, line, sizeof line));
    ck_assert_str_eq(line, "waiting for 13.0 s: rank 1 does not answer, for 13.0 s now; rank 0 waits for rank 1 in "
                           "all_reduce_sum on tensor/0, sequence 4");
}
END_TEST

START_TEST(a_cycle_and_a_wait_for_nobody_are_told)
{
    char line[512] = "";

    begin(600 * S, 1);
    (void)suspicion_step(&suspicion, &own, 110 * S);
    (void)answer(1, 0, 9 * S, 110 * S);
    ck_assert(suspicion_tell(&suspicion, &own, 110 * S, line, sizeof line));
    ck_assert_ptr_nonnull(
        strstr(line, "waiting for 10.0 s: ranks wait for each other, rank 0 among them; rank 0 waits"));
    begin(600 * S, -1);
    ck_assert(suspicion_tell(&suspicion, &own, 110 * S, line, sizeof line));
    ck_assert_ptr_nonnull(strstr(line, "waiting for 10.0 s; rank 0 waits in all_reduce_sum"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("suspicion");
    TCase *tests = tcase_create("suspicion");

    tcase_add_test(tests, nobody_is_asked_before_a_quarter_of_the_timeout);
    tcase_add_test(tests, a_silent_rank_is_blamed_after_the_timeout_and_not_before);
    tcase_add_test(tests, the_rank_behind_a_neighbour_is_blamed_never_the_neighbour);
    tcase_add_test(tests, an_end_that_moves_starts_the_clock_anew);
    tcase_add_test(tests, a_neighbour_that_moves_between_its_waits_is_not_stuck);
    tcase_add_test(tests, a_cycle_is_its_own_cause);
    tcase_add_test(tests, who_works_while_it_waits_may_blame_others_but_no_cycle_of_its_own);
    tcase_add_test(tests, a_late_answer_takes_the_silence_back);
    tcase_add_test(tests, another_wait_is_another_suspicion);
    tcase_add_test(tests, a_wait_for_nobody_ends_at_ourselves);
    tcase_add_test(tests, a_person_is_told_before_anybody_is_blamed);
    tcase_add_test(tests, a_cycle_and_a_wait_for_nobody_are_told);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
