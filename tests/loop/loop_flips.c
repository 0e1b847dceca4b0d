/* Every single bit of every header that two ranks exchange, damaged: refused by name, and nothing is delivered.
 *
 * usage: loop_flips STEP      every STEP-th bit (1: all) */
#include "tests/loop/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/loop/flip.h"

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
    enum status st = flip_run(self->session, outcome->kind, &delivered, &self->err);

    if (self->rank)
        outcome->delivered = delivered;
    return st;
}

static void run_flip(const struct flip *flip, int bit, size_t max_message, struct ranks *ranks, struct outcome *outcome)
{
    struct transport_ops ops = flip_transport(&loopback_ops);

    *outcome = (struct outcome){.kind = flip->kind};
    *ranks = (struct ranks){.size = 2,
                            .ops = &ops,
                            .loopback = {.eager_bytes = 1 << 17, .max_message = max_message},
                            .session = {.checks = bit % 2 ? CHECKS_FULL : CHECKS_LIGHT},
                            .groups = &flip_group,
                            .group_count = 1,
                            .routes = &flip_route,
                            .route_count = 1,
                            .body = flip_body,
                            .context = outcome};
    flip_arm(flip, bit);
    ranks_run(ranks);
}

static void expect_refused(const struct flip *flip, int bit, size_t max_message)
{
    static struct ranks ranks;
    struct outcome outcome;
    const char *text = ranks.rank[1].err.text;

    run_flip(flip, bit, max_message, &ranks, &outcome);
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

        if (flip->kind == FLIP_BARRIER || flip->kind == FLIP_LARGE_SUM || (flip->kind == FLIP_BUNDLE && flip->message == 2))
            continue; /* nothing behind */
        run_flip(flip, flip->header_bytes * 8, 0, &ranks, &outcome);
        ck_assert_msg(ranks.rank[1].status == STATUS_OK, "%s: %s", flip_name(flip->kind), ranks.rank[1].err.text);
    }
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("flips");
    TCase *all = tcase_create("all");

    if (argc > 1)
        step = (int)strtol(argv[1], NULL, 10);
    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, every_single_bit_of_every_header_is_guarded, 0, flip_count);
    tcase_add_test(all, every_single_bit_of_a_later_piece_is_guarded);
    tcase_add_test(all, the_header_ends_where_the_table_says);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
