/* The bytes of the control channel: fixed messages of CONTROL_BYTES, longer content in numbered pieces.
 *
 * Encode and decode are pure.  Pieces of one content travel in order and without another content of the same kind
 * between them (the transport keeps the order of a pair of ranks). */
#ifndef COMM_CONTROL_MESSAGE_H
#define COMM_CONTROL_MESSAGE_H

#include "comm/control.h"

enum control_kind {
    CONTROL_POISON = 1,  /* a cause */
    CONTROL_INQUIRE = 2, /* u32 id: what do you wait for? */
    CONTROL_ANSWER = 3,  /* an answer to an inquiry */
    CONTROL_LOG = 4,     /* a line of text */
    CONTROL_SETTLE = 5,  /* a claim: the best cause known to the sender */
    CONTROL_VERDICT = 6, /* a claim: what everybody ends with */
    CONTROL_ROLL = 7,    /* roll.c: what were you called with? */
    CONTROL_CALLED = 8,  /* and the answer */
    CONTROL_KINDS
};

enum {
    CONTROL_PROTOCOL = 1,
    CONTROL_HEADER_BYTES = 32,
    CONTROL_PIECE_BYTES = CONTROL_BYTES - CONTROL_HEADER_BYTES,
    CONTROL_MAX_BYTES = 4096 /* of one content */
};

/* One whole content, as it came. */
struct parcel {
    enum control_kind kind;
    int peer;
    size_t bytes;
    unsigned char data[CONTROL_MAX_BYTES];
};

/* What a rank answers to an inquiry. */
struct answer {
    uint32_t inquiry;
    uint64_t waited_ns;      /* 0 when it does not wait */
    uint64_t still_ns;       /* since its counter last changed */
    struct wait_state state; /* since_ns is not carried: clocks differ */
};

/* A cause with the rank that speaks for it: the lowest alive (settle), the speaker (verdict). */
struct claim {
    int rank;
    struct cause cause;
};

size_t control_piece_count(size_t bytes);
/* Piece number piece of data [bytes] into message [CONTROL_BYTES]. */
void control_piece_encode(enum control_kind kind, const unsigned char *data, size_t bytes, size_t piece,
                          unsigned char *message);

/* Each returns the bytes written; data has CONTROL_MAX_BYTES. */
size_t cause_encode(const struct cause *cause, unsigned char *data);
size_t answer_encode(const struct answer *answer, unsigned char *data);
size_t claim_encode(const struct claim *claim, unsigned char *data);
/* STATUS_CORRUPT: too short, or values outside their range. */
enum status cause_decode(const unsigned char *data, size_t bytes, struct cause *ret);
enum status answer_decode(const unsigned char *data, size_t bytes, struct answer *ret);
enum status claim_decode(const unsigned char *data, size_t bytes, struct claim *ret);

/* Contents of which some pieces have come. */
struct inbox;

enum status inbox_create(struct inbox **ret, struct error *err);
void inbox_destroy(struct inbox *inbox);

/* Take one message from peer.  *ret_whole: *ret holds a whole content now.  STATUS_CORRUPT and STATUS_MISMATCH (another
 * protocol) name the peer; STATUS_NOMEM. */
enum status inbox_take(struct inbox *inbox, int peer, const unsigned char *message, struct parcel *ret, bool *ret_whole,
                       struct error *err);

#endif
