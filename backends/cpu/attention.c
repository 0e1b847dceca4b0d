/* Causal attention over each request's cache.
 *
 * A cache holds, per key/value head, [context, width] rotated keys and as many values, f32, width = head_dim rounded
 * up to 16 lanes and padded with +0; heads follow each other.  Keys are stored first, by the caller's thread or by all;
 * then tiles of queries are dealt: some tokens x the query heads that share one key/value head, so that each key and
 * value is loaded once for all of them.  Within a tile every query has its own chain, so tiling shows in no bit. */
#include "backends/cpu/attention_private.h"

#include <string.h>

#include "base/size.h"

enum { MIX_POSITIONS = 64 };

static size_t head_width(uint32_t head_dim)
{
    return ((size_t)head_dim + LANES - 1) / LANES * LANES;
}

size_t attention_cache_bytes(uint32_t kv_heads, uint32_t head_dim, uint32_t context)
{
    size_t bytes;

    if (head_dim > CPU_MAX_HEAD_DIM || context > CPU_MAX_CONTEXT)
        return 0;
    if (size_mul(2 * sizeof(float) * head_width(head_dim), context, &bytes) || size_mul(bytes, kv_heads, &bytes))
        return 0;
    return bytes;
}

float *attention_keys(const struct attention_job *job, const struct segment *segment, uint32_t kv)
{
    return (float *)segment->cache + (size_t)kv * 2 * job->a->context * job->width;
}

float *attention_values(const struct attention_job *job, const struct segment *segment, uint32_t kv)
{
    return attention_keys(job, segment, kv) + (size_t)job->a->context * job->width;
}

void attention_rotate(const struct attention_job *job, const float *x, size_t position, float *out)
{
    const struct attention *a = job->a;
    size_t half = a->head_dim / 2;

    job->compute->kernels->row->rotate(x, a->rope_cos + position * half, a->rope_sin + position * half, a->head_dim,
                                       a->rope_pairs, out);
    memset(out + a->head_dim, 0, (job->width - a->head_dim) * sizeof *out);
}

static void store_token(const struct attention_job *job, const struct segment *segment, uint32_t token)
{
    const struct attention *a = job->a;
    size_t row = (size_t)segment->row + token;
    size_t position = (size_t)segment->position + token;

    for (uint32_t kv = 0; kv < a->kv_heads; kv++) {
        float *value = attention_values(job, segment, kv) + position * job->width;

        attention_rotate(job, a->k + row * a->ldk + (size_t)kv * a->head_dim, position,
                         attention_keys(job, segment, kv) + position * job->width);
        memcpy(value, a->v + row * a->ldv + (size_t)kv * a->head_dim, a->head_dim * sizeof *value);
        memset(value + a->head_dim, 0, (job->width - a->head_dim) * sizeof *value);
    }
}

static void store_work(void *context, int thread, int threads)
{
    const struct attention_job *job = context;

    for (uint32_t s = 0; s < job->a->segment_count; s++) {
        const struct segment *segment = &job->a->segments[s];
        uint64_t begin = share_start(segment->count, (uint64_t)threads, (uint64_t)thread);
        uint64_t end = begin + share_count(segment->count, (uint64_t)threads, (uint64_t)thread);

        for (uint64_t token = begin; token < end; token++)
            store_token(job, segment, (uint32_t)token);
    }
}

bool attention_group(const struct attention_job *job, size_t index, struct head_group *ret)
{
    const struct attention *a = job->a;

    for (uint32_t head = 0; head < a->heads;) {
        uint32_t count = 1;

        while (head + count < a->heads && count < job->group_heads &&
               a->kv_of_head[head + count] == a->kv_of_head[head])
            count++;
        if (!index--) {
            *ret = (struct head_group){head, count, a->kv_of_head[head]};
            return true;
        }
        head += count;
    }
    return false;
}

/* Vectors are numbered token by token, so those of one token (and so of one length) lie together. */
struct query_tile {
    const struct segment *segment;
    struct head_group group;
    uint32_t token;
    uint32_t tokens;
    size_t vectors;
    size_t ld_scores;
};

static void load_queries(const struct attention_job *job, const struct query_tile *tile, float *query)
{
    const struct attention *a = job->a;

    for (uint32_t t = 0; t < tile->tokens; t++) {
        size_t row = (size_t)tile->segment->row + tile->token + t;
        size_t position = (size_t)tile->segment->position + tile->token + t;

        for (uint32_t h = 0; h < tile->group.count; h++) {
            attention_rotate(job, a->q + row * a->ldq + (size_t)(tile->group.head + h) * a->head_dim, position, query);
            query += job->width;
        }
    }
}

/* Scores of every query against the keys that all tokens of the tile see, then of each later token alone. */
static void score_tile(const struct attention_job *job, const struct query_tile *tile, const float *query,
                       float *packed, float *scores)
{
    size_t common = (size_t)tile->segment->position + tile->token + 1;
    size_t heads = tile->group.count;
    const float *keys = attention_keys(job, tile->segment, tile->group.kv);
    struct tile call = {.panel = keys,
                        .stride = job->width,
                        .rows = common,
                        .x = query,
                        .ldx = job->width,
                        .tokens = tile->vectors,
                        .cols = job->width,
                        .first = true,
                        .last = true,
                        .y = scores,
                        .ldy = tile->ld_scores};

    if (job->compute->kernels->pack && tile->vectors >= PACK_MIN_TOKENS) {
        job->compute->kernels->pack(query, job->width, tile->vectors, job->width, packed);
        call.packed = packed;
    }
    job->compute->kernels->tile(&call);
    call.packed = NULL;
    call.panel = keys + common * job->width;
    call.tokens = heads;
    for (uint32_t t = 1; t < tile->tokens; t++) {
        call.rows = t;
        call.x = query + t * heads * job->width;
        call.y = scores + t * heads * tile->ld_scores + common;
        job->compute->kernels->tile(&call);
    }
}

/* The same cut for the weighted sum of values: chains go on where the common part left them.  All queries take their
 * share of a few values, which are then in the first-level cache, before any takes more. */
static void mix_tile(const struct attention_job *job, const struct query_tile *tile, const float *scores, float *mixed)
{
    size_t common = (size_t)tile->segment->position + tile->token + 1;
    size_t heads = tile->group.count;
    const float *values = attention_values(job, tile->segment, tile->group.kv);
    struct mix call = {.weight = scores,
                       .ldw = tile->ld_scores,
                       .rows = tile->vectors,
                       .value = values,
                       .ldv = job->width,
                       .count = common,
                       .width = job->width,
                       .out = mixed,
                       .ldo = job->width};

    memset(mixed, 0, tile->vectors * job->width * sizeof *mixed);
    for (size_t j = 0; j < common; j += MIX_POSITIONS) {
        call.weight = scores + j;
        call.value = values + j * job->width;
        call.count = common - j < MIX_POSITIONS ? common - j : MIX_POSITIONS;
        job->compute->kernels->mix(&call);
    }
    call.value = values + common * job->width;
    call.rows = heads;
    for (uint32_t t = 1; t < tile->tokens; t++) {
        call.weight = scores + t * heads * tile->ld_scores + common;
        call.count = t;
        call.out = mixed + t * heads * job->width;
        job->compute->kernels->mix(&call);
    }
}

static void attend_tile(const struct attention_job *job, struct scratch *scratch, struct query_tile *tile)
{
    const struct attention *a = job->a;
    const struct row_kernels *kernels = job->compute->kernels->row;
    size_t heads = tile->group.count;
    size_t longest = (size_t)tile->segment->position + tile->token + tile->tokens;
    float inverse[ATTEND_MAX_ROWS];

    tile->vectors = heads * tile->tokens;
    tile->ld_scores = attention_score_stride(longest);
    load_queries(job, tile, scratch->query);
    score_tile(job, tile, scratch->query, scratch->packed, scratch->scores);
    for (size_t i = 0; i < tile->vectors; i++)
        inverse[i] =
            kernels->softmax(scratch->scores + i * tile->ld_scores, longest - tile->tokens + 1 + i / heads, a->scale);
    mix_tile(job, tile, scratch->scores, scratch->mixed);
    for (size_t i = 0; i < tile->vectors; i++) {
        size_t row = (size_t)tile->segment->row + tile->token + i / heads;

        kernels->scale(scratch->mixed + i * job->width, inverse[i], a->head_dim,
                       a->out + row * a->ldo + (tile->group.head + i % heads) * a->head_dim);
    }
}

/* A unit: heads whose vectors and scores fit the scratch are taken token by token, as many at a time as fit. */
static void attend_unit(const struct attention_job *job, struct scratch *scratch, const struct segment *segment,
                        struct head_group group, uint32_t token, uint32_t tokens)
{
    uint32_t end = token + tokens;

    while (token < end) {
        size_t longest = (size_t)segment->position + end;
        size_t vectors = CPU_MAX_CONTEXT / attention_score_stride(longest);
        struct query_tile tile = {.segment = segment, .group = group, .token = token};

        vectors = vectors < ATTEND_MAX_ROWS ? vectors : ATTEND_MAX_ROWS;
        if (vectors < group.count) {
            /* Scores of so long a cache fit for some of the heads only. */
            for (uint32_t h = 0; h < group.count; h++) {
                tile.group = (struct head_group){group.head + h, 1, group.kv};
                tile.tokens = 1;
                attend_tile(job, scratch, &tile);
            }
            token++;
            continue;
        }
        tile.tokens = (uint32_t)(vectors / group.count);
        if (tile.tokens > end - token)
            tile.tokens = end - token;
        attend_tile(job, scratch, &tile);
        token += tile.tokens;
    }
}

static void attend_work(void *context, int thread, int threads)
{
    struct attention_job *job = context;
    const struct attention *a = job->a;
    size_t unit;

    (void)threads;
    while (compute_take(job->compute, thread, &unit)) {
        /* The latest tokens see the most: they are dealt first, so that the last units are short ones. */
        size_t tile = unit / job->units_per_tile;
        struct head_group group;

        CHECK(attention_group(job, unit % job->units_per_tile, &group));
        for (uint32_t s = a->segment_count; s-- > 0;) {
            const struct segment *segment = &a->segments[s];
            size_t tiles = (segment->count + job->tile_tokens - 1) / job->tile_tokens;

            if (tile >= tiles) {
                tile -= tiles;
                continue;
            }
            uint32_t token = (uint32_t)(tiles - 1 - tile) * job->tile_tokens;
            uint32_t tokens = segment->count - token < job->tile_tokens ? segment->count - token : job->tile_tokens;

            attend_unit(job, job->compute->scratch[thread], segment, group, token, tokens);
            break;
        }
    }
}

/* Units of the present group_heads, and the heads of the largest. */
static uint32_t count_units(struct attention_job *job, size_t tiles)
{
    struct head_group group;
    uint32_t largest = 1;

    job->units_per_tile = 0;
    while (attention_group(job, job->units_per_tile, &group)) {
        largest = group.count > largest ? group.count : largest;
        job->units_per_tile++;
    }
    job->units = tiles * job->units_per_tile;
    return largest;
}

/* Heads of a group share the loads of keys and values, which is what a long cache costs: groups are cut only where the
 * busiest thread would else have more than one and a half times its share of the heads. */
static void choose_units(struct attention_job *job)
{
    size_t threads = (size_t)job->compute->threads;
    size_t tiles = 0;

    job->tile_tokens = 16;
    for (uint32_t s = 0; s < job->a->segment_count; s++)
        tiles += (job->a->segments[s].count + job->tile_tokens - 1) / job->tile_tokens;
    job->group_heads = ATTEND_MAX_ROWS;
    for (;;) {
        uint32_t largest = count_units(job, tiles);
        size_t busiest = (job->units + threads - 1) / threads * largest;

        if (largest == 1 || 2 * busiest * threads <= 3 * tiles * job->a->heads)
            return;
        job->group_heads = (largest + 1) / 2;
    }
}

void attention_run(struct compute *compute, const struct attention *attention)
{
    struct attention_job job = {.compute = compute, .a = attention, .width = head_width(attention->head_dim)};
    size_t stored = 0;
    size_t pairs = 0;

    for (uint32_t s = 0; s < attention->segment_count; s++) {
        const struct segment *segment = &attention->segments[s];

        stored += segment->count;
        pairs += (size_t)segment->count * ((size_t)segment->position + segment->count);
    }
    if (!stored || !attention->heads)
        return;
    compute_run(compute, store_work, &job, stored * attention->kv_heads * attention->head_dim);
    if (attention_is_decode(&job, stored, pairs)) {
        attention_decode(&job);
        return;
    }
    choose_units(&job);
    compute_deal(compute, job.units, 1);
    compute_run(compute, attend_work, &job, 2 * pairs * attention->heads * attention->head_dim);
}
