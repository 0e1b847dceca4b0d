/* Sends, and those among them that wait.
 *
 * To a process of this host every message is announced by the post, in order.  While there is no cell for it a message
 * waits here, and what follows to its peer waits behind it. */
#ifndef BACKENDS_MPI_OUTBOX_H
#define BACKENDS_MPI_OUTBOX_H

#include "backends/mpi/mpi_private.h"

/* Is this short message on its way, and are its bytes free?  Then there is nothing more to do for it.  False: it is to
 * be sent as any other.  STATUS_CORRUPT: peer has damaged its ring. */
enum status outbox_send_short(struct transport *transport, int peer, uint32_t tag, const void *bytes, size_t count,
                              bool *ret, struct error *err);
/* Post work's message (peer, tag, bytes, count; bytes borrowed until the work is done), or let it wait.  Does not
 * block.  STATUS_CORRUPT: the same.  The statuses of MPI's codes.  Then nothing is under way. */
enum status outbox_send(struct transport *transport, struct work *work, struct error *err);
/* It can be lent.  Is it quicker for this peer to read what lies here than what was copied to its mailbox?  Asked once
 * for each message. */
bool outbox_lends_to(const struct transport *transport, int peer);
/* Work is to be a message that is lent (lent: where it lies), and is not sent yet.  False: there is no slot now by
 * which its end could be known.  It must not wait for one: what holds them may wait for this very message. */
bool outbox_lend(struct transport *transport, struct work *work, const struct lent *lent);
/* Post what waits and has room now.  The same statuses: of the first of those that fail, which goes on waiting. */
enum status outbox_flush(struct transport *transport, struct error *err);

#endif
