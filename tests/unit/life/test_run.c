/* Before ranks can talk: the run's folder, the roll call, the network interfaces. */
#include <check.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/cause.h"
#include "launcher/casefile.h"
#include "launcher/interfaces.h"
#include "launcher/roll_call.h"
#include "launcher/run_folder.h"

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

START_TEST(a_folder_has_the_id_in_its_name_and_begins_anew)
{
    const struct cause old = {.status = STATUS_LOST, .text = "old"};
    struct text path = {0};
    struct text again = {0};
    struct error err = {0};
    char expected[128];
    char cause[256];

    ck_assert_int_eq(run_folder_make(folder, "chat", "a/b 7", true, &path, &err), STATUS_OK);
    (void)snprintf(expected, sizeof expected, "%s/chat-a_b 7", folder);
    ck_assert_str_eq(path.bytes, expected);
    ck_assert_int_eq(cause_save(path.bytes, &old, NULL, NULL, NULL), STATUS_OK);
    (void)snprintf(cause, sizeof cause, "%s/cause.json", path.bytes);
    ck_assert_int_eq(run_folder_make(folder, "chat", "a/b 7", false, &again, &err), STATUS_OK);
    ck_assert_int_eq(access(cause, F_OK), 0);
    text_done(&again);
    ck_assert_int_eq(run_folder_make(folder, "chat", "a/b 7", true, &again, &err), STATUS_OK);
    ck_assert_int_ne(access(cause, F_OK), 0);
    text_done(&again);
    ck_assert_int_eq(run_folder_make("/proc/nowhere", "chat", "7", true, &again, &err), STATUS_STORAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "run_dir: /proc/nowhere cannot be made"));
    text_done(&again);
    ck_assert(!run_folder_shared(path.bytes));
    text_done(&path);
}
END_TEST

START_TEST(interfaces_are_looked_for_by_name_and_network)
{
    struct if_nameindex *names = if_nameindex();
    struct error err = {0};
    char both[64];

    ck_assert_ptr_nonnull(names);
    ck_assert_int_eq(interfaces_check(names[0].if_name, &err), STATUS_OK);
    (void)snprintf(both, sizeof both, "%s,nowhere0", names[0].if_name);
    ck_assert_int_eq(interfaces_check(both, &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "communication.interface: nowhere0: no such interface on "));
    for (const struct if_nameindex *name = names; name->if_index; name++)
        ck_assert_ptr_nonnull(strstr(strstr(err.text, "; it has "), name->if_name));
    if_freenameindex(names);
    ck_assert_int_eq(interfaces_check("127.0.0.0/8", &err), STATUS_OK);
    ck_assert_int_eq(interfaces_check("240.0.0.0/24", &err), STATUS_ENVIRONMENT);
    ck_assert_int_eq(interfaces_check("127.0.0.0/99", &err), STATUS_ENVIRONMENT);
    ck_assert_int_eq(interfaces_check("/8", &err), STATUS_ENVIRONMENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run");
    TCase *tests = tcase_create("run");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, who_has_not_come_is_named_by_the_lowest_that_has);
    tcase_add_test(tests, a_folder_of_one_host_accuses_nobody);
    tcase_add_test(tests, the_doctor_reads_the_roll_call);
    tcase_add_test(tests, a_folder_has_the_id_in_its_name_and_begins_anew);
    tcase_add_test(tests, interfaces_are_looked_for_by_name_and_network);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
