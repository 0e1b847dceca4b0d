/* Sends, and those among them that wait.
 *
 * A message of an envelope's size has to go through the mailbox: elsewhere it would be taken for an envelope.  While
 * there is no room it waits here, and what follows with its tag to its peer waits behind it. */
#ifndef BACKENDS_MPI_OUTBOX_H
#define BACKENDS_MPI_OUTBOX_H

#include "backends/mpi/mpi_private.h"

/* Post work's message (peer, tag, bytes, count; bytes borrowed until the work is done), or let it wait.  Does not
 * block.  The statuses of MPI's codes: nothing is under way. */
enum status outbox_send(struct transport *transport, struct work *work, struct error *err);
/* Post what waits and has room now.  The statuses of MPI's codes: of the first that waits, which goes on waiting. */
enum status outbox_flush(struct transport *transport, struct error *err);

#endif
