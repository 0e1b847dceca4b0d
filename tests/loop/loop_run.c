/* What ranks agree on before a session, and lines that travel to rank 0, with ranks as threads over loopback. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/fault.h"
#include "launcher/run_folder.h"
#include "tests/loop/ranks.h"
#include "tests/suite.h"

enum { MAX_RANKS = 16 };

struct member {
    struct loopback_world *world;
    int rank;
    bool absent; /* rank 0: it never says anything */
    enum status status;
    char id[RUN_ID_BYTES];
    struct error err;
};

static void *agree(void *context)
{
    struct member *member = context;
    struct transport *transport = NULL;

    EXPECT(loopback_join(member->world, member->rank, &transport, &member->err) == STATUS_OK);
    if (member->rank == 0)
        EXPECT(run_id_choose(member->id, &member->err) == STATUS_OK);
    if (!member->absent)
        member->status = run_id_agree(&loopback_ops, transport, clock_ns() + 300 * NS_PER_MS, member->id, &member->err);
    (void)loopback_ops.close(transport, false, NULL);
    return NULL;
}

static void play(struct member *members, int size, bool absent)
{
    struct loopback_options options = {.eager_bytes = 4096};
    pthread_t threads[MAX_RANKS];
    struct loopback_world *world = NULL;

    ck_assert_int_eq(loopback_world_create(size, &options, &world, NULL), STATUS_OK);
    for (int i = 0; i < size; i++) {
        members[i] = (struct member){.world = world, .rank = i, .absent = absent && i == 0};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, agree, &members[i]), 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
    loopback_world_destroy(world);
}

static void forget_starter(void)
{
    static const char *const names[] = {"FERRY_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unsetenv(names[i]);
}

START_TEST(all_ranks_take_the_id_of_rank_0)
{
    static const int sizes[] = {1, 2, 5, MAX_RANKS};
    struct member members[MAX_RANKS];

    forget_starter();
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        play(members, sizes[s], false);
        for (int i = 0; i < sizes[s]; i++) {
            ck_assert_msg(members[i].status == STATUS_OK, "%s", members[i].err.text);
            ck_assert_str_eq(members[i].id, members[0].id);
        }
        /* 20261129T194900Z-4711: sorted by name is sorted by time. */
        ck_assert_uint_ge(strlen(members[0].id), 18);
        ck_assert_int_eq(members[0].id[8], 'T');
        ck_assert_int_eq(members[0].id[16], '-');
    }
    (void)setenv("FERRY_RUN_ID", "given", 1);
    play(members, 3, false);
    ck_assert_str_eq(members[2].id, "given");
    forget_starter();
}
END_TEST

START_TEST(a_rank_0_that_says_nothing_is_not_waited_for_longer_than_agreed)
{
    struct member members[MAX_RANKS];

    play(members, 3, true);
    ck_assert_int_eq(members[1].status, STATUS_TIMEOUT);
    ck_assert_int_eq(members[2].status, STATUS_TIMEOUT);
    ck_assert_str_eq(members[2].err.text, "rank 0 has not said the run's id");
}
END_TEST

struct heard {
    atomic_int count;
    int rank[8];
    char line[8][512];
};

static void hear(void *context, int rank, const char *line)
{
    struct heard *heard = context;
    int at = atomic_fetch_add(&heard->count, 1);

    if (at < 8) {
        heard->rank[at] = rank;
        (void)snprintf(heard->line[at], sizeof heard->line[at], "%s", line);
    }
}

static enum status speak_up(struct rank *self)
{
    if (self->rank == 2)
        session_log(self->session, "a line of rank 2");
    return STATUS_OK;
}

START_TEST(lines_of_other_ranks_and_missed_faults_reach_rank_0)
{
    static const struct fault faults[] = {{.rank = 1, .operation = 999, .kind = FAULT_KILL},
                                          {.rank = 1, .operation = 0, .kind = FAULT_DELAY, .delay_ns = NS_PER_MS}};
    struct heard heard = {0};
    struct ranks ranks = {.size = 3, .body = speak_up};
    const char *const expected = "fault rank=1,op=999 was never reached: the rank posted ";
    bool line = false;
    bool missed = false;

    ranks.session.faults = faults;
    ranks.session.fault_count = 2;
    ranks.session.log = hear;
    ranks.session.log_context = &heard;
    ranks_run(&ranks);
    ranks_check(&ranks);
    ck_assert_int_eq(atomic_load(&heard.count), 2);
    for (int i = 0; i < 2; i++) {
        line = line || (heard.rank[i] == 2 && !strcmp(heard.line[i], "a line of rank 2"));
        missed = missed || (heard.rank[i] == 1 && strstr(heard.line[i], expected) == heard.line[i]);
    }
    ck_assert(line);
    ck_assert_msg(missed, "%s, %s", heard.line[0], heard.line[1]);
}
END_TEST

static enum status come_late(struct rank *self)
{
    struct completion *completion = NULL;
    struct error *err = &self->err;

    if (self->rank == 1)
        clock_sleep_ns(6500 * NS_PER_MS);
    return finish(group_barrier(session_group(self->session, 1), &completion, err), &completion, err);
}

START_TEST(rank_0_says_once_whom_a_long_wait_is_for)
{
    static const int members[] = {0, 1, 2};
    const struct group_spec group = GROUP(1, 3, members);
    struct heard heard = {0};
    struct ranks ranks = {.size = 3, .groups = &group, .group_count = 1, .body = come_late};

    ranks.session.log = hear;
    ranks.session.log_context = &heard;
    ranks_run(&ranks);
    ranks_check(&ranks);
    ck_assert_int_eq(atomic_load(&heard.count), 1);
    ck_assert_int_eq(heard.rank[0], 0);
    ck_assert_msg(strstr(heard.line[0], "waiting for 5.") == heard.line[0], "%s", heard.line[0]);
    ck_assert_msg(strstr(heard.line[0], "rank 1 works") != NULL, "%s", heard.line[0]);
    ck_assert_msg(strstr(heard.line[0], "in barrier on group/1, sequence 0") != NULL, "%s", heard.line[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run");
    TCase *tests = tcase_create("run");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, all_ranks_take_the_id_of_rank_0);
    tcase_add_test(tests, a_rank_0_that_says_nothing_is_not_waited_for_longer_than_agreed);
    tcase_add_test(tests, lines_of_other_ranks_and_missed_faults_reach_rank_0);
    tcase_add_test(tests, rank_0_says_once_whom_a_long_wait_is_for);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
