/* Offsets and strided copies: contiguous where the axis is the outermost, else one run per outer index. */
#include "comm/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

enum status layout_init(struct layout *layout, const uint64_t *counts, int size, struct error *err)
{
    layout->size = size;
    layout->start = calloc((size_t)size + 1, sizeof *layout->start);
    if (!layout->start)
        return error_set(err, STATUS_NOMEM, "offsets of %d members", size);
    for (int i = 0; i < size; i++) {
        if (size_add(layout->start[i], counts[i], &layout->start[i + 1]) != STATUS_OK) {
            layout_done(layout);
            return error_set(err, STATUS_OVERFLOW, "counts of the first %d members, the last %" PRIu64, i + 1,
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

void slab_pack(const struct slab *slab, const unsigned char *tensor, uint64_t start, uint64_t count,
               unsigned char *packed)
{
    size_t run = (size_t)count * slab->inner_bytes;
    size_t stride = slab->extent * slab->inner_bytes;

    if (!run)
        return;
    for (size_t i = 0; i < slab->outer; i++)
        memcpy(packed + i * run, tensor + i * stride + (size_t)start * slab->inner_bytes, run);
}

void slab_unpack(const struct slab *slab, unsigned char *tensor, uint64_t start, uint64_t count,
                 const unsigned char *packed)
{
    size_t run = (size_t)count * slab->inner_bytes;
    size_t stride = slab->extent * slab->inner_bytes;

    if (!run)
        return;
    for (size_t i = 0; i < slab->outer; i++)
        memcpy(tensor + i * stride + (size_t)start * slab->inner_bytes, packed + i * run, run);
}
