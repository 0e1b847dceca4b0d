/* The post between processes of one host: a ring of cells for each ordered pair of them, in the memory that they share
 * (mpi_mailbox.h).
 *
 * Every message of such a pair is announced there, in the order sent: a short one lies in its cell whole; of a middling
 * one the cell says where it lies in its sender's mailbox; of a lent one (mpi_lending.h) it carries the header and says
 * where the payload lies; of what MPI carries it says so.  Messages that nobody has
 * asked for yet are taken out of the ring and kept, so that one of another tag in front holds nobody up. */
#ifndef BACKENDS_MPI_POST_H
#define BACKENDS_MPI_POST_H

#include "backends/mpi/mpi_message.h"
#include "backends/mpi/mpi_ring.h"

struct post;

/* Of one peer; more of them are kept only where one behind them is asked for. */
enum { POST_KEPT = 4096 };

/* For a world of size ranks.  NULL: no memory. */
struct post *post_create(int size);
/* Open its rings in the mailbox's memory (borrowed until destroyed; NULL: there are none).  max_tag, max_bytes: of any
 * message. */
void post_open(struct post *post, const struct mailbox *mailbox, uint32_t max_tag, size_t max_bytes);
/* The messages that are still kept are their pool's. */
void post_destroy(struct post *post);

/* Are messages to (from) this world rank announced here?  NULL: no. */
bool post_reaches(const struct post *post, int peer);
bool post_hears(const struct post *post, int peer);

/* *ret: is there room for one more message to peer?  STATUS_CORRUPT: peer has damaged the ring. */
enum status post_has_room(struct post *post, int peer, bool *ret, struct error *err);
/* Announce a message, for which there is room.  short: count bytes, at most RING_CELL_BYTES (copied).  lent:
 * header_bytes, at most LENDING_HEADER_BYTES, in front of what lies there (copied).  passed: its count bytes are MPI's
 * already. */
void post_put_short(struct post *post, int peer, uint32_t tag, const void *bytes, size_t count);
void post_put_mail(struct post *post, int peer, uint32_t tag, const struct mail *mail);
void post_put_lent(struct post *post, int peer, uint32_t tag, const struct lent *lent, const void *header,
                   size_t header_bytes);
void post_put_passed(struct post *post, int peer, uint32_t tag, size_t count);

/* Find the next message of (peer, tag): lent until it is removed, with what its cell said; *ret NULL: none has come.
 * Records come from pool.  STATUS_CORRUPT: what peer announces cannot be; STATUS_NOMEM. */
enum status post_find(struct post *post, struct message_pool *pool, int peer, uint32_t tag, struct message **ret,
                      struct error *err);
/* Take in what has come from any peer and nobody has asked for, up to POST_KEPT messages of each, so that it has room
 * for more.  What cannot be is left to whoever asks that peer. */
void post_take_in(struct post *post, struct message_pool *pool);
/* It is the caller's now. */
void post_remove(struct post *post, struct message *message);

#endif
