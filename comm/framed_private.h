/* The inside of framed messages, for sending, receiving, and the ways for memory that the host cannot
 * touch. */
#ifndef COMM_FRAMED_PRIVATE_H
#define COMM_FRAMED_PRIVATE_H

#include "comm/framed.h"
#include "comm/queued.h"
#include "comm/staging.h"

/* What a payload in a device's memory needs beside the rest. */
struct framed_memory {
    bool direct;            /* a device message, not through the host */
    int phase;              /* of its way */
    struct queued queued;   /* what the next phase waits for */
    struct staging *lender; /* of block */
    unsigned char *block;   /* host memory: the staged payload; or a copy, to take the checksum of */
    unsigned char *origin;  /* of a staged payload: where it belongs */
    unsigned char byte;     /* of the payload, that a rehearsed fault flips */
    size_t byte_at;
    bool flipped;
    unsigned char in_band[FRAME_MAX_BYTES]; /* the header that came with the payload */
};

/* Host memory for bytes of payload that lie in a device's: pinned, if there is some at hand.  STATUS_NOMEM. */
enum status framed_take_block(struct framed_memory *way, struct session *session, size_t bytes, struct error *err);
void framed_give_block(struct framed_memory *way);

/* Number, size and count of the piece at done. */
enum status framed_piece_fields(const struct session *session, struct frame *frame, size_t all, size_t done,
                                struct error *err);

/* Do the header's bytes lie over somebody's: of the piece before, or of what is in front of the payload? */
static inline bool framed_covers(bool headroom, size_t done_bytes)
{
    return !headroom || done_bytes;
}

/* *ret (returns): how payloads of so many bytes in this memory travel.  STATUS_NOMEM. */
enum status framed_choose_way(struct session *session, const struct memory *device, size_t bytes,
                              struct framed_memory **ret, struct error *err);
/* Nothing of it runs any more: freed, and a payload that was staged is where it was.  *way may be NULL. */
void framed_leave_way(struct framed_memory **way, unsigned char **payload);

/* A rehearsed flip or short of the frame that is about to leave; returns how many of its bytes leave.  A flip in the
 * header is done; *ret_byte: which byte of the payload is to be flipped by the caller, SIZE_MAX: none. */
size_t framed_damage(struct session *session, unsigned char *header, size_t header_bytes, size_t bytes,
                     size_t *ret_byte);

/* One more native message of a send is under way. */
void framed_posted_message(struct framed_send *send, struct session *session, size_t bytes);
enum status framed_test_works(struct framed_send *send, struct session *session, struct error *err);

/* The header to expect, flags and payload checksum being set.  got: what came, for an open epoch. */
void framed_expect(struct framed_receive *receive, const unsigned char *got, unsigned char *expected);

/* STATUS_MISMATCH: whose message, and what differs.  Or, with keep_other, kept: a header [got_bytes] that its sender
 * meant as it is, for this group. */
enum status framed_refuse(const struct framed_receive *receive, const struct session *session, const char *what,
                          struct error *err);
enum status framed_refuse_or_keep(struct framed_receive *receive, const struct session *session,
                                  const unsigned char *got, size_t got_bytes, const struct text *what,
                                  struct error *err);

/* A message of another size, or from another kind of memory, in receive->scratch: refused by every field. */
enum status framed_refuse_scratch(struct framed_receive *receive, struct session *session, struct error *err);

/* With the payload where the host may touch it. */
enum status framed_host_send_step(struct framed_send *send, struct session *session, struct error *err);
enum status framed_host_receive_step(struct framed_receive *receive, struct session *session, struct error *err);

enum status framed_staged_send_step(struct framed_send *send, struct session *session, struct error *err);
enum status framed_staged_receive_step(struct framed_receive *receive, struct session *session, struct error *err);

enum status framed_device_send_step(struct framed_send *send, struct session *session, struct error *err);
enum status framed_device_receive_step(struct framed_receive *receive, struct session *session, struct error *err);

/* A matched device message where one of the host was expected: refused.  message is taken. */
enum status framed_device_refuse(struct framed_receive *receive, struct session *session, struct message *message,
                                 const unsigned char *ahead, size_t ahead_bytes, struct error *err);

#endif
