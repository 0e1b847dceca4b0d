/* Messages that have come and are not yet received.  Their records belong to a pool: one that is lost, because its
 * holder was let go after a failure, is freed with it. */
#ifndef BACKENDS_MPI_MESSAGE_H
#define BACKENDS_MPI_MESSAGE_H

#include <mpi.h>
#include <stdbool.h>

#include "backends/mpi/mpi_lending.h"
#include "backends/mpi/mpi_mailbox.h"

/* Up to this size messages that MPI brings are received by the probe that finds them. */
enum { SHORT_BYTES = 512 };

/* Where it lies: here, in bytes; in its sender's mailbox, where mail says; with MPI; its
 * header here, and its payload in memory that its sender shares, where lent says.  The kinds of mpi_post.c, too. */
enum message_kind { MESSAGE_SHORT = 1, MESSAGE_MAIL, MESSAGE_PASSED, MESSAGE_LENT };

struct message {
    MPI_Message handle;
    MPI_Request request; /* of a short one that MPI brings; MPI_REQUEST_NULL: it has come */
    uint32_t kind;
    uint32_t tag; /* of one that is kept */
    struct mail mail;
    struct lent lent;
    size_t header_bytes; /* of a lent one */
    int peer;
    int count;            /* of bytes */
    struct message *next; /* of those that are free, or kept */
    struct message *older;
    unsigned char bytes[RING_CELL_BYTES];
};

struct message_pool {
    struct message *free;
    struct message *newest; /* of all */
};

/* Zeros but for bytes and what MPI calls null; lent until message_give, or message_pool_done.  NULL: no memory. */
struct message *message_take(struct message_pool *pool);
void message_give(struct message_pool *pool, struct message *message);

/* Frees every record, those that were not given back, too, but for those into which MPI may still write. */
void message_pool_done(struct message_pool *pool);

#endif
