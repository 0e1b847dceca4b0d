/* A cell is whole when it bears the number of its place in the endless row of all cells, counted from one: the one
 * store that publishes it comes after all the others.  Before that it bears the number that it had a round ago, or
 * none.
 *
 * Cost: those lines of a cell that a message fills travel once, from the writer's cache to the reader's.  The counter
 * of what was taken lies in a line of its own, which the writer looks at once a round. */
#include "backends/mpi/mpi_ring.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

struct cell {
    _Alignas(RING_ALIGN) _Atomic uint64_t number;
    struct ring_label label;
    unsigned char bytes[RING_CELL_BYTES];
};

_Static_assert(sizeof(struct cell) % RING_ALIGN == 0 && sizeof(struct cell) < RING_CELL_BYTES + RING_ALIGN,
               "no line is carried for nothing");

struct ring {
    _Alignas(RING_ALIGN) _Atomic uint64_t taken;
    struct cell cells[RING_CELLS];
};

size_t ring_bytes(void)
{
    return sizeof(struct ring);
}

struct ring *ring_at(void *rings, size_t at)
{
    return (struct ring *)rings + at;
}

enum status ring_has_room(struct ring_writer *writer, bool *ret, struct error *err)
{
    uint64_t taken;

    *ret = writer->next - writer->taken < RING_CELLS;
    if (*ret)
        return STATUS_OK;
    taken = atomic_load_explicit(&writer->ring->taken, memory_order_acquire);
    if (taken < writer->taken || taken > writer->next)
        return error_set(err, STATUS_CORRUPT,
                         "%" PRIu64 " messages are said to be taken, expected %" PRIu64 " to %" PRIu64, taken,
                         writer->taken, writer->next);
    writer->taken = taken;
    *ret = writer->next - taken < RING_CELLS;
    return STATUS_OK;
}

void ring_put(struct ring_writer *writer, const struct ring_label *label, const void *bytes)
{
    struct cell *cell = &writer->ring->cells[writer->next % RING_CELLS];

    cell->label = *label;
    if (label->byte_count)
        memcpy(cell->bytes, bytes, label->byte_count);
    atomic_store_explicit(&cell->number, ++writer->next, memory_order_release);
}

enum status ring_has_come(const struct ring_reader *reader, bool *ret, struct error *err)
{
    uint64_t next = reader->next + 1;
    uint64_t before = next > RING_CELLS ? next - RING_CELLS : 0;
    uint64_t number =
        atomic_load_explicit(&reader->ring->cells[reader->next % RING_CELLS].number, memory_order_acquire);

    *ret = number == next;
    if (*ret || number == before)
        return STATUS_OK;
    return error_set(err, STATUS_CORRUPT, "message %" PRIu64 " bears the number %" PRIu64, next, number);
}

enum status ring_read(const struct ring_reader *reader, struct ring_label *ret, void *bytes, struct error *err)
{
    const struct cell *cell = &reader->ring->cells[reader->next % RING_CELLS];

    memcpy(ret, &cell->label, sizeof *ret);
    if (ret->byte_count > RING_CELL_BYTES)
        return error_set(err, STATUS_CORRUPT,
                         "message %" PRIu64 " is said to carry %" PRIu64 " bytes, at most %d can be", reader->next + 1,
                         ret->byte_count, RING_CELL_BYTES);
    memcpy(bytes, cell->bytes, ret->byte_count);
    return STATUS_OK;
}

void ring_next(struct ring_reader *reader)
{
    atomic_store_explicit(&reader->ring->taken, ++reader->next, memory_order_release);
}
