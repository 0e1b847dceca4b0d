/* Messages of middling size between processes of one host: through memory that they share.
 *
 * MPI copies such a message with one call into the kernel (CMA), at a quarter of the speed of a copy between mapped
 * pages.  So every process has a mailbox, shared memory that its peers have mapped: a send copies the message into it
 * and is done, the receiver copies it out, of long messages while the sender still copies.  The message's place in the
 * order of (peer, tag) is held by its envelope, which says where it lies and travels by the post (mpi_post.h), whose
 * rings lie in the same memory.
 *
 * Where a process could not map a peer's mailbox (mpi_host.h), or no room is left in it, the message goes through MPI
 * as it is. */
#ifndef BACKENDS_MPI_MAILBOX_H
#define BACKENDS_MPI_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/mpi/mpi_distance.h"
#include "backends/mpi/mpi_host.h"
#include "backends/mpi/mpi_ring.h"
#include "base/status.h"

/* Less lies in a cell of the post; more than a MiB and its header at once would occupy the sender, while MPI lets the
 * receiver do it all. */
enum { MAILBOX_LEAST_BYTES = RING_CELL_BYTES + 1, MAILBOX_MOST_BYTES = (1 << 20) + 16384 };

struct mailbox; /* this process's own, and those of its peers */

/* A message that lies in one: what its envelope says, byte for byte (both ends are on one host). */
struct mail {
    uint32_t slot;
    uint32_t unit;
    uint64_t number;
    uint64_t bytes;
};

_Static_assert(sizeof(struct mail) == 24, "an envelope has no gaps");

/* For this process of a host, which is borrowed until mailbox_close; rank_count: of its world.  NULL: no memory for its
 * lists, or no other process on the host.  Where this process cannot share memory it has none of its own, and reads
 * those of the others. */
struct mailbox *mailbox_create(const struct host *host, int rank_count);
/* What its peers map, as HOST_MAIL; without one of its own, and where mailbox is NULL, its fd is -1. */
struct shared_file mailbox_file(const struct mailbox *mailbox);
/* Once host_share was called: nobody else opens the file any more.  NULL is allowed. */
void mailbox_open(struct mailbox *mailbox);
void mailbox_close(struct mailbox *mailbox);

/* The ring to (from) this world rank, lent until the mailbox is closed.  NULL: it does not read this mailbox, or this
 * process not its; there is none. */
struct ring *mailbox_ring_to(const struct mailbox *mailbox, int peer);
struct ring *mailbox_ring_from(const struct mailbox *mailbox, int peer);

/* Room for a message of so many bytes to peer, of which none is written; *ret is its envelope, which is to be sent
 * there.  False: no room. */
bool mailbox_reserve(struct mailbox *mailbox, int peer, size_t count, struct mail *ret);
/* What the messages to and from peer have told by now, and go on telling; lent until mailbox_close. */
struct distance *mailbox_distance(const struct mailbox *mailbox, int peer);
/* Write at most so many of its bytes behind those that are done; returns how many are done then.  most is a multiple of
 * 16, or at least what is left. */
size_t mailbox_write(struct mailbox *mailbox, const struct mail *mail, const void *bytes, size_t done, size_t most);
/* Where the message is to lie, for whoever writes it there himself; then all of it is written. */
unsigned char *mailbox_room(const struct mailbox *mailbox, const struct mail *mail);
void mailbox_wrote(struct mailbox *mailbox, const struct mail *mail);
/* Are these bytes such a room, whose envelope was not sent?  *ret: the envelope, for the first count of them. */
bool mailbox_is_room(const struct mailbox *mailbox, const void *bytes, size_t count, struct mail *ret);

/* This envelope of (peer, tag) has come: its message is lent until it is returned.  mail is to lie where no peer can
 * write.  STATUS_CORRUPT: there is no such message. */
enum status mailbox_match(struct mailbox *mailbox, int peer, uint32_t tag, const struct mail *mail, struct error *err);

/* Of a matched message: is every byte written? */
bool mailbox_whole(const struct mailbox *mailbox, int peer, const struct mail *mail);
/* Read what is written by now behind the bytes that are done; returns how many are done then. */
size_t mailbox_read(const struct mailbox *mailbox, int peer, const struct mail *mail, void *to, size_t done);

/* This message, which has no room, lends its receiver so many lines; not sent yet.  How quickly he reads them is taken
 * to heart once, when the message is seen to be returned. */
void mailbox_lends(struct mailbox *mailbox, const struct mail *mail, uint64_t lines);
/* Has the receiver of this message, which has no room, returned it? */
bool mailbox_is_returned(struct mailbox *mailbox, const struct mail *mail);

/* Where a matched message lies, until it is returned: then its room is its sender's again.  read_ns: what reading took
 * that was lent by it, 0: nothing is told. */
unsigned char *mailbox_bytes(const struct mailbox *mailbox, int peer, const struct mail *mail);
void mailbox_return(struct mailbox *mailbox, int peer, const struct mail *mail, uint64_t read_ns);

#endif
