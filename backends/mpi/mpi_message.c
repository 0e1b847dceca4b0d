/* One list of the free, one of all.  There are as many as were ever matched at a time. */
#include "backends/mpi/mpi_message.h"

#include <stdlib.h>

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
    *message = (struct message){.handle = MPI_MESSAGE_NULL, .older = older};
    return message;
}

void message_give(struct message_pool *pool, struct message *message)
{
    message->next = pool->free;
    pool->free = message;
}

void message_pool_done(struct message_pool *pool)
{
    while (pool->newest) {
        struct message *message = pool->newest;

        pool->newest = message->older;
        free(message);
    }
    pool->free = NULL;
}
