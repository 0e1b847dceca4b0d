/* Sampling: Philox against its authors' known answers, the rest against definitions worked out by hand. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sampler.h"
#include "tests/suite.h"

/* Random123's kat_vectors, philox4x32 with 10 rounds. */
START_TEST(philox_gives_the_published_answers)
{
    static const struct {
        uint32_t counter[4];
        uint32_t key[2];
        uint32_t expected[4];
    } vector[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < sizeof vector / sizeof *vector; i++) {
        uint32_t ret[4];

        philox4x32(vector[i].counter, vector[i].key, ret);
        for (int k = 0; k < 4; k++)
            ck_assert_uint_eq(ret[k], vector[i].expected[k]);
    }
}
END_TEST

static uint32_t pick(const struct sampling *sampling, const float *logits, uint32_t vocab, uint32_t step)
{
    struct candidate scratch[64];
    struct error err = {0};
    uint32_t ret = UINT32_MAX;

    ck_assert_int_eq(sampler_pick(sampling, logits, vocab, 3, step, scratch, &ret, &err), STATUS_OK);
    return ret;
}

START_TEST(greedy_takes_the_lowest_id_of_equal_logits)
{
    const float logits[] = {-1, 2, 5, 5, 0};
    const struct sampling greedy = {0};

    ck_assert_uint_eq(pick(&greedy, logits, 5, 0), 2);
}
END_TEST

START_TEST(top_k_and_top_p_leave_only_the_best)
{
    const float logits[] = {1, 4, 2, 4, 3};
    const struct sampling one = {1.0f, 1, 1.0f, 9};
    const struct sampling tiny = {1.0f, 0, 1e-6f, 9};
    const struct sampling two = {0.7f, 2, 1.0f, 9};
    int seen[5] = {0};

    for (uint32_t step = 0; step < 200; step++) {
        ck_assert_uint_eq(pick(&one, logits, 5, step), 1);
        ck_assert_uint_eq(pick(&tiny, logits, 5, step), 1);
        seen[pick(&two, logits, 5, step)]++;
    }
    ck_assert_int_gt(seen[1], 50);
    ck_assert_int_gt(seen[3], 50);
    ck_assert_int_eq(seen[0] + seen[2] + seen[4], 0);
}
END_TEST

START_TEST(a_temperature_that_overflows_the_logits_takes_the_best)
{
    static const float temperatures[] = {1e-36f, 1e-37f, 1e-38f, 1e-40f, 1e-44f, 0x1p-149f};
    const float rows[][4] = {{-4, 20, 19, 1}, {-4, -2, -3, -9}, {-1, 0, -2, -3}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < sizeof temperatures / sizeof *temperatures; k++) {
            const struct sampling cold = {temperatures[k], 0, 1.0f, 9};

            for (uint32_t step = 0; step < 8; step++)
                ck_assert_uint_eq(pick(&cold, rows[i], 4, step), 1);
        }
    }
}
END_TEST

START_TEST(frequencies_follow_the_softmax)
{
    const float logits[] = {0.0f, 1.0f, 2.0f, -1.0f};
    const struct sampling all = {1.0f, 0, 1.0f, 1234567890123456789u};
    double sum = exp(0) + exp(1) + exp(2) + exp(-1);
    int seen[4] = {0};
    enum { TRIES = 40000 };

    for (uint32_t step = 0; step < TRIES; step++)
        seen[pick(&all, logits, 4, step)]++;
    for (int i = 0; i < 4; i++) {
        double p = exp((double)logits[i]) / sum;

        /* Five standard deviations of a binomial; the numbers are fixed by the seed. */
        ck_assert_double_lt(fabs(seen[i] - TRIES * p), 5 * sqrt(TRIES * p * (1 - p)));
    }
}
END_TEST

START_TEST(logits_that_are_no_numbers_are_refused)
{
    const float bad[][2] = {{NAN, 1}, {1, INFINITY}};
    const struct sampling greedy = {0};
    struct candidate scratch[2];

    for (int i = 0; i < 2; i++) {
        struct error err = {0};
        uint32_t ret = 7;

        ck_assert_int_eq(sampler_pick(&greedy, bad[i], 2, 0, 0, scratch, &ret, &err), STATUS_MODEL);
        ck_assert_uint_eq(ret, (uint32_t)i); /* the token whose logit it is */
        ck_assert_ptr_nonnull(strstr(err.text, i ? "infinite" : "not a number"));
    }
}
END_TEST

static int order(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;

    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

START_TEST(best_equals_the_front_of_a_full_sort)
{
    float logits[50];
    struct candidate all[50];
    struct candidate best[50];

    for (uint32_t i = 0; i < 50; i++) {
        logits[i] = (float)((i * 37) % 11);
        all[i] = (struct candidate){logits[i], i};
    }
    qsort(all, 50, sizeof *all, order);
    for (uint32_t count = 0; count <= 50; count++) {
        sampler_best(logits, 50, count, best);
        for (uint32_t i = 0; i < count; i++)
            ck_assert_uint_eq(best[i].id, all[i].id);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sampler");
    TCase *all = tcase_create("all");

    tcase_add_test(all, philox_gives_the_published_answers);
    tcase_add_test(all, greedy_takes_the_lowest_id_of_equal_logits);
    tcase_add_test(all, top_k_and_top_p_leave_only_the_best);
    tcase_add_test(all, a_temperature_that_overflows_the_logits_takes_the_best);
    tcase_add_test(all, frequencies_follow_the_softmax);
    tcase_add_test(all, logits_that_are_no_numbers_are_refused);
    tcase_add_test(all, best_equals_the_front_of_a_full_sort);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
