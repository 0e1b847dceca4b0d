/* Greedy needs one pass.  Otherwise the k best are selected by a heap of k (all: by sorting), then sampled. */
#include "runtime/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "runtime/functions.h"

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t ret[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};

    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0];
        uint64_t b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                                  (uint32_t)a};

        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        ret[i] = c[i];
}

/* a comes after b in the order of candidates: larger logits first, then lower ids. */
static bool after(struct candidate a, struct candidate b)
{
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

static int compare(const void *left, const void *right)
{
    struct candidate a = *(const struct candidate *)left;
    struct candidate b = *(const struct candidate *)right;

    return after(a, b) ? 1 : after(b, a) ? -1 : 0;
}

/* Restore the heap whose root is the worst candidate. */
static void sift_down(struct candidate *heap, uint32_t count, uint32_t at)
{
    for (;;) {
        uint32_t worst = at;
        uint32_t child = 2 * at + 1;

        if (child < count && after(heap[child], heap[worst]))
            worst = child;
        if (child + 1 < count && after(heap[child + 1], heap[worst]))
            worst = child + 1;
        if (worst == at)
            return;
        struct candidate swap = heap[at];
        heap[at] = heap[worst];
        heap[worst] = swap;
        at = worst;
    }
}

void sampler_best(const float *logits, uint32_t vocab, uint32_t count, struct candidate *candidates)
{
    if (!count)
        return;
    for (uint32_t i = 0; i < count; i++)
        candidates[i] = (struct candidate){logits[i], i};
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(candidates, count, i);
    for (uint32_t i = count; i < vocab; i++) {
        struct candidate next = {logits[i], i};

        if (after(next, candidates[0]))
            continue;
        candidates[0] = next;
        sift_down(candidates, count, 0);
    }
    qsort(candidates, count, sizeof *candidates, compare);
}

static uint32_t greedy(const float *logits, uint32_t vocab)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

enum status sampler_refuse(uint32_t token, bool infinite, struct error *err)
{
    return error_set(err, STATUS_MODEL, "the logit of token %u is %s: the weights or the prompt give no finite result",
                     token, infinite ? "infinite" : "not a number");
}

static enum status finite_check(const float *logits, uint32_t vocab, uint32_t *ret, struct error *err)
{
    for (uint32_t i = 0; i < vocab; i++) {
        if (!isnan(logits[i]) && logits[i] != INFINITY)
            continue;
        *ret = i;
        return sampler_refuse(i, !isnan(logits[i]), err);
    }
    return STATUS_OK;
}

/* Turn sorted logits into weights exp(l - max); returns how many stand in the smallest prefix that reaches top_p. */
static uint32_t nucleus(struct candidate *list, uint32_t count, float temperature, float top_p, float *ret_mass)
{
    float max = list[0].logit / temperature;
    float sum = 0.0f;
    float mass = 0.0f;

    for (uint32_t i = 0; i < count; i++) {
        list[i].logit = numeric_exp(list[i].logit / temperature - max);
        sum += list[i].logit;
    }
    for (uint32_t i = 0; i < count; i++) {
        mass += list[i].logit;
        if (mass >= top_p * sum) {
            *ret_mass = mass;
            return i + 1;
        }
    }
    *ret_mass = mass;
    return count;
}

enum status sampler_pick(const struct sampling *sampling, const float *logits, uint32_t vocab, uint32_t request,
                         uint32_t step, struct candidate *scratch, uint32_t *ret, struct error *err)
{
    const uint32_t counter[4] = {request, step, 0, 0};
    const uint32_t key[2] = {(uint32_t)sampling->seed, (uint32_t)(sampling->seed >> 32)};
    uint32_t random[4];
    uint32_t count = sampling->top_k && sampling->top_k < vocab ? sampling->top_k : vocab;
    float mass = 0.0f;
    float sum = 0.0f;
    enum status st = finite_check(logits, vocab, ret, err);

    if (st != STATUS_OK)
        return st;
    if (sampling->temperature <= 0.0f) {
        *ret = greedy(logits, vocab);
        return STATUS_OK;
    }
    sampler_best(logits, vocab, count, scratch);
    if (!isfinite(scratch[0].logit / sampling->temperature)) { /* so cold that the division overflows: the best one */
        *ret = scratch[0].id;
        return STATUS_OK;
    }
    count = nucleus(scratch, count, sampling->temperature, sampling->top_p, &mass);
    philox4x32(counter, key, random);
    float u = (float)(random[0] >> 8) * 0x1p-24f * mass;

    for (uint32_t i = 0; i < count; i++) {
        sum += scratch[i].logit;
        if (u < sum) {
            *ret = scratch[i].id;
            return STATUS_OK;
        }
    }
    *ret = scratch[count - 1].id;
    return STATUS_OK;
}
