/* Every single bit of every header that two ranks exchange, damaged: refused by name, and nothing is delivered.
 *
 * usage: loop_flips MEMORY STEP      host, staged (a device's, through the host), device (direct); every STEP-th bit
 * (1: all) */
#include "tests/loop/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/loop/flip.h"
#include "tests/suite.h"

enum memory_way { ON_HOST, STAGED, DIRECT, MEMORY_WAYS };
static const char *const way_words[MEMORY_WAYS] = {"host", "staged", "device"};
static enum memory_way way;
static int step = 1;

/* Did anything reach the receiver? */
struct outcome {
    enum flip_kind kind;
    bool delivered;
};

static enum status flip_body(struct rank *self)
{
    struct outcome *outcome = self->context;
    bool delivered = false;
    enum status st = flip_run(self->session, self->memory, outcome->kind, &delivered, &self->err);

    if (self->rank)
        outcome->delivered = delivered;
    return st;
}

/* in_band: the bit of that device message is damaged in band alone. */
static void run_flip(const struct flip *flip, int bit, bool in_band, size_t max_message, struct ranks *ranks,
                     struct outcome *outcome)
{
    struct transport_ops ops = flip_transport(way == DIRECT ? &loopback_device_ops : &loopback_ops);

    *outcome = (struct outcome){.kind = flip->kind};
    *ranks = (struct ranks){.size = 2,
                            .ops = &ops,
                            .loopback = {.eager_bytes = 1 << 17, .max_message = max_message},
                            .session = {.checks = bit % 2 ? CHECKS_FULL : CHECKS_LIGHT},
                            .groups = &flip_group,
                            .group_count = 1,
                            .routes = &flip_route,
                            .route_count = 1,
                            .late_memory = way != ON_HOST,
                            .late_us = 1,
                            .body = flip_body,
                            .context = outcome};
    if (in_band)
        flip_arm_in_band(flip->message, bit);
    else
        flip_arm(flip, bit);
    ranks_run(ranks);
}

static void expect_refused(const struct flip *flip, int bit, size_t max_message)
{
    static struct ranks ranks;
    struct outcome outcome;
    const char *text = ranks.rank[1].err.text;

    run_flip(flip, bit, false, max_message, &ranks, &outcome);
    ck_assert_msg(ranks.rank[1].status == STATUS_MISMATCH && !outcome.delivered,
                  "%s, message %d, bit %d: %s, %sdelivered: %s", flip_name(flip->kind), flip->message, bit,
                  status_name(ranks.rank[1].status), outcome.delivered ? "" : "not ", text);
    /* Whoever sealed the header has not meant it so: damage is named field by field. */
    ck_assert_msg(strstr(text, ": expected ") && strstr(text, "(rank 0 to rank 1)"), "%s, message %d, bit %d: %s",
                  flip_name(flip->kind), flip->message, bit, text);
}

START_TEST(every_single_bit_of_every_header_is_guarded)
{
    const struct flip *flip = &flips[_i];

    for (int bit = 0; bit < flip->header_bytes * 8; bit += step)
        expect_refused(flip, bit, 0);
}
END_TEST

/* What came with the payload is not what came ahead: the operation fails, and says so.  (A gather's or an exchange's
 * output may have been written by then, as that of any operation that fails.) */
START_TEST(every_single_bit_in_band_is_guarded)
{
    static const enum flip_kind kinds[] = {FLIP_SUM,      FLIP_LARGE_SUM, FLIP_GATHER, FLIP_UNEVEN_GATHER,
                                           FLIP_EXCHANGE, FLIP_BROADCAST, FLIP_BUNDLE};
    static struct ranks ranks;
    struct flip flip = {kinds[_i], 0, 192};
    struct outcome outcome;

    /* All of the first kind's; of the others enough to touch every field. */
    for (int bit = 0; bit < flip.header_bytes * 8; bit += _i ? 5 * step : step) {
        run_flip(&flip, bit, true, 0, &ranks, &outcome);
        ck_assert_msg(ranks.rank[1].status == STATUS_MISMATCH && strstr(ranks.rank[1].err.text, ": in band: "),
                      "%s, bit %d: %s: %s", flip_name(flip.kind), bit, status_name(ranks.rank[1].status),
                      ranks.rank[1].err.text);
    }
}
END_TEST

/* A payload in pieces: the second piece's header. */
START_TEST(every_single_bit_of_a_later_piece_is_guarded)
{
    static const struct flip flip = {FLIP_SUM, 1, 192};

    for (int bit = 0; bit < flip.header_bytes * 8; bit += step)
        expect_refused(&flip, bit, 300);
}
END_TEST

/* The bit just behind is payload, and without a checksum of payloads nobody looks at it. */
START_TEST(the_header_ends_where_the_table_says)
{
    for (int i = 0; i < flip_count; i++) {
        static struct ranks ranks;
        const struct flip *flip = &flips[i];
        struct outcome outcome;

        if (flip->kind == FLIP_BARRIER || flip->kind == FLIP_LARGE_SUM ||
            (flip->kind == FLIP_BUNDLE && flip->message == 2))
            continue; /* nothing behind */
        run_flip(flip, flip->header_bytes * 8, false, 0, &ranks, &outcome);
        ck_assert_msg(ranks.rank[1].status == STATUS_OK, "%s: %s", flip_name(flip->kind), ranks.rank[1].err.text);
    }
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("flips");
    TCase *all = tcase_create("all");

    while (argc > 1 && way < MEMORY_WAYS && strcmp(way_words[way], argv[1]) != 0)
        way++;
    if (way == MEMORY_WAYS)
        return EXIT_FAILURE;
    if (argc > 2)
        step = (int)strtol(argv[2], NULL, 10);
    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, every_single_bit_of_every_header_is_guarded, 0, flip_count);
    tcase_add_test(all, every_single_bit_of_a_later_piece_is_guarded);
    if (way != DIRECT) /* whose transport damages headers alone */
        tcase_add_test(all, the_header_ends_where_the_table_says);
    if (way == DIRECT)
        tcase_add_loop_test(all, every_single_bit_in_band_is_guarded, 0, 7);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
