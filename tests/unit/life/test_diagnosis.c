/* Who waits for whom, and who stands at the end. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launcher/casefile.h"
#include "launcher/diagnosis.h"
#include "tests/suite.h"

enum { MAX = 64 };

static struct patient patients[MAX];
static struct diagnosis *diagnosis;

/* Ranks that all run; peers[i] < 0: does not wait. */
static void everybody(int size, const int *peers)
{
    for (int i = 0; i < size; i++) {
        patients[i] = (struct patient){.rank = i, .life = LIFE_RUNNING, .waited_ns = 9 * NS_PER_S};
        patients[i].wait.waiting = peers[i] >= 0;
        patients[i].wait.peer = peers[i];
    }
}

static void blame(int size, int culprit, bool moving)
{
    diagnosis_destroy(diagnosis);
    ck_assert_int_eq(diagnosis_create(patients, size, culprit, moving, &diagnosis, NULL), STATUS_OK);
}

static void diagnose(int size, bool moving)
{
    blame(size, -1, moving);
}

static const char *chain(int rank)
{
    static char words[256];
    struct text out = {0};

    diagnosis_add_chain(diagnosis, rank, &out);
    (void)snprintf(words, sizeof words, "%s", text_string(&out));
    text_done(&out);
    return words;
}

static const char *cycle(int number)
{
    static char words[256];
    struct text out = {0};

    diagnosis_add_cycle(diagnosis, number, &out);
    (void)snprintf(words, sizeof words, "%s", text_string(&out));
    text_done(&out);
    return words;
}

START_TEST(a_chain_ends_at_the_rank_that_does_not_wait)
{
    everybody(4, (int[]){1, 2, 3, -1});
    patients[3].life = LIFE_SILENT;
    diagnose(4, true);
    ck_assert_int_eq(diagnosis->suspect, 3);
    ck_assert_int_eq(diagnosis->waiters[3], 3);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(diagnosis->end[i], 3);
    ck_assert_str_eq(chain(3), "0 -> 1 -> 2 -> 3");
    ck_assert_int_eq(diagnosis->cycle_count, 0);
    ck_assert_int_eq(diagnosis->verdict, VERDICT_WAITING);
}
END_TEST

START_TEST(what_a_silent_or_dead_rank_waited_for_makes_no_cycle)
{
    static const enum life lives[] = {LIFE_SILENT, LIFE_KILLED, LIFE_MISSING, LIFE_UNREADABLE};

    for (size_t i = 0; i < sizeof lives / sizeof lives[0]; i++) {
        everybody(3, (int[]){1, 2, 0});
        patients[2].life = lives[i];
        patients[2].end_signal = 9;
        diagnose(3, true);
        ck_assert_int_eq(diagnosis->cycle_count, 0);
        ck_assert_int_eq(diagnosis->suspect, 2);
    }
}
END_TEST

START_TEST(what_a_culprit_waited_for_makes_no_cycle)
{
    /* Stopped in a wait that is long over, named by rank 0, ended by the starter. */
    everybody(3, (int[]){1, 2, 0});
    patients[0].life = LIFE_FAILED;
    for (int i = 1; i < 3; i++) {
        patients[i].life = LIFE_KILLED;
        patients[i].end_signal = 15;
    }
    blame(3, 2, false);
    ck_assert_int_eq(diagnosis->cycle_count, 0);
    ck_assert_int_eq(diagnosis->suspect, 2);
    ck_assert_str_eq(chain(2), "0 -> 1 -> 2");
}
END_TEST

START_TEST(a_rank_that_went_unseen_while_others_ended_makes_no_cycle)
{
    everybody(3, (int[]){1, 2, 0});
    patients[0].life = LIFE_FAILED;
    patients[1].life = LIFE_FAILED;
    patients[2].life = LIFE_GONE;
    diagnose(3, false);
    ck_assert_int_eq(diagnosis->cycle_count, 0);
    ck_assert_int_eq(diagnosis->suspect, 2);
}
END_TEST

START_TEST(ranks_that_the_starter_ended_keep_their_waits)
{
    everybody(3, (int[]){1, 2, 0});
    for (int i = 0; i < 3; i++) {
        patients[i].life = LIFE_KILLED;
        patients[i].end_signal = i == 2 ? 9 : 15;
    }
    diagnose(3, false);
    ck_assert_int_eq(diagnosis->suspect, 2);
    ck_assert_int_eq(diagnosis->waiters[2], 2);
    ck_assert_int_eq(diagnosis->verdict, VERDICT_FAILED);
    ck_assert_int_eq(diagnosis->outside, 0);
    patients[2].end_signal = 15; /* all asked to stop: nobody is to blame */
    diagnose(3, false);
    ck_assert_int_eq(diagnosis->suspect, -1);
    ck_assert_int_eq(diagnosis->outside, 15);
}
END_TEST

START_TEST(cycles_are_found_with_those_that_wait_for_them)
{
    /* 5 -> 4 -> 2 -> 3 -> 2 (a cycle of 2 and 3); 1 -> 1 is no wait; 0 -> 6 -> 7 -> 0. */
    everybody(8, (int[]){6, 1, 3, 2, 2, 4, 7, 0});
    diagnose(8, true);
    ck_assert_int_eq(diagnosis->cycle_count, 2);
    ck_assert_str_eq(cycle(diagnosis->cycle[2]), "2 -> 3 -> 2");
    ck_assert_str_eq(cycle(diagnosis->cycle[0]), "0 -> 6 -> 7 -> 0");
    ck_assert_int_eq(diagnosis->cycle[3], diagnosis->cycle[2]);
    ck_assert_int_eq(diagnosis->cycle[4], -1);
    ck_assert_int_eq(diagnosis->cycle[5], -1);
    ck_assert_int_eq(diagnosis->end[5], -1);
    ck_assert_int_eq(diagnosis->end[1], 1);
    ck_assert_int_eq(diagnosis->suspect, -1);
}
END_TEST

START_TEST(the_suspect_is_whom_most_wait_for)
{
    everybody(7, (int[]){-1, 0, 5, 5, 5, -1, 0});
    diagnose(7, true);
    ck_assert_int_eq(diagnosis->suspect, 5);
    ck_assert_int_eq(diagnosis->waiters[5], 3);
    ck_assert_int_eq(diagnosis->waiters[0], 2);
    everybody(4, (int[]){-1, 0, 3, -1});
    diagnose(4, true);
    ck_assert_int_eq(diagnosis->suspect, 0);
}
END_TEST

START_TEST(long_chains_and_cycles_leave_out_their_middle)
{
    int peers[MAX];

    for (int i = 0; i < MAX; i++)
        peers[i] = i + 1 < MAX ? i + 1 : -1;
    everybody(MAX, peers);
    diagnose(MAX, true);
    ck_assert_str_eq(chain(MAX - 1), "0 -> 1 -> 2 -> 3 -> ... -> 59 -> 60 -> 61 -> 62 -> 63");
    patients[MAX - 1].wait.waiting = true;
    patients[MAX - 1].wait.peer = 0;
    diagnose(MAX, true);
    ck_assert_int_eq(diagnosis->cycle_count, 1);
    ck_assert_str_eq(cycle(0), "0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> ... -> 0");
}
END_TEST

START_TEST(verdicts_follow_the_lives)
{
    static const struct {
        enum life life[2];
        bool moving;
        enum verdict verdict;
    } vectors[] = {
        {{LIFE_CLOSED, LIFE_CLOSED}, false, VERDICT_WELL},     {{LIFE_RUNNING, LIFE_CLOSED}, true, VERDICT_RUNNING},
        {{LIFE_RUNNING, LIFE_RUNNING}, true, VERDICT_RUNNING}, {{LIFE_RUNNING, LIFE_SILENT}, true, VERDICT_WAITING},
        {{LIFE_FAILED, LIFE_RUNNING}, true, VERDICT_FAILED},   {{LIFE_KILLED, LIFE_MISSING}, false, VERDICT_FAILED},
        {{LIFE_GONE, LIFE_GONE}, false, VERDICT_GONE},         {{LIFE_MISSING, LIFE_MISSING}, false, VERDICT_UNKNOWN},
    };

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        everybody(2, (int[]){-1, -1});
        patients[0].life = vectors[i].life[0];
        patients[1].life = vectors[i].life[1];
        diagnose(2, vectors[i].moving);
        ck_assert_msg(diagnosis->verdict == vectors[i].verdict, "vector %zu: %s", i, verdict_word(diagnosis->verdict));
    }
    /* A wait is worth a word once it lasts. */
    everybody(2, (int[]){1, -1});
    patients[0].waited_ns = NS_PER_S;
    diagnose(2, true);
    ck_assert_int_eq(diagnosis->verdict, VERDICT_RUNNING);
}
END_TEST

START_TEST(silence_is_told_from_an_end_of_all)
{
    bool moved[3] = {true, false, false};

    for (int i = 0; i < 3; i++)
        patients[i] = (struct patient){.rank = i, .life = LIFE_GONE, .seen_unix_ns = 100 * NS_PER_S};
    patients[2].seen_unix_ns = 90 * NS_PER_S;
    patients_settle(patients, 3, moved);
    ck_assert_int_eq(patients[0].life, LIFE_RUNNING);
    ck_assert_int_eq(patients[1].life, LIFE_GONE);
    ck_assert_int_eq(patients[2].life, LIFE_SILENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("diagnosis");
    TCase *tests = tcase_create("diagnosis");

    tcase_add_test(tests, a_chain_ends_at_the_rank_that_does_not_wait);
    tcase_add_test(tests, what_a_silent_or_dead_rank_waited_for_makes_no_cycle);
    tcase_add_test(tests, what_a_culprit_waited_for_makes_no_cycle);
    tcase_add_test(tests, a_rank_that_went_unseen_while_others_ended_makes_no_cycle);
    tcase_add_test(tests, ranks_that_the_starter_ended_keep_their_waits);
    tcase_add_test(tests, cycles_are_found_with_those_that_wait_for_them);
    tcase_add_test(tests, the_suspect_is_whom_most_wait_for);
    tcase_add_test(tests, long_chains_and_cycles_leave_out_their_middle);
    tcase_add_test(tests, verdicts_follow_the_lives);
    tcase_add_test(tests, silence_is_told_from_an_end_of_all);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
