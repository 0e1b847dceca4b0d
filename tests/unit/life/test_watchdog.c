/* The watchdog: it ends a phase that overstays, and only that. */
#include "tests/unit/life/child.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "launcher/watchdog.h"
#include "tests/suite.h"

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

    child_spawn(&child, overstay);
    child_collect(&child);
    ck_assert_int_eq(child.code, 7);
    ck_assert_str_eq(child.text, "ferry: rank 3/8: error: loading has not ended within 0.1 s "
                                 "(communication.startup_timeout): this process ends\n");
    child_spawn(&child, stay_within);
    child_collect(&child);
    ck_assert_int_eq(child.code, 0);
    child_spawn(&child, leave);
    child_collect(&child);
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

    child_spawn(&child, overstay_with_words);
    child_collect(&child);
    ck_assert_int_eq(child.code, 7);
    ck_assert_str_eq(child.text, "said: loading has not ended within 0.1 s: this process ends");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("watchdog");
    TCase *tests = tcase_create("watchdog");

    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, the_watchdog_lets_another_speak);
    tcase_add_test(tests, the_watchdog_ends_a_phase_that_overstays);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
