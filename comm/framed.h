/* One framed payload under way to some peers, or from one: the only code that touches the transport's messages.
 *
 * Memory is [TENSOR_HEADROOM or more of headroom][payload]; the header is written directly in front of the payload, so
 * that both are one native message.  A payload above the transport's limit travels in pieces, one after the other:
 * each later header is written over the end of the piece before it, whose bytes are put back afterwards.
 *
 * Detached, the header is a message of its own and the payload the next one: for memory that lies in the midst of a
 * caller's tensor, where nothing may be written in front of it.  Sender and receiver must mean the same.  Then the
 * header is compared before the payload is received at all.
 *
 * Lent, the payload stays where it is, in runs of the sender's memory, and the header alone travels; the send is over
 * when the receiver has read.  A receive takes a payload so where its caller says how much may come so (lent_bytes),
 * else as any other message.
 *
 * In a device's memory, which the host cannot touch, the payload travels as a device message where the transport
 * reaches it (framed_device.c), else through a copy on the host (framed_staged.c).  Both ends of a device message must
 * have the payload in such memory; otherwise each end is on its own.
 *
 * No receive is posted before probe has told its size; a message of another size goes to scratch memory so that its
 * header can be compared and named.  All functions want the session's lock. */
#ifndef COMM_FRAMED_H
#define COMM_FRAMED_H

#include "comm/frame.h"
#include "comm/session_private.h"

/* Unexpected messages up to this size are received, so that their header can be named; larger ones are refused. */
enum { FRAMED_SCRATCH_BYTES = 64 << 20 };

struct framed_send {
    struct frame frame; /* piece fields and payload_bytes are set here */
    uint32_t tag;
    int peer_count;
    const int *peers;       /* [peer_count] world ranks; borrowed */
    bool detached;          /* not with payload checksums */
    struct runs lent;       /* the payload, where payload begins, too; no rows: not so.  Detached, to one peer, and */
    struct work *lent_work; /* reached by the transport, not sent yet */
    unsigned char *payload;
    size_t payload_bytes;
    bool borrowed;           /* the caller's own note: payload is not his to give back */
    unsigned char *room;     /* the transport's, for the whole message; NULL: none */
    bool near;               /* of room: written by plain stores, else past the cache */
    struct memory *device;   /* payload lies there (borrowed); NULL: the host may touch it */
    bool headroom;           /* TENSOR_HEADROOM bytes in front of it are the message's: nobody else's are there */
    struct work **works;     /* [peer_count, of detached headers as many more] the caller's memory (borrowed) */

    /* Inside. */
    int open_works;
    size_t done_bytes; /* of pieces that have ended */
    bool started;
    bool over;
    struct framed_memory *way;            /* of device's payload */
    unsigned char *flipped;               /* a rehearsed flip of a detached payload, undone once it has left */
    unsigned char saved[FRAME_MAX_BYTES]; /* what lay under the header; detached: the header */
};

struct framed_receive {
    struct frame frame; /* what is expected */
    uint32_t tag;
    int peer;        /* world rank */
    bool any_epoch;  /* take the sender's epoch, not below frame.epoch; the one taken is left in frame.epoch */
    bool sizes_only; /* checks: off */
    bool keep_other; /* a header of this sender about this object, but not the expected one, is kept, not refused */
    bool detached;   /* not with payload checksums */
    unsigned char *payload;
    size_t payload_bytes;
    unsigned char *target;   /* the caller's own note: where the payload belongs */
    bool in_place;           /* payload may become where the transport has it, until framed_receive_done */
    size_t lent_bytes;       /* so many may come lent in place of payload_bytes; 0: none */
    uint64_t read_ns;        /* the caller's word: what reading what came lent took; 0: none */
    const struct lane *lane; /* for its name */
    struct memory *device;   /* as of a send */
    bool headroom;

    /* Inside. */
    struct framed_memory *way;
    struct work *work;
    bool device_work;     /* work is a device message's */
    struct message *lent; /* in place: the payload's */
    struct runs runs;     /* lent: where it lies; no rows: it did not come so, it lies together in payload */
    struct session *lender;
    unsigned char *room;    /* the payload before */
    unsigned char *scratch; /* a message of another size */
    size_t message_bytes;
    size_t done_bytes;
    bool headed; /* detached: the header of the piece under way was the expected one */
    bool over;
    bool other;    /* with keep_other: the header kept is in saved, over is set, the payload must not be used */
    char *refusal; /* the sentence that it was not refused with; NULL without memory */
    bool seen;     /* a frame has come, its sequence number is last_sequence */
    uint64_t last_sequence;
    bool ready; /* expected is the header of the piece under way */
    unsigned char expected[FRAME_MAX_BYTES];
    unsigned char saved[FRAME_MAX_BYTES];
};

/* Let the payload lie where the transport has room for the whole message: then it is written once, before the first
 * step, and not read; a send that is not posted ends the session.  After the fields of frame, peers and payload_bytes
 * are set.  False: there is none. */
bool framed_send_room(struct framed_send *send, struct session *session);
/* Post what can be posted.  over is set when every piece has been sent and its memory is back. */
enum status framed_send_step(struct framed_send *send, struct session *session, struct error *err);
/* Every message of it has been handed to the transport. */
bool framed_send_posted(const struct framed_send *send);
/* After a failure: has the transport let go of the memory?  Cancels where the transport can. */
bool framed_send_let_go(struct framed_send *send, struct session *session);
void framed_send_done(struct framed_send *send);

/* After a failure: true once the transport holds nothing of this work, NULL included; then it is NULL.  device: it is
 * counted among what the session waits for of a device. */
bool framed_let_go(struct session *session, struct work **work, bool device);

/* Move it.  over is set when the whole payload has come and every header was the expected one.
 * STATUS_MISMATCH names every differing field; the payload must then not be used. */
enum status framed_receive_step(struct framed_receive *receive, struct session *session, struct error *err);
bool framed_receive_let_go(struct framed_receive *receive, struct session *session);
void framed_receive_done(struct framed_receive *receive);

#endif
