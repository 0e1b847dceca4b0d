/* One list of the free, one of all.  There are as many as were ever matched at a time. */
#include "backends/mpi/mpi_message.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct message *message_take(struct message_pool *pool)
{
    struct message *message = pool->free;
    struct message *older = NULL;

    if (message) {
        pool->free = message->next;
        older = message->older;
    } else {
        message = malloc(sizeof *message);
        if (!message)
            return NULL;
        older = pool->newest;
        pool->newest = message;
    }
    memset(message, 0, offsetof(struct message, bytes));
    message->handle = MPI_MESSAGE_NULL;
    message->request = MPI_REQUEST_NULL;
    message->older = older;
    return message;
}

void message_give(struct message_pool *pool, struct message *message)
{
    if (message->request != MPI_REQUEST_NULL)
        return;
    message->next = pool->free;
    pool->free = message;
}

void message_pool_done(struct message_pool *pool)
{
    while (pool->newest) {
        struct message *message = pool->newest;

        pool->newest = message->older;
        if (message->request == MPI_REQUEST_NULL)
            free(message);
    }
    pool->free = NULL;
}
