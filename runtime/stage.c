/* A decoder layer is: norm, q/k/v, rotate and attend, output product, sum over pieces, residual; norm, gate and up,
 * gated product, down product, sum over pieces, residual.
 *
 * Activations live in buffers whose rows are padded to a multiple of 16 floats, as products read them; what travels
 * (hidden rows, partial sums, logits) is dense. */
#include "runtime/stage.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "checkpoint/model_config.h"
#include "comm/group.h"
#include "runtime/mirror.h"
#include "runtime/piece_sum.h"
#include "runtime/plan.h"
#include "runtime/rope.h"
#include "runtime/wait.h"
#include "runtime/weights.h"

enum { LANES = 16 };

/* Rows of activations, padded. */
struct rows {
    float *data;
    size_t ld;
};

struct stage {
    struct stage_options o;
    const struct model_config *config;
    float epsilon;
    struct rope rope;
    struct rows hidden; /* dense: ld = hidden_size */
    struct rows normed;
    struct rows q;
    struct rows k;
    struct rows v;
    struct rows mixed; /* attention's output */
    struct rows gate;
    struct rows up;
    struct rows last; /* rows that want logits, normed */
    struct piece_sum *attention_sum;
    struct piece_sum *ffn_sum;
    struct mirror local_logits;
    struct mirror logits;   /* empty without a tensor group */
    uint64_t *vocab_counts; /* [tensor size] */
    uint32_t *kv_of_head;
    unsigned char *caches; /* [waves, slots, layers] of cache_bytes */
    size_t cache_bytes;
    uint32_t *lengths; /* [3, waves, slots]: of the caches now, and as saved */
    uint64_t all_cache_bytes;
    uint64_t wait_ns;
};

static enum status rows_create(size_t rows, size_t cols, bool dense, struct rows *ret, struct error *err)
{
    size_t ld = dense ? cols : (cols + LANES - 1) / LANES * LANES;
    size_t bytes = 0;

    if (size_mul(rows, ld, &bytes) != STATUS_OK || size_add(bytes, 2 * LANES, &bytes) != STATUS_OK ||
        size_mul(bytes, sizeof(float), &bytes) != STATUS_OK || size_round_up(bytes, 64, &bytes) != STATUS_OK)
        return error_set(err, STATUS_OVERFLOW, "activations of %zu rows x %zu", rows, cols);
    ret->data = aligned_alloc(64, bytes);
    ret->ld = ld;
    if (!ret->data)
        return error_set(err, STATUS_NOMEM, "activations of %zu rows x %zu", rows, cols);
    memset(ret->data, 0, bytes);
    return STATUS_OK;
}

static enum status create_rows(struct stage *s, struct error *err)
{
    const struct rank_plan *rank = s->o.rank;
    size_t rows = s->o.plan->wave_rows;
    size_t dim = s->config->head_dim;
    const struct {
        struct rows *rows;
        size_t count;
        size_t cols;
        bool dense;
    } table[] = {
        {&s->hidden, rows, s->config->hidden_size, true},
        {&s->normed, rows, s->config->hidden_size, false},
        {&s->q, rows, rank->heads.count * dim, false},
        {&s->k, rows, rank->kv_heads.count * dim, false},
        {&s->v, rows, rank->kv_heads.count * dim, false},
        {&s->mixed, rows, rank->heads.count * dim, false},
        {&s->gate, rows, rank->ffn.count, false},
        {&s->up, rows, rank->ffn.count, false},
        {&s->last, s->o.slots, s->config->hidden_size, false},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        enum status st = rows_create(table[i].count, table[i].cols, table[i].dense, table[i].rows, err);

        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static enum status create_logits(struct stage *s, struct error *err)
{
    int parts = s->o.plan->mesh.size[AXIS_TENSOR];
    struct shape local = {2, {s->o.slots, s->o.rank->vocab.count}};
    struct shape whole = {2, {s->o.slots, s->config->vocab_size}};
    enum status st;

    if (!s->o.rank->last)
        return STATUS_OK;
    s->vocab_counts = calloc((size_t)parts, sizeof *s->vocab_counts);
    if (!s->vocab_counts)
        return error_set(err, STATUS_NOMEM, "the shares of %d tensor ranks", parts);
    for (int p = 0; p < parts; p++)
        s->vocab_counts[p] = share_count(s->config->vocab_size, (uint64_t)parts, (uint64_t)p);
    if (parts == 1)
        return mirror_init(NULL, NULL, DTYPE_F32, &local, &s->local_logits, err);
    st = mirror_init(s->o.shuttle, s->o.shared, DTYPE_F32, &local, &s->local_logits, err);
    return st == STATUS_OK ? mirror_init(s->o.shuttle, s->o.shared, DTYPE_F32, &whole, &s->logits, err) : st;
}

/* Untouched cache pages cost nothing: the memory is asked for zeroed and filled as positions come. */
static enum status create_caches(struct stage *s, struct error *err)
{
    size_t bytes = 0;

    s->cache_bytes =
        s->o.ops->cache_bytes((uint32_t)s->o.rank->kv_heads.count, (uint32_t)s->config->head_dim, s->o.positions);
    if (!s->cache_bytes || size_mul(s->cache_bytes, s->o.rank->layers.count, &bytes) != STATUS_OK ||
        size_mul(bytes, s->o.slots, &bytes) != STATUS_OK || size_mul(bytes, s->o.waves, &bytes) != STATUS_OK ||
        size_add(bytes, 64, &bytes) != STATUS_OK)
        return error_set(err, STATUS_OVERFLOW, "caches of %u positions", s->o.positions);
    s->lengths = calloc(3 * (size_t)s->o.waves * s->o.slots, sizeof *s->lengths);
    s->caches = calloc(1, bytes);
    if (!s->caches || !s->lengths)
        return error_set(err, STATUS_NOMEM,
                         "caches of %zu bytes (%u waves x %u requests x %u positions): lower workload.generate.context "
                         "or microbatch",
                         bytes, s->o.waves, s->o.slots, s->o.positions);
    s->all_cache_bytes = bytes - 64;
    return STATUS_OK;
}

static enum status create_sums(struct stage *s, struct error *err)
{
    const struct plan *plan = s->o.plan;
    uint32_t parts = (uint32_t)plan->mesh.size[AXIS_TENSOR];
    uint32_t part = (uint32_t)s->o.rank->at.at[AXIS_TENSOR];
    enum status st = piece_sum_create(plan->pieces, parts, part, s->o.tensor_group, s->o.shuttle, plan->wave_rows,
                                      s->config->hidden_size, &s->attention_sum, err);

    if (st == STATUS_OK)
        st = piece_sum_create(plan->pieces, parts, part, s->o.tensor_group, s->o.shuttle, plan->wave_rows,
                              s->config->hidden_size, &s->ffn_sum, err);
    return st;
}

static enum status map_heads(struct stage *s, struct error *err)
{
    const struct rank_plan *rank = s->o.rank;
    uint64_t group = s->config->head_count / s->config->kv_head_count;

    s->kv_of_head = calloc(rank->heads.count, sizeof *s->kv_of_head);
    if (!s->kv_of_head)
        return error_set(err, STATUS_NOMEM, "the map of %" PRIu64 " heads", rank->heads.count);
    for (uint64_t h = 0; h < rank->heads.count; h++)
        s->kv_of_head[h] = (uint32_t)((rank->heads.start + h) / group - rank->kv_heads.start);
    return STATUS_OK;
}

enum status stage_create(const struct stage_options *options, struct stage **ret, struct error *err)
{
    struct stage *s = calloc(1, sizeof *s);
    enum status st;

    if (!s)
        return error_set(err, STATUS_NOMEM, "a stage");
    s->o = *options;
    s->config = options->plan->model;
    s->epsilon = (float)s->config->norm_epsilon;
    st = create_rows(s, err);
    if (st == STATUS_OK)
        st = map_heads(s, err);
    if (st == STATUS_OK)
        st = create_logits(s, err);
    if (st == STATUS_OK)
        st = create_sums(s, err);
    if (st == STATUS_OK)
        st = create_caches(s, err);
    if (st == STATUS_OK)
        st = rope_init(s->config, options->weights->stage.vector[PARAMETER_ROPE_FREQS], options->positions, &s->rope,
                       err);
    if (st != STATUS_OK) {
        stage_destroy(s);
        return st;
    }
    *ret = s;
    return STATUS_OK;
}

void stage_destroy(struct stage *s)
{
    if (!s)
        return;
    struct rows *const all[] = {&s->hidden, &s->normed, &s->q, &s->k, &s->v, &s->mixed, &s->gate, &s->up, &s->last};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]->data);
    piece_sum_destroy(s->attention_sum);
    piece_sum_destroy(s->ffn_sum);
    mirror_done(&s->local_logits);
    mirror_done(&s->logits);
    free(s->vocab_counts);
    free(s->kv_of_head);
    free(s->caches);
    free(s->lengths);
    rope_done(&s->rope);
    free(s);
}

void stage_embed(struct stage *s, const uint32_t *ids, uint32_t rows)
{
    s->o.ops->embed(s->o.compute, &s->o.weights->stage.matrix[PARAMETER_EMBEDDING], ids, rows, s->hidden.data,
                    s->hidden.ld);
}

void stage_take(struct stage *s, const float *hidden, uint32_t rows)
{
    memcpy(s->hidden.data, hidden, (size_t)rows * s->hidden.ld * sizeof(float));
}

const float *stage_hidden(const struct stage *s)
{
    return s->hidden.data;
}

uint64_t stage_wait_ns(const struct stage *s)
{
    return s->wait_ns;
}

uint64_t stage_cache_bytes(const struct stage *s)
{
    return s->all_cache_bytes;
}

uint32_t stage_length(const struct stage *s, uint32_t index, uint32_t slot)
{
    return s->lengths[(size_t)index * s->o.slots + slot];
}

void stage_save(struct stage *s, int which)
{
    size_t count = (size_t)s->o.waves * s->o.slots;

    memcpy(s->lengths + (size_t)(1 + which) * count, s->lengths, count * sizeof *s->lengths);
}

/* Rows past a cache's length are never read: they are written before a later row attends to them. */
void stage_restore(struct stage *s, int which)
{
    size_t count = (size_t)s->o.waves * s->o.slots;

    memcpy(s->lengths, s->lengths + (size_t)(1 + which) * count, count * sizeof *s->lengths);
}

/* The wave's rows are about to follow what the caches hold. */
static enum status grow_caches(struct stage *s, const struct wave *wave, uint32_t index, struct error *err)
{
    for (uint32_t slot = 0; slot < wave->slot_count; slot++) {
        const struct wave_slot *at = &wave->slot[slot];
        uint32_t *length = &s->lengths[(size_t)index * s->o.slots + slot];

        if (!at->rows)
            continue;
        if (at->position && at->position != *length)
            return error_set(err, STATUS_MISMATCH,
                             "wave slot %u: request %u goes on at position %u, its cache holds %u positions", slot,
                             at->request, at->position, *length);
        *length = at->position + at->rows;
    }
    return STATUS_OK;
}

/* to = product of the normed rows with one weight. */
static struct product product_of(const struct stage *s, const struct weight_set *w, enum parameter weight,
                                 enum parameter bias, const struct rows *to)
{
    return (struct product){&w->matrix[weight], s->normed.data, s->normed.ld, to->data, to->ld, w->vector[bias]};
}

static void norm(const struct stage *s, const struct weight_set *w, enum parameter weight, uint32_t rows)
{
    s->o.ops->norm(s->o.compute, s->hidden.data, s->hidden.ld, rows, s->config->hidden_size, w->vector[weight],
                   s->epsilon, s->normed.data, s->normed.ld);
}

/* hidden += sum over pieces of (x times the piece's columns) + bias. */
static enum status add_product(struct stage *s, struct piece_sum *sum, const struct matrix *pieces,
                               const struct rows *x, const float *bias, uint32_t rows, struct error *err)
{
    struct product list[LANES];
    uint32_t count = s->o.weights->piece_count;
    size_t offset = 0;
    float *whole = NULL;
    enum status st;

    for (uint32_t i = 0; i < count; i += LANES) {
        uint32_t n = count - i < LANES ? count - i : LANES;

        for (uint32_t j = 0; j < n; j++) {
            list[j] = (struct product){&pieces[i + j],
                                       x->data + offset,
                                       x->ld,
                                       piece_sum_partial(sum, i + j, rows),
                                       s->config->hidden_size,
                                       NULL};
            offset += pieces[i + j].cols;
        }
        s->o.ops->products(s->o.compute, list, (int)n, rows);
    }
    st = piece_sum_run(sum, s->o.ops, s->o.compute, rows, &whole, &s->wait_ns, err);
    if (st != STATUS_OK)
        return st;
    if (bias) /* one row for all: a stride of zero */
        s->o.ops->add(s->o.compute, whole, s->config->hidden_size, bias, 0, rows, s->config->hidden_size);
    s->o.ops->add(s->o.compute, s->hidden.data, s->hidden.ld, whole, s->config->hidden_size, rows,
                  s->config->hidden_size);
    return STATUS_OK;
}

/* The wave's segments, each with its request's cache of this layer. */
static uint32_t list_segments(const struct stage *s, const struct wave *wave, uint32_t index, uint64_t layer,
                              struct segment *segments)
{
    uint32_t row = 0;
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < wave->slot_count; slot++) {
        const struct wave_slot *at = &wave->slot[slot];
        size_t cache = ((size_t)index * s->o.slots + slot) * s->o.rank->layers.count + layer;

        if (!at->rows)
            continue;
        unsigned char *aligned = s->caches + (64 - (uintptr_t)s->caches % 64) % 64;

        segments[count++] = (struct segment){row, at->rows, at->position, aligned + cache * s->cache_bytes};
        row += at->rows;
    }
    return count;
}

static void attend(struct stage *s, const struct weight_set *w, const struct wave *wave, uint32_t index, uint64_t layer)
{
    struct segment segments[WAVE_MAX_SLOTS];
    size_t dim = s->config->head_dim;
    struct attention a = {
        .q = s->q.data,
        .ldq = s->q.ld,
        .k = s->k.data,
        .ldk = s->k.ld,
        .v = s->v.data,
        .ldv = s->v.ld,
        .out = s->mixed.data,
        .ldo = s->mixed.ld,
        .heads = (uint32_t)s->o.rank->heads.count,
        .kv_heads = (uint32_t)s->o.rank->kv_heads.count,
        .kv_of_head = s->kv_of_head,
        .head_dim = (uint32_t)dim,
        .scale = 1.0f / sqrtf((float)dim),
        .rope_pairs = s->config->rope_layout == ROPE_PAIRS,
        .rope_cos = s->rope.cos,
        .rope_sin = s->rope.sin,
        .context = s->o.positions,
        .segments = segments,
    };

    a.segment_count = list_segments(s, wave, index, layer, segments);
    if (w->vector[PARAMETER_Q_NORM])
        s->o.ops->head_norm(s->o.compute, s->q.data, s->q.ld, wave->rows, a.heads, dim, w->vector[PARAMETER_Q_NORM],
                            s->epsilon);
    if (w->vector[PARAMETER_K_NORM])
        s->o.ops->head_norm(s->o.compute, s->k.data, s->k.ld, wave->rows, a.kv_heads, dim, w->vector[PARAMETER_K_NORM],
                            s->epsilon);
    s->o.ops->attend(s->o.compute, &a);
}

static enum status run_attention(struct stage *s, const struct wave *wave, uint32_t index, uint64_t layer,
                                 struct error *err)
{
    const struct weight_set *w = &s->o.weights->layers[layer];
    const struct product list[] = {
        product_of(s, w, PARAMETER_Q, PARAMETER_Q_BIAS, &s->q),
        product_of(s, w, PARAMETER_K, PARAMETER_K_BIAS, &s->k),
        product_of(s, w, PARAMETER_V, PARAMETER_V_BIAS, &s->v),
    };

    norm(s, w, PARAMETER_ATTENTION_NORM, wave->rows);
    s->o.ops->products(s->o.compute, list, 3, wave->rows);
    attend(s, w, wave, index, layer);
    return add_product(s, s->attention_sum, w->o_pieces, &s->mixed, w->vector[PARAMETER_O_BIAS], wave->rows, err);
}

static enum status run_ffn(struct stage *s, const struct wave *wave, uint64_t layer, struct error *err)
{
    const struct weight_set *w = &s->o.weights->layers[layer];
    const struct product list[] = {
        product_of(s, w, PARAMETER_GATE, PARAMETER_GATE_BIAS, &s->gate),
        product_of(s, w, PARAMETER_UP, PARAMETER_UP_BIAS, &s->up),
    };

    norm(s, w, PARAMETER_FFN_NORM, wave->rows);
    s->o.ops->products(s->o.compute, list, 2, wave->rows);
    s->o.ops->gated(s->o.compute, s->gate.data, s->gate.ld, s->up.data, s->up.ld, wave->rows, s->o.rank->ffn.count,
                    s->gate.data, s->gate.ld);
    return add_product(s, s->ffn_sum, w->down_pieces, &s->gate, w->vector[PARAMETER_DOWN_BIAS], wave->rows, err);
}

enum status stage_run(struct stage *s, const struct wave *wave, uint32_t index, struct error *err)
{
    enum status st = grow_caches(s, wave, index, err);

    for (uint64_t layer = 0; st == STATUS_OK && wave->rows && layer < s->o.rank->layers.count; layer++) {
        st = run_attention(s, wave, index, layer, err);
        if (st == STATUS_OK)
            st = run_ffn(s, wave, layer, err);
        if (st != STATUS_OK)
            return error_wrap(err, st, "layer %" PRIu64, s->o.rank->layers.start + layer);
    }
    return st;
}

/* Norm the last row of every slot that wants a token into s->last. */
static uint32_t take_last_rows(struct stage *s, const struct wave *wave)
{
    uint32_t row = 0;
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < wave->slot_count; slot++) {
        row += wave->slot[slot].rows;
        if (!(wave->slot[slot].flags & WAVE_SAMPLE))
            continue;
        s->o.ops->norm(s->o.compute, s->hidden.data + (size_t)(row - 1) * s->hidden.ld, s->hidden.ld, 1,
                       s->config->hidden_size, s->o.weights->stage.vector[PARAMETER_OUTPUT_NORM], s->epsilon,
                       s->last.data + (size_t)count * s->last.ld, s->last.ld);
        count++;
    }
    return count;
}

static enum status gather_logits(struct stage *s, uint32_t count, const float **ret, struct error *err)
{
    struct shape shape = {2, {count, s->config->vocab_size}};
    struct completion *completion = NULL;
    enum status st = mirror_reshape(&s->logits, DTYPE_F32, &shape, err);

    if (st == STATUS_OK)
        st = mirror_promote(&s->local_logits, s->o.tensor_group, err);
    if (st == STATUS_OK)
        st = group_all_gather_uneven(s->o.tensor_group, s->local_logits.there, s->logits.there, 1, s->vocab_counts,
                                     &completion, err);
    if (st == STATUS_OK)
        st = wait_and_release(completion, &s->wait_ns, err);
    if (st == STATUS_OK)
        st = mirror_settle(&s->local_logits, &s->wait_ns, err);
    if (st == STATUS_OK)
        st = mirror_demote(&s->logits, &s->wait_ns, err);
    *ret = (const float *)(const void *)s->logits.here->data;
    return st;
}

enum status stage_logits(struct stage *s, const struct wave *wave, const float **ret, struct error *err)
{
    uint32_t count = take_last_rows(s, wave);
    struct shape shape = {2, {count, s->o.rank->vocab.count}};
    enum status st = mirror_reshape(&s->local_logits, DTYPE_F32, &shape, err);

    *ret = (const float *)(const void *)s->local_logits.here->data;
    if (st != STATUS_OK || !count)
        return st;
    const struct product head = {&s->o.weights->stage.matrix[PARAMETER_HEAD], s->last.data,           s->last.ld,
                                 (float *)(void *)s->local_logits.here->data, s->o.rank->vocab.count, NULL};

    s->o.ops->products(s->o.compute, &head, 1, count);
    return s->logits.here ? gather_logits(s, count, ret, err) : STATUS_OK;
}
