/* Layers to stages, against every possible deal. */
#include "fixture.h"
#include "runtime/plan_private.h"

/* The cheapest maximum of any deal of cost[0..n) to stages, by trying all. */
static uint64_t cheapest(const uint64_t *cost, uint64_t n, uint64_t last_cost, uint64_t stages)
{
    uint64_t sum = 0;
    uint64_t best = UINT64_MAX;

    if (stages == 1) {
        for (uint64_t i = 0; i < n; i++)
            sum += cost[i];
        return sum + last_cost;
    }
    for (uint64_t first = 1; first + stages - 1 <= n; first++) {
        uint64_t rest = cheapest(cost + first, n - first, last_cost, stages - 1);

        sum += cost[first - 1];
        if ((sum > rest ? sum : rest) < best)
            best = sum > rest ? sum : rest;
    }
    return best;
}

static void assert_counts(uint64_t layers, uint64_t last_cost, uint64_t stages, const uint64_t *expected)
{
    uint64_t cost[64];
    struct share share[16];

    for (uint64_t i = 0; i < layers; i++)
        cost[i] = 10;
    plan_deal_layers(cost, layers, last_cost, stages, share);
    for (uint64_t stage = 0; stage < stages; stage++)
        ck_assert_uint_eq(share[stage].count, expected[stage]);
}

/* B143, and the balanced rule of the specification. */
START_TEST(equal_layers_are_dealt_by_the_balanced_rule)
{
    assert_counts(10, 0, 3, (uint64_t[]){4, 3, 3});
    assert_counts(7, 0, 2, (uint64_t[]){4, 3});
    assert_counts(5, 0, 4, (uint64_t[]){2, 1, 1, 1});
    assert_counts(8, 0, 3, (uint64_t[]){3, 3, 2});
    assert_counts(7, 0, 3, (uint64_t[]){3, 2, 2});
    assert_counts(4, 0, 4, (uint64_t[]){1, 1, 1, 1});
}
END_TEST

START_TEST(the_output_head_lightens_the_last_stage)
{
    assert_counts(30, 140, 2, (uint64_t[]){22, 8});
    assert_counts(30, 140, 3, (uint64_t[]){15, 14, 1});
    assert_counts(10, 1000, 3, (uint64_t[]){5, 4, 1});
    assert_counts(10, 1, 3, (uint64_t[]){4, 3, 3});
}
END_TEST

START_TEST(no_deal_is_cheaper_and_every_layer_is_dealt_once)
{
    uint64_t seed = 1;

    for (int round = 0; round < 3000; round++) {
        uint64_t cost[10];
        struct share share[10];
        uint64_t layers;
        uint64_t stages;
        uint64_t last_cost;
        uint64_t next = 0;
        uint64_t most = 0;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        layers = 1 + (seed >> 33) % 10;
        stages = 1 + (seed >> 43) % layers;
        last_cost = (seed >> 50) % 40;
        for (uint64_t i = 0; i < layers; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            cost[i] = (seed >> 33) % 20;
        }
        plan_deal_layers(cost, layers, last_cost, stages, share);
        for (uint64_t stage = 0; stage < stages; stage++) {
            uint64_t sum = stage + 1 == stages ? last_cost : 0;

            ck_assert_uint_eq(share[stage].start, next);
            ck_assert_uint_ge(share[stage].count, 1);
            for (uint64_t i = 0; i < share[stage].count; i++)
                sum += cost[next + i];
            next += share[stage].count;
            most = sum > most ? sum : most;
        }
        ck_assert_uint_eq(next, layers);
        ck_assert_uint_eq(most, cheapest(cost, layers, last_cost, stages));
    }
}
END_TEST

CHECK_MAIN("plan-layers", equal_layers_are_dealt_by_the_balanced_rule, the_output_head_lightens_the_last_stage,
           no_deal_is_cheaper_and_every_layer_is_dealt_once)
