/* Which layers stand on which stage: contiguous, at least one each, the most expensive stage as cheap as can be.
 *
 * The cheapest maximum of a deal is found by bisection (a maximum is possible when stages filled from the front, each
 * as far as it goes, hold all layers).  What the last stage has besides its layers is settled first: it takes as many
 * layers as fit under that maximum.  Then every stage from the front takes as many as fit under the cheapest maximum of
 * what is left: for equal layers this is the balanced rule, the first get one more.  Cost: stages times layers. */
#include "runtime/plan_private.h"

/* Can the layers be dealt to stages so that none costs more than most?  Each stage leaves one layer for every later
 * one; more stages than the filling needs are no obstacle, for splitting a stage only makes it cheaper. */
static bool fits(const uint64_t *cost, uint64_t layer_count, uint64_t last_cost, uint64_t stages, uint64_t most)
{
    uint64_t layer = 0;

    for (uint64_t stage = 0; stage < stages; stage++) {
        bool last = stage + 1 == stages;
        uint64_t sum = last ? last_cost : 0;
        uint64_t end = layer_count - (stages - 1 - stage);
        uint64_t first = layer;

        while (layer < end && sum <= most && cost[layer] <= most - sum)
            sum += cost[layer++];
        if (layer == first || sum > most)
            return false;
    }
    return layer == layer_count;
}

static uint64_t cheapest_maximum(const uint64_t *cost, uint64_t layer_count, uint64_t last_cost, uint64_t stages)
{
    uint64_t low = 0;
    uint64_t high = last_cost;

    for (uint64_t i = 0; i < layer_count; i++)
        high += cost[i];
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (fits(cost, layer_count, last_cost, stages, middle))
            high = middle;
        else
            low = middle + 1;
    }
    return high;
}

/* The last stage: as many layers as fit beside last_cost, one for each other stage left over. */
static uint64_t last_count(const uint64_t *cost, uint64_t layer_count, uint64_t last_cost, uint64_t stages)
{
    uint64_t most = cheapest_maximum(cost, layer_count, last_cost, stages);
    uint64_t sum = last_cost;
    uint64_t count = 0;

    while (count < layer_count - (stages - 1) && cost[layer_count - 1 - count] <= most - sum)
        sum += cost[layer_count - 1 - count++];
    return count;
}

void plan_deal_layers(const uint64_t *cost, uint64_t layer_count, uint64_t last_cost, uint64_t stages,
                      struct share *ret)
{
    uint64_t layer = 0;

    if (last_cost) {
        uint64_t count = last_count(cost, layer_count, last_cost, stages);

        layer_count -= count;
        stages--;
        ret[stages] = (struct share){.start = layer_count, .count = count};
    }
    for (uint64_t stage = 0; stage < stages; stage++) {
        uint64_t most = cheapest_maximum(cost + layer, layer_count - layer, 0, stages - stage);
        uint64_t end = layer_count - (stages - 1 - stage);
        uint64_t sum = 0;

        ret[stage].start = layer;
        while (layer < end && cost[layer] <= most - sum)
            sum += cost[layer++];
        ret[stage].count = layer - ret[stage].start;
    }
}
