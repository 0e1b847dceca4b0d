/* Keeper, watchdog, plugin, starter: each in a process of its own whose code and standard error are looked at. */
#include <check.h>
#include <errno.h>
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
#include "comm/plugin.h"
#include "launcher/starter.h"
#include "launcher/watchdog.h"

struct child {
    pid_t pid;
    int pipe; /* its standard error */
    int code; /* -1: died by a signal */
    char text[2048];
};

static void spawn(struct child *child, int (*body)(void))
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    child->pid = fork();
    if (child->pid == 0) {
        /* Check's own handlers would pass these on to the test. */
        (void)signal(SIGTERM, SIG_DFL);
        (void)signal(SIGINT, SIG_DFL);
        /* nohup and shells without job control leave these ignored. */
        (void)signal(SIGHUP, SIG_DFL);
        (void)signal(SIGQUIT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        _exit(body());
    }
    close(ends[1]);
    child->pipe = ends[0];
}

static void collect(struct child *child)
{
    size_t have = 0;
    ssize_t more;
    int status;

    while (have < sizeof child->text - 1 &&
           (more = read(child->pipe, child->text + have, sizeof child->text - 1 - have)) > 0)
        have += (size_t)more;
    child->text[have] = '\0';
    close(child->pipe);
    ck_assert_int_eq(waitpid(child->pid, &status, 0), child->pid);
    child->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

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
        spawn(&child, keep_exit);
        collect(&child);
        ck_assert_int_eq(child.code, vectors[i].process);
        ck_assert_str_eq(child.text, "");
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
        spawn(&child, keep_signal);
        collect(&child);
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

static void until_ready(struct child *child)
{
    char ready[6];

    ck_assert_int_eq(read(child->pipe, ready, sizeof ready), 6);
}

START_TEST(signals_reach_the_worker_once_through_the_keeper)
{
    struct child child;

    spawn(&child, keep_usr1);
    until_ready(&child);
    ck_assert_int_eq(kill(child.pid, SIGUSR1), 0);
    collect(&child);
    ck_assert_int_eq(child.code, 9);
}
END_TEST

START_TEST(a_worker_that_dies_of_a_forwarded_stop_signal_is_no_cause)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct child child;

        spawn(&child, keep_usr1);
        until_ready(&child);
        ck_assert_int_eq(kill(child.pid, numbers[i]), 0);
        collect(&child);
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

    spawn(&child, keep_stopping);
    until_ready(&child);
    clock_sleep_ns(100 * NS_PER_MS);
    ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
    collect(&child);
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

    spawn(&child, keep_stopping_alone);
    collect(&child); /* to the end of the pipe, which the worker holds */
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
    spawn(&child, keep_run);
    collect(&child);
    ck_assert_int_eq(child.code, 8);
    ck_assert_ptr_nonnull(strstr(child.text, "died: killed by SIGKILL"));
    ck_assert_ptr_nonnull(strstr(take_cause(), "died: killed by SIGKILL"));
    make_run_folder(true);
    spawn(&child, keep_run);
    collect(&child);
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
    spawn(&child, keep_words_of_run);
    collect(&child);
    ck_assert_int_eq(child.code, 9);
    ck_assert_str_eq(child.text, "ferry: rank 1/2 stage 1: error: storage: file w was cut\n");
    ck_assert_ptr_nonnull(strstr(take_cause(), "\"exit_code\": 9"));
    make_run_folder(true);
    spawn(&child, keep_words_of_run);
    collect(&child);
    ck_assert_int_eq(child.code, 9);
    ck_assert_str_eq(child.text, "");
    (void)take_cause();
    /* Without a folder rank 1 gives rank 0 the time to say it and have it ended: by its parent's TERM. */
    spawn(&child, keep_words_of_rank_1);
    clock_sleep_ns(300 * NS_PER_MS);
    ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
    collect(&child);
    ck_assert_int_eq(child.code, 9);
    ck_assert_str_eq(child.text, "");
    begin_ns = clock_ns();
    spawn(&child, keep_words_of_rank_1);
    collect(&child);
    ck_assert_ptr_nonnull(strstr(child.text, "file w was cut"));
    ck_assert_uint_ge(clock_ns() - begin_ns, NS_PER_S);
}
END_TEST

START_TEST(a_stop_signal_of_anybody_else_is_a_cause)
{
    struct child child;
    char expected[64];
    pid_t stranger;

    spawn(&child, keep_usr1);
    until_ready(&child);
    stranger = fork();
    if (stranger == 0) {
        (void)kill(child.pid, SIGTERM);
        clock_sleep_ns(300 * NS_PER_MS);
        _exit(0);
    }
    collect(&child);
    ck_assert_int_eq(waitpid(stranger, NULL, 0), stranger);
    ck_assert_int_eq(child.code, 8);
    (void)snprintf(expected, sizeof expected, "killed by SIGTERM, which process %d (test_life) sent", (int)stranger);
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

    spawn(&child, keep_stopped);
    collect(&child);
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

    spawn(&child, keep_oom);
    collect(&child);
    ck_assert_int_eq(child.code, 0);
}
END_TEST

static int overstay(void)
{
    struct watchdog *watchdog = NULL;

    log_set_tag("rank 3/8");
    if (watchdog_create(&watchdog, NULL))
        return 1;
    watchdog_arm(watchdog, clock_ns() + 30 * NS_PER_S, "other", NULL);
    watchdog_arm(watchdog, clock_ns() + 100 * NS_PER_MS, "loading", "communication.startup_timeout");
    clock_sleep_ns(20 * NS_PER_S);
    return 1;
}

static int stay_within(void)
{
    struct watchdog *watchdog = NULL;

    if (watchdog_create(&watchdog, NULL))
        return 1;
    watchdog_arm(watchdog, clock_ns() + 100 * NS_PER_MS, "loading", NULL);
    watchdog_disarm(watchdog);
    clock_sleep_ns(300 * NS_PER_MS);
    watchdog_destroy(watchdog);
    return 0;
}

static int leave(void)
{
    struct watchdog *watchdog = NULL;

    if (watchdog_create(&watchdog, NULL))
        return 1;
    watchdog_leave(watchdog, 100 * NS_PER_MS, 6);
    watchdog_leave(watchdog, 1, 7);
    watchdog_disarm(watchdog);
    (void)raise(SIGTERM);
    clock_sleep_ns(20 * NS_PER_S);
    return 1;
}

START_TEST(the_watchdog_ends_a_phase_that_overstays)
{
    struct child child;

    spawn(&child, overstay);
    collect(&child);
    ck_assert_int_eq(child.code, 7);
    ck_assert_str_eq(child.text, "ferry: rank 3/8: error: loading has not ended within 0.1 s "
                                 "(communication.startup_timeout): this process ends\n");
    spawn(&child, stay_within);
    collect(&child);
    ck_assert_int_eq(child.code, 0);
    spawn(&child, leave);
    collect(&child);
    ck_assert_int_eq(child.code, 6);
    ck_assert_str_eq(child.text, "");
}
END_TEST

static void words_to_stderr(void *context, const char *text)
{
    (void)fprintf(stderr, "%s: %s", (const char *)context, text);
}

static int overstay_with_words(void)
{
    static char said[] = "said";
    struct watchdog *watchdog = NULL;

    if (watchdog_create(&watchdog, NULL))
        return 1;
    watchdog_speak(watchdog, words_to_stderr, said);
    watchdog_arm(watchdog, clock_ns() + 100 * NS_PER_MS, "loading", NULL);
    clock_sleep_ns(20 * NS_PER_S);
    return 1;
}

START_TEST(the_watchdog_lets_another_speak)
{
    struct child child;

    spawn(&child, overstay_with_words);
    collect(&child);
    ck_assert_int_eq(child.code, 7);
    ck_assert_str_eq(child.text, "said: loading has not ended within 0.1 s: this process ends");
}
END_TEST

static int count_cores(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    if (bytes < 512) { /* a kernel of 4096 CPUs */
        errno = EINVAL;
        return -1;
    }
    for (size_t cpu = 0; cpu < 3000; cpu++)
        CPU_SET_S(cpu, bytes, set);
    return 0;
}

static int no_cores(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    (void)bytes;
    (void)set;
    errno = EPERM;
    return -1;
}

START_TEST(cores_are_counted_beyond_1024)
{
    ck_assert_int_eq(starter_cores(count_cores), 3000);
    ck_assert_int_eq(starter_cores(no_cores), 1);
    ck_assert_int_ge(starter_cores(sched_getaffinity), 1);
}
END_TEST

START_TEST(a_plugin_that_cannot_be_opened_is_told_with_what_to_do)
{
    const struct plugin *plugin = NULL;
    struct error err = {0};
    char folder[] = "/tmp/ferry-plugin-XXXXXX";
    char path[64];
    int file;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)setenv("FERRY_PLUGIN_DIR", folder, 1);
    ck_assert_int_eq(plugin_open("other", &plugin, NULL, 0, &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "ferry-other.so is in none of /tmp/ferry-plugin-"));
    ck_assert_ptr_nonnull(strstr(err.text, "set FERRY_PLUGIN_DIR"));
    (void)snprintf(path, sizeof path, "%s/ferry-other.so", folder);
    file = open(path, O_WRONLY | O_CREAT, 0644);
    ck_assert_int_eq(write(file, "no library", 10), 10);
    close(file);
    ck_assert_int_eq(plugin_open("other", &plugin, NULL, 0, &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot be opened"));
    ck_assert_ptr_null(plugin);
    unlink(path);
    rmdir(folder);
}
END_TEST

static void forget_starters(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",      "PMI_SIZE",  "SLURM_PROCID",  "SLURM_NTASKS",
        "SLURM_STEP_ID",        "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "PMIX_RANK", "PMIX_NAMESPACE"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unsetenv(names[i]);
}

START_TEST(starters_are_known_by_their_variables)
{
    struct starter starter;

    forget_starters();
    starter_read(&starter);
    ck_assert_int_eq(starter.kind, STARTER_NONE);
    ck_assert_int_eq(starter.size, -1);
    (void)setenv("SLURM_PROCID", "0", 1);
    starter_read(&starter); /* a batch script is no step */
    ck_assert_int_eq(starter.kind, STARTER_NONE);
    (void)setenv("SLURM_PROCID", "2", 1);
    (void)setenv("SLURM_STEP_ID", "0", 1);
    (void)setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    starter_read(&starter);
    ck_assert_int_eq(starter.kind, STARTER_SLURM);
    ck_assert_int_eq(starter.rank, 2);
    ck_assert_int_eq(starter.size, 4);
    (void)setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    (void)setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    starter_read(&starter);
    ck_assert_int_eq(starter.kind, STARTER_OPENMPI);
    ck_assert_int_eq(starter.rank, 1);
    ck_assert_int_eq(starter.size, 3);
    (void)setenv("OMPI_COMM_WORLD_RANK", "4294967298", 1);
    starter_read(&starter);
    ck_assert_int_eq(starter.kind, STARTER_SLURM);
}
END_TEST

/* B17 */
START_TEST(singletons_and_wrong_sizes_are_told)
{
    struct starter slurm = {.kind = STARTER_SLURM, .size = 4};
    struct starter pmix = {.kind = STARTER_SLURM, .size = 4, .pmix = true};
    struct starter alone = {.kind = STARTER_NONE, .size = -1};
    struct error err = {0};

    ck_assert_int_eq(starter_check(&slurm, 4, 4, "x", &err), STATUS_OK);
    ck_assert_int_eq(starter_check(&alone, 1, 1, "x", &err), STATUS_OK);
    ck_assert_int_eq(starter_check(&slurm, 1, 4, "mpirun -n 4 ferry run t.yaml", &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "srun started 4 tasks without PMIx"));
    ck_assert_ptr_nonnull(strstr(err.text, "or mpirun -n 4 ferry run t.yaml"));
    ck_assert_int_eq(starter_check(&pmix, 1, 4, "x", &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "belongs to another MPI"));
    ck_assert_int_eq(starter_check(&alone, 1, 4, "mpirun -n 4 ferry run t.yaml", &err), STATUS_TOPOLOGY);
    ck_assert_str_eq(err.text, "the topology has 4 ranks, but 1 process was started: mpirun -n 4 ferry run t.yaml");
    ck_assert_int_eq(starter_check(&slurm, 4, 1, "x", &err), STATUS_TOPOLOGY);
    ck_assert_ptr_nonnull(strstr(err.text, "the topology has 1 rank, but 4 processes were started"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("life");
    TCase *tests = tcase_create("life");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, codes_pass_through_and_those_above_125_become_1);
    tcase_add_test(tests, a_death_by_signal_is_code_8_and_one_line);
    tcase_add_test(tests, signals_reach_the_worker_once_through_the_keeper);
    tcase_add_test(tests, a_worker_that_dies_of_a_forwarded_stop_signal_is_no_cause);
    tcase_add_test(tests, a_stopped_worker_hears_that_it_shall_end);
    tcase_add_test(tests, a_stopped_worker_ends_when_its_starter_has_gone);
    tcase_add_test(tests, a_stopped_worker_is_not_a_dead_one);
    tcase_add_test(tests, of_two_causes_of_a_run_one_is_told);
    tcase_add_test(tests, last_words_are_told_once);
    tcase_add_test(tests, a_stop_signal_of_anybody_else_is_a_cause);
    tcase_add_test(tests, the_watchdog_lets_another_speak);
    tcase_add_test(tests, cores_are_counted_beyond_1024);
    tcase_add_test(tests, the_worker_is_first_in_line_when_memory_runs_out);
    tcase_add_test(tests, the_watchdog_ends_a_phase_that_overstays);
    tcase_add_test(tests, a_plugin_that_cannot_be_opened_is_told_with_what_to_do);
    tcase_add_test(tests, starters_are_known_by_their_variables);
    tcase_add_test(tests, singletons_and_wrong_sizes_are_told);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
