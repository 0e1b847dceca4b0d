/* The inside of a completion: one piece of work in its lane.
 *
 * Whoever submits embeds struct completion first in its own struct, fills in kind and hands it to lane_submit.  All
 * functions want the session's lock. */
#ifndef COMM_COMPLETION_PRIVATE_H
#define COMM_COMPLETION_PRIVATE_H

#include "base/tensor.h"
#include "base/text.h"
#include "comm/completion.h"
#include "comm/session_private.h"

struct work_kind {
    /* Move; *ret_over when all of it is done.  Anything but STATUS_OK poisons the session. */
    enum status (*step)(struct completion *completion, bool *ret_over, struct error *err);
    /* Optional: it has seen to it that its own work, once begun, happens behind before's, which is pending; then the
     * host need not wait for that.  False: it must. */
    bool (*chain)(struct completion *completion, const struct completion *before);
    /* May the next work of the lane start before this one is over?  NULL: no. */
    bool (*posted)(const struct completion *completion);
    /* After a failure: does the transport hold nothing of it any more? */
    bool (*let_go)(struct completion *completion);
    /* World rank that it waits for; -1: none in particular. */
    int (*peer)(const struct completion *completion);
    /* Optional: what a timeout's sentence should add ("expected sequence 3, last seen 2"). */
    void (*hint)(const struct completion *completion, struct text *out);
    /* Optional, of work whose peer is -1: what it waits for instead, in front of a timeout's sentence.  Returns the
     * rank to blame, this one where nothing better is known; -1: none alone. */
    int (*blame)(const struct completion *completion, struct text *out);
    /* Release everything; the completion ended. */
    void (*destroy)(struct completion *completion);
};

/* A value that is given back when the completion has ended. */
struct retained {
    struct retained *next;
    void *value;
    completion_retained *release;
};

struct completion {
    struct session *session;
    struct lane *lane;
    struct completion *next; /* in its lane, while pending */
    const struct work_kind *kind;
    enum completion_state state;
    int references;            /* the caller's, the lane's while pending, and one of each work ordered after it */
    struct completion **after; /* [after_count] what must be done before this begins; a reference of each */
    int after_count;
    struct tensor *tensors[2]; /* counted as pending in them while it is; NULL: none */
    bool local;                /* no other rank takes part */
    bool awaited;              /* some work was ordered after it */
    struct retained *retained;
    enum status status;
    char *text; /* why it failed; NULL: the session's failure says */
    enum operation operation;
    uint64_t sequence;
    uint64_t epoch;
    uint64_t bytes;  /* planned, for the recorder */
    uint64_t record; /* recorder's number */
    uint32_t flags;
};

/* May this lane take work?  STATUS_TIMEOUT: quarantined.  The session's failure. */
enum status lane_check(const struct lane *lane, struct error *err);

/* Everything submitted to the lane from now on begins when the completion is done.  The public group_after, route_after
 * and executor_after; takes the session's lock itself.  STATUS_INVALID (of another session), STATUS_NOMEM, the
 * session's first failure. */
enum status lane_after(struct lane *lane, struct completion *completion, struct error *err);

/* What keeps this work from going on: itself, or the oldest unfinished work that it was ordered after. */
const struct completion *completion_blocker(const struct completion *completion);

/* May it begin?  Lets go of what it was ordered after and is done, or comes before it without the host. */
bool completion_ready(struct completion *completion);

/* Queue a completion (session, kind, operation, sequence, epoch, bytes are filled in) and move the lane once. */
void lane_submit(struct lane *lane, struct completion *completion);

/* It never was native work: done at once. */
void lane_skip(struct lane *lane, struct completion *completion);

/* Move the lane's work; ended completions leave it. */
void lane_step(struct lane *lane);

/* The session closes: end what the transport has let go, leave the rest to the end of the process.  False: something
 * was left, whose memory must stay. */
bool lane_close(struct lane *lane);

#endif
