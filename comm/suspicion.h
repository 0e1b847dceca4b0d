/* The timeout rule: who is at the end of the chain of waits, and has it stood still for the whole timeout?
 *
 * Pure: it is told what this rank waits for and what others answered, and says whom to ask next and whom to blame.  A
 * round starts at the rank that we wait for and follows "I wait for that one" to its end: a rank that does not wait, a
 * rank that does not answer, or a cycle.  A chain is blamed only when every wait in it, ours included, and its end have
 * stood still for the timeout; so a rank is never blamed for the one behind it. */
#ifndef COMM_SUSPICION_H
#define COMM_SUSPICION_H

#include "comm/control_message.h"

enum { SUSPICION_MAX_CHAIN = 256 };

/* One rank of the chain. */
struct chain_link {
    int rank;
    bool heard; /* it has answered in this round */
    uint64_t asked_ns;
    uint64_t heard_ns;
    struct answer answer;
};

enum chain_end { CHAIN_OPEN, CHAIN_BUSY, CHAIN_SILENT, CHAIN_CYCLE };

struct suspicion {
    int self;
    uint64_t timeout_ns;
    const uint64_t *heard_ns; /* [world size], borrowed: when anything last came from a rank; 0: never */
    uint64_t since_ns;        /* our wait's beginning: another wait is another suspicion */
    int peer;
    uint64_t round_ns;      /* when the present round began */
    uint32_t inquiry;       /* number of the present round; answers to older ones are not followed */
    int unanswered_rank;    /* the rank that owes us an answer, over all rounds of this wait; -1: none */
    uint64_t unanswered_ns; /* since when */
    enum chain_end end;
    int cycle_start; /* CHAIN_CYCLE: index of the cycle's first link; -1: ourselves */
    int count;
    struct chain_link links[SUSPICION_MAX_CHAIN];
};

void suspicion_init(struct suspicion *suspicion, int self, uint64_t timeout_ns, const uint64_t *heard_ns);

/* Called again and again while this rank waits.  Returns the rank to send inquiry suspicion->inquiry to; -1: none. */
int suspicion_step(struct suspicion *suspicion, const struct wait_state *own, uint64_t now_ns);

/* An answer has come (heard_ns is up to date).  Returns the next rank to ask, or -1. */
int suspicion_answer(struct suspicion *suspicion, int rank, const struct answer *answer, uint64_t now_ns);

/* Has everything in the chain stood still for the timeout?  own_still_ns: since our own counter changed, which counts
 * where the chain ends at this rank; elsewhere it suffices that our wait has lasted, for whoever asks again and again
 * may give signs of life meanwhile.  own_awake_ns: since this rank looks without a break.  Fills rank, status and text
 * of ret. */
bool suspicion_expired(const struct suspicion *suspicion, const struct wait_state *own, uint64_t own_still_ns,
                       uint64_t own_awake_ns, uint64_t now_ns, struct cause *ret);

/* The same chain for a person who waits, before anybody is to blame: "waiting for rank 3, which works (loading), ...".
 * False: the end of the chain is not known yet. */
bool suspicion_tell(const struct suspicion *suspicion, const struct wait_state *own, uint64_t now_ns, char *line,
                    size_t line_bytes);

#endif
