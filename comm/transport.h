/* The table that a transport fills in: it moves whole messages between ranks and nothing else.
 *
 * Every slot is called with the session's lock held, by one thread at a time, from exactly one dispatcher in comm that
 * has validated its arguments.  No slot blocks except open and close.  Matching is by (peer, tag), in order. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"

enum { CONTROL_BYTES = 512 };

/* What on_timeout: abort can do: give the buffers back alone, or only end the job. */
enum teardown { TEARDOWN_NATIVE, TEARDOWN_JOB };

struct raw_ops;    /* comm/raw.h */
struct native_ops; /* comm/native.h */
struct transport_ops;
struct transport;
struct work;    /* one posted send or receive */
struct message; /* one matched incoming message, not yet received */

struct transport_options {
    bool program_owns_mpi; /* the caller initialised MPI */
    uint64_t startup_timeout_ns;
    uint64_t timeout_ns;   /* of a clean close: the last rank is waited for a little longer; 0: startup_timeout_ns */
    struct memory *shared; /* what this process shares with its host (base/memory_shared.h); borrowed until close;
                            * NULL: nothing */
    bool lend_all; /* of it, what lies there is lent to every rank that can read it; else to those alone that do so
                    * quickly, for to others a copy is the quicker way, and now and then to others, to measure them;
                    * messages too long for another way in any case */
    const char *interface; /* for traffic between hosts; NULL: the transport's choice */

    /* For a transport whose messages lie in device memory: what carries everything else, already open (taken on
     * success: closed with this transport), and the memory of this rank's device (borrowed).  Else NULL. */
    const struct transport_ops *carrier_ops;
    struct transport *carrier;
    struct memory *memory;
};

/* Messages whose payload lies in a device's memory.  Each has a header that comm has built in host memory: it travels
 * ahead on the host, where the receiver compares it before anything is received, and again in band with the payload, so
 * that what arrives is proved to be what was announced.
 *
 * probe, test and cancel are those of the transport's table: a probed message has header and payload bytes together,
 * and is matched in the order in which messages of either kind were sent with its tag. */
struct device_message_ops {
    /* Can messages lie in this memory?  For others comm goes through host memory. */
    bool (*reaches)(const struct transport *transport, const struct memory *memory);

    /* Post header [header_bytes] (copied) and payload [bytes, at least 1] in memory (borrowed until the work is done),
     * which leaves behind everything queued on the memory so far.  headroom: TENSOR_HEADROOM bytes in front of the
     * payload are the message's.  Where both ends have it header and payload are one native message, else two that
     * cannot be separated. */
    enum status (*send)(struct transport *transport, int peer, uint32_t tag, const void *header, size_t header_bytes,
                        struct memory *memory, void *payload, size_t bytes, bool headroom, struct work **ret,
                        struct error *err);
    /* The header that came ahead of a matched message, lent until it is received or refused.  NULL: the whole message
     * lies in host memory, and goes to the table's receive. */
    const void *(*ahead)(const struct message *message, size_t *ret_header_bytes);
    /* Receive a message that has a header ahead.  bytes is exactly its payload's.  in_band [header bytes], host memory,
     * holds the header that came with the payload once the work is done: whoever uses the payload compares it first.
     * Takes message. */
    enum status (*receive)(struct transport *transport, struct message *message, struct memory *memory, void *payload,
                           size_t bytes, bool headroom, void *in_band, struct work **ret, struct error *err);
    /* Let go of a matched message that is not wanted; its payload never leaves its sender.  Takes message. */
    void (*refuse)(struct transport *transport, struct message *message);
};

struct transport_ops {
    /* Word used in the topology file: "mpi", "nccl", "loopback". */
    const char *name;
    enum teardown teardown;

    /* Required.  Collective, blocks.  Start the transport. */
    enum status (*open)(const struct transport_options *options, struct transport **ret, struct error *err);
    /* Required.  clean: every rank gets here after a good run (collective, blocks, a little longer than timeout_ns:
     * then it leaves what others may still use as it is); otherwise release what can be released without waiting for
     * anybody.  The transport is gone either way.  STATUS_OK; clean alone: STATUS_TIMEOUT, not every rank has come;
     * STATUS_TRANSPORT. */
    enum status (*close)(struct transport *transport, bool clean, struct error *err);

    /* Optional: from now on a clean close waits no longer than close_ns.  For a carrier, whose user has waited for the
     * same ranks already. */
    void (*limit_close)(struct transport *transport, uint64_t close_ns);

    int (*rank)(const struct transport *transport);
    int (*size)(const struct transport *transport);
    uint32_t (*max_tag)(const struct transport *transport);
    /* Largest message in bytes; comm sends longer payloads in pieces. */
    size_t (*max_message)(const struct transport *transport);

    /* Required.  Post bytes (borrowed until the work is done). */
    enum status (*send)(struct transport *transport, int peer, uint32_t tag, const void *bytes, size_t count,
                        struct work **ret, struct error *err);
    /* Optional: memory for a message of count bytes to peer, aligned to FRAME_ALIGN, that its receiver reads where it
     * lies: whoever writes it there and then sends from its start copies nothing.  Lent until it is sent from once, at
     * most count bytes to that peer, after which nobody touches it; what is never sent from is lost until close.  NULL:
     * there is none now.  *ret_near: plain stores are the quickest there, else those past the cache (base/stream.h). */
    unsigned char *(*room)(struct transport *transport, int peer, size_t count, bool *ret_near);
    /* Required.  Match the next message of (peer, tag): *ret is NULL when none has come; else its size is known and it
     * must be received. */
    enum status (*probe)(struct transport *transport, int peer, uint32_t tag, struct message **ret, size_t *ret_bytes,
                         struct error *err);
    /* Required.  Receive a matched message into memory of exactly its size (borrowed until done).  Takes message. */
    enum status (*receive)(struct transport *transport, struct message *message, void *bytes, size_t count,
                           struct work **ret, struct error *err);
    /* Optional: read a matched message where it lies, without receiving it.  lend: its bytes, lent until give_back, and
     * a peer may go on writing them; NULL: they lie where this rank cannot see them.  give_back takes a message that is
     * not to be received, lent or not.  read_ns: what copying its payload took from where look has shown it, which
     * tells its sender whether to go on like this; 0: it was not shown, not read, or not measured.  Both or neither. */
    unsigned char *(*lend)(struct transport *transport, struct message *message);
    void (*give_back)(struct transport *transport, struct message *message, uint64_t read_ns);
    /* Optional: messages whose payload stays in its sender's memory until the receiver has read it there.
     * reach: the work of a message of these runs to peer, which is not sent yet; NULL: peer cannot read them where they
     * lie, or there is no room now to tell of it.  What is never sent is lost until close.
     * send_lent: send it, with header [at most FRAME_MAX_BYTES] in front; runs are those that it was reached with, or
     * fewer of them, or shorter ones; both are borrowed until the work is done, which is when peer has received it or
     * given it back.  On failure the work is gone.
     * look: the payload of a matched message that was sent so (lent until it is received or given back) and its header,
     * which no peer can write any more, *ret_header_bytes; NULL: it was not.  Its size is that of both together, and
     * receive brings both.  All or none. */
    struct work *(*reach)(struct transport *transport, int peer, const struct runs *runs);
    enum status (*send_lent)(struct transport *transport, struct work *work, uint32_t tag, const void *header,
                             size_t header_bytes, const struct runs *runs, struct error *err);
    const unsigned char *(*look)(const struct transport *transport, const struct message *message,
                                 size_t *ret_header_bytes, struct runs *ret);
    /* Required.  Has the work ended?  When *ret is true the work is freed.  After an error it is not: cancel frees it.
     */
    enum status (*test)(struct transport *transport, struct work *work, bool *ret, struct error *err);

    /* Required.  The control channel: fixed CONTROL_BYTES messages on a channel of their own, copied, to any rank
     * (itself included); receive: false when none has come. */
    enum status (*control_send)(struct transport *transport, int peer, const void *bytes, struct error *err);
    enum status (*control_receive)(struct transport *transport, int *ret_peer, void *bytes, bool *ret,
                                   struct error *err);

    /* Required with TEARDOWN_NATIVE, else NULL: end this work now.  True: it is freed and its memory is back.  False:
     * it cannot be ended alone (a message in host memory that lies with a carrier); it goes on, and is tested again. */
    bool (*cancel)(struct transport *transport, struct work *work);

    /* Optional: work with peer (a rank; a sum has all its members) may have to wait here until another rank moves,
     * which stands in front of it in the transport's own order.  That rank; peer: nobody else.  NULL: there is no such
     * order. */
    int (*awaits)(const struct transport *transport, int peer);

    /* Required.  Short text for logs: "Open MPI v4.1.4, 2 hosts". */
    const char *(*describe)(const struct transport *transport);

    /* Optional: the name of a rank's host, lent until close; NULL: unknown, or all ranks are on one host. */
    const char *(*host)(const struct transport *transport, int rank);

    /* Optional: the same operations in the library's own calls, for measuring. */
    const struct raw_ops *raw;

    /* Optional: messages in device memory.  NULL: comm stages them through host memory. */
    const struct device_message_ops *device;

    /* Optional: sums by the library itself. */
    const struct native_ops *native;
};

#endif
