/* Deadlines: whose clock counts, what is told when, and what has ended by itself before. */
#include <check.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/deadlines.h"
#include "runtime/prompts.h"
#include "tests/suite.h"

enum { PROMPTS = 5, NEVER_MS = 1000 * 1000 };

/* What was handed on. */
static struct token told[16];
static int told_count;

static enum status note(void *context, const struct result *result, struct error *err)
{
    (void)context;
    (void)err;
    told[told_count++] = result->token;
    return STATUS_OK;
}

static uint64_t begins[PROMPTS + 1] = {0, 1, 2, 3, 4, 5};
static uint32_t ids[PROMPTS];
static uint32_t times[PROMPTS] = {500, 0, 200, NEVER_MS, 200};

static struct deadlines *make(bool keeper)
{
    static const struct prompts prompts = {.count = PROMPTS, .begin = begins, .tokens = ids, .deadline_ms = times};
    const struct deadlines_options options = {.prompts = &prompts, .lines = 1, .keeper = keeper, .emit = note};
    struct deadlines *deadlines = NULL;

    ck_assert_int_eq(deadlines_create(&options, &deadlines, NULL), STATUS_OK);
    deadlines_start(deadlines);
    told_count = 0;
    return deadlines;
}

static uint32_t clock_of(uint32_t ms)
{
    return ms << DEADLINES_SHIFT;
}

static void generate(struct deadlines *deadlines, uint32_t request, uint32_t index, uint32_t flags)
{
    const struct result result = {.token = {.request = request, .flags = flags, .index = index}};

    ck_assert_int_eq(deadlines_emit(deadlines, &result, NULL), STATUS_OK);
}

START_TEST(of_all_votes_the_keepers_clock_remains)
{
    struct deadlines *keeper = make(true);
    struct deadlines *other = make(false);
    uint32_t all;

    clock_sleep_ns(20 * NS_PER_MS);
    all = (deadlines_vote(keeper) | 3u) & (deadlines_vote(other) | 1u);
    ck_assert_uint_eq(all & 3u, 1);
    ck_assert_uint_ge(all >> DEADLINES_SHIFT, 20);
    ck_assert_uint_lt(all >> DEADLINES_SHIFT, 20000);
    deadlines_destroy(keeper);
    deadlines_destroy(other);
}
END_TEST

/* This rank's own clock says neither that a time is up nor that it is not. */
START_TEST(what_is_due_follows_from_the_verdict_alone)
{
    struct deadlines *deadlines = NULL;

    times[0] = 1;
    deadlines = make(true);
    times[0] = 500;
    clock_sleep_ns(20 * NS_PER_MS);
    deadlines_read(deadlines, clock_of(0), 3, NULL);
    ck_assert_int_eq(deadlines_tell(deadlines, NULL, NULL), STATUS_OK);
    ck_assert_int_eq(told_count, 0);
    deadlines_read(deadlines, clock_of(NEVER_MS - 1), 4, NULL);
    ck_assert_int_eq(deadlines_tell(deadlines, NULL, NULL), STATUS_OK);
    ck_assert_int_eq(told_count, 3);
    deadlines_destroy(deadlines);
}
END_TEST

/* In the order of their times, each behind what it has generated, once; not those that ended before. */
START_TEST(ends_are_told_once_and_behind_the_tokens)
{
    struct deadlines *deadlines = make(true);

    generate(deadlines, 0, 0, TOKEN_VALID);
    generate(deadlines, 0, 1, TOKEN_VALID);
    generate(deadlines, 2, 0, TOKEN_VALID | TOKEN_STOP);
    generate(deadlines, 3, 0, TOKEN_VALID);
    told_count = 0;
    deadlines_read(deadlines, clock_of(199), 1, NULL);
    ck_assert_int_eq(deadlines_tell(deadlines, NULL, NULL), STATUS_OK);
    ck_assert_int_eq(told_count, 0);
    for (int turn = 0; turn < 2; turn++) {
        deadlines_read(deadlines, clock_of(500), 2, NULL);
        ck_assert_int_eq(deadlines_tell(deadlines, NULL, NULL), STATUS_OK);
        ck_assert_int_eq(told_count, 2);
    }
    ck_assert_uint_eq(told[0].request, 4);
    ck_assert_uint_eq(told[0].index, 0);
    ck_assert_uint_eq(told[0].flags, TOKEN_DEADLINE);
    ck_assert_uint_eq(told[1].request, 0);
    ck_assert_uint_eq(told[1].index, 2);
    ck_assert_uint_eq(told[1].flags, TOKEN_DEADLINE);
    deadlines_destroy(deadlines);
}
END_TEST

START_TEST(without_deadlines_everything_is_handed_on)
{
    const struct prompts prompts = {.count = PROMPTS, .begin = begins, .tokens = ids};
    const struct deadlines_options options = {.prompts = &prompts, .lines = 1, .keeper = true, .emit = note};
    struct deadlines *deadlines = NULL;

    ck_assert_int_eq(deadlines_create(&options, &deadlines, NULL), STATUS_OK);
    told_count = 0;
    generate(deadlines, 4, 0, TOKEN_VALID);
    deadlines_read(deadlines, clock_of(NEVER_MS), 2, NULL);
    ck_assert_int_eq(deadlines_tell(deadlines, NULL, NULL), STATUS_OK);
    ck_assert_int_eq(told_count, 1);
    deadlines_destroy(deadlines);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deadlines");
    TCase *tests = tcase_create("deadlines");

    tcase_add_test(tests, of_all_votes_the_keepers_clock_remains);
    tcase_add_test(tests, what_is_due_follows_from_the_verdict_alone);
    tcase_add_test(tests, ends_are_told_once_and_behind_the_tokens);
    tcase_add_test(tests, without_deadlines_everything_is_handed_on);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
