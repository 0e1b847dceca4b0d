/* One lock for the world; each rank has a queue of messages for it and a queue of control messages.
 *
 * A message up to eager_bytes is copied when it is sent.  A larger one points at the sender's memory until the receiver
 * has copied it, so that a sender waits as long as it would over a real transport. */
#include "backends/loopback/loopback.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MAX_TAG = 32767 };

struct message {
    struct message *next;
    int from;
    uint32_t tag;
    size_t bytes;
    const unsigned char *data; /* own copy behind this struct, or the sender's memory */
    struct work *work;         /* the sender's, while it waits; NULL when copied */
    void *kept;                /* a copy made when a matched message's sender took its memory back */
    bool matched;
};

struct work {
    bool over;
    struct message *message; /* of a large send: still in the receiver's queue */
    int to;
};

struct control_message {
    struct control_message *next;
    int from;
    unsigned char bytes[CONTROL_BYTES];
};

struct inbox {
    struct message *first;
    struct message **end;
    struct control_message *control_first;
    struct control_message **control_end;
    bool joined;
    bool closed;
};

struct loopback_world {
    pthread_mutex_t lock;
    int size;
    int holders;
    struct loopback_options options;
    char text[48];
    struct inbox inboxes[];
};

struct transport {
    struct loopback_world *world;
    int rank;
};

static void lock(struct loopback_world *world)
{
    (void)pthread_mutex_lock(&world->lock);
}

static void unlock(struct loopback_world *world)
{
    (void)pthread_mutex_unlock(&world->lock);
}

enum status loopback_world_create(int size, const struct loopback_options *options, struct loopback_world **ret,
                                  struct error *err)
{
    struct loopback_world *world = calloc(1, sizeof *world + (size_t)size * sizeof world->inboxes[0]);

    if (!world || pthread_mutex_init(&world->lock, NULL)) {
        free(world);
        return error_set(err, STATUS_NOMEM, "a loopback world of %d ranks", size);
    }
    world->size = size;
    world->holders = 1;
    if (options)
        world->options = *options;
    if (!world->options.max_message)
        world->options.max_message = SIZE_MAX;
    if (!world->options.max_tag)
        world->options.max_tag = DEFAULT_MAX_TAG;
    (void)snprintf(world->text, sizeof world->text, "loopback, %d threads", size);
    for (int i = 0; i < size; i++) {
        world->inboxes[i].end = &world->inboxes[i].first;
        world->inboxes[i].control_end = &world->inboxes[i].control_first;
    }
    *ret = world;
    return STATUS_OK;
}

static void free_message(struct message *message)
{
    if (message)
        free(message->kept);
    free(message);
}

static void drop_inbox(struct inbox *inbox)
{
    while (inbox->first) {
        struct message *message = inbox->first;

        inbox->first = message->next;
        if (message->work) {
            message->work->over = true;
            message->work->message = NULL;
        }
        free_message(message);
    }
    inbox->end = &inbox->first;
    while (inbox->control_first) {
        struct control_message *message = inbox->control_first;

        inbox->control_first = message->next;
        free(message);
    }
    inbox->control_end = &inbox->control_first;
}

void loopback_world_destroy(struct loopback_world *world)
{
    int holders;

    if (!world)
        return;
    lock(world);
    holders = --world->holders;
    unlock(world);
    if (holders)
        return;
    for (int i = 0; i < world->size; i++)
        drop_inbox(&world->inboxes[i]);
    (void)pthread_mutex_destroy(&world->lock);
    free(world);
}

enum status loopback_join(struct loopback_world *world, int rank, struct transport **ret, struct error *err)
{
    struct transport *transport = NULL;
    bool joined = true;

    if (rank < 0 || rank >= world->size)
        return error_set(err, STATUS_INVALID, "rank %d of %d", rank, world->size);
    transport = calloc(1, sizeof *transport);
    if (!transport)
        return error_set(err, STATUS_NOMEM, "rank %d", rank);
    transport->world = world;
    transport->rank = rank;
    lock(world);
    joined = world->inboxes[rank].joined;
    world->inboxes[rank].joined = true;
    if (!joined)
        world->holders++;
    unlock(world);
    if (joined) {
        free(transport);
        return error_set(err, STATUS_INVALID, "rank %d has joined before", rank);
    }
    *ret = transport;
    return STATUS_OK;
}

static enum status loopback_open(const struct transport_options *options, struct transport **ret, struct error *err)
{
    struct loopback_world *world = NULL;
    enum status st = loopback_world_create(1, NULL, &world, err);

    (void)options;
    if (st == STATUS_OK)
        st = loopback_join(world, 0, ret, err);
    loopback_world_destroy(world);
    return st;
}

static int loopback_rank(const struct transport *transport)
{
    return transport->rank;
}

static int loopback_size(const struct transport *transport)
{
    return transport->world->size;
}

static uint32_t loopback_max_tag(const struct transport *transport)
{
    return transport->world->options.max_tag;
}

static size_t loopback_max_message(const struct transport *transport)
{
    return transport->world->options.max_message;
}

static enum status loopback_send(struct transport *transport, int peer, uint32_t tag, const void *bytes, size_t count,
                                 struct work **ret, struct error *err)
{
    struct loopback_world *world = transport->world;
    bool eager = count <= world->options.eager_bytes;
    struct message *message = malloc(sizeof *message + (eager ? count : 0));
    struct work *work = calloc(1, sizeof *work);
    struct inbox *inbox = &world->inboxes[peer];

    if (!message || !work) {
        free(message);
        free(work);
        return error_set(err, STATUS_NOMEM, "a message of %zu bytes", count);
    }
    *message = (struct message){.from = transport->rank, .tag = tag, .bytes = count, .data = bytes};
    if (eager) {
        memcpy(message + 1, bytes, count);
        message->data = (const unsigned char *)(message + 1);
    }
    work->to = peer;
    lock(world);
    if (inbox->closed) {
        /* A rank that has left receives nothing; the bytes are as good as gone. */
        free(message);
        work->over = true;
    } else {
        if (!eager) {
            message->work = work;
            work->message = message;
        }
        work->over = eager;
        *inbox->end = message;
        inbox->end = &message->next;
    }
    unlock(world);
    *ret = work;
    return STATUS_OK;
}

static enum status loopback_probe(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                                  size_t *ret_bytes, struct error *err)
{
    struct loopback_world *world = transport->world;
    struct message *message = NULL;

    (void)err;
    lock(world);
    for (message = world->inboxes[transport->rank].first; message; message = message->next) {
        if (message->from == peer && message->tag == tag && !message->matched)
            break;
    }
    if (message) {
        message->matched = true;
        *ret_bytes = message->bytes;
    }
    unlock(world);
    *ret = message;
    return STATUS_OK;
}

static void unlink_message(struct inbox *inbox, struct message *message)
{
    struct message **link = &inbox->first;

    while (*link != message)
        link = &(*link)->next;
    *link = message->next;
    if (inbox->end == &message->next)
        inbox->end = link;
}

static enum status loopback_receive(struct transport *transport, struct message *message, void *bytes, size_t count,
                                    struct work **ret, struct error *err)
{
    struct loopback_world *world = transport->world;
    struct work *work = calloc(1, sizeof *work);

    if (!work)
        return error_set(err, STATUS_NOMEM, "a receipt of %zu bytes", count);
    CHECK(count == message->bytes);
    lock(world);
    if (message->data)
        memcpy(bytes, message->data, count);
    else
        memset(bytes, 0, count);
    if (message->work) {
        message->work->over = true;
        message->work->message = NULL;
    }
    unlink_message(&world->inboxes[transport->rank], message);
    unlock(world);
    free_message(message);
    work->over = true;
    *ret = work;
    return STATUS_OK;
}

static enum status loopback_test(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    (void)err;
    lock(transport->world);
    *ret = work->over;
    unlock(transport->world);
    if (*ret)
        free(work);
    return STATUS_OK;
}

/* The sender takes its memory back.  What the receiver has matched already stays, as a copy (zeros without memory:
 * that session has failed anyway). */
static void withdraw(struct inbox *inbox, struct message *message)
{
    if (!message->matched) {
        unlink_message(inbox, message);
        free_message(message);
        return;
    }
    message->kept = malloc(message->bytes);
    if (message->kept)
        memcpy(message->kept, message->data, message->bytes);
    message->data = message->kept;
    message->work = NULL;
}

static bool loopback_cancel(struct transport *transport, struct work *work)
{
    struct loopback_world *world = transport->world;

    lock(world);
    if (work->message)
        withdraw(&world->inboxes[work->to], work->message);
    unlock(world);
    free(work);
    return true;
}

/* Messages that this rank still holds for others are taken back. */
static void loopback_close(struct transport *transport, bool clean)
{
    struct loopback_world *world = transport->world;

    (void)clean;
    lock(world);
    world->inboxes[transport->rank].closed = true;
    drop_inbox(&world->inboxes[transport->rank]);
    for (int i = 0; i < world->size; i++) {
        struct message *next = NULL;

        for (struct message *message = world->inboxes[i].first; message; message = next) {
            next = message->next;
            if (message->from != transport->rank || !message->work)
                continue;
            free(message->work);
            withdraw(&world->inboxes[i], message);
        }
    }
    unlock(world);
    loopback_world_destroy(world);
    free(transport);
}

static enum status loopback_control_send(struct transport *transport, int peer, const void *bytes, struct error *err)
{
    struct loopback_world *world = transport->world;
    struct control_message *message = malloc(sizeof *message);
    struct inbox *inbox = &world->inboxes[peer];

    if (!message)
        return error_set(err, STATUS_NOMEM, "a control message");
    message->next = NULL;
    message->from = transport->rank;
    memcpy(message->bytes, bytes, CONTROL_BYTES);
    lock(world);
    if (!inbox->closed) {
        *inbox->control_end = message;
        inbox->control_end = &message->next;
        message = NULL;
    }
    unlock(world);
    free(message);
    return STATUS_OK;
}

static enum status loopback_control_receive(struct transport *transport, int *ret_peer, void *bytes, bool *ret,
                                            struct error *err)
{
    struct loopback_world *world = transport->world;
    struct inbox *inbox = &world->inboxes[transport->rank];
    struct control_message *message = NULL;

    (void)err;
    lock(world);
    message = inbox->control_first;
    if (message) {
        inbox->control_first = message->next;
        if (!inbox->control_first)
            inbox->control_end = &inbox->control_first;
    }
    unlock(world);
    *ret = message != NULL;
    if (!message)
        return STATUS_OK;
    *ret_peer = message->from;
    memcpy(bytes, message->bytes, CONTROL_BYTES);
    free(message);
    return STATUS_OK;
}

static const char *loopback_describe(const struct transport *transport)
{
    return transport->world->text;
}

#define LOOPBACK_SLOTS                                                                                                 \
    .name = "loopback", .open = loopback_open, .close = loopback_close, .rank = loopback_rank, .size = loopback_size,  \
    .max_tag = loopback_max_tag, .max_message = loopback_max_message, .send = loopback_send, .probe = loopback_probe,  \
    .receive = loopback_receive, .test = loopback_test, .control_send = loopback_control_send,                         \
    .control_receive = loopback_control_receive, .describe = loopback_describe

const struct transport_ops loopback_ops = {LOOPBACK_SLOTS, .teardown = TEARDOWN_NATIVE, .cancel = loopback_cancel};

const struct transport_ops loopback_job_ops = {LOOPBACK_SLOTS, .teardown = TEARDOWN_JOB, .cancel = NULL};
