/* Offsets and strided copies: contiguous where the axis is the outermost, else one run per outer index. */
#include "comm/layout.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/size.h"
#include "base/stream.h"

enum status layout_init(struct layout *layout, const uint64_t *counts, int size, struct error *err)
{
    if (layout->start && layout->size != size)
        layout_done(layout);
    layout->size = size;
    if (!layout->start)
        layout->start = calloc((size_t)size + 1, sizeof *layout->start);
    if (!layout->start)
        return error_set(err, STATUS_NOMEM, "offsets of %d members", size);
    layout->start[0] = 0;
    for (int i = 0; i < size; i++) {
        if (size_add(layout->start[i], counts[i], &layout->start[i + 1]) != STATUS_OK) {
            layout_done(layout);
            return error_set(err, STATUS_OVERFLOW,
                             "members 0 to %d have more together than 64 bits can count: member %d has %" PRIu64, i, i,
                             counts[i]);
        }
    }
    return STATUS_OK;
}

void layout_done(struct layout *layout)
{
    free(layout->start);
    layout->start = NULL;
}

enum status slab_of(const struct shape *shape, enum dtype dtype, int axis, struct slab *ret, struct error *err)
{
    struct slab slab = {.outer = 1, .inner_bytes = dtype_bytes(dtype)};
    size_t all = 0;
    enum status st = shape_bytes(shape, dtype, &all, err);

    if (st != STATUS_OK)
        return st;
    if (axis < 0 || axis >= shape->ndim)
        return error_set(err, STATUS_INVALID, "axis %d of a tensor with %d dimensions", axis, shape->ndim);
    /* The product of the extents that are not zero fits, so these do. */
    for (int i = 0; i < axis; i++)
        slab.outer *= shape->dim[i];
    for (int i = axis + 1; i < shape->ndim; i++)
        slab.inner_bytes *= shape->dim[i];
    slab.extent = shape->dim[axis];
    *ret = slab;
    return STATUS_OK;
}

static size_t rows_of_piece(const struct slab *slab, uint64_t count, size_t piece_bytes)
{
    size_t run = (size_t)count * slab->inner_bytes;
    size_t rows = run ? piece_bytes / run : slab->outer;

    return rows ? rows : 1;
}

struct rows slab_piece(const struct slab *slab, uint64_t count, size_t piece_bytes, int piece)
{
    size_t rows = rows_of_piece(slab, count, piece_bytes);
    size_t whole = slab->outer / rows;
    size_t at = (size_t)piece;

    if (at < whole)
        return (struct rows){at * rows, rows};
    return at == whole ? (struct rows){at * rows, slab->outer - at * rows} : (struct rows){slab->outer, 0};
}

enum status slab_pieces(const struct slab *slab, uint64_t count, size_t piece_bytes, int *ret, struct error *err)
{
    size_t rows = rows_of_piece(slab, count, piece_bytes);
    size_t pieces = slab->outer ? (slab->outer - 1) / rows + 1 : 1;

    if (size_to_int(pieces, ret) != STATUS_OK)
        return error_set(err, STATUS_OVERFLOW, "%zu pieces of %zu rows", pieces, rows);
    return STATUS_OK;
}

static size_t stride_of(const struct slab *slab)
{
    return slab->extent * slab->inner_bytes;
}

enum status slab_pack(struct memory *device, const struct slab *slab, const unsigned char *tensor, uint64_t start,
                      uint64_t count, struct rows rows, unsigned char *packed, struct error *err)
{
    size_t run = (size_t)count * slab->inner_bytes;

    if (!run || !rows.count)
        return STATUS_OK;
    return memory_copy_rows(device, packed, run, tensor + slab_offset(slab, start, rows), stride_of(slab), run,
                            rows.count, err);
}

void slab_stream(const struct slab *slab, const unsigned char *tensor, uint64_t start, uint64_t count, struct rows rows,
                 unsigned char *packed)
{
    size_t run = (size_t)count * slab->inner_bytes;

    if (run && rows.count)
        stream_runs(packed, tensor + slab_offset(slab, start, rows), stride_of(slab), run, rows.count);
}

enum status slab_unpack(struct memory *device, const struct slab *slab, unsigned char *tensor, uint64_t start,
                        uint64_t count, struct rows rows, const unsigned char *packed, struct error *err)
{
    size_t run = (size_t)count * slab->inner_bytes;

    if (!run || !rows.count)
        return STATUS_OK;
    return memory_copy_rows(device, tensor + slab_offset(slab, start, rows), stride_of(slab), packed, run, run,
                            rows.count, err);
}

struct runs slab_runs(const struct slab *slab, const unsigned char *tensor, uint64_t start, uint64_t count)
{
    size_t run = (size_t)count * slab->inner_bytes;
    struct runs runs = {.bytes = tensor ? tensor + (size_t)start * slab->inner_bytes : NULL,
                        .run = run,
                        .stride = stride_of(slab),
                        .rows = slab->outer};

    if (run != runs.stride && runs.rows != 1)
        return runs;
    runs.run = runs.stride = run * runs.rows;
    runs.rows = 1;
    return runs;
}

void slab_put(const struct slab *slab, unsigned char *tensor, uint64_t start, uint64_t count, const struct runs *runs)
{
    size_t run = (size_t)count * slab->inner_bytes;

    if (run)
        runs_copy(tensor + (size_t)start * slab->inner_bytes, stride_of(slab), runs->bytes,
                  runs->rows == 1 ? run : runs->stride, run, slab->outer);
}

enum status slab_move(struct memory *device, const struct slab *to_slab, unsigned char *to, uint64_t to_start,
                      const struct slab *from_slab, const unsigned char *from, uint64_t from_start, uint64_t count,
                      struct rows rows, struct error *err)
{
    size_t run = (size_t)count * to_slab->inner_bytes;

    if (!run || !rows.count)
        return STATUS_OK;
    return memory_copy_rows(device, to + slab_offset(to_slab, to_start, rows), stride_of(to_slab),
                            from + slab_offset(from_slab, from_start, rows), stride_of(from_slab), run, rows.count,
                            err);
}
