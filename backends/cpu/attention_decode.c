/* Attention of single tokens to long caches, where reading keys and values is all the time there is.
 *
 * Whole heads can rarely be dealt evenly (three groups of heads, two threads).  So positions are dealt for the scores,
 * heads for the softmax, channels for the weighted sum: three forks, in which no chain is ever cut.  The groups of
 * heads whose scores fit the threads' scratch memory together are a round. */
#include "backends/cpu/attention_private.h"

#include "base/size.h"

enum {
    ROUND_ITEMS = 64,
    CHUNK_POSITIONS = 128,      /* of scores in a unit, at most */
    CHUNK_CHANNELS = 2 * LANES, /* of the weighted sum in a unit */
    DECODE_WORK = 4 * SMALL_WORK
};

/* A group of heads of one segment. */
struct item {
    const struct segment *segment;
    struct head_group group;
    size_t length;    /* positions seen */
    size_t ld_scores; /* from one head's to the next */
    float *scores;    /* [group.count, ld_scores] in some thread's scratch */
    float inverse[ATTEND_MAX_ROWS];
};

struct round {
    const struct attention_job *job;
    struct item item[ROUND_ITEMS];
    size_t count;
    size_t chunks; /* units of an item in the running fork */
};

bool attention_is_decode(const struct attention_job *job, size_t rows, size_t pairs)
{
    const struct attention *a = job->a;

    if (job->compute->threads == 1 || 2 * pairs * a->heads * a->head_dim < DECODE_WORK)
        return false;
    for (uint32_t s = 0; s < a->segment_count; s++) {
        const struct segment *segment = &a->segments[s];
        size_t heads = a->heads < ATTEND_MAX_ROWS ? a->heads : ATTEND_MAX_ROWS;

        if (segment->count > 1 || attention_score_stride((size_t)segment->position + 1) > CPU_MAX_CONTEXT / heads)
            return false;
    }
    return rows > 0;
}

/* Scores of a run of positions. */
static void score_unit(struct round *round, struct scratch *scratch, struct item *item, size_t chunk)
{
    const struct attention_job *job = round->job;
    const struct attention *a = job->a;
    size_t begin = (size_t)share_start(item->length, round->chunks, chunk);
    struct tile call = {.stride = job->width,
                        .rows = (size_t)share_count(item->length, round->chunks, chunk),
                        .x = scratch->query,
                        .ldx = job->width,
                        .tokens = item->group.count,
                        .cols = job->width,
                        .first = true,
                        .last = true,
                        .y = item->scores + begin,
                        .ldy = item->ld_scores};

    for (uint32_t h = 0; h < item->group.count; h++)
        attention_rotate(job, a->q + item->segment->row * a->ldq + (size_t)(item->group.head + h) * a->head_dim,
                         item->segment->position, scratch->query + h * job->width);
    call.panel = attention_keys(job, item->segment, item->group.kv) + begin * job->width;
    job->compute->kernels->tile(&call);
}

/* The softmax of one head; groups of fewer heads leave some units empty. */
static void softmax_unit(struct round *round, struct scratch *scratch, struct item *item, size_t head)
{
    const struct attention_job *job = round->job;

    (void)scratch;
    if (head < item->group.count)
        item->inverse[head] =
            job->compute->kernels->row->softmax(item->scores + head * item->ld_scores, item->length, job->a->scale);
}

/* The weighted sums of a run of channels. */
static void mix_unit(struct round *round, struct scratch *scratch, struct item *item, size_t chunk)
{
    const struct attention_job *job = round->job;
    const struct attention *a = job->a;
    size_t channel = chunk * CHUNK_CHANNELS;
    size_t left = job->width - channel;
    struct mix call = {.weight = item->scores,
                       .ldw = item->ld_scores,
                       .rows = item->group.count,
                       .value = attention_values(job, item->segment, item->group.kv) + channel,
                       .ldv = job->width,
                       .count = item->length,
                       .width = left < CHUNK_CHANNELS ? left : CHUNK_CHANNELS,
                       .out = scratch->mixed,
                       .ldo = CHUNK_CHANNELS};

    for (size_t i = 0; i < call.rows * CHUNK_CHANNELS; i++)
        scratch->mixed[i] = 0.0f;
    job->compute->kernels->mix(&call);
    left = a->head_dim - channel < call.width ? a->head_dim - channel : call.width;
    for (size_t h = 0; h < call.rows; h++)
        job->compute->kernels->row->scale(scratch->mixed + h * CHUNK_CHANNELS, item->inverse[h], left,
                                          a->out + item->segment->row * a->ldo + (item->group.head + h) * a->head_dim +
                                              channel);
}

/* A phase of a round: chunks units an item. */
struct phase {
    struct round *round;
    void (*unit)(struct round *round, struct scratch *scratch, struct item *item, size_t chunk);
};

static void phase_work(void *context, int thread, int threads)
{
    const struct phase *phase = context;
    struct round *round = phase->round;
    struct compute *compute = round->job->compute;
    size_t unit;

    (void)threads;
    while (compute_take(compute, thread, &unit))
        phase->unit(round, compute->scratch[thread], &round->item[unit / round->chunks], unit % round->chunks);
}

static void run_phase(struct round *round, size_t chunks,
                      void (*unit)(struct round *round, struct scratch *scratch, struct item *item, size_t chunk))
{
    struct compute *compute = round->job->compute;
    struct phase phase = {.round = round, .unit = unit};

    round->chunks = chunks;
    compute_deal(compute, round->count * chunks, compute->threads);
    compute_run(compute, phase_work, &phase, SMALL_WORK);
}

static void run_round(struct round *round)
{
    size_t longest = 1;
    size_t heads = 1;

    for (size_t i = 0; i < round->count; i++) {
        longest = round->item[i].length > longest ? round->item[i].length : longest;
        heads = round->item[i].group.count > heads ? round->item[i].group.count : heads;
    }
    run_phase(round, (longest + CHUNK_POSITIONS - 1) / CHUNK_POSITIONS, score_unit);
    run_phase(round, heads, softmax_unit);
    run_phase(round, (round->job->width + CHUNK_CHANNELS - 1) / CHUNK_CHANNELS, mix_unit);
    round->count = 0;
}

void attention_decode(struct attention_job *job)
{
    struct round round = {.job = job};
    int thread = 0; /* whose scratch takes the next scores */
    size_t used = 0;

    job->group_heads = ATTEND_MAX_ROWS;
    for (uint32_t s = 0; s < job->a->segment_count; s++) {
        struct item item = {.segment = &job->a->segments[s], .length = (size_t)job->a->segments[s].position + 1};

        item.ld_scores = attention_score_stride(item.length);
        for (size_t i = 0; item.segment->count && attention_group(job, i, &item.group); i++) {
            size_t wanted = item.group.count * item.ld_scores;

            if (used + wanted > CPU_MAX_CONTEXT) {
                thread++;
                used = 0;
            }
            if (thread == job->compute->threads || round.count == ROUND_ITEMS) {
                run_round(&round);
                thread = 0;
                used = 0;
            }
            item.scores = job->compute->scratch[thread]->scores + used;
            used += wanted;
            round.item[round.count++] = item;
        }
    }
    if (round.count)
        run_round(&round);
}
