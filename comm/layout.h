/* Where each member's part of a tensor lies along one axis: offsets and strided copies.
 *
 * Even and uneven gathers and the all-to-all share it. */
#ifndef COMM_LAYOUT_H
#define COMM_LAYOUT_H

#include "base/tensor.h"

/* Offsets along an axis: start[0] = 0, start[size] = the total. */
struct layout {
    int size;
    uint64_t *start; /* [size + 1] */
};

/* layout is zero, or was initialised before: then its memory is used again where the size is the same.
 * STATUS_OVERFLOW when the counts' sum overflows, STATUS_NOMEM; layout is done then. */
enum status layout_init(struct layout *layout, const uint64_t *counts, int size, struct error *err);
void layout_done(struct layout *layout);

static inline uint64_t layout_count(const struct layout *layout, int member)
{
    return layout->start[member + 1] - layout->start[member];
}

static inline uint64_t layout_total(const struct layout *layout)
{
    return layout->start[layout->size];
}

/* A tensor seen along one axis: outer x extent x inner bytes. */
struct slab {
    size_t outer;
    size_t extent;
    size_t inner_bytes;
};

/* STATUS_INVALID: no such axis; STATUS_OVERFLOW. */
enum status slab_of(const struct shape *shape, enum dtype dtype, int axis, struct slab *ret, struct error *err);

/* Bytes of count extents. */
static inline size_t slab_bytes(const struct slab *slab, uint64_t count)
{
    return slab->outer * (size_t)count * slab->inner_bytes;
}

/* Runs next to each other in the outer direction. */
struct rows {
    size_t first;
    size_t count;
};

static inline struct rows slab_rows(const struct slab *slab)
{
    return (struct rows){0, slab->outer};
}

/* What fills a piece of about piece_bytes: whole rows of count extents, at least one. */
struct rows slab_piece(const struct slab *slab, uint64_t count, size_t piece_bytes, int piece);
/* How many pieces there are, at least one.  STATUS_OVERFLOW: more than an int holds. */
enum status slab_pieces(const struct slab *slab, uint64_t count, size_t piece_bytes, int *ret, struct error *err);

/* Copy count extents of these rows from start on out of (into) the tensor, from (to) contiguous memory; both lie in
 * device, and the copy is queued there; NULL: on the host, and it has happened.  Nothing is touched for zero bytes, so
 * that pointers may then be NULL.  The statuses of the memory's copies; on the host only STATUS_OK. */
enum status slab_pack(struct memory *device, const struct slab *slab, const unsigned char *tensor, uint64_t start,
                      uint64_t count, struct rows rows, unsigned char *packed, struct error *err);
/* slab_pack on the host, into memory that another core reads next, aligned to 16 bytes. */
void slab_stream(const struct slab *slab, const unsigned char *tensor, uint64_t start, uint64_t count, struct rows rows,
                 unsigned char *packed);
enum status slab_unpack(struct memory *device, const struct slab *slab, unsigned char *tensor, uint64_t start,
                        uint64_t count, struct rows rows, const unsigned char *packed, struct error *err);
/* The same from one tensor into another, whose slabs differ in their extents alone. */
enum status slab_move(struct memory *device, const struct slab *to_slab, unsigned char *to, uint64_t to_start,
                      const struct slab *from_slab, const unsigned char *from, uint64_t from_start, uint64_t count,
                      struct rows rows, struct error *err);

/* Where count extents of all rows from start on lie: one run where they lie together. */
struct runs slab_runs(const struct slab *slab, const unsigned char *tensor, uint64_t start, uint64_t count);
/* The same copied into the tensor, from runs of as many bytes, or from one; on the host. */
void slab_put(const struct slab *slab, unsigned char *tensor, uint64_t start, uint64_t count, const struct runs *runs);

/* Where the part from start on begins in the first of the rows, in bytes from the tensor's first. */
static inline size_t slab_offset(const struct slab *slab, uint64_t start, struct rows rows)
{
    return (rows.first * slab->extent + (size_t)start) * slab->inner_bytes;
}

/* The same in the tensor's memory; NULL where it has none, as one of zero bytes may. */
static inline unsigned char *slab_at(const struct slab *slab, unsigned char *tensor, uint64_t start, struct rows rows)
{
    return tensor ? tensor + slab_offset(slab, start, rows) : NULL;
}

#endif
