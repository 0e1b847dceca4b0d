/* Before ranks can talk: the run's folder, the roll call, the network interfaces. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/cause.h"
#include "comm/recorder.h"
#include "launcher/casefile.h"
#include "launcher/interfaces.h"
#include "launcher/roll_call.h"
#include "launcher/run_folder.h"
#include "tests/suite.h"

static char folder[] = "/tmp/ferry-run-XXXXXX";

static void make_folder(void)
{
    (void)strcpy(folder, "/tmp/ferry-run-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];

    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0); /* NOLINT(cert-env33-c): a folder of this test */
}

static struct starter starter_of(int rank, int size, int local_size, const char *host)
{
    struct starter starter = {.rank = rank, .size = size, .local_rank = 0, .local_size = local_size};

    (void)snprintf(starter.host, sizeof starter.host, "%s", host);
    return starter;
}

static void answer(struct roll_call *call, int rank, int local_size, const char *host)
{
    struct starter starter = starter_of(rank, 4, local_size, host);

    roll_call_answer(call, folder, &starter);
}

static const char *missing(const struct roll_call *call, bool *ret_speaks)
{
    static char words[1024];
    struct text out = {0};

    *ret_speaks = roll_call_missing(call, &out);
    (void)snprintf(words, sizeof words, "%s", text_string(&out));
    text_done(&out);
    return words;
}

START_TEST(who_has_not_come_is_named_by_the_lowest_that_has)
{
    struct roll_call one;
    struct roll_call two;
    bool speaks;

    answer(&two, 2, 4, "vm");
    ck_assert_str_eq(missing(&two, &speaks), "rank 0, rank 1, rank 3 have not come");
    ck_assert(speaks);
    answer(&one, 1, 4, "vm");
    ck_assert_str_eq(missing(&two, &speaks), "rank 0, rank 3 have not come");
    ck_assert(!speaks);
    (void)missing(&one, &speaks);
    ck_assert(speaks);
    roll_call_end(&one);
    roll_call_end(&two);
    ck_assert_int_eq(rmdir(folder), 0);
    make_folder();
}
END_TEST

START_TEST(a_folder_of_one_host_accuses_nobody)
{
    struct roll_call here;
    struct roll_call there;
    bool speaks;

    answer(&here, 1, 2, "node1");
    ck_assert_ptr_nonnull(strstr(missing(&here, &speaks), "of 4 ranks only the 1 on node1 have left a file in /tmp/"));
    ck_assert_ptr_nonnull(strstr(missing(&here, &speaks), "not shared between the hosts"));
    ck_assert_ptr_null(strstr(missing(&here, &speaks), "rank 3"));
    answer(&there, 2, 2, "node2");
    ck_assert_str_eq(missing(&here, &speaks), "rank 0, rank 3 have not come");
}
END_TEST

START_TEST(the_doctor_reads_the_roll_call)
{
    struct roll_call calls[2];
    struct casefile casefile;

    answer(&calls[0], 0, 4, "vm");
    answer(&calls[1], 3, 4, "vm");
    ck_assert_int_eq(casefile_open(folder, 0, &casefile, NULL), STATUS_OK);
    ck_assert(casefile.starting);
    ck_assert_int_eq(casefile.size, 4);
    ck_assert(casefile.came[0] && !casefile.came[1] && !casefile.came[2] && casefile.came[3]);
    casefile_done(&casefile);
}
END_TEST

START_TEST(a_folder_has_the_id_in_its_name)
{
    struct text path = {0};
    struct text again = {0};
    struct error err = {0};
    char expected[128];

    ck_assert_int_eq(run_folder_make(folder, "chat", "a/b 7", &path, &err), STATUS_OK);
    (void)snprintf(expected, sizeof expected, "%s/chat-a_b 7", folder);
    ck_assert_str_eq(path.bytes, expected);
    ck_assert_int_eq(run_folder_make("/proc/nowhere", "chat", "7", &again, &err), STATUS_STORAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "run_dir: /proc/nowhere cannot be made"));
    text_done(&again);
    ck_assert(!run_folder_shared(path.bytes));
    text_done(&path);
}
END_TEST

/* ---- whose folder it is ---- */

static bool no_locks; /* as some file systems */

/* In front of the C library's. */
int fcntl(int file, int command, ...)
{
    va_list arguments;
    void *argument;

    va_start(arguments, command);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    if (no_locks && (command == F_OFD_SETLK || command == F_OFD_GETLK)) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_fcntl, file, command, argument);
}

/* Another job, which has the folder while it lives. */
static pid_t begin_job(const char *name)
{
    int ends[2];
    char word;
    pid_t pid;

    ck_assert_int_eq(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        if (run_folder_claim(folder, name, NULL) != STATUS_OK || write(ends[1], "!", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(ends[0], &word, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void end_job(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(two_jobs_do_not_share_a_folder)
{
    const struct cause old = {.status = STATUS_LOST, .text = "old"};
    char host[64] = "";
    char cause[256];
    char words[256];

    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(cause, sizeof cause, "%s/cause.json", folder);
    for (int locks = 1; locks >= 0; locks--) {
        struct error err = {0};
        pid_t first;

        no_locks = !locks;
        first = begin_job("one");
        ck_assert_int_eq(cause_save(folder, &old, NULL, NULL, NULL), STATUS_OK);
        ck_assert_int_eq(run_folder_claim(folder, "two", &err), STATUS_ENVIRONMENT);
        (void)snprintf(words, sizeof words,
                       "run_dir: %s is the folder of another job that runs, process %d on %s, since 20", folder,
                       (int)first, host);
        ck_assert_msg(strstr(err.text, words) == err.text, "%s", err.text);
        ck_assert_ptr_nonnull(strstr(err.text, " UTC: give this one another FERRY_RUN_ID"));
        ck_assert_int_eq(access(cause, F_OK), 0); /* the first one's */
        ck_assert(run_folder_is_others(folder, "two"));
        ck_assert(!run_folder_is_others(folder, "one"));
        ck_assert(!run_folder_is_others(folder, ""));
        end_job(first);
        ck_assert(!locks || !run_folder_is_others(folder, "two"));
        first = begin_job("two"); /* nothing of the first stays in the way */
        ck_assert_int_ne(access(cause, F_OK), 0);
        end_job(first);
    }
    no_locks = false;
}
END_TEST

/* A rank may have come, failed and said so before rank 0 claims the folder: told is told, once. */
START_TEST(a_cause_from_before_the_claim_stays)
{
    const struct cause own = {.status = STATUS_ENVIRONMENT, .text = "own", .rank = 2, .reporter = 2};
    const struct timespec long_ago[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    char cause[256];
    char owner[256];

    (void)snprintf(cause, sizeof cause, "%s/cause.json", folder);
    (void)snprintf(owner, sizeof owner, "%s/owner", folder);
    for (int old = 0; old < 2; old++) {
        pid_t job;

        (void)unlink(owner);
        ck_assert_int_eq(cause_save(folder, &own, NULL, NULL, NULL), STATUS_OK);
        ck_assert_int_eq(old ? utimensat(AT_FDCWD, cause, long_ago, 0) : 0, 0);
        job = begin_job("one");
        ck_assert_int_eq(access(cause, F_OK), old ? -1 : 0);
        end_job(job);
    }
}
END_TEST

/* The folder of a job on node9, whose lock is not seen here; its rank 0 gives a sign of life every 20 ms, or none. */
static pid_t begin_job_elsewhere(bool living)
{
    static const char text[] = "process 4711\nhost node9\nsince 1700000000000000000\njob one\n";
    struct recorder *recorder = NULL;
    char path[128];
    int file;
    pid_t pid = fork();

    if (pid == 0) {
        (void)recorder_open(folder, 0, 2, &recorder, NULL);
        for (;;) {
            if (living)
                recorder_alive(recorder);
            clock_sleep_ns(20 * NS_PER_MS);
        }
    }
    (void)snprintf(path, sizeof path, "%s/owner", folder);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, text, strlen(text)), strlen(text));
    close(file);
    clock_sleep_ns(300 * NS_PER_MS);
    return pid;
}

START_TEST(a_job_of_another_host_is_known_by_its_signs)
{
    struct error err = {0};
    pid_t first = begin_job_elsewhere(true);

    ck_assert_int_eq(run_folder_claim(folder, "two", &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "process 4711 on node9, since 2023-11-14 22:13:20 UTC"));
    end_job(first);
    first = begin_job_elsewhere(false);
    ck_assert_int_eq(run_folder_claim(folder, "two", &err), STATUS_OK);
    end_job(first);
}
END_TEST

START_TEST(a_damaged_owner_is_none)
{
    static const char *const texts[] = {"", "process\n", "process 99999999999999999999\nhost x\n", "\xff\xfe\x00"};
    struct error err = {0};
    char path[128];

    (void)snprintf(path, sizeof path, "%s/owner", folder);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

        ck_assert_int_ge(write(file, texts[i], strlen(texts[i])), 0);
        close(file);
        no_locks = true;
        ck_assert_msg(run_folder_claim(folder, "two", &err) == STATUS_OK, "%s", err.text);
        no_locks = false;
    }
    ck_assert_int_eq(run_folder_claim("/proc/self", "two", &err), STATUS_STORAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "/proc/self/owner: "));
}
END_TEST

/* ---- its name ---- */

START_TEST(ids_that_name_no_folder_are_refused)
{
    struct error err = {0};
    char id[RUN_ID_BYTES];
    char other[RUN_ID_BYTES];
    char longest[RUN_ID_BYTES];
    char too_long[2 * RUN_ID_BYTES];

    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    memset(too_long, 'y', sizeof too_long);
    too_long[sizeof too_long - 1] = '\0';
    (void)setenv("FERRY_RUN_ID", longest, 1);
    ck_assert_int_eq(run_id_given(id, &err), STATUS_OK);
    ck_assert_str_eq(id, longest);
    (void)setenv("FERRY_RUN_ID", too_long, 1);
    ck_assert_int_eq(run_id_given(id, &err), STATUS_ENVIRONMENT);
    ck_assert_str_eq(err.text, "FERRY_RUN_ID has 127 bytes, at most 63 are allowed: "
                               "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy...");
    ck_assert_str_eq(id, "");
    ck_assert_int_eq(run_id_choose(id, &err), STATUS_ENVIRONMENT);
    (void)setenv("FERRY_RUN_ID", "a\x1b[2J", 1);
    ck_assert_int_eq(run_id_given(id, &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "control character 0x1b at byte 1"));
    /* A starter's is not the user's fault: two long ones stay two. */
    (void)unsetenv("FERRY_RUN_ID");
    (void)setenv("PMIX_NAMESPACE", too_long, 1);
    ck_assert_int_eq(run_id_given(id, &err), STATUS_OK);
    too_long[sizeof too_long - 2] = 'z';
    (void)setenv("PMIX_NAMESPACE", too_long, 1);
    ck_assert_int_eq(run_id_given(other, &err), STATUS_OK);
    ck_assert_uint_eq(strlen(id), RUN_ID_BYTES - 1);
    ck_assert_int_eq(strncmp(id, other, 46), 0);
    ck_assert_str_ne(id, other);
    (void)unsetenv("PMIX_NAMESPACE");
}
END_TEST

START_TEST(an_interface_is_looked_for_by_its_name)
{
    struct if_nameindex *names = if_nameindex();
    struct error err = {0};

    ck_assert_ptr_nonnull(names);
    for (const struct if_nameindex *name = names; name->if_index; name++)
        ck_assert_int_eq(interfaces_check(name->if_name, &err), STATUS_OK);
    ck_assert_int_eq(interfaces_check("nowhere0", &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "communication.interface: nowhere0: no such interface on "));
    for (const struct if_nameindex *name = names; name->if_index; name++)
        ck_assert_ptr_nonnull(strstr(strstr(err.text, "; it has "), name->if_name));
    if_freenameindex(names);
    ck_assert_int_eq(interfaces_check("127.0.0.0/8", &err), STATUS_ENVIRONMENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run");
    TCase *tests = tcase_create("run");

    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, who_has_not_come_is_named_by_the_lowest_that_has);
    tcase_add_test(tests, a_folder_of_one_host_accuses_nobody);
    tcase_add_test(tests, the_doctor_reads_the_roll_call);
    tcase_add_test(tests, a_folder_has_the_id_in_its_name);
    tcase_add_test(tests, two_jobs_do_not_share_a_folder);
    tcase_add_test(tests, a_cause_from_before_the_claim_stays);
    tcase_add_test(tests, a_job_of_another_host_is_known_by_its_signs);
    tcase_add_test(tests, a_damaged_owner_is_none);
    tcase_add_test(tests, ids_that_name_no_folder_are_refused);
    tcase_add_test(tests, an_interface_is_looked_for_by_its_name);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
