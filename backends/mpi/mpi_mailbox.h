/* Messages of middling size between processes of one host: through memory that they share.
 *
 * MPI copies such a message with one call into the kernel (CMA), at a quarter of the speed of a copy between mapped
 * pages.  So every process has a mailbox, shared memory that its peers have mapped: a send copies the message into it
 * and is done, the receiver copies it out.  The message's place in the order of (peer, tag) is held by an empty MPI
 * message, its envelope.
 *
 * Where a process cannot map a peer's mailbox, or no room is left in it, the message goes through MPI as it is. */
#ifndef BACKENDS_MPI_MAILBOX_H
#define BACKENDS_MPI_MAILBOX_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* MPI sends less at once by itself; more at once would occupy the sender, while MPI lets the receiver do it all. */
enum { MAILBOX_LEAST_BYTES = 3072, MAILBOX_MOST_BYTES = 1 << 20 };

struct mailbox;      /* this process's own, and those of its peers */
struct mailbox_slot; /* a message that lies in one */

/* Collective over comm, blocks.  NULL: no process shares one with this one. */
struct mailbox *mailbox_open(MPI_Comm comm);
void mailbox_close(struct mailbox *mailbox);

/* Are empty messages to (from) this world rank envelopes?  NULL: no. */
bool mailbox_reaches(const struct mailbox *mailbox, int peer);
bool mailbox_hears(const struct mailbox *mailbox, int peer);

/* Copy a message for (peer, tag) in; then send its envelope.  False: no room. */
bool mailbox_put(struct mailbox *mailbox, int peer, uint32_t tag, const void *bytes, size_t count);

/* An envelope of (peer, tag) has come: the oldest message that belongs to it (lent until returned), and its size.
 * STATUS_CORRUPT: there is none. */
enum status mailbox_match(struct mailbox *mailbox, int peer, uint32_t tag, struct mailbox_slot **ret, size_t *ret_bytes,
                          struct error *err);

/* Where a matched message lies, until it is returned: then its room is its sender's again. */
unsigned char *mailbox_bytes(const struct mailbox *mailbox, int peer, const struct mailbox_slot *slot);
void mailbox_return(struct mailbox_slot *slot);

#endif
