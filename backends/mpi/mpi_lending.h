/* Payloads that stay where they are: in memory that the sender shares with its host (base/memory_shared.h).
 *
 * The receiver has mapped that memory for reading (mpi_host.h).  A lent message is one cell of the post, with its
 * header and where the payload lies (struct lent); a slot of the mailbox, without room, is emptied when the receiver
 * has read, and only then is the send over.  So every byte is copied once, by the receiver, to where it belongs. */
#ifndef BACKENDS_MPI_LENDING_H
#define BACKENDS_MPI_LENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/mpi/mpi_host.h"
#include "backends/mpi/mpi_ring.h"
#include "base/runs.h"
#include "base/status.h"

struct memory;

/* This process's memory, and those of its peers.  Both are borrowed, and either may be NULL. */
struct lending {
    const struct memory *memory; /* shared with the host as HOST_TENSORS */
    const struct host *host;
};

/* Where the payload lies in the sender's file, rows runs, a stride apart; and the mailbox's slot, by whose state the
 * sender knows that it was read. */
struct lent {
    uint64_t offset;
    uint64_t stride;
    uint64_t number;
    uint32_t slot;
    uint32_t run;
    uint32_t rows;
    uint32_t unused;
};

enum { LENDING_HEADER_BYTES = RING_CELL_BYTES - (int)sizeof(struct lent) };

/* Can peer read these runs where they lie?  *ret: where, but for the slot. */
bool lending_reaches(const struct lending *lending, int peer, const struct runs *runs, struct lent *ret);

/* May what peer says be read?  STATUS_CORRUPT: it has no such memory. */
enum status lending_check(const struct lending *lending, int peer, const struct lent *lent, struct error *err);

/* How many lines of memory reading it touches, about (distance_read). */
uint64_t lending_lines(const struct lent *lent);

/* What was checked, until it is returned. */
struct runs lending_runs(const struct lending *lending, int peer, const struct lent *lent);

#endif
