/* Keepers that are stopped, held by a debugger, or killed: each test plays the starter of one or two of them. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/cause.h"
#include "comm/recorder.h"
#include "launcher/gone.h"
#include "launcher/keeper_private.h"
#include "launcher/watchdog.h"
#include "tests/suite.h"

/* A keeper under test, a child of this process. */
struct kept {
    pid_t pid;
    int pipe;  /* its, and its worker's, standard error */
    bool over; /* it has ended by itself */
    int code;  /* 128 + the signal that it died of */
    double seconds;
    char text[2048];
};

static void spawn(struct kept *kept, keeper_worker *worker)
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    kept->pid = fork();
    if (kept->pid == 0) {
        (void)signal(SIGTERM, SIG_DFL); /* Check has a handler */
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        _exit(keeper_run(worker, NULL));
    }
    close(ends[1]);
    kept->pipe = ends[0];
}

/* Wait for its end, for so long; then it is killed. */
static void collect(struct kept *kept, int within_s)
{
    uint64_t begun_ns = clock_ns();
    size_t have = 0;
    ssize_t more;
    int status = 0;

    kept->over = false;
    while (!kept->over && clock_ns() < begun_ns + (uint64_t)within_s * NS_PER_S) {
        kept->over = waitpid(kept->pid, &status, WNOHANG) == kept->pid;
        clock_sleep_ns(10 * NS_PER_MS);
    }
    kept->seconds = (double)(clock_ns() - begun_ns) / (double)NS_PER_S;
    if (!kept->over) {
        (void)kill(kept->pid, SIGKILL);
        ck_assert_int_eq(waitpid(kept->pid, &status, 0), kept->pid);
    }
    kept->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    while (have < sizeof kept->text - 1 &&
           (more = read(kept->pipe, kept->text + have, sizeof kept->text - 1 - have)) > 0)
        have += (size_t)more;
    kept->text[have] = '\0';
    close(kept->pipe);
}

/* In the worker. */
static char keeper_state(const struct keeper *keeper)
{
    char path[64];
    char line[256] = "";
    FILE *file;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)keeper->process);
    file = fopen(path, "re");
    if (file && !fgets(line, sizeof line, file))
        line[0] = '\0';
    if (file)
        fclose(file);
    return strrchr(line, ')') ? strrchr(line, ')')[2] : '?';
}

/* In the worker: the keeper is stopped before this returns. */
static bool stop_keeper(const struct keeper *keeper)
{
    (void)kill(keeper->process, SIGSTOP);
    for (int i = 0; i < 200 && keeper_state(keeper) != 'T'; i++)
        clock_sleep_ns(5 * NS_PER_MS);
    return keeper_state(keeper) == 'T';
}

static int end_by_returning(void *context, struct keeper *keeper)
{
    (void)context;
    return stop_keeper(keeper) ? 7 : 99;
}

static int end_by_watchdog(void *context, struct keeper *keeper)
{
    struct watchdog *watchdog = NULL;

    (void)context;
    if (watchdog_create(&watchdog, NULL) != STATUS_OK || !stop_keeper(keeper))
        return 99;
    watchdog_leave(watchdog, 100 * NS_PER_MS, 7);
    clock_sleep_ns(60 * NS_PER_S);
    return 98;
}

static int end_by_signal(void *context, struct keeper *keeper)
{
    (void)context;
    if (!stop_keeper(keeper))
        return 99;
    (void)raise(SIGKILL);
    return 98;
}

START_TEST(a_stopped_keeper_tells_how_its_worker_died)
{
    struct kept kept;

    spawn(&kept, end_by_signal);
    collect(&kept, 10);
    ck_assert_msg(kept.over, "the keeper is still stopped");
    ck_assert_int_eq(kept.code, 8);
    ck_assert_ptr_nonnull(strstr(kept.text, " died: killed by SIGKILL"));
}
END_TEST

START_TEST(a_stopped_keeper_sees_the_end_of_its_worker)
{
    keeper_worker *const ends[] = {end_by_returning, end_by_watchdog};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct kept kept;

        spawn(&kept, ends[i]);
        collect(&kept, 10);
        ck_assert_msg(kept.over, "the keeper is still stopped");
        ck_assert_int_eq(kept.code, 7);
        ck_assert_str_eq(kept.text, "");
    }
}
END_TEST

static int outlast_the_limit(void *context, struct keeper *keeper)
{
    (void)context;
    keeper_set_run(keeper, NULL, 1, 3);
    keeper_set_limit(keeper, NS_PER_S, KEEPER_GRACE_NS);
    if (!stop_keeper(keeper))
        return 99;
    for (int i = 0; i < 500 && keeper_state(keeper) == 'T'; i++)
        clock_sleep_ns(10 * NS_PER_MS);
    clock_sleep_ns(2 * NS_PER_S); /* it beats again: nothing more happens */
    return keeper_state(keeper) == 'T' ? 98 : 0;
}

START_TEST(a_keeper_stopped_for_the_limit_is_continued)
{
    struct kept kept;

    spawn(&kept, outlast_the_limit);
    collect(&kept, 20);
    ck_assert(kept.over);
    ck_assert_int_eq(kept.code, 0);
    ck_assert_ptr_nonnull(strstr(kept.text, "rank 1/3: warning: the keeper of this rank, process "));
    ck_assert_ptr_nonnull(strstr(kept.text, ": the rank continues it\n"));
    ck_assert_ptr_eq(strchr(kept.text, '\n'), strrchr(kept.text, '\n'));
}
END_TEST

static int stop_where_nobody_looks(void *context, struct keeper *keeper)
{
    (void)context;
    keeper_set_run(keeper, NULL, 0, 3);
    keeper_set_limit(keeper, 400 * NS_PER_MS, 0);
    (void)raise(SIGSTOP);
    return 98;
}

START_TEST(where_nobody_else_can_name_a_stopped_rank_its_keeper_does_at_the_limit)
{
    struct kept kept;
    uint64_t before_ns = clock_ns();

    spawn(&kept, stop_where_nobody_looks);
    collect(&kept, 20);
    ck_assert(kept.over);
    ck_assert_uint_lt(clock_ns() - before_ns, 5 * NS_PER_S);
    ck_assert_int_eq(kept.code, 7);
    ck_assert_ptr_nonnull(strstr(kept.text, "has been stopped for 0.4 s (timeout 0.4 s): its keeper ends it"));
}
END_TEST

static int wait_for_ever(void *context, struct keeper *keeper)
{
    (void)context;
    keeper_set_limit(keeper, NS_PER_S, KEEPER_GRACE_NS);
    clock_sleep_ns(60 * NS_PER_S);
    return 98;
}

START_TEST(a_keeper_that_a_debugger_holds_ends_with_its_rank)
{
    struct kept kept;
    int status;

    spawn(&kept, wait_for_ever);
    clock_sleep_ns(200 * NS_PER_MS);
    if (ptrace(PTRACE_SEIZE, kept.pid, NULL, NULL) || ptrace(PTRACE_INTERRUPT, kept.pid, NULL, NULL) ||
        waitpid(kept.pid, &status, __WALL) != kept.pid) {
        (void)printf("# SKIP: no ptrace here: %s\n", strerror(errno));
        kill(kept.pid, SIGKILL);
        collect(&kept, 10);
        return;
    }
    collect(&kept, 20);
    ck_assert(kept.over);
    ck_assert_int_eq(kept.code, 128 + SIGKILL);
    ck_assert(kept.seconds > 6);
    ck_assert_ptr_nonnull(strstr(kept.text, "rank 0 on "));
    ck_assert_ptr_nonnull(strstr(kept.text, " and cannot be continued (a debugger"));
}
END_TEST

/* ---- a killed keeper: what the keeper of another rank says ---- */

static char folder[] = "/tmp/ferry-guard-XXXXXX";

static void make_folder(void)
{
    (void)strcpy(folder, "/tmp/ferry-guard-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];

    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0); /* NOLINT(cert-env33-c): a folder of this test */
}

/* Rank 1's flight recorder, of a process that is still there or not, which did one operation. */
static void record_rank_1(bool living)
{
    struct record record = {.operation = OPERATION_BARRIER, .object_name = "world/0", .peer = -1, .sequence = 4};
    struct recorder *recorder;
    pid_t pid = fork();

    if (pid == 0) {
        if (recorder_open(folder, 1, 2, &recorder, NULL) != STATUS_OK)
            _exit(1);
        recorder_end(recorder, recorder_post(recorder, &record), STATUS_OK);
        if (living)
            pause();
        _exit(0);
    }
    if (living)
        clock_sleep_ns(300 * NS_PER_MS);
    else
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static int run_as_rank_0(void *context, struct keeper *keeper)
{
    (void)context;
    keeper_set_run(keeper, folder, 0, 2);
    (void)fputs("ready\n", stderr);
    clock_sleep_ns(60 * NS_PER_S);
    return 98;
}

/* Its starter ends rank 0, as it does when another rank has died. */
static void end_rank_0(struct kept *kept, bool living)
{
    char word[6];

    spawn(kept, run_as_rank_0);
    ck_assert_int_eq(read(kept->pipe, word, sizeof word), sizeof word);
    record_rank_1(living);
}

START_TEST(a_rank_that_went_with_its_keeper_is_named_by_another)
{
    struct kept kept;
    char path[128];
    char json[2048] = "";
    int file;

    make_folder();
    end_rank_0(&kept, false);
    ck_assert_int_eq(kill(kept.pid, SIGTERM), 0);
    collect(&kept, 10);
    ck_assert_int_eq(kept.code, 8);
    ck_assert_ptr_nonnull(strstr(kept.text, "ferry: error: rank 1 on "));
    ck_assert_ptr_nonnull(strstr(kept.text, " died: its keeper was killed; its last operation: barrier on world/0, "
                                            "sequence 4, done"));
    ck_assert(kept.seconds < 1); /* the starter's SIGKILL comes a second after its SIGTERM */
    (void)snprintf(path, sizeof path, "%s/cause.json", folder);
    file = open(path, O_RDONLY);
    ck_assert_int_ge(file, 0);
    ck_assert_int_gt(read(file, json, sizeof json - 1), 0);
    close(file);
    ck_assert_ptr_nonnull(strstr(json, "\"status\": \"rank lost\""));
    ck_assert_ptr_nonnull(strstr(json, "\"exit_code\": 8,\n  \"rank\": 1,\n  \"reporter\": 0"));
    remove_folder();
}
END_TEST

START_TEST(a_rank_with_a_keeper_is_not_accused)
{
    enum { LIVING, MARKED, EXITED, CLOSED, OLD, KNOWN, CASES };

    for (int i = 0; i < CASES; i++) {
        const struct cause known = {.status = STATUS_MISMATCH, .rank = 0, .text = "known"};
        struct kept kept;

        make_folder();
        if (i == OLD) { /* of an earlier run under this id */
            record_rank_1(false);
            clock_sleep_ns(20 * NS_PER_MS);
        }
        spawn(&kept, run_as_rank_0);
        ck_assert_int_eq(read(kept.pipe, kept.text, 6), 6);
        if (i != OLD)
            record_rank_1(i == LIVING);
        if (i == MARKED)
            recorder_mark_killed(folder, 1, SIGTERM);
        if (i == EXITED)
            recorder_mark_ended(folder, 1);
        if (i == CLOSED) {
            struct recorder *recorder;

            ck_assert_int_eq(recorder_open(folder, 1, 2, &recorder, NULL), STATUS_OK);
            recorder_leave(recorder, STATUS_OK);
            recorder_close(recorder);
        }
        if (i == KNOWN)
            ck_assert_int_eq(cause_save(folder, &known, NULL, NULL, NULL), STATUS_OK);
        ck_assert_int_eq(kill(kept.pid, SIGTERM), 0);
        collect(&kept, 10);
        ck_assert_int_eq(kept.code, 8);
        ck_assert_msg(!kept.text[0], "case %d: %s", i, kept.text);
        remove_folder();
    }
}
END_TEST

/* Its file names another host; there only time can tell. */
static void move_to_another_host(void)
{
    char path[160];
    int file;

    (void)snprintf(path, sizeof path, "%s/rank-000001.recorder", folder);
    file = open(path, O_WRONLY);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(pwrite(file, "node9", 6, 32), 6); /* comm/recorder.c: host */
    close(file);
}

START_TEST(a_rank_of_another_host_has_half_a_second)
{
    enum { GONE, MARKED, ALIVE, CASES };

    for (int i = 0; i < CASES; i++) {
        struct kept kept;

        make_folder();
        end_rank_0(&kept, false);
        move_to_another_host();
        if (i != ALIVE) /* one that was alive just now is ended by whoever ends this one */
            clock_sleep_ns(700 * NS_PER_MS);
        ck_assert_int_eq(kill(kept.pid, SIGTERM), 0);
        if (i == MARKED) { /* its keeper marks it meanwhile */
            clock_sleep_ns(200 * NS_PER_MS);
            recorder_mark_killed(folder, 1, SIGTERM);
        }
        collect(&kept, 10);
        if (i != GONE)
            ck_assert_str_eq(kept.text, "");
        else
            ck_assert_ptr_nonnull(
                strstr(kept.text, "rank 1 on node9 died: its keeper was killed, or its host was lost; its last"));
        ck_assert(kept.seconds < 1);
        remove_folder();
    }
}
END_TEST

/* Its last sign of life, so long after its start. */
static void write_recorder(int rank, const char *host, uint64_t seen_ns)
{
    struct recorder *recorder = NULL;
    unsigned char bytes[8];
    char path[160];
    int file;

    ck_assert_int_eq(recorder_open(folder, rank, 4, &recorder, NULL), STATUS_OK);
    recorder_close(recorder);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(seen_ns >> (8 * i));
    (void)snprintf(path, sizeof path, "%s/rank-%06d.recorder", folder, rank);
    file = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(file, host, strlen(host) + 1, 32), strlen(host) + 1);
    ck_assert_int_eq(pwrite(file, bytes, sizeof bytes, 104), sizeof bytes); /* comm/recorder.c: last sign of life */
    close(file);
}

START_TEST(of_several_the_one_that_fell_silent_first_is_named)
{
    struct keeper keeper = {.rank = 0, .size = 4, .begun_unix_ns = clock_unix_ns()};
    struct gone gone = {.rank = -1};

    make_folder();
    (void)snprintf(keeper.run_dir, sizeof keeper.run_dir, "%s", folder);
    write_recorder(1, "node8", 90 * NS_PER_MS);
    write_recorder(2, "node9", 90 * NS_PER_MS);
    write_recorder(3, "node9", 50 * NS_PER_MS);
    clock_sleep_ns(800 * NS_PER_MS);
    ck_assert(gone_find(&keeper, "node7", &gone));
    ck_assert_int_eq(gone.rank, 3);
    ck_assert_str_eq(gone.host, "node9");
    ck_assert(!gone.certain);
    remove_folder();
}
END_TEST

static void *mark_later(void *context)
{
    (void)context;
    clock_sleep_ns(250 * NS_PER_MS);
    recorder_mark_killed(folder, 1, SIGTERM);
    return NULL;
}

/* The starter would kill its keeper as soon as one on the same host leaves. */
START_TEST(no_keeper_leaves_before_a_live_rank_of_its_host_is_marked)
{
    struct keeper keeper = {.rank = 0, .size = 4, .begun_unix_ns = clock_unix_ns()};
    struct gone gone = {.rank = -1};
    struct recorder_sign sign;
    pthread_t marker;

    make_folder();
    (void)snprintf(keeper.run_dir, sizeof keeper.run_dir, "%s", folder);
    clock_sleep_ns(2 * NS_PER_MS);
    write_recorder(1, "node7", NS_PER_MS); /* of this process, which is alive */
    ck_assert_int_eq(pthread_create(&marker, NULL, mark_later, NULL), 0);
    if (_i)
        gone_let_mark(&keeper, "node7");
    else
        ck_assert(!gone_find(&keeper, "node7", &gone));
    ck_assert(recorder_sign(folder, 1, &sign));
    ck_assert_int_eq(sign.end, RECORDER_KILLED);
    (void)pthread_join(marker, NULL);
    remove_folder();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("guard");
    TCase *tests = tcase_create("guard");

    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, a_stopped_keeper_sees_the_end_of_its_worker);
    tcase_add_test(tests, a_stopped_keeper_tells_how_its_worker_died);
    tcase_add_test(tests, a_keeper_stopped_for_the_limit_is_continued);
    tcase_add_test(tests, where_nobody_else_can_name_a_stopped_rank_its_keeper_does_at_the_limit);
    tcase_add_test(tests, a_keeper_that_a_debugger_holds_ends_with_its_rank);
    tcase_add_test(tests, a_rank_that_went_with_its_keeper_is_named_by_another);
    tcase_add_test(tests, a_rank_with_a_keeper_is_not_accused);
    tcase_add_test(tests, a_rank_of_another_host_has_half_a_second);
    tcase_add_test(tests, of_several_the_one_that_fell_silent_first_is_named);
    tcase_add_loop_test(tests, no_keeper_leaves_before_a_live_rank_of_its_host_is_marked, 0, 2);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
