/* A ring of cells in shared memory, from one writer to one reader.
 *
 * Each end keeps its own place in memory of its own; in the shared memory a cell's sequence number says that it is
 * whole, and one counter how many the reader has taken.  Both are checked against what they can be: the other end is a
 * process that can write whatever it likes there, and stop or die at any point.  Nothing here waits, and nothing
 * allocates. */
#ifndef BACKENDS_MPI_RING_H
#define BACKENDS_MPI_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    RING_CELLS = 32,
    RING_CELL_BYTES = 1320, /* that a cell carries: a frame's header and a KiB, in whole cache lines */
    RING_ALIGN = 64
};

struct ring; /* zeros at first, aligned to RING_ALIGN */

/* What a cell says of its bytes.  tag and kind are for the two ends to understand. */
struct ring_label {
    uint32_t tag;
    uint32_t kind;
    uint64_t byte_count;
};

struct ring_writer {
    struct ring *ring; /* borrowed; NULL: there is none */
    uint64_t next;     /* cells put */
    uint64_t taken;    /* of them, when it was looked at last */
};

struct ring_reader {
    struct ring *ring; /* borrowed; NULL: there is none */
    uint64_t next;     /* cells taken */
};

size_t ring_bytes(void);
/* The at-th of some rings that lie side by side. */
struct ring *ring_at(void *rings, size_t at);

/* *ret: is there an empty cell?  STATUS_CORRUPT: the reader says that it has taken what it cannot have. */
enum status ring_has_room(struct ring_writer *writer, bool *ret, struct error *err);
/* Fill the next cell, which is empty, with the label and its bytes [at most RING_CELL_BYTES], and publish it. */
void ring_put(struct ring_writer *writer, const struct ring_label *label, const void *bytes);

/* *ret: has the next cell come?  STATUS_CORRUPT: its number is neither the next one nor the one before it. */
enum status ring_has_come(const struct ring_reader *reader, bool *ret, struct error *err);
/* Copy the next cell, which has come, to bytes [RING_CELL_BYTES].  STATUS_CORRUPT: it says that it carries more than a
 * cell can. */
enum status ring_read(const struct ring_reader *reader, struct ring_label *ret, void *bytes, struct error *err);
/* Empty the next cell, which was read. */
void ring_next(struct ring_reader *reader);

#endif
