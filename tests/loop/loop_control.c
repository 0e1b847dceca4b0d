/* Control channels alone, many in one thread: poison, log lines, damage. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "backends/loopback/loopback.h"
#include "base/clock.h"
#include "comm/control.h"
#include "tests/suite.h"

struct crowd {
    int size;
    struct loopback_world *world;
    struct transport *transports[100];
    struct control *controls[100];
    struct wait_state states[100];
};

static void gather_crowd(struct crowd *crowd, int size)
{
    struct loopback_options options = {0};

    *crowd = (struct crowd){.size = size};
    ck_assert_int_eq(loopback_world_create(size, &options, &crowd->world, NULL), STATUS_OK);
    for (int rank = 0; rank < size; rank++) {
        ck_assert_int_eq(loopback_join(crowd->world, rank, &crowd->transports[rank], NULL), STATUS_OK);
        ck_assert_int_eq(control_open(&loopback_ops, crowd->transports[rank], &crowd->states[rank], NS_PER_S,
                                      &crowd->controls[rank], NULL),
                         STATUS_OK);
    }
}

static void poll_crowd(struct crowd *crowd)
{
    for (int rank = 0; rank < crowd->size; rank++)
        ck_assert_int_eq(control_poll(crowd->controls[rank], NULL), STATUS_OK);
}

static void dismiss_crowd(struct crowd *crowd)
{
    for (int rank = 0; rank < crowd->size; rank++) {
        control_close(crowd->controls[rank]);
        (void)loopback_ops.close(crowd->transports[rank], false, NULL);
    }
    loopback_world_destroy(crowd->world);
}

START_TEST(poison_floods_a_large_world)
{
    static struct crowd crowd;
    struct cause cause = {.status = STATUS_MODEL, .rank = 41, .reporter = 41};

    memset(cause.text, 'x', sizeof cause.text - 1);
    gather_crowd(&crowd, 100);
    control_poison(crowd.controls[41], &cause);
    for (int round = 0; round < 8; round++)
        poll_crowd(&crowd);
    for (int rank = 0; rank < 100; rank++) {
        ck_assert_ptr_nonnull(control_poisoned(crowd.controls[rank]));
        ck_assert_str_eq(control_poisoned(crowd.controls[rank])->text, cause.text);
    }
    dismiss_crowd(&crowd);
}
END_TEST

static void keep_line(void *context, int rank, const char *line)
{
    char *kept = context;

    (void)snprintf(kept + strlen(kept), 8192 - strlen(kept), "%d %s\n", rank, line);
}

START_TEST(log_lines_of_any_length_arrive_whole_and_in_order)
{
    static struct crowd crowd;
    char line[3901];
    char kept[8192] = "";
    char expected[8192];

    memset(line, 'y', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    gather_crowd(&crowd, 2);
    control_set_log(crowd.controls[0], keep_line, kept);
    control_log(crowd.controls[1], "first");
    control_log(crowd.controls[1], line);
    control_log(crowd.controls[0], "own");
    control_log(crowd.controls[1], "");
    poll_crowd(&crowd);
    (void)snprintf(expected, sizeof expected, "0 own\n1 first\n1 %s\n1 \n", line);
    ck_assert_str_eq(kept, expected);
    dismiss_crowd(&crowd);
}
END_TEST

START_TEST(every_damaged_control_message_is_refused_or_survived)
{
    static struct crowd crowd;
    struct cause cause = {.status = STATUS_MODEL, .rank = 1, .reporter = 1, .text = "why"};
    unsigned char message[CONTROL_BYTES];
    int peer;
    bool found;

    for (int bit = 0; bit < 80 * 8; bit++) {
        gather_crowd(&crowd, 2);
        control_poison(crowd.controls[1], &cause);
        ck_assert_int_eq(loopback_ops.control_receive(crowd.transports[0], &peer, message, &found, NULL), STATUS_OK);
        ck_assert(found);
        message[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert_int_eq(loopback_ops.control_send(crowd.transports[0], 0, message, NULL), STATUS_OK);
        if (bit < 6 * 8)
            ck_assert_int_ne(control_poll(crowd.controls[0], NULL), STATUS_OK);
        else
            (void)control_poll(crowd.controls[0], NULL);
        dismiss_crowd(&crowd);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("control");
    TCase *tests = tcase_create("control");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, poison_floods_a_large_world);
    tcase_add_test(tests, log_lines_of_any_length_arrive_whole_and_in_order);
    tcase_add_test(tests, every_damaged_control_message_is_refused_or_survived);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
