/* What ranks tell each other on the host about transfers in device memory, as bytes.
 *
 * An announcement takes the message's place in the carrier's order of (peer, tag), so that messages in host memory and
 * in device memory keep their order among each other.  It is a carrier message of ANNOUNCE_BYTES; a message of the
 * caller's that happens to be of this size follows an announcement that says so.  Everything else are notes on the
 * control channel.
 *
 *   sender                          receiver
 *   send: announcement      ──▶     probe finds it, comm compares the header
 *                           ◀──     receive: NOTE_READY (ticket proposed)
 *   NOTE_GO (ticket)        ──▶
 *   both start it in the order of tickets
 *
 * Encode and decode are pure; nothing that comes from the wire is trusted. */
#ifndef BACKENDS_NCCL_RENDEZVOUS_H
#define BACKENDS_NCCL_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/tensor.h"

enum {
    ANNOUNCE_HEADER_BYTES = TENSOR_HEADROOM, /* largest header ahead */
    ANNOUNCE_BYTES = 40 + ANNOUNCE_HEADER_BYTES,
    NOTE_BYTES = 512, /* a control message */
    NOTE_DATA_BYTES = NOTE_BYTES - 64,
    RENDEZVOUS_PROTOCOL = 2
};

struct announcement {
    bool literal;    /* no transfer: the next message of this peer and tag is the caller's own, of ANNOUNCE_BYTES */
    bool headroom;   /* the sender can put header and payload into one native message */
    uint64_t number; /* counts the transfers from this sender to this receiver */
    uint64_t payload_bytes;
    uint32_t header_bytes;
    unsigned char header[ANNOUNCE_HEADER_BYTES];
};

enum note_kind {
    NOTE_HELLO = 1,   /* to rank 0: I have come to the start of NCCL; data: the device */
    NOTE_ID,          /* the id of the world's communicator, in data */
    NOTE_BUILT,       /* to rank 0: my communicator is built */
    NOTE_START,       /* everybody's is */
    NOTE_FAILED,      /* the start has failed: status, text in data */
    NOTE_READY,       /* to the sender of transfer number: it is wanted; ticket proposed */
    NOTE_GO,          /* to the receiver: the ticket */
    NOTE_HERE,        /* of the native sums of group object, to its first member: I have come to its building */
    NOTE_GROUP_ID,    /* its communicator's id, in data */
    NOTE_REACHED,     /* to its first member: I have come to sum number */
    NOTE_ASK,         /* to all members: propose a ticket for sum number */
    NOTE_PROPOSE,     /* to the first member: the proposal */
    NOTE_TICKET,      /* to all members: the ticket of sum number */
    NOTE_GROUP_BUILT, /* the communicator of group object is built here; to its first member, of which all are told */
    NOTE_KINDS
};

struct note {
    enum note_kind kind;
    bool joined; /* READY, GO: header and payload are one native message */
    uint32_t object;
    enum status status;
    uint64_t number;
    uint64_t ticket;
    uint32_t data_bytes;
    unsigned char data[NOTE_DATA_BYTES];
};

void announcement_encode(const struct announcement *announcement, unsigned char *bytes);
/* Write the checksum of the bytes as they are. */
void announcement_seal(unsigned char *bytes);
/* STATUS_CORRUPT says what is wrong. */
enum status announcement_decode(const unsigned char *bytes, struct announcement *ret, struct error *err);

void note_encode(const struct note *note, unsigned char *bytes);
void note_seal(unsigned char *bytes);
/* *ret_ours false: it is a message of somebody else, *ret is untouched.  STATUS_CORRUPT: it says that it is a note, but
 * is damaged or of another protocol. */
enum status note_decode(const unsigned char *bytes, struct note *ret, bool *ret_ours, struct error *err);

#endif
