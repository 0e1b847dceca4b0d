/* How far a peer is, by looks at its lines and by what it says of what it has read. */
#include <check.h>
#include <string.h>

#include "backends/mpi/mpi_distance.h"
#include "tests/suite.h"

enum {
    SOON_NS = 30,
    LATE_NS = 130,
    LOST_NS = 50000,
    LINES = 1024,
    QUICK_NS = 6,
    SLOW_NS = 30,
    MANY = 20,
    NEVER = 1000
};

static struct distance distance;

static void setup(void)
{
    distance = (struct distance){0};
}

static void look(int count, uint64_t ns)
{
    for (int i = 0; i < count; i++)
        distance_looked(&distance, ns);
}

static void say(int count, uint64_t line_ns)
{
    for (int i = 0; i < count; i++)
        distance_read(&distance, LINES, LINES * line_ns);
}

/* How many messages are mailed before one is lent. */
static int mailed(void)
{
    int count = 0;

    while (count < NEVER && !distance_lends(&distance))
        count++;
    return count;
}

/* Are all of many lent? */
static bool lends(void)
{
    for (int i = 0; i < NEVER; i++) {
        if (!distance_lends(&distance))
            return false;
    }
    return true;
}

/* Some looks that agree decide; one that differs, or that was lost, does not. */
START_TEST(a_peer_is_near_when_its_lines_come_soon)
{
    static const struct {
        int count;
        uint64_t ns;
        bool near;
    } looks[] = {{MANY, LATE_NS, false},
                 {MANY, SOON_NS, true},
                 {1, LATE_NS, true},
                 {MANY, LOST_NS, true},
                 {MANY, LATE_NS, false}};

    ck_assert(!distance_is_near(&distance));
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        look(looks[i].count, looks[i].ns);
        ck_assert_msg(distance_is_near(&distance) == looks[i].near, "looks %zu", i);
    }
}
END_TEST

/* Whatever the looks say: on some machines they never say near. */
START_TEST(who_is_not_known_is_soon_lent_to_and_again_until_he_is)
{
    look(_i ? MANY : 0, LATE_NS);
    for (int i = 0; i < 3; i++) {
        int before = mailed();

        ck_assert_int_ge(before, 1);
        ck_assert_int_le(before, 8);
    }
    say(1, QUICK_NS);
    ck_assert(lends());
}
END_TEST

START_TEST(who_is_near_is_lent_to_until_he_reads_slowly)
{
    look(MANY, SOON_NS);
    ck_assert(lends());
    say(1, SLOW_NS);
    ck_assert_int_gt(mailed(), 0);
}
END_TEST

START_TEST(some_slow_reads_among_quick_ones_change_nothing)
{
    say(MANY, QUICK_NS);
    say(2, SLOW_NS);
    ck_assert(lends());
    say(MANY, SLOW_NS);
    ck_assert(!lends());
}
END_TEST

/* The rarer the surer that it is slow, and no rarer than that. */
START_TEST(who_reads_slowly_is_lent_to_now_and_then)
{
    int once = 0;
    int often = 0;

    say(1, SLOW_NS);
    once = mailed();
    say(MANY, SLOW_NS);
    often = mailed();
    ck_assert_int_ge(once, 8);
    ck_assert_int_gt(often, once);
    ck_assert_int_le(often, 100);
    ck_assert_int_eq(mailed(), often);
}
END_TEST

START_TEST(two_quick_reads_outweigh_all_slow_ones)
{
    say(MANY, SLOW_NS);
    say(1, QUICK_NS);
    ck_assert_int_le(mailed(), 8);
    say(1, QUICK_NS);
    ck_assert(lends());
}
END_TEST

/* How many messages are written past the cache before one is written by plain stores. */
static int streamed(void)
{
    int count = 0;

    while (count < NEVER && !distance_stores(&distance))
        count++;
    return count;
}

static void store(int count, uint64_t line_ns)
{
    for (int i = 0; i < count; i++)
        distance_stored(&distance, LINES, LINES * line_ns);
}

/* Where the looks never say near, plain stores are tried; what is known of lending has nothing to do with it. */
START_TEST(who_is_written_to_quickly_by_plain_stores_is_so_on)
{
    look(MANY, LATE_NS);
    say(MANY, QUICK_NS);
    ck_assert(!distance_is_stored_to(&distance));
    for (int i = 0; i < 3; i++) {
        int before = streamed();

        ck_assert_int_ge(before, 1);
        ck_assert_int_le(before, 8);
    }
    store(1, QUICK_NS);
    ck_assert(distance_is_stored_to(&distance));
    for (int i = 0; i < NEVER; i++)
        ck_assert(distance_stores(&distance));
    store(MANY, SLOW_NS);
    ck_assert(!distance_is_stored_to(&distance));
    for (int i = 0; i < 3; i++) {
        int before = streamed();

        ck_assert_int_ge(before, 32);
        ck_assert_int_le(before, 128);
    }
    say(MANY, SLOW_NS);
    store(2, QUICK_NS);
    ck_assert(distance_is_stored_to(&distance));
}
END_TEST

START_TEST(who_is_near_is_written_to_by_plain_stores_whatever_they_took)
{
    store(MANY, SLOW_NS);
    look(MANY, SOON_NS);
    ck_assert(distance_is_stored_to(&distance));
    ck_assert_int_eq(streamed(), 0);
    store(MANY, SLOW_NS);
    ck_assert(distance_is_stored_to(&distance));
    ck_assert_int_eq(streamed(), 0);
}
END_TEST

/* The looks are sure that he is near, and were sure that he is not. */
START_TEST(who_comes_near_is_measured_again)
{
    look(MANY, LATE_NS);
    say(MANY, SLOW_NS);
    look(MANY, SOON_NS);
    ck_assert(distance_lends(&distance));
    say(1, SLOW_NS);
    ck_assert(!distance_lends(&distance));
}
END_TEST

/* Looks that waver say nothing new: neither those of a far one of which some come soon, nor those of a near one of
 * which some come late. */
START_TEST(who_wavers_is_not_measured_again)
{
    look(MANY, LATE_NS);
    say(MANY, SLOW_NS);
    look(6, SOON_NS);
    ck_assert(distance_is_near(&distance));
    ck_assert(!distance_lends(&distance));
    look(MANY, SOON_NS);
    say(MANY, SLOW_NS);
    look(6, LATE_NS);
    ck_assert(!distance_is_near(&distance));
    look(MANY, SOON_NS);
    ck_assert(distance_is_near(&distance));
    ck_assert(!distance_lends(&distance));
}
END_TEST

/* Said by somebody who was not running, or who lies; or of too little. */
START_TEST(what_nobody_can_have_read_so_is_not_heard)
{
    static const struct {
        uint64_t lines;
        uint64_t ns;
        int8_t heard; /* whether it is quick, to who was known to be slow */
    } words[] = {
        {LINES, 0, -1},
        {LINES, UINT64_MAX, -1},
        {LINES, UINT64_MAX / 2, -1},
        {LINES, (uint64_t)LINES * 250, -1},
        {0, 0, -1},
        {0, 1, -1},
        {0, UINT64_MAX, -1},
        {63, (uint64_t)63 * QUICK_NS, -1},
        {64, (uint64_t)64 * QUICK_NS, 0},
        {LINES, (uint64_t)LINES * 16 - 1, 0},
        {LINES, (uint64_t)LINES * 16, -2},
        {LINES, (uint64_t)LINES * 250 - 1, -2},
        {UINT64_MAX, UINT64_MAX - 1, 0},
        {UINT64_MAX, 1, 0},
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        setup();
        say(1, SLOW_NS);
        distance_read(&distance, words[i].lines, words[i].ns);
        ck_assert_msg(distance.lent.quick == words[i].heard, "words %zu", i);
    }
}
END_TEST

/* However long he has lied: the truth is believed as soon as it is said. */
START_TEST(no_lie_lasts)
{
    uint64_t seed = 7;

    for (int turn = 0; turn < NEVER; turn++) {
        for (int i = 0; i < MANY; i++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            distance_read(&distance, seed >> 33 & 4095, seed >> (seed & 63));
            (void)distance_lends(&distance);
        }
        if (turn % 2) {
            say(2, QUICK_NS);
            ck_assert(lends());
        } else {
            say(8, SLOW_NS);
            ck_assert_int_gt(mailed() + mailed(), MANY); /* the first may be due */
            ck_assert_int_le(mailed(), 100);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mpi distance");
    TCase *tests = tcase_create("mpi distance");

    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, a_peer_is_near_when_its_lines_come_soon);
    tcase_add_loop_test(tests, who_is_not_known_is_soon_lent_to_and_again_until_he_is, 0, 2);
    tcase_add_test(tests, who_is_near_is_lent_to_until_he_reads_slowly);
    tcase_add_test(tests, some_slow_reads_among_quick_ones_change_nothing);
    tcase_add_test(tests, who_reads_slowly_is_lent_to_now_and_then);
    tcase_add_test(tests, two_quick_reads_outweigh_all_slow_ones);
    tcase_add_test(tests, who_is_written_to_quickly_by_plain_stores_is_so_on);
    tcase_add_test(tests, who_is_near_is_written_to_by_plain_stores_whatever_they_took);
    tcase_add_test(tests, who_comes_near_is_measured_again);
    tcase_add_test(tests, who_wavers_is_not_measured_again);
    tcase_add_test(tests, what_nobody_can_have_read_so_is_not_heard);
    tcase_add_test(tests, no_lie_lasts);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
