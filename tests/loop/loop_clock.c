/* The timeout rule under a clock that the test turns: what changes between two looks at the clock has not stood still
 * for ages. */
#include <check.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backends/loopback/loopback.h"
#include "base/clock.h"
#include "comm/control.h"
#include "tests/suite.h"

static uint64_t turned_ns; /* how far ahead of the machine's */

/* In front of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    long code = syscall(SYS_clock_gettime, clock, now);
    uint64_t ns;

    if (code || clock != CLOCK_MONOTONIC)
        return (int)code;
    turned_ns += 1; /* two looks never see the same time */
    ns = (uint64_t)now->tv_sec * NS_PER_S + (uint64_t)now->tv_nsec + turned_ns;
    now->tv_sec = (time_t)(ns / NS_PER_S);
    now->tv_nsec = (long)(ns % NS_PER_S);
    return 0;
}

enum { RANKS = 2 };

struct pair {
    struct loopback_world *world;
    struct transport *transport[RANKS];
    struct control *control[RANKS];
    struct wait_state state[RANKS];
};

static void begin(struct pair *pair, uint64_t timeout_ns)
{
    const struct loopback_options options = {0};

    memset(pair, 0, sizeof *pair);
    ck_assert_int_eq(loopback_world_create(RANKS, &options, &pair->world, NULL), STATUS_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        pair->state[rank].peer = -1;
        ck_assert_int_eq(loopback_join(pair->world, rank, &pair->transport[rank], NULL), STATUS_OK);
        ck_assert_int_eq(control_open(&loopback_ops, pair->transport[rank], &pair->state[rank], timeout_ns,
                                      &pair->control[rank], NULL),
                         STATUS_OK);
    }
}

static void end(struct pair *pair)
{
    for (int rank = 0; rank < RANKS; rank++) {
        control_close(pair->control[rank]);
        (void)loopback_ops.close(pair->transport[rank], false, NULL);
    }
    loopback_world_destroy(pair->world);
}

/* Let time pass in steps; both ranks are awake and serve their channel. */
static bool pass(struct pair *pair, uint64_t ns, uint64_t step_ns, struct cause *ret)
{
    for (uint64_t passed = 0; passed < ns; passed += step_ns) {
        turned_ns += step_ns;
        for (int rank = 0; rank < RANKS; rank++)
            ck_assert_int_eq(control_poll(pair->control[rank], NULL), STATUS_OK);
        if (control_expired(pair->control[0], ret))
            return true;
    }
    return false;
}

START_TEST(a_counter_that_changed_just_now_has_not_stood_still)
{
    struct cause cause = {0};
    struct pair pair;

    begin(&pair, NS_PER_S);
    pair.state[0] = (struct wait_state){.waiting = true, .peer = -1, .since_ns = clock_ns()};
    ck_assert(!pass(&pair, 900 * NS_PER_MS, 100 * NS_PER_MS, &cause));
    turned_ns += 300 * NS_PER_MS;
    pair.state[0].counter++; /* seen by the look that asks */
    ck_assert_msg(!control_expired(pair.control[0], &cause), "%s", cause.text);
    ck_assert(!pass(&pair, 800 * NS_PER_MS, 100 * NS_PER_MS, &cause));
    ck_assert(pass(&pair, 400 * NS_PER_MS, 100 * NS_PER_MS, &cause)); /* and then it has */
    ck_assert_ptr_nonnull(strstr(cause.text, "rank 0 has stood still for 1."));
    end(&pair);
}
END_TEST

START_TEST(a_rank_that_slept_has_seen_nothing_stand_still)
{
    enum { TIMEOUT_S = 40 }; /* so long that a round of questions outlasts the sleep */
    struct cause cause = {0};
    struct pair pair;

    begin(&pair, TIMEOUT_S * NS_PER_S);
    pair.state[0] = (struct wait_state){.waiting = true, .peer = 1, .since_ns = clock_ns()};
    ck_assert(!pass(&pair, (TIMEOUT_S - 1) * NS_PER_S, 100 * NS_PER_MS, &cause));
    for (int i = 0; i < 10; i++) { /* it sleeps for longer than what passes for awake, over and over; rank 1 does not */
        for (int step = 0; step < 6; step++) {
            turned_ns += 100 * NS_PER_MS;
            ck_assert_int_eq(control_poll(pair.control[1], NULL), STATUS_OK);
        }
        ck_assert_msg(!control_expired(pair.control[0], &cause), "%s", cause.text);
        ck_assert_int_eq(control_poll(pair.control[1], NULL), STATUS_OK);
        ck_assert_int_eq(control_poll(pair.control[0], NULL), STATUS_OK);
    }
    ck_assert(!pass(&pair, (TIMEOUT_S - 1) * NS_PER_S, 100 * NS_PER_MS, &cause));
    ck_assert(pass(&pair, 5 * NS_PER_S, 100 * NS_PER_MS, &cause));
    ck_assert_ptr_nonnull(strstr(cause.text, "rank 1 has stood still for "));
    end(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clock");
    TCase *tests = tcase_create("clock");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_counter_that_changed_just_now_has_not_stood_still);
    tcase_add_test(tests, a_rank_that_slept_has_seen_nothing_stand_still);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
