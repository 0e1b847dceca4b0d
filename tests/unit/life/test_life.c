/* Keeper, watchdog, plugin, starter: each in a process of its own whose code and standard error are looked at. */
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
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

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

START_TEST(a_plugin_that_cannot_be_opened_is_told_with_what_to_do)
{
    const struct transport_ops *ops = NULL;
    struct error err = {0};
    char folder[] = "/tmp/ferry-plugin-XXXXXX";
    char path[64];
    int file;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)setenv("FERRY_PLUGIN_DIR", folder, 1);
    ck_assert_int_eq(plugin_open("other", &ops, NULL, 0, &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "ferry-other.so is in none of /tmp/ferry-plugin-"));
    ck_assert_ptr_nonnull(strstr(err.text, "set FERRY_PLUGIN_DIR"));
    (void)snprintf(path, sizeof path, "%s/ferry-other.so", folder);
    file = open(path, O_WRONLY | O_CREAT, 0644);
    ck_assert_int_eq(write(file, "no library", 10), 10);
    close(file);
    ck_assert_int_eq(plugin_open("other", &ops, NULL, 0, &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot be opened"));
    ck_assert_ptr_null(ops);
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
    tcase_add_test(tests, a_stopped_worker_is_not_a_dead_one);
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
