/* One lock for the world; each rank has a queue of messages for it and a queue of control messages.
 *
 * A message up to eager_bytes is copied when it is sent.  A larger one points at the sender's memory until the receiver
 * has copied it, so that a sender waits as long as it would over a real transport. */
#include "backends/loopback/loopback_private.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MAX_TAG = 32767 };

#define PATIENCE_NS (10 * NS_PER_S) /* of a close, for what the devices of others still do */

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

void loopback_free_message(struct message *message)
{
    if (message)
        free(message->kept);
    if (message && message->device)
        loopback_device_free(message->device);
    free(message);
}

/* A payload that its sender's device still reads stays. */
static void drop_inbox(struct inbox *inbox)
{
    struct message **link = &inbox->first;

    while (*link) {
        struct message *message = *link;

        if (message->device && !loopback_device_left(message->device)) {
            link = &message->next;
            continue;
        }
        *link = message->next;
        if (message->work) {
            message->work->over = true;
            message->work->message = NULL;
        }
        loopback_free_message(message);
    }
    inbox->end = link;
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
    loopback_lock(world);
    holders = --world->holders;
    loopback_unlock(world);
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
    loopback_lock(world);
    joined = world->inboxes[rank].joined;
    world->inboxes[rank].joined = true;
    if (!joined)
        world->holders++;
    loopback_unlock(world);
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
    loopback_lock(world);
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
    loopback_unlock(world);
    *ret = work;
    return STATUS_OK;
}

static enum status loopback_probe(struct transport *transport, int peer, uint32_t tag, struct message **ret,
                                  size_t *ret_bytes, struct error *err)
{
    struct loopback_world *world = transport->world;
    struct message *message = NULL;

    (void)err;
    loopback_lock(world);
    for (message = world->inboxes[transport->rank].first; message; message = message->next) {
        if (message->from == peer && message->tag == tag && !message->matched)
            break;
    }
    if (message) {
        message->matched = true;
        *ret_bytes = message->bytes;
    }
    loopback_unlock(world);
    *ret = message;
    return STATUS_OK;
}

void loopback_unlink(struct inbox *inbox, struct message *message)
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
    CHECK(count == message->bytes && !message->device);
    loopback_lock(world);
    if (message->data)
        memcpy(bytes, message->data, count);
    else
        memset(bytes, 0, count);
    if (message->work) {
        message->work->over = true;
        message->work->message = NULL;
    }
    loopback_unlink(&world->inboxes[transport->rank], message);
    loopback_unlock(world);
    loopback_free_message(message);
    work->over = true;
    *ret = work;
    return STATUS_OK;
}

static enum status loopback_test(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    enum status st = STATUS_OK;

    loopback_lock(transport->world);
    if (!work->over)
        st = loopback_device_move(transport, work, err);
    *ret = work->over;
    loopback_unlock(transport->world);
    if (*ret)
        free(work);
    return st;
}

/* The sender takes its memory back.  What the receiver has matched already stays, as a copy (zeros without memory:
 * that session has failed anyway). */
static void withdraw(struct inbox *inbox, struct message *message)
{
    if (!message->matched) {
        loopback_unlink(inbox, message);
        loopback_free_message(message);
        return;
    }
    message->work = NULL;
    if (message->device) {
        loopback_device_leave(message->device);
        return;
    }
    message->kept = malloc(message->bytes);
    if (message->kept)
        memcpy(message->kept, message->data, message->bytes);
    message->data = message->kept;
}

static bool loopback_cancel(struct transport *transport, struct work *work)
{
    struct loopback_world *world = transport->world;

    bool quiet = true;

    loopback_lock(world);
    quiet = loopback_device_quiet(work);
    if (quiet && work->receipt)
        loopback_device_give_up(transport, work);
    else if (quiet && work->message)
        withdraw(&world->inboxes[work->to], work->message);
    loopback_unlock(world);
    if (quiet)
        free(work);
    return quiet;
}

static bool inbox_quiet(struct loopback_world *world, int rank)
{
    bool quiet = true;

    loopback_lock(world);
    for (struct message *message = world->inboxes[rank].first; message && quiet; message = message->next)
        quiet = !message->device || loopback_device_left(message->device);
    loopback_unlock(world);
    return quiet;
}

/* Messages that this rank still holds for others are taken back.  What devices still do to those in its inbox is waited
 * for without the lock, which their owners need to go on. */
static enum status loopback_close(struct transport *transport, bool clean, struct error *err)
{
    struct loopback_world *world = transport->world;
    uint64_t until_ns = clock_ns() + PATIENCE_NS;

    (void)clean;
    (void)err;
    loopback_lock(world);
    world->inboxes[transport->rank].closed = true;
    loopback_unlock(world);
    while (!inbox_quiet(world, transport->rank) && clock_ns() < until_ns)
        clock_sleep_ns(20 * NS_PER_US);
    loopback_lock(world);
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
    loopback_unlock(world);
    loopback_world_destroy(world);
    free(transport);
    return STATUS_OK;
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
    loopback_lock(world);
    if (!inbox->closed) {
        *inbox->control_end = message;
        inbox->control_end = &message->next;
        message = NULL;
    }
    loopback_unlock(world);
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
    loopback_lock(world);
    message = inbox->control_first;
    if (message) {
        inbox->control_first = message->next;
        if (!inbox->control_first)
            inbox->control_end = &inbox->control_first;
    }
    loopback_unlock(world);
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

const struct transport_ops loopback_device_ops = {LOOPBACK_SLOTS, .teardown = TEARDOWN_NATIVE,
                                                  .cancel = loopback_cancel, .device = &loopback_device_messages};

const struct transport_ops loopback_job_ops = {LOOPBACK_SLOTS, .teardown = TEARDOWN_JOB, .cancel = NULL};
