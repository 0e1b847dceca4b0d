/* The first stage's scheduler, driven by a pretended pipeline that gives every request tokens of its own. */
#include <check.h>
#include <string.h>

#include "runtime/schedule.h"
#include "tests/suite.h"

enum { SLOTS = 2, WAVES = 2, CONTEXT = 32, MAX_REQUESTS = 16, MAX_ROWS = 8, VOCAB = 3000 };

struct drive {
    struct prompts prompts;
    uint64_t begin[MAX_REQUESTS + 1];
    uint32_t tokens[512];
    uint32_t seen[MAX_REQUESTS][CONTEXT]; /* ids that went through, by position */
    uint32_t rows[MAX_REQUESTS];
    uint32_t generated[MAX_REQUESTS];
    int finished;
};

static uint32_t made_token(uint32_t request, uint32_t index)
{
    return 1000 + request * 100 + index;
}

static void set_prompts(struct drive *d, const uint32_t *lengths, uint32_t count)
{
    d->prompts = (struct prompts){.count = count, .begin = d->begin, .tokens = d->tokens};
    for (uint32_t i = 0; i < count; i++) {
        d->begin[i + 1] = d->begin[i] + lengths[i];
        for (uint32_t k = 0; k < lengths[i]; k++)
            d->tokens[d->begin[i] + k] = i * 50 + k;
    }
}

/* Note the rows that go through; answer slots that ask for a token.  stop: the request that ends at its 2nd token. */
static void pass(struct drive *d, const struct wave *wave, const uint32_t *ids, uint32_t stop, struct token *tokens)
{
    memset(tokens, 0, SLOTS * sizeof *tokens);
    for (uint32_t s = 0; s < wave->slot_count; s++) {
        const struct wave_slot *slot = &wave->slot[s];
        uint32_t r = slot->request;

        if (!slot->rows)
            continue;
        ck_assert_uint_eq(slot->position, d->rows[r]);
        for (uint32_t i = 0; i < slot->rows; i++)
            d->seen[r][d->rows[r]++] = *ids++;
        if (!(slot->flags & WAVE_SAMPLE))
            continue;
        tokens[s] = (struct token){r, made_token(r, d->generated[r]), TOKEN_VALID, d->generated[r]};
        d->generated[r]++;
        if (r == stop && d->generated[r] == 2)
            tokens[s].flags |= TOKEN_STOP;
        else if (slot->flags & WAVE_FINAL)
            tokens[s].flags |= TOKEN_LENGTH;
        d->finished += tokens[s].flags > TOKEN_VALID;
    }
}

static void run(struct drive *d, const struct schedule_options *options, uint32_t stop)
{
    struct schedule *schedule = NULL;
    struct error err = {0};
    int passes = 0;

    ck_assert_int_eq(schedule_create(options, &schedule, &err), STATUS_OK);
    while (!schedule_done(schedule)) {
        ck_assert_int_lt(++passes, 1000);
        for (uint32_t w = 0; w < WAVES; w++) {
            uint32_t ids[MAX_ROWS];
            struct token tokens[SLOTS];
            struct wave wave;

            schedule_wave(schedule, w, &wave, ids);
            ck_assert_uint_le(wave.rows, options->wave_rows);
            pass(d, &wave, ids, stop, tokens);
            ck_assert_int_eq(schedule_tokens(schedule, w, tokens, &err), STATUS_OK);
        }
    }
    schedule_destroy(schedule);
}

START_TEST(every_request_goes_through_once_in_order_whatever_the_chunk)
{
    static const uint32_t lengths[] = {1, 17, 5, 3, 9, 2, 1};

    for (uint32_t chunk = 1; chunk <= MAX_ROWS; chunk++) {
        struct drive d = {0};
        const struct schedule_options options = {&d.prompts, 0, 1, WAVES, SLOTS, MAX_ROWS, chunk, CONTEXT, 4, VOCAB};

        set_prompts(&d, lengths, 7);
        run(&d, &options, 3);
        ck_assert_int_eq(d.finished, 7);
        for (uint32_t r = 0; r < 7; r++) {
            uint32_t made = r == 3 ? 2 : 4;

            ck_assert_uint_eq(d.generated[r], made);
            ck_assert_uint_eq(d.rows[r], lengths[r] + made - 1);
            for (uint32_t k = 0; k < d.rows[r]; k++)
                ck_assert_uint_eq(d.seen[r][k], k < lengths[r] ? r * 50 + k : made_token(r, k - lengths[r]));
        }
    }
}
END_TEST

START_TEST(the_context_ends_a_request_before_its_limit)
{
    static const uint32_t lengths[] = {30, 31};
    struct drive d = {0};
    const struct schedule_options options = {&d.prompts, 0, 1, WAVES, SLOTS, MAX_ROWS, 4, CONTEXT, 10, VOCAB};

    set_prompts(&d, lengths, 2);
    run(&d, &options, UINT32_MAX);
    ck_assert_uint_eq(d.generated[0], 2);
    ck_assert_uint_eq(d.generated[1], 1);
}
END_TEST

START_TEST(requests_are_dealt_to_data_lines_in_turn)
{
    static const uint32_t lengths[] = {2, 2, 2, 2, 2};
    struct drive d = {0};
    const struct schedule_options options = {&d.prompts, 1, 2, WAVES, SLOTS, MAX_ROWS, 4, CONTEXT, 1, VOCAB};

    set_prompts(&d, lengths, 5);
    run(&d, &options, UINT32_MAX);
    for (uint32_t r = 0; r < 5; r++)
        ck_assert_uint_eq(d.generated[r], r % 2);
}
END_TEST

/* Request 0 asks for its only token in the first pass, request 1 is not through its prompt yet. */
START_TEST(anything_but_the_token_that_was_asked_for_is_refused)
{
    static const struct {
        struct token back[SLOTS];
        const char *says;
    } cases[] = {
        {{{0, VOCAB - 1, TOKEN_VALID | TOKEN_LENGTH, 0}}, NULL},
        {{{0, 1, TOKEN_VALID | TOKEN_STOP, 0}}, NULL},
        {{{5, 1, TOKEN_VALID | TOKEN_LENGTH, 0}}, "slot 0: token 0 of request 5"},
        {{{0, 1, TOKEN_VALID | TOKEN_LENGTH, 1}}, "token 1 of request 0"},
        {{{0}}, "expected token 0 of request 0"},
        {{{0, 1, TOKEN_LENGTH, 0}}, "expected token 0 of request 0"},
        {{{0, VOCAB, TOKEN_VALID | TOKEN_LENGTH, 0}}, "the vocabulary has 3000"},
        {{{0, 1, TOKEN_VALID, 0}}, "does not end"},
        {{{0, 1, TOKEN_VALID | TOKEN_LENGTH, 0}, {1, 1, TOKEN_VALID, 0}},
         "slot 1: token 0 of request 1 came back, none"},
        {{{0, 1, TOKEN_VALID | TOKEN_FAILED, 0}}, NULL},
        {{{0, 1, TOKEN_VALID | TOKEN_FAILED | TOKEN_LENGTH, 0}}, "has failed and is the last"},
    };
    static const uint32_t lengths[] = {1, MAX_ROWS};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct drive d = {0};
        const struct schedule_options options = {&d.prompts, 0, 1, 1, SLOTS, MAX_ROWS, 4, CONTEXT, 1, VOCAB};
        struct schedule *schedule = NULL;
        struct error err = {0};
        uint32_t ids[MAX_ROWS];
        struct wave wave;

        set_prompts(&d, lengths, 2);
        ck_assert_int_eq(schedule_create(&options, &schedule, &err), STATUS_OK);
        schedule_wave(schedule, 0, &wave, ids);
        ck_assert_uint_eq(wave.slot[0].flags, WAVE_SAMPLE | WAVE_FINAL);
        ck_assert_uint_eq(wave.slot[1].flags, 0);
        ck_assert_int_eq(schedule_tokens(schedule, 0, cases[i].back, &err),
                         cases[i].says ? STATUS_MISMATCH : STATUS_OK);
        if (cases[i].says)
            ck_assert_msg(strstr(err.text, cases[i].says), "%s", err.text);
        schedule_destroy(schedule);
    }
}
END_TEST

/* One wave of two slots: a pass, what it must hold (request, position, rows; rows 0: idle), and the tokens after it. */
struct traced {
    uint32_t slot[SLOTS][3];
};

static void check_pass(struct schedule *schedule, const struct traced *expected, struct drive *d)
{
    uint32_t ids[MAX_ROWS];
    struct token tokens[SLOTS];
    struct error err = {0};
    struct wave wave;

    schedule_wave(schedule, 0, &wave, ids);
    for (int s = 0; s < SLOTS; s++) {
        ck_assert_uint_eq(wave.slot[s].rows, expected->slot[s][2]);
        ck_assert_uint_eq(wave.slot[s].request, expected->slot[s][0]);
        ck_assert_uint_eq(wave.slot[s].position, expected->slot[s][1]);
    }
    pass(d, &wave, ids, UINT32_MAX, tokens);
    ck_assert_int_eq(schedule_tokens(schedule, 0, tokens, &err), STATUS_OK);
}

static struct schedule *two_slots(struct drive *d, const uint32_t *lengths, uint32_t count, uint32_t max_new)
{
    const struct schedule_options options = {&d->prompts, 0, 1, 1, SLOTS, MAX_ROWS, 4, CONTEXT, max_new, VOCAB};
    struct schedule *schedule = NULL;
    struct error err = {0};

    set_prompts(d, lengths, count);
    ck_assert_int_eq(schedule_create(&options, &schedule, &err), STATUS_OK);
    return schedule;
}

/* The long one never holds up the short ones; a slot rests for one pass after its request has ended. */
START_TEST(a_long_and_short_requests_take_turns)
{
    static const uint32_t lengths[] = {1, 9, 1, 1};
    static const struct traced trace[] = {
        {{{0, 0, 1}, {1, 0, 3}}}, {{{0, 1, 1}, {1, 3, 4}}}, {{{0, 0, 0}, {1, 7, 2}}}, {{{2, 0, 1}, {1, 9, 1}}},
        {{{2, 1, 1}, {0, 0, 0}}}, {{{0, 0, 0}, {3, 0, 1}}}, {{{0, 0, 0}, {3, 1, 1}}},
    };
    struct drive d = {0};
    struct schedule *schedule = two_slots(&d, lengths, 4, 2);

    for (size_t i = 0; i < sizeof trace / sizeof *trace; i++) {
        ck_assert(!schedule_done(schedule));
        check_pass(schedule, &trace[i], &d);
    }
    ck_assert(schedule_done(schedule));
    schedule_destroy(schedule);
}
END_TEST

/* 0 runs and has asked for a token: it is awaited.  2 has not begun: it never does.  3 takes its place. */
START_TEST(a_cancelled_request_ends_when_its_token_has_come)
{
    static const uint32_t lengths[] = {1, 9, 1, 1};
    static const struct traced after[] = {{{{3, 0, 1}, {1, 3, 3}}}, {{{3, 1, 1}, {1, 6, 3}}}};
    struct drive d = {0};
    struct schedule *schedule = two_slots(&d, lengths, 4, 3);
    uint32_t ids[MAX_ROWS];
    struct token tokens[SLOTS];
    struct error err = {0};
    struct wave wave;

    schedule_wave(schedule, 0, &wave, ids);
    pass(&d, &wave, ids, UINT32_MAX, tokens);
    schedule_cancel(schedule, 0);
    schedule_cancel(schedule, 2);
    ck_assert_uint_eq(tokens[0].flags, TOKEN_VALID);
    ck_assert_int_eq(schedule_tokens(schedule, 0, (struct token[SLOTS]){{0}}, &err), STATUS_MISMATCH);
    ck_assert_int_eq(schedule_tokens(schedule, 0, tokens, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        check_pass(schedule, &after[i], &d);
    ck_assert_uint_eq(d.generated[0], 1);
    ck_assert_uint_eq(d.rows[2], 0);
    schedule_destroy(schedule);
}
END_TEST

/* A failed token cancels its request; taken up again at the step's start, the others do the same as before. */
START_TEST(a_restored_schedule_repeats_its_step_without_the_failed_request)
{
    static const uint32_t lengths[] = {1, 9, 1};
    static const struct traced first = {{{0, 0, 1}, {1, 0, 3}}};
    struct drive d = {0};
    struct schedule *schedule = two_slots(&d, lengths, 3, 2);
    const struct token failed[SLOTS] = {{0, 5, TOKEN_VALID | TOKEN_FAILED, 1}};
    uint32_t ids[MAX_ROWS];
    struct error err = {0};
    struct wave wave;

    check_pass(schedule, &first, &d);
    schedule_save(schedule, 1);
    schedule_wave(schedule, 0, &wave, ids);
    ck_assert_uint_eq(wave.slot[0].position, 1);
    ck_assert_uint_eq(wave.slot[1].rows, 4);
    ck_assert_int_eq(schedule_tokens(schedule, 0, failed, &err), STATUS_OK);
    schedule_restore(schedule, 1);
    check_pass(schedule, &(struct traced){{{2, 0, 1}, {1, 3, 3}}}, &d);
    ck_assert_uint_eq(d.rows[0], 1);
    schedule_destroy(schedule);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule");
    TCase *all = tcase_create("all");

    tcase_add_test(all, every_request_goes_through_once_in_order_whatever_the_chunk);
    tcase_add_test(all, the_context_ends_a_request_before_its_limit);
    tcase_add_test(all, requests_are_dealt_to_data_lines_in_turn);
    tcase_add_test(all, anything_but_the_token_that_was_asked_for_is_refused);
    tcase_add_test(all, a_long_and_short_requests_take_turns);
    tcase_add_test(all, a_cancelled_request_ends_when_its_token_has_come);
    tcase_add_test(all, a_restored_schedule_repeats_its_step_without_the_failed_request);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
