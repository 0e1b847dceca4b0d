/* The keeper: what becomes of a worker's code, of signals, and of two causes of one run. */
#include "tests/unit/life/child.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/cause.h"
#include "launcher/keeper.h"
#include "tests/suite.h"

static int exit_with(void *context, struct keeper *keeper)
{
    (void)keeper;
    return *(int *)context;
}

static int wanted_code;

static int keep_exit(void)
{
    return keeper_run(exit_with, &wanted_code);
}

START_TEST(codes_pass_through_and_those_above_125_become_1)
{
    static const struct {
        int worker;
        int process;
    } vectors[] = {{0, 0}, {1, 1}, {7, 7}, {10, 10}, {125, 125}, {126, 1}, {137, 1}, {255, 1}};

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct child child;

        wanted_code = vectors[i].worker;
        child_spawn(&child, keep_exit);
        child_collect(&child);
        ck_assert_int_eq(child.code, vectors[i].process);
        ck_assert_str_eq(child.text, "");
    }
}
END_TEST

/* 0: foreseen; 1: taken back; 2: with last words. */
static int end_inside_a_library(void *context, struct keeper *keeper)
{
    int kind = *(const int *)context;

    keeper_foresee(keeper, STATUS_ENVIRONMENT, "the library ended this process");
    if (kind == 1)
        keeper_foresee(keeper, STATUS_OK, "");
    if (kind == 2)
        keeper_last_words(keeper, STATUS_STORAGE, "a file was cut");
    _exit(kind == 2 ? 9 : 1);
}

static int keep_library(void)
{
    return keeper_run(end_inside_a_library, &wanted_code);
}

START_TEST(an_end_that_was_foreseen_is_told)
{
    static const struct {
        int code;
        const char *line;
    } vectors[] = {{5, "ferry: error: environment: the library ended this process\n"},
                   {1, ""},
                   {9, "ferry: error: storage: a file was cut\n"}};

    for (int kind = 0; kind < 3; kind++) {
        struct child child;

        wanted_code = kind;
        child_spawn(&child, keep_library);
        child_collect(&child);
        ck_assert_int_eq(child.code, vectors[kind].code);
        ck_assert_str_eq(child.text, vectors[kind].line);
    }
}
END_TEST

static int raise_signal(void *context, struct keeper *keeper)
{
    (void)keeper;
    (void)signal(*(int *)context, SIG_DFL);
    (void)raise(*(int *)context);
    return 0;
}

static int keep_signal(void)
{
    (void)setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    return keeper_run(raise_signal, &wanted_code);
}

START_TEST(a_death_by_signal_is_code_8_and_one_line)
{
    static const struct {
        int number;
        const char *name;
    } vectors[] = {{SIGKILL, "SIGKILL"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"}, {SIGTERM, "SIGTERM"}};

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct child child;

        wanted_code = vectors[i].number;
        child_spawn(&child, keep_signal);
        child_collect(&child);
        ck_assert_int_eq(child.code, 8);
        ck_assert_ptr_nonnull(strstr(child.text, "rank 5 on "));
        ck_assert_ptr_nonnull(strstr(child.text, vectors[i].name));
        ck_assert_ptr_eq(strchr(child.text, '\n'), child.text + strlen(child.text) - 1);
    }
}
END_TEST

/* Tells "ready", waits for USR1, then returns 9; otherwise sleeps for long. */
static int wait_for_usr1(void *context, struct keeper *keeper)
{
    sigset_t set;
    int number = 0;

    (void)context;
    (void)keeper;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)fputs("ready\n", stderr);
    (void)sigwait(&set, &number);
    return number == SIGUSR1 ? 9 : 1;
}

static int keep_usr1(void)
{
    return keeper_run(wait_for_usr1, NULL);
}

START_TEST(signals_reach_the_worker_once_through_the_keeper)
{
    struct child child;

    child_spawn(&child, keep_usr1);
    child_until_ready(&child);
    ck_assert_int_eq(kill(child.pid, SIGUSR1), 0);
    child_collect(&child);
    ck_assert_int_eq(child.code, 9);
}
END_TEST

START_TEST(a_worker_that_dies_of_a_forwarded_stop_signal_is_no_cause)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct child child;

        child_spawn(&child, keep_usr1);
        child_until_ready(&child);
        ck_assert_int_eq(kill(child.pid, numbers[i]), 0);
        child_collect(&child);
        ck_assert_int_eq(child.code, 8);
        ck_assert_str_eq(child.text, "");
    }
}
END_TEST

static int stop_oneself(void *context, struct keeper *keeper)
{
    (void)context;
    (void)keeper;
    (void)fputs("ready\n", stderr);
    (void)raise(SIGSTOP);
    return 3; /* continued without the signal that follows */
}

static int keep_stopping(void)
{
    return keeper_run(stop_oneself, NULL);
}

START_TEST(a_stopped_worker_hears_that_it_shall_end)
{
    struct child child;

    child_spawn(&child, keep_stopping);
    child_until_ready(&child);
    clock_sleep_ns(100 * NS_PER_MS);
    ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
    child_collect(&child);
    ck_assert_int_eq(child.code, 8);
    ck_assert_str_eq(child.text, "");
}
END_TEST

/* A starter that ends at once and leaves its keeper behind. */
static int keep_stopping_alone(void)
{
    if (fork() == 0)
        _exit(keep_stopping());
    clock_sleep_ns(200 * NS_PER_MS);
    return 0;
}

START_TEST(a_stopped_worker_ends_when_its_starter_has_gone)
{
    struct child child;

    child_spawn(&child, keep_stopping_alone);
    child_collect(&child); /* to the end of the pipe, which the worker holds */
    ck_assert_ptr_nonnull(strstr(child.text, "is stopped, and who started it has gone: its keeper ends it"));
}
END_TEST

static char run_folder[] = "/tmp/ferry-life-XXXXXX";

/* A run's folder, in which cause.json may lie already. */
static void make_run_folder(bool with_cause)
{
    const struct cause cause = {.status = STATUS_MISMATCH, .text = "an earlier cause of this run"};

    (void)strcpy(run_folder, "/tmp/ferry-life-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(run_folder));
    if (with_cause)
        ck_assert_int_eq(cause_save(run_folder, &cause, NULL, NULL, NULL), STATUS_OK);
}

/* What cause.json says; the folder is removed. */
static const char *take_cause(void)
{
    static char bytes[2048];
    char path[128];
    ssize_t count = 0;
    int file;

    (void)snprintf(path, sizeof path, "%s/cause.json", run_folder);
    file = open(path, O_RDONLY);
    if (file >= 0) {
        count = read(file, bytes, sizeof bytes - 1);
        close(file);
        unlink(path);
    }
    bytes[count > 0 ? count : 0] = '\0';
    ck_assert_int_eq(rmdir(run_folder), 0);
    return bytes;
}

static int die_in_run(void *context, struct keeper *keeper)
{
    keeper_set_run(keeper, run_folder, 1, 2);
    return raise_signal(context, keeper);
}

static int keep_run(void)
{
    return keeper_run(die_in_run, &wanted_code);
}

START_TEST(of_two_causes_of_a_run_one_is_told)
{
    struct child child;

    wanted_code = SIGKILL;
    make_run_folder(false);
    child_spawn(&child, keep_run);
    child_collect(&child);
    ck_assert_int_eq(child.code, 8);
    ck_assert_ptr_nonnull(strstr(child.text, "died: killed by SIGKILL"));
    ck_assert_ptr_nonnull(strstr(take_cause(), "died: killed by SIGKILL"));
    make_run_folder(true);
    child_spawn(&child, keep_run);
    child_collect(&child);
    ck_assert_int_eq(child.code, 8);
    ck_assert_str_eq(child.text, "");
    ck_assert_ptr_nonnull(strstr(take_cause(), "an earlier cause"));
}
END_TEST

static int leave_words(void *context, struct keeper *keeper)
{
    if (context)
        keeper_set_run(keeper, run_folder, 1, 2);
    log_set_tag("rank 1/2 stage 1");
    keeper_last_words(keeper, STATUS_STORAGE, "file w was cut");
    keeper_last_words(keeper, STATUS_TIMEOUT, "the second is not heard");
    return status_exit_code(STATUS_STORAGE);
}

static int keep_words_of_run(void)
{
    return keeper_run(leave_words, run_folder);
}

static int keep_words_of_rank_1(void)
{
    (void)setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    return keeper_run(leave_words, NULL);
}

START_TEST(last_words_are_told_once)
{
    struct child child;
    uint64_t begin_ns;

    make_run_folder(false);
    child_spawn(&child, keep_words_of_run);
    child_collect(&child);
    ck_assert_int_eq(child.code, 9);
    ck_assert_str_eq(child.text, "ferry: rank 1/2 stage 1: error: storage: file w was cut\n");
    ck_assert_ptr_nonnull(strstr(take_cause(), "\"exit_code\": 9"));
    make_run_folder(true);
    child_spawn(&child, keep_words_of_run);
    child_collect(&child);
    ck_assert_int_eq(child.code, 9);
    ck_assert_str_eq(child.text, "");
    (void)take_cause();
    /* Without a folder rank 1 gives rank 0 the time to say it and have it ended: by its parent's TERM. */
    child_spawn(&child, keep_words_of_rank_1);
    clock_sleep_ns(300 * NS_PER_MS);
    ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
    child_collect(&child);
    ck_assert_int_eq(child.code, 9);
    ck_assert_str_eq(child.text, "");
    begin_ns = clock_ns();
    child_spawn(&child, keep_words_of_rank_1);
    child_collect(&child);
    ck_assert_ptr_nonnull(strstr(child.text, "file w was cut"));
    ck_assert_uint_ge(clock_ns() - begin_ns, NS_PER_S);
}
END_TEST

START_TEST(a_stop_signal_of_anybody_else_is_a_cause)
{
    struct child child;
    char expected[64];
    pid_t stranger;

    child_spawn(&child, keep_usr1);
    child_until_ready(&child);
    stranger = fork();
    if (stranger == 0) {
        (void)kill(child.pid, SIGTERM);
        clock_sleep_ns(300 * NS_PER_MS);
        _exit(0);
    }
    child_collect(&child);
    ck_assert_int_eq(waitpid(stranger, NULL, 0), stranger);
    ck_assert_int_eq(child.code, 8);
    (void)snprintf(expected, sizeof expected, "killed by SIGTERM, which process %d (test_keeper) sent", (int)stranger);
    ck_assert_msg(strstr(child.text, expected) != NULL, "%s", child.text);
}
END_TEST

static int stop_for_a_while(void *context, struct keeper *keeper)
{
    pid_t helper = fork();

    (void)context;
    (void)keeper;
    if (helper == 0) {
        clock_sleep_ns(200 * NS_PER_MS);
        (void)kill(getppid(), SIGCONT);
        _exit(0);
    }
    (void)raise(SIGSTOP);
    (void)waitpid(helper, NULL, 0);
    return 3;
}

static int keep_stopped(void)
{
    return keeper_run(stop_for_a_while, NULL);
}

START_TEST(a_stopped_worker_is_not_a_dead_one)
{
    struct child child;

    child_spawn(&child, keep_stopped);
    child_collect(&child);
    ck_assert_int_eq(child.code, 3);
    ck_assert_str_eq(child.text, "");
}
END_TEST

static int oom_score(void *context, struct keeper *keeper)
{
    FILE *file = fopen("/proc/self/oom_score_adj", "re");
    int score = 0;

    (void)context;
    (void)keeper;
    if (!file || fscanf(file, "%d", &score) != 1)
        return 1;
    fclose(file);
    return score == 1000 ? 0 : 2;
}

static int keep_oom(void)
{
    return keeper_run(oom_score, NULL);
}

START_TEST(the_worker_is_first_in_line_when_memory_runs_out)
{
    struct child child;

    child_spawn(&child, keep_oom);
    child_collect(&child);
    ck_assert_int_eq(child.code, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("keeper");
    TCase *tests = tcase_create("keeper");

    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, codes_pass_through_and_those_above_125_become_1);
    tcase_add_test(tests, an_end_that_was_foreseen_is_told);
    tcase_add_test(tests, a_death_by_signal_is_code_8_and_one_line);
    tcase_add_test(tests, signals_reach_the_worker_once_through_the_keeper);
    tcase_add_test(tests, a_worker_that_dies_of_a_forwarded_stop_signal_is_no_cause);
    tcase_add_test(tests, a_stopped_worker_hears_that_it_shall_end);
    tcase_add_test(tests, a_stopped_worker_ends_when_its_starter_has_gone);
    tcase_add_test(tests, a_stopped_worker_is_not_a_dead_one);
    tcase_add_test(tests, of_two_causes_of_a_run_one_is_told);
    tcase_add_test(tests, last_words_are_told_once);
    tcase_add_test(tests, a_stop_signal_of_anybody_else_is_a_cause);
    tcase_add_test(tests, the_worker_is_first_in_line_when_memory_runs_out);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
