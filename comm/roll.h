/* The roll call of a group: which member was called with what.
 *
 * A rank that doubts whether all members make the same calls asks them on the control channel.  A member answers in
 * words, from what is queued in its group or has ended there of late, also while it computes or waits for something
 * else.  No payload and no message of the group takes part, so a roll call changes nothing that is under way.
 *
 * All functions want the session's lock. */
#ifndef COMM_ROLL_H
#define COMM_ROLL_H

#include "comm/frame.h"
#include "comm/group_private.h"

struct collective;

/* Members from this index on are not asked: a sentence about so many is cut anyway. */
enum { ROLL_MOST = 1024 };

enum roll_state {
    ROLL_SILENT, /* it has not answered */
    ROLL_BEFORE, /* it has not been called with this sequence number yet */
    ROLL_CALLED, /* roll_words says with what */
    ROLL_PAST    /* it has gone on, and does not know any more */
};

/* What one collective has asked and heard; lives as long as it. */
struct roll;

void roll_destroy(struct roll *roll);

/* Ask a member what it was called with at this collective's sequence number, unless it has told, or was asked less than
 * gap_ns ago.  Best effort: without memory nobody is asked. */
void roll_ask(struct collective *work, int member, uint64_t gap_ns);

enum roll_state roll_state(const struct collective *work, int member);
/* ROLL_CALLED: its words, lent until the collective's end; else NULL. */
const char *roll_words(const struct collective *work, int member);

/* Some member was called with other words than this collective. */
bool roll_differs(const struct collective *work);

/* A question or an answer has come; context is the session.  False: it contradicts itself. */
bool roll_take(void *context, int peer, bool answer, const unsigned char *data, size_t bytes);

/* The last operations that have ended in a group, for whoever asks afterwards. */
struct past;

/* This collective has ended.  Best effort. */
void past_keep(struct group *group, const struct collective *work);
void past_destroy(struct past *past);

#endif
