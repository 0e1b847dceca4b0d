/* The commit of steps: every rank commits an epoch or none does.
 *
 * An epoch is one attempt at a step; numbers rise by one and are never used again.  A rank opens an epoch, works, and
 * votes; the vote of one epoch travels while the next is worked on, so at most two are undecided.  An epoch ends
 *   committed      every rank voted for it;
 *   aborted        a rank voted against it, or never voted: no rank can have committed it;
 *   indeterminate  this rank voted for it and will not learn the verdict: others may have committed it.  The book then
 *                  refuses every further epoch.
 * An epoch is voted on only after the verdict on the one before it has been read, so what ranks know is at most one
 * epoch apart. */
#ifndef RUNTIME_EPOCH_H
#define RUNTIME_EPOCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct completion;
struct group;

enum epoch_state {
    EPOCH_NONE, /* never opened, or longer ago than the last two */
    EPOCH_OPEN,
    EPOCH_VOTED,
    EPOCH_COMMITTED,
    EPOCH_ABORTED,
    EPOCH_INDETERMINATE
};

/* Bit 0 of a vote: for the commit.  Further bits are the voter's; everybody learns the AND of all. */
enum { EPOCH_FOR = 1u };

struct epoch {
    uint64_t number;
    enum epoch_state state;
    uint32_t flags; /* committed or aborted: the AND of all votes */
};

/* One rank's book.  Zero-initialised but for world. */
struct epoch_book {
    struct group *world;     /* borrowed from the session */
    struct epoch last[2];    /* by number % 2 */
    uint64_t next;           /* number of the next epoch */
    struct completion *vote; /* cast, verdict not read; on `voted` */
    uint64_t voted;
    uint64_t committed_count;
    uint64_t aborted_count;
    uint64_t wait_ns; /* for verdicts */
};

/* Start the next epoch.  Local.  STATUS_LOST: an indeterminate one, which only a restart resolves. */
enum status epoch_open(struct epoch_book *book, uint64_t *ret, struct error *err);

/* Cast this rank's vote on the newest epoch.  The verdict on the one before has been read.  Collective over the world,
 * does not block.  Statuses of group_failure_agreement; the epoch is then still open. */
enum status epoch_vote(struct epoch_book *book, uint32_t flags, struct error *err);

/* Has a verdict come that was not read yet?  Never blocks. */
bool epoch_heard(struct epoch_book *book);

/* Read the verdict on the epoch that was voted on.  Blocks under the session's timeout rule.  The session's failure. */
enum status epoch_verdict(struct epoch_book *book, struct epoch *ret, struct error *err);

/* The newest epoch rests on one that was aborted: it is aborted as well, without a vote. */
void epoch_withdraw(struct epoch_book *book);

/* What is known of an epoch, one of the last two. */
struct epoch epoch_look(const struct epoch_book *book, uint64_t number);

/* The run is over or has failed: what was not voted on is aborted, what was voted on and has no verdict yet is
 * indeterminate.  The vote is given to the session.  Local; does not block. */
void epoch_end(struct epoch_book *book);

/* "committed", ... */
const char *epoch_state_name(enum epoch_state state);

#endif
