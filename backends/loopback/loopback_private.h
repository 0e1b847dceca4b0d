/* The inside of the world of threads, for loopback.c and its messages between devices (loopback_device.c).
 *
 * Everything here wants the world's lock held, but locking itself. */
#ifndef BACKENDS_LOOPBACK_LOOPBACK_PRIVATE_H
#define BACKENDS_LOOPBACK_LOOPBACK_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>

#include "backends/loopback/loopback.h"

struct device_message;
struct device_receipt;

struct message {
    struct message *next;
    int from;
    uint32_t tag;
    size_t bytes;
    const unsigned char *data; /* own copy behind this struct, or the sender's memory */
    struct work *work;         /* the sender's, while it waits; NULL when copied */
    void *kept;                /* a copy made when a matched message's sender took its memory back */
    bool matched;
    struct device_message *device; /* between devices; NULL: the bytes are at data */
};

struct work {
    bool over;
    struct message *message; /* of a large send: still in the receiver's queue */
    int to;
    struct device_receipt *receipt; /* of a receipt in a device's memory */
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

static inline void loopback_lock(struct loopback_world *world)
{
    (void)pthread_mutex_lock(&world->lock);
}

static inline void loopback_unlock(struct loopback_world *world)
{
    (void)pthread_mutex_unlock(&world->lock);
}

void loopback_free_message(struct message *message);
void loopback_unlink(struct inbox *inbox, struct message *message);

extern const struct device_message_ops loopback_device_messages;

/* A work that is not over may be one of a device: move it. */
enum status loopback_device_move(struct transport *transport, struct work *work, struct error *err);
/* No device's queue works on it (host work included): it can be ended. */
bool loopback_device_quiet(struct work *work);
/* Its sender goes: nothing of the sender's memory is used any more. */
void loopback_device_leave(struct device_message *device);
/* Its sender's queue does not work on it (any more). */
bool loopback_device_left(struct device_message *device);
void loopback_device_free(struct device_message *device);
/* Its receiver does not want it any more. */
void loopback_device_give_up(struct transport *transport, struct work *work);

#endif
