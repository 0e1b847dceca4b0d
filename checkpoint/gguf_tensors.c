/* The tensors of one GGUF file: their descriptions follow the metadata, their data the next multiple of the alignment.
 *
 * A description is believed when its extents multiply without overflow to whole blocks, its place is aligned and inside
 * the file, and no other tensor lies there too.  Gaps are padding. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "checkpoint/checkpoint_private.h"
#include "checkpoint/gguf_private.h"

enum { GGUF_MAX_NDIM = 4 };

/* The file format's numbers; gaps are types that are not read. */
static const struct stored_type {
    uint32_t number;
    const char *name;
    enum weight_type type;
    unsigned bytes; /* of an element, when there is no weight type */
} stored_types[] = {
    {0, "F32", WEIGHT_F32, 0},    {1, "F16", WEIGHT_F16, 0},    {2, "Q4_0", WEIGHT_Q4_0, 0},
    {3, "Q4_1", WEIGHT_Q4_1, 0},  {6, "Q5_0", WEIGHT_Q5_0, 0},  {7, "Q5_1", WEIGHT_Q5_1, 0},
    {8, "Q8_0", WEIGHT_Q8_0, 0},  {12, "Q4_K", WEIGHT_Q4_K, 0}, {13, "Q5_K", WEIGHT_Q5_K, 0},
    {14, "Q6_K", WEIGHT_Q6_K, 0}, {24, "I8", WEIGHT_NONE, 1},   {25, "I16", WEIGHT_NONE, 2},
    {26, "I32", WEIGHT_NONE, 4},  {27, "I64", WEIGHT_NONE, 8},  {28, "F64", WEIGHT_NONE, 8},
    {30, "BF16", WEIGHT_BF16, 0},
};
enum { STORED_TYPE_COUNT = sizeof stored_types / sizeof stored_types[0] };

/* A description as it lies in the header. */
struct description {
    uint64_t name_offset;
    uint64_t name_length;
    struct stored_tensor facts;
};

static const char *shown_name(const struct gguf *gguf, const struct description *tensor, int *ret_length)
{
    *ret_length = tensor->name_length < 200 ? (int)tensor->name_length : 200;
    return (const char *)gguf->header + tensor->name_offset;
}

/* "PATH: tensor 'NAME': " in front of what was said. */
static enum status about(const struct gguf *gguf, const struct description *tensor, enum status st, struct error *err)
{
    int length;
    const char *name = shown_name(gguf, tensor, &length);

    return error_wrap(err, st, "%.250s: tensor '%.*s'", gguf->path, length, name);
}

static enum status find_type(uint32_t number, const struct stored_type **ret, struct error *err)
{
    struct text known = {0};

    for (int i = 0; i < STORED_TYPE_COUNT; i++)
        if (stored_types[i].number == number) {
            *ret = &stored_types[i];
            return STATUS_OK;
        }
    for (int i = 0; i < STORED_TYPE_COUNT; i++)
        text_add(&known, "%s%s (%" PRIu32 ")", i ? ", " : "", stored_types[i].name, stored_types[i].number);
    error_set(err, STATUS_UNSUPPORTED, "type %" PRIu32 " is not supported; known: %s", number, text_string(&known));
    text_done(&known);
    return STATUS_UNSUPPORTED;
}

/* Extents innermost first in the file, outermost first in stored_tensor. */
static enum status read_extents(struct gguf *gguf, struct stored_tensor *facts, struct error *err)
{
    uint32_t ndim;
    enum status st = gguf_read_u32(gguf, "the number of dimensions", &ndim, err);

    if (st != STATUS_OK)
        return st;
    if (ndim > GGUF_MAX_NDIM)
        return error_set(err, STATUS_MODEL, "%" PRIu32 " dimensions, at most %d are allowed", ndim, GGUF_MAX_NDIM);
    facts->ndim = (int)ndim;
    for (uint32_t i = ndim; i-- && st == STATUS_OK;)
        st = gguf_read_u64(gguf, "a dimension", &facts->dim[i], err);
    return st;
}

static enum status measure(const struct stored_type *type, struct stored_tensor *facts, struct error *err)
{
    unsigned length = type->type == WEIGHT_NONE ? 1 : weight_block_length(type->type);
    unsigned bytes = type->type == WEIGHT_NONE ? type->bytes : weight_block_bytes(type->type);
    uint64_t inner = facts->ndim ? facts->dim[facts->ndim - 1] : 1;
    size_t total = 0;

    if (inner % length)
        return error_set(err, STATUS_MODEL, "rows of %" PRIu64 " elements are no whole blocks of %u (type %s)", inner,
                         length, type->name);
    if (size_mul(inner / length, bytes, &total))
        return error_set(err, STATUS_MODEL, "a row of %" PRIu64 " elements overflows 64 bits", inner);
    facts->row_bytes = total;
    for (int i = 0; i + 1 < facts->ndim; i++)
        if (size_mul(total, facts->dim[i], &total))
            return error_set(err, STATUS_MODEL, "its dimensions overflow 64 bits");
    facts->bytes = total;
    return STATUS_OK;
}

static enum status read_description(struct gguf *gguf, struct description *tensor, struct error *err)
{
    const struct stored_type *type = NULL;
    uint32_t number;
    enum status st =
        gguf_read_string(gguf, "a tensor's name", TENSOR_NAME_LIMIT, &tensor->name_offset, &tensor->name_length, err);

    if (st != STATUS_OK)
        return st;
    st = read_extents(gguf, &tensor->facts, err);
    if (st == STATUS_OK)
        st = gguf_read_u32(gguf, "the type", &number, err);
    if (st == STATUS_OK)
        st = find_type(number, &type, err);
    if (st == STATUS_OK)
        st = measure(type, &tensor->facts, err);
    if (st == STATUS_OK)
        st = gguf_read_u64(gguf, "the offset", &tensor->facts.offset, err);
    if (st == STATUS_OK && tensor->facts.offset % gguf->alignment)
        st = error_set(err, STATUS_MODEL, "its offset %" PRIu64 " is no multiple of the alignment %" PRIu64,
                       tensor->facts.offset, gguf->alignment);
    if (st != STATUS_OK)
        return about(gguf, tensor, st, err);
    tensor->facts.type = type->type;
    tensor->facts.type_name = type->name;
    return STATUS_OK;
}

static enum status read_descriptions(struct gguf *gguf, struct description **list, struct error *err)
{
    size_t capacity = 0;
    enum status st = STATUS_OK;

    for (size_t i = 0; i < gguf->tensor_count && st == STATUS_OK; i++) {
        if (i == capacity) {
            struct description *longer;

            capacity = capacity ? 2 * capacity : 64;
            longer = reallocarray(*list, capacity, sizeof *longer);
            if (!longer)
                return error_set(err, STATUS_NOMEM, "%s: %zu tensors", gguf->path, capacity);
            *list = longer;
        }
        (*list)[i] = (struct description){0};
        st = read_description(gguf, &(*list)[i], err);
    }
    return st;
}

static int compare_places(const void *a, const void *b)
{
    const struct description *one = a;
    const struct description *two = b;

    if (one->facts.offset != two->facts.offset)
        return one->facts.offset < two->facts.offset ? -1 : 1;
    return (one->facts.bytes > two->facts.bytes) - (one->facts.bytes < two->facts.bytes);
}

static enum status check_inside(const struct gguf *gguf, const struct description *tensor, uint64_t data_begin,
                                struct error *err)
{
    uint64_t room = gguf->file_bytes > data_begin ? gguf->file_bytes - data_begin : 0;
    uint64_t end;

    if (size_add(tensor->facts.offset, tensor->facts.bytes, &end))
        return about(gguf, tensor, error_set(err, STATUS_MODEL, "offset and size overflow 64 bits"), err);
    if (end > room && tensor->facts.bytes)
        return about(gguf, tensor,
                     error_set(err, STATUS_MODEL,
                               "the file was cut: its data ends at %" PRIu64 ", the file has %" PRIu64 " bytes",
                               data_begin + end, gguf->file_bytes),
                     err);
    return STATUS_OK;
}

static enum status check_places(const struct gguf *gguf, struct description *list, uint64_t data_begin,
                                struct error *err)
{
    const struct description *before = NULL;
    enum status st = STATUS_OK;

    if (gguf->tensor_count)
        qsort(list, gguf->tensor_count, sizeof *list, compare_places);
    for (size_t i = 0; i < gguf->tensor_count && st == STATUS_OK; i++) {
        st = check_inside(gguf, &list[i], data_begin, err);
        if (st != STATUS_OK || !list[i].facts.bytes)
            continue;
        if (before && list[i].facts.offset < before->facts.offset + before->facts.bytes) {
            int length;
            const char *name = shown_name(gguf, before, &length);

            st = error_set(err, STATUS_MODEL, "it overlaps '%.*s': begins at %" PRIu64 ", the other ends at %" PRIu64,
                           length, name, list[i].facts.offset, before->facts.offset + before->facts.bytes);
            return about(gguf, &list[i], st, err);
        }
        before = &list[i];
    }
    return st;
}

enum status gguf_read_tensors(struct gguf *gguf, struct checkpoint *checkpoint, int shard, struct error *err)
{
    struct description *list = NULL;
    uint64_t data_begin;
    enum status st = read_descriptions(gguf, &list, err);

    /* Cannot wrap: the position lies within the header's limit. */
    data_begin = (gguf->position + gguf->alignment - 1) / gguf->alignment * gguf->alignment;
    if (st == STATUS_OK)
        st = check_places(gguf, list, data_begin, err);
    for (size_t i = 0; i < gguf->tensor_count && st == STATUS_OK; i++) {
        list[i].facts.shard = shard;
        /* An empty tensor may stand anywhere; its place is not used. */
        list[i].facts.offset = list[i].facts.bytes ? list[i].facts.offset + data_begin : 0;
        st = checkpoint_add_tensor(checkpoint, (const char *)gguf->header + list[i].name_offset, list[i].name_length,
                                   &list[i].facts, err);
    }
    free(list);
    return st;
}
