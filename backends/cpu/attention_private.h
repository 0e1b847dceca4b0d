/* What the two ways through attention share: tiles of queries (attention.c), and single tokens (attention_decode.c). */
#ifndef BACKENDS_CPU_ATTENTION_PRIVATE_H
#define BACKENDS_CPU_ATTENTION_PRIVATE_H

#include "backends/cpu/compute_private.h"

/* Query heads [head, head + count) that read key/value head kv. */
struct head_group {
    uint32_t head;
    uint32_t count;
    uint32_t kv;
};

struct attention_job {
    struct compute *compute;
    const struct attention *a;
    size_t width;
    uint32_t group_heads; /* query heads of one unit, at most */
    uint32_t tile_tokens; /* tokens of one unit, at most */
    size_t units_per_tile;
    size_t units;
};

/* Keys and values of one head in a segment's cache: [context, width] each. */
float *attention_keys(const struct attention_job *job, const struct segment *segment, uint32_t kv);
float *attention_values(const struct attention_job *job, const struct segment *segment, uint32_t kv);

/* From one query's scores to the next one's: an odd number of cache lines, so that they do not all fall on the same
 * places of a cache. */
static inline size_t attention_score_stride(size_t length)
{
    return ((length + LANES - 1) / LANES | 1) * LANES;
}

/* One rotated head to out, padded to width. */
void attention_rotate(const struct attention_job *job, const float *x, size_t position, float *out);

/* Runs of heads with one key/value head, cut to job->group_heads: the index-th of them, or false. */
bool attention_group(const struct attention_job *job, size_t index, struct head_group *ret);

/* Whether attention_decode should do this: one token a segment, caches long enough to share out, room for their scores.
 * rows: of all segments; pairs: of queries and keys. */
bool attention_is_decode(const struct attention_job *job, size_t rows, size_t pairs);

/* Attend, keys and values being stored.  Sets job->group_heads. */
void attention_decode(struct attention_job *job);

#endif
