/* Walks the family's table: every rule that this rank's stage needs is looked up, checked against the shape that the
 * configuration implies, and sliced as its split says. */
#include "runtime/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/storage.h"
#include "checkpoint/checkpoint.h"
#include "runtime/plan.h"

enum { NAME_BYTES = 256, ROOM_BEHIND = 64 };

struct loading {
    struct checkpoint *checkpoint;
    const struct model_config *config;
    const struct plan *plan;
    const struct rank_plan *rank;
    struct weights *weights;
    struct error *err;
};

/* Takes storage, which is released even where there is no room to remember it. */
static enum status keep(struct weights *weights, struct storage *storage, struct error *err)
{
    if (weights->storage_count == weights->storage_capacity) {
        size_t capacity = weights->storage_capacity ? 2 * weights->storage_capacity : 64;
        struct storage **list = reallocarray(weights->storage, capacity, sizeof *list);

        if (!list) {
            storage_release(storage);
            return error_set(err, STATUS_NOMEM, "the list of weights");
        }
        weights->storage = list;
        weights->storage_capacity = capacity;
    }
    weights->storage[weights->storage_count++] = storage;
    return STATUS_OK;
}

/* Zeroed, aligned, with room behind it so that a vector load past the last element stays inside. */
static enum status allocate(struct weights *weights, size_t bytes, void **ret, struct error *err)
{
    struct storage *storage = NULL;
    size_t all = 0;
    enum status st;

    if (size_add(bytes, ROOM_BEHIND, &all) != STATUS_OK)
        return error_set(err, STATUS_OVERFLOW, "weights of %zu bytes", bytes);
    st = storage_create(MEMORY_OWNED, all, &storage, err);
    if (st != STATUS_OK)
        return error_wrap(err, st, "weights of %zu bytes", bytes);
    *ret = storage_edit(storage);
    return keep(weights, storage, err);
}

/* The part of a dimension that a split gives to this rank. */
static struct share split_range(const struct loading *l, enum split split, uint64_t whole)
{
    uint64_t dim = l->config->head_dim;

    switch (split) {
    case SPLIT_Q_ROWS:
    case SPLIT_Q_COLS:
        return (struct share){l->rank->heads.start * dim, l->rank->heads.count * dim};
    case SPLIT_KV_ROWS:
        return (struct share){l->rank->kv_heads.start * dim, l->rank->kv_heads.count * dim};
    case SPLIT_FFN_ROWS:
    case SPLIT_FFN_COLS:
        return l->rank->ffn;
    case SPLIT_VOCAB_ROWS:
        return l->rank->vocab;
    case SPLIT_NONE:
        break;
    }
    return (struct share){0, whole};
}

static enum status find(const struct loading *l, const struct parameter_rule *rule, uint64_t layer,
                        const struct stored_tensor **ret)
{
    struct text fault = {0};
    char name[NAME_BYTES];
    enum status st = STATUS_OK;

    family_tensor_name(l->config, rule, layer, name, sizeof name);
    if (plan_tensor_fault(l->checkpoint, rule, name, &fault))
        st = error_set(l->err, STATUS_MODEL, "%s: %s", checkpoint_path(l->checkpoint), text_string(&fault));
    else
        *ret = checkpoint_find(l->checkpoint, name);
    text_done(&fault);
    return st;
}

/* A vector, or this rank's part of it, decoded to f32. */
static enum status load_vector(struct loading *l, const struct parameter_rule *rule, const struct stored_tensor *tensor,
                               float **ret)
{
    struct share part = split_range(l, rule->split, tensor->dim[0]);
    unsigned block = weight_block_length(tensor->type);
    uint64_t begin = part.start / block * weight_block_bytes(tensor->type);
    uint64_t bytes = part.count / block * weight_block_bytes(tensor->type);
    void *values = NULL;
    void *packed = NULL;
    enum status st;

    if (part.start % block || part.count % block)
        return error_set(l->err, STATUS_MODEL, "tensor %s of type %s cannot be cut at %" PRIu64, tensor->name,
                         tensor->type_name, part.start);
    st = allocate(l->weights, (part.count + 16) * sizeof(float), &values, l->err);
    if (st != STATUS_OK)
        return st;
    packed = malloc(bytes ? bytes : 1);
    if (!packed)
        return error_set(l->err, STATUS_NOMEM, "tensor %s of %" PRIu64 " bytes", tensor->name, bytes);
    st = checkpoint_read(l->checkpoint, tensor, begin, bytes, packed, l->err);
    if (st == STATUS_OK) {
        weight_decode(tensor->type, packed, part.count, values);
        l->weights->owned_bytes += bytes;
        *ret = values;
    }
    free(packed);
    return st;
}

/* Rows as they lie in the mapped file. */
static enum status load_rows(struct loading *l, enum split split, const struct stored_tensor *tensor,
                             struct matrix *ret)
{
    struct share part = split_range(l, split, tensor->dim[0]);
    struct storage *storage = NULL;
    enum status st = checkpoint_lend(l->checkpoint, tensor, part.start * tensor->row_bytes,
                                     part.count * tensor->row_bytes, &storage, l->err);

    if (st == STATUS_OK)
        st = keep(l->weights, storage, l->err);
    if (st != STATUS_OK)
        return st;
    *ret = (struct matrix){tensor->type, part.count, tensor->dim[1], tensor->row_bytes, storage_data(storage)};
    l->weights->owned_bytes += part.count * tensor->row_bytes;
    return STATUS_OK;
}

/* Columns of every row, packed behind each other. */
static enum status load_columns(struct loading *l, enum split split, const struct stored_tensor *tensor,
                                struct matrix *ret)
{
    struct share part = split_range(l, split, tensor->dim[1]);
    unsigned block = weight_block_length(tensor->type);
    uint64_t begin = part.start / block * weight_block_bytes(tensor->type);
    size_t row_bytes = part.count / block * weight_block_bytes(tensor->type);
    void *memory = NULL;
    size_t bytes = 0;
    enum status st;

    if (part.start % block || part.count % block)
        return error_set(l->err, STATUS_MODEL, "tensor %s of type %s cannot be cut at column %" PRIu64, tensor->name,
                         tensor->type_name, part.start);
    if (size_mul(row_bytes, tensor->dim[0], &bytes) != STATUS_OK)
        return error_set(l->err, STATUS_OVERFLOW, "tensor %s", tensor->name);
    st = allocate(l->weights, bytes, &memory, l->err);
    if (st == STATUS_OK)
        st = checkpoint_read_strided(l->checkpoint, tensor, begin, tensor->dim[0], tensor->row_bytes, row_bytes, memory,
                                     l->err);
    if (st != STATUS_OK)
        return st;
    *ret = (struct matrix){tensor->type, tensor->dim[0], part.count, row_bytes, memory};
    l->weights->owned_bytes += bytes;
    return STATUS_OK;
}

static enum status load_parameter(struct loading *l, const struct parameter_rule *rule, uint64_t layer,
                                  struct weight_set *set)
{
    const struct stored_tensor *tensor = NULL;
    enum status st = find(l, rule, layer, &tensor);

    if (st != STATUS_OK)
        return st;
    if (rule->rows == EXTENT_NONE)
        return load_vector(l, rule, tensor, &set->vector[rule->parameter]);
    if ((rule->split == SPLIT_Q_COLS || rule->split == SPLIT_FFN_COLS) && l->plan->mesh.size[AXIS_TENSOR] > 1)
        return load_columns(l, rule->split, tensor, &set->matrix[rule->parameter]);
    if (rule->split == SPLIT_Q_COLS || rule->split == SPLIT_FFN_COLS)
        return load_rows(l, SPLIT_NONE, tensor, &set->matrix[rule->parameter]);
    return load_rows(l, rule->split, tensor, &set->matrix[rule->parameter]);
}

/* Views of a row-parallel matrix's columns, one a piece; offset: where this rank's columns begin. */
static enum status view_pieces(struct loading *l, const struct matrix *whole, const struct cut *cut, uint64_t scale,
                               struct matrix **ret)
{
    struct share pieces = l->rank->pieces;
    uint64_t offset = cut->begin[pieces.start] * scale;
    unsigned block = weight_block_length(whole->type);
    void *memory = NULL;
    enum status st = allocate(l->weights, pieces.count * sizeof(struct matrix), &memory, l->err);

    if (st != STATUS_OK)
        return st;
    *ret = memory;
    for (uint64_t i = 0; i < pieces.count; i++) {
        uint64_t begin = cut->begin[pieces.start + i] * scale - offset;
        uint64_t end = cut->begin[pieces.start + i + 1] * scale - offset;

        if (begin % block || (end - begin) % block)
            return error_set(l->err, STATUS_MODEL, "a row-parallel weight of type %s cannot be cut at column %" PRIu64,
                             weight_type_name(whole->type), begin);
        (*ret)[i] = *whole;
        (*ret)[i].cols = end - begin;
        (*ret)[i].data = whole->data + begin / block * weight_block_bytes(whole->type);
    }
    return STATUS_OK;
}

static enum status load_layer(struct loading *l, const struct parameter_rule *const *rules, int rule_count,
                              uint64_t layer, struct weight_set *set)
{
    enum status st = STATUS_OK;

    for (int r = 0; st == STATUS_OK && r < rule_count; r++)
        if (rules[r]->place == PLACE_LAYER)
            st = load_parameter(l, rules[r], layer, set);
    if (st == STATUS_OK)
        st = view_pieces(l, &set->matrix[PARAMETER_O], &l->plan->head_cut, l->config->head_dim, &set->o_pieces);
    if (st == STATUS_OK)
        st = view_pieces(l, &set->matrix[PARAMETER_DOWN], &l->plan->ffn_cut, 1, &set->down_pieces);
    return st;
}

/* A tied output head is this rank's share of the embedding's rows: those that it holds already, or else loaded. */
static enum status load_tied_head(struct loading *l, const struct parameter_rule *rule)
{
    const struct matrix *embedding = &l->weights->stage.matrix[PARAMETER_EMBEDDING];
    struct matrix *head = &l->weights->stage.matrix[PARAMETER_HEAD];
    const struct stored_tensor *tensor = NULL;
    enum status st;

    if (embedding->data) {
        *head = *embedding;
        head->rows = l->rank->vocab.count;
        head->data += l->rank->vocab.start * head->row_bytes;
        return STATUS_OK;
    }
    st = find(l, rule, 0, &tensor);
    return st == STATUS_OK ? load_rows(l, SPLIT_VOCAB_ROWS, tensor, head) : st;
}

static enum status load_stage(struct loading *l, const struct parameter_rule *rule)
{
    bool wanted = rule->place == PLACE_EVERY || (rule->place == PLACE_FIRST && l->rank->first) ||
                  (rule->place == PLACE_LAST && l->rank->last);
    enum status st = STATUS_OK;

    if (wanted)
        st = load_parameter(l, rule, 0, &l->weights->stage);
    if (st == STATUS_OK && rule->parameter == PARAMETER_EMBEDDING && l->config->tied && l->rank->last)
        st = load_tied_head(l, rule);
    return st;
}

enum status weights_load(struct checkpoint *checkpoint, const struct plan *plan, const struct rank_plan *rank,
                         struct weights **ret, struct error *err)
{
    struct weights *weights = calloc(1, sizeof *weights);
    struct loading l = {checkpoint, plan->model, plan, rank, weights, err};
    int rule_count = 0;
    const struct parameter_rule *const *rules = family_rules(plan->model, &rule_count);
    enum status st = STATUS_OK;

    if (!weights || !(weights->layers = calloc(rank->layers.count ? rank->layers.count : 1, sizeof *weights->layers))) {
        weights_unload(weights);
        return error_set(err, STATUS_NOMEM, "weights of %" PRIu64 " layers", rank->layers.count);
    }
    weights->layer_count = rank->layers.count;
    weights->piece_count = (uint32_t)rank->pieces.count;
    for (int r = 0; st == STATUS_OK && r < rule_count; r++)
        if (rules[r]->place != PLACE_LAYER)
            st = load_stage(&l, rules[r]);
    for (uint64_t i = 0; st == STATUS_OK && i < rank->layers.count; i++)
        st = load_layer(&l, rules, rule_count, rank->layers.start + i, &weights->layers[i]);
    if (st != STATUS_OK) {
        weights_unload(weights);
        return st;
    }
    *ret = weights;
    return STATUS_OK;
}

void weights_unload(struct weights *weights)
{
    if (!weights)
        return;
    for (size_t i = 0; i < weights->storage_count; i++)
        storage_release(weights->storage[i]);
    free(weights->storage);
    free(weights->layers);
    free(weights);
}
