/* Matched messages that are not yet received.  Their records belong to a pool: one that is lost, because its holder was
 * let go after a failure, is freed with it. */
#ifndef BACKENDS_MPI_MESSAGE_H
#define BACKENDS_MPI_MESSAGE_H

#include <mpi.h>
#include <stdbool.h>

#include "backends/mpi/mpi_mailbox.h"

struct message {
    MPI_Message handle;
    bool mailed; /* it lies where mail says */
    struct mail mail;
    int peer;
    struct message *next; /* of those that are free */
    struct message *older;
};

struct message_pool {
    struct message *free;
    struct message *newest; /* of all */
};

/* Zeros but for the handle, MPI_MESSAGE_NULL; lent until message_give, or message_pool_done.  NULL: no memory. */
struct message *message_take(struct message_pool *pool);
void message_give(struct message_pool *pool, struct message *message);

/* Frees every record, those that were not given back, too. */
void message_pool_done(struct message_pool *pool);

#endif
