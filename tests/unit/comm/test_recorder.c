/* The flight recorder's file and cause.json. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/cause.h"
#include "comm/recorder.h"
#include "tests/suite.h"

static char folder[] = "/tmp/ferry-recorder-XXXXXX";
static struct recorder_view view;

static void make_folder(void)
{
    (void)strcpy(folder, "/tmp/ferry-recorder-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char path[128];

    (void)snprintf(path, sizeof path, "%s/rank-000003.recorder", folder);
    unlink(path);
    (void)snprintf(path, sizeof path, "%s/cause.json", folder);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void load(void)
{
    char path[128];
    struct error err = {0};

    ck_assert_int_eq(recorder_path(folder, 3, path, sizeof path), STATUS_OK);
    ck_assert_msg(recorder_load(path, &view, &err) == STATUS_OK, "%s", err.text);
}

START_TEST(what_a_killed_process_did_last_can_be_read)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        struct recorder *recorder = NULL;
        struct record record = {.operation = OPERATION_BARRIER, .object_name = "world/0", .peer = -1, .sequence = 9};
        struct wait_state state = {.waiting = true, .peer = 2, .phase = "step 7"};

        if (recorder_open(folder, 3, 4, &recorder, NULL))
            _exit(1);
        recorder_end(recorder, recorder_post(recorder, &record), STATUS_OK);
        record.sequence = 10;
        (void)recorder_post(recorder, &record);
        recorder_state(recorder, &state);
        raise(SIGKILL);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status));
    load();
    ck_assert_int_eq(view.rank, 3);
    ck_assert_int_eq(view.size, 4);
    ck_assert_int_eq(view.pid, child);
    ck_assert_int_eq(view.count, 2);
    ck_assert_int_eq(view.records[0].state, RECORD_DONE);
    ck_assert_int_eq(view.records[1].state, RECORD_POSTED);
    ck_assert_uint_eq(view.records[1].sequence, 10);
    ck_assert_int_eq(view.state.peer, 2);
    ck_assert_str_eq(view.state.phase, "step 7");
}
END_TEST

START_TEST(the_ring_keeps_the_last_records_in_order)
{
    struct recorder *recorder = NULL;
    struct record record = {.operation = OPERATION_SEND_RECEIVE, .peer = 1};
    struct error err = {0};
    uint64_t first;

    ck_assert_int_eq(recorder_open(folder, 3, 4, &recorder, &err), STATUS_OK);
    memset(record.object_name, 'x', sizeof record.object_name);
    first = recorder_post(recorder, &record);
    for (int i = 1; i < 1000; i++) {
        record.sequence = (uint64_t)i;
        recorder_end(recorder, recorder_post(recorder, &record), i == 999 ? STATUS_CORRUPT : STATUS_OK);
    }
    recorder_end(recorder, first, STATUS_CORRUPT);
    load();
    recorder_close(recorder);
    ck_assert_int_eq(view.count, RECORDER_RECORDS);
    ck_assert_uint_eq(view.records[0].number, 1000 - RECORDER_RECORDS);
    ck_assert_int_eq(view.records[0].state, RECORD_DONE);
    ck_assert_uint_eq(view.records[RECORDER_RECORDS - 1].sequence, 999);
    ck_assert_int_eq(view.records[RECORDER_RECORDS - 1].status, STATUS_CORRUPT);
    ck_assert_uint_eq(strlen(view.records[0].object_name), 63);
}
END_TEST

START_TEST(a_cut_or_foreign_file_is_refused)
{
    struct recorder *recorder = NULL;
    struct error err = {0};
    char path[128];

    ck_assert_int_eq(recorder_open(folder, 3, 4, &recorder, &err), STATUS_OK);
    recorder_close(recorder);
    ck_assert_int_eq(recorder_path(folder, 3, path, sizeof path), STATUS_OK);
    ck_assert_int_eq(truncate(path, 2000), 0);
    ck_assert_int_eq(recorder_load(path, &view, &err), STATUS_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    unlink(path);
    ck_assert_int_eq(recorder_load(path, &view, &err), STATUS_STORAGE);
    ck_assert_int_eq(recorder_open("/nonexistent", 3, 4, &recorder, &err), STATUS_STORAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/rank-000003.recorder"));
}
END_TEST

static void patch(off_t at, const void *bytes, size_t count)
{
    char path[128];
    int file;

    ck_assert_int_eq(recorder_path(folder, 3, path, sizeof path), STATUS_OK);
    file = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(file, bytes, count, at), (ssize_t)count);
    close(file);
}

/* Offsets as the table at the top of recorder.c gives them. */
START_TEST(a_file_that_contradicts_itself_is_refused_by_name)
{
    static const struct {
        off_t at;
        unsigned char byte;
        const char *says;
    } vectors[] = {{0, 'X', "does not begin with FERRYREC"},
                   {8, 3, "version 3; this ferry reads version 2"},
                   {13, 9, "2304 records of 192 bytes"},
                   {16, 1, "records of 1 bytes"},
                   {20, 4, "rank 4 of 4"},
                   {23, 255, "of 4"},
                   {27, 1, "of 16777220"},
                   {120, 9, "end 9"}};
    struct recorder *recorder = NULL;
    char path[128];

    ck_assert_int_eq(recorder_path(folder, 3, path, sizeof path), STATUS_OK);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct error err = {0};

        ck_assert_int_eq(recorder_open(folder, 3, 4, &recorder, &err), STATUS_OK);
        recorder_close(recorder);
        patch(vectors[i].at, &vectors[i].byte, 1);
        ck_assert_int_eq(recorder_load(path, &view, &err), STATUS_CORRUPT);
        ck_assert_msg(strstr(err.text, vectors[i].says) != NULL, "vector %zu: %s", i, err.text);
        ck_assert_ptr_eq(strstr(err.text, path), err.text);
    }
}
END_TEST

START_TEST(damage_that_can_be_read_stays_within_bounds)
{
    static const unsigned char wild[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    struct record record = {.operation = OPERATION_BARRIER, .object_name = "world/0", .peer = 1};
    struct recorder *recorder = NULL;
    struct wait_state state = {.waiting = true, .peer = 1, .phase = "step"};

    ck_assert_int_eq(recorder_open(folder, 3, 4, &recorder, NULL), STATUS_OK);
    (void)recorder_post(recorder, &record);
    recorder_state(recorder, &state);
    recorder_close(recorder);
    patch(256 + 12, "\x04\0\0", 4);      /* the peer waited for: there is no rank 4 of 4 */
    patch(256 + 104, "\x1b[2J", 4);      /* the phase */
    patch(1024 + 8, wild, 4);            /* the record's operation */
    patch(1024 + 16, "\xfe\xff\xff", 4); /* its peer */
    load();
    ck_assert_int_eq(view.state.peer, -1);
    ck_assert_str_eq(view.state.phase, "?[2J");
    ck_assert_int_eq(view.count, 1);
    ck_assert_int_eq(view.records[0].operation, OPERATION_NONE);
    ck_assert_int_eq(view.records[0].peer, -1);
    patch(112, wild, 8); /* operations posted: the ring holds none of the last 256 numbers */
    load();
    ck_assert_int_eq(view.count, 0);
}
END_TEST

START_TEST(a_rank_says_how_it_ends)
{
    struct recorder *recorder = NULL;
    struct wait_state state = {.waiting = true, .peer = 2, .phase = "step 7"};

    ck_assert_int_eq(recorder_open(folder, 3, 4, &recorder, NULL), STATUS_OK);
    load();
    ck_assert_int_eq(view.end, RECORDER_RUNNING);
    recorder_state(recorder, &state);
    recorder_phase(recorder, "step 7 is indeterminate");
    recorder_leave(recorder, STATUS_TIMEOUT);
    recorder_leave(recorder, STATUS_OK);
    load();
    ck_assert_int_eq(view.end, RECORDER_FAILED);
    ck_assert_int_eq(view.end_status, STATUS_TIMEOUT);
    ck_assert_int_eq(view.state.peer, 2);
    ck_assert_str_eq(view.state.phase, "step 7 is indeterminate");
    recorder_mark_killed(folder, 3, SIGTERM);
    load();
    ck_assert_int_eq(view.end, RECORDER_KILLED);
    ck_assert_int_eq(view.end_signal, SIGTERM);
    ck_assert_uint_gt(view.ended_ns, 0);
    recorder_mark_killed(folder, 2, SIGTERM); /* no such file: nothing happens */
    recorder_close(recorder);
    ck_assert_int_eq(recorder_open(folder, 3, 4, &recorder, NULL), STATUS_OK);
    recorder_leave(recorder, STATUS_OK);
    recorder_mark_ended(folder, 3); /* it has said how */
    load();
    ck_assert_int_eq(view.end, RECORDER_CLOSED);
    recorder_close(recorder);
    ck_assert_int_eq(recorder_open(folder, 3, 4, &recorder, NULL), STATUS_OK);
    recorder_mark_ended(folder, 3);
    load();
    ck_assert_int_eq(view.end, RECORDER_FAILED);
    ck_assert_int_eq(view.end_status, STATUS_LOST);
    recorder_close(recorder);
}
END_TEST

START_TEST(a_writer_that_stopped_in_the_middle_is_known)
{
    struct recorder *recorder = NULL;
    struct wait_state state = {.waiting = true, .peer = 2};

    ck_assert_int_eq(recorder_open(folder, 3, 4, &recorder, NULL), STATUS_OK);
    recorder_state(recorder, &state);
    recorder_close(recorder);
    load();
    ck_assert(!view.torn);
    patch(248, "\x03", 1); /* the number of writes is odd */
    load();
    ck_assert(view.torn);
}
END_TEST

START_TEST(a_new_run_forgets_the_old_cause)
{
    struct cause cause = {.status = STATUS_LOST, .text = "old"};
    bool first = false;

    ck_assert_int_eq(cause_save(folder, &cause, NULL, &first, NULL), STATUS_OK);
    cause_forget(folder);
    first = false;
    ck_assert_int_eq(cause_save(folder, &cause, NULL, &first, NULL), STATUS_OK);
    ck_assert(first);
}
END_TEST

START_TEST(no_recorder_records_nothing)
{
    struct record record = {0};
    struct wait_state state = {0};

    recorder_end(NULL, recorder_post(NULL, &record), STATUS_OK);
    recorder_state(NULL, &state);
    recorder_phase(NULL, "");
    recorder_alive(NULL);
    recorder_leave(NULL, STATUS_OK);
    recorder_close(NULL);
}
END_TEST

START_TEST(the_first_cause_stays)
{
    struct cause first = {.status = STATUS_LOST, .rank = 2, .reporter = 2, .text = "rank 2 \"died\"\n\xc3\xa4\xff"};
    struct cause second = {.status = STATUS_TIMEOUT, .rank = 1, .reporter = 0, .text = "later"};
    char bytes[1024] = "";
    char path[128];
    bool printed = false;
    int file;

    ck_assert_int_eq(cause_save(folder, &first, "barrier on world/0", &printed, NULL), STATUS_OK);
    ck_assert(printed);
    ck_assert_int_eq(cause_save(folder, &second, NULL, &printed, NULL), STATUS_OK);
    ck_assert(!printed);
    ck_assert_int_eq(cause_save("/nonexistent", &second, NULL, &printed, NULL), STATUS_STORAGE);
    ck_assert(printed);
    (void)snprintf(path, sizeof path, "%s/cause.json", folder);
    file = open(path, O_RDONLY);
    ck_assert_int_gt(read(file, bytes, sizeof bytes - 1), 0);
    close(file);
    ck_assert_ptr_nonnull(strstr(bytes, "\"status\": \"rank lost\""));
    ck_assert_ptr_nonnull(strstr(bytes, "\"exit_code\": 8"));
    ck_assert_ptr_nonnull(strstr(bytes, "\"text\": \"rank 2 \\\"died\\\"\\u000a\xc3\xa4\\ufffd\""));
    ck_assert_ptr_nonnull(strstr(bytes, "\"last_operation\": \"barrier on world/0\""));
}
END_TEST

START_TEST(each_part_of_a_job_that_was_cut_in_two_prints_its_own_cause)
{
    struct cause here = {.status = STATUS_TIMEOUT, .rank = 2, .reporter = 0, .text = "rank 2 has been silent"};
    struct cause there = {.status = STATUS_TIMEOUT, .rank = 1, .reporter = 3, .text = "rank 1 has been silent"};
    bool printed = false;

    ck_assert_int_eq(cause_save(folder, &there, NULL, &printed, NULL), STATUS_OK);
    ck_assert(printed);
    printed = false;
    ck_assert_int_eq(cause_save(folder, &here, NULL, &printed, NULL), STATUS_OK);
    ck_assert(printed);
    here.rank = 1; /* of the rank that is blamed already nothing more is said */
    ck_assert_int_eq(cause_save(folder, &here, NULL, &printed, NULL), STATUS_OK);
    ck_assert(!printed);
}
END_TEST

START_TEST(what_a_rank_found_is_printed_once)
{
    const struct cause found[] = {
        {.status = STATUS_MISMATCH, .rank = 1, .reporter = 0, .text = "route forward/0-1 (rank 0 to rank 1)"},
        {.status = STATUS_MISMATCH, .rank = -1, .reporter = 0, .text = "rank 0: barrier; rank 1: broadcast"},
        {.status = STATUS_TIMEOUT, .rank = -1, .reporter = 0, .text = "ranks wait for each other"},
    };
    const struct cause later = {.status = STATUS_LOST, .rank = 3, .reporter = 3, .text = "rank 3 died"};

    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        bool printed = false;

        cause_forget(folder);
        ck_assert_int_eq(cause_save(folder, &found[i], NULL, &printed, NULL), STATUS_OK);
        ck_assert(printed);
        ck_assert_int_eq(cause_save(folder, &later, NULL, &printed, NULL), STATUS_OK);
        ck_assert(!printed);
    }
}
END_TEST

static int four(const struct transport *transport)
{
    (void)transport;
    return 4;
}

static const char *host_of(const struct transport *transport, int rank)
{
    static const char *const hosts[] = {"node1", "node1", "node2", NULL};

    (void)transport;
    return hosts[rank];
}

START_TEST(a_cause_says_where_the_ranks_run_that_it_names)
{
    static const struct {
        const char *text, *added;
    } cases[] = {
        {"rank 2 has been silent; rank 0 waits for rank 2", "; rank 2 runs on node2, rank 0 runs on node1"},
        {"route forward/0-2 (rank 0 to rank 2)", "; rank 0 runs on node1, rank 2 runs on node2"},
        {"rank 2 on node2 died; rank 1", "; rank 1 runs on node1"},
        {"rank 3: no space", ""},                  /* its host is not known */
        {"rank 4, rank 99999999999999999999", ""}, /* no ranks of this job */
        {"frank 1, rank x, ranks 1, 2, a rank", ""},
        {"", ""},
    };
    static const struct transport_ops ops = {.size = four, .host = host_of};
    static const struct transport_ops silent = {.size = four};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cause cause = {.status = STATUS_TIMEOUT};
        size_t length = strlen(cases[i].text);

        (void)snprintf(cause.text, sizeof cause.text, "%s", cases[i].text);
        cause_add_hosts(&cause, &silent, NULL);
        ck_assert_str_eq(cause.text, cases[i].text);
        cause_add_hosts(&cause, &ops, NULL);
        ck_assert_str_eq(cause.text + length, cases[i].added);
    }
}
END_TEST

START_TEST(a_full_cause_stays_as_it_is)
{
    static const struct transport_ops ops = {.size = four, .host = host_of};
    struct cause cause = {.status = STATUS_TIMEOUT};

    (void)snprintf(cause.text, sizeof cause.text, "rank 2 %01500d", 7);
    cause_add_hosts(&cause, &ops, NULL);
    ck_assert_uint_eq(strlen(cause.text), 1507);
}
END_TEST

START_TEST(what_was_found_explains_more_than_what_was_missed)
{
    struct cause found = {.status = STATUS_MISMATCH, .time_ns = 900, .reporter = 3};
    struct cause lost = {.status = STATUS_LOST, .time_ns = 500, .reporter = 2};
    struct cause late = {.status = STATUS_TIMEOUT, .time_ns = 100, .reporter = 1};
    struct cause later = {.status = STATUS_TIMEOUT, .time_ns = 200, .reporter = 0};

    ck_assert_int_lt(cause_compare(&found, &lost), 0);
    ck_assert_int_lt(cause_compare(&lost, &late), 0);
    ck_assert_int_lt(cause_compare(&late, &later), 0);
    later.time_ns = 100;
    ck_assert_int_gt(cause_compare(&late, &later), 0);
    ck_assert_int_eq(cause_compare(&late, &late), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recorder");
    TCase *tests = tcase_create("recorder");

    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, what_a_killed_process_did_last_can_be_read);
    tcase_add_test(tests, the_ring_keeps_the_last_records_in_order);
    tcase_add_test(tests, a_cut_or_foreign_file_is_refused);
    tcase_add_test(tests, a_file_that_contradicts_itself_is_refused_by_name);
    tcase_add_test(tests, damage_that_can_be_read_stays_within_bounds);
    tcase_add_test(tests, a_rank_says_how_it_ends);
    tcase_add_test(tests, a_writer_that_stopped_in_the_middle_is_known);
    tcase_add_test(tests, a_new_run_forgets_the_old_cause);
    tcase_add_test(tests, no_recorder_records_nothing);
    tcase_add_test(tests, the_first_cause_stays);
    tcase_add_test(tests, each_part_of_a_job_that_was_cut_in_two_prints_its_own_cause);
    tcase_add_test(tests, what_a_rank_found_is_printed_once);
    tcase_add_test(tests, a_cause_says_where_the_ranks_run_that_it_names);
    tcase_add_test(tests, a_full_cause_stays_as_it_is);
    tcase_add_test(tests, what_was_found_explains_more_than_what_was_missed);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
