/* The order in which one rank starts its transfers and native sums: the same total order on every rank.
 *
 * NCCL runs what lies on a stream in order, and a transfer ends only when both sides run it: two ranks whose streams
 * hold operations in different orders wait for each other for ever.  So each operation gets a ticket that all who take
 * part in it agree on, and every rank starts in the order of tickets.
 *
 * A transfer: the receiver proposes (queue_propose: its clock + 1) and tells the sender, who decides (queue_decide: the
 * larger of the proposal and his own clock + 1) and answers (queue_settle).  A native sum: every member proposes, and
 * the largest proposal is the ticket.  A proposal is a lower bound of the ticket, so whatever lies behind it waits
 * until it is answered; whoever answers needs nothing but a look at his messages.
 *
 * Why nothing waits for ever: an operation has a ticket only when all who take part have posted it.  Take the operation
 * with the smallest ticket that has not ended: at each of its ranks all before it have ended, no proposal in front of
 * it stays unanswered, so each of them starts it.  Pure: no clock, no message, no library.  Unit-tested with thousands
 * of random schedules. */
#ifndef BACKENDS_NCCL_QUEUE_H
#define BACKENDS_NCCL_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* NCCL works on at most this many transfers of one group side by side (docs/nccl.md): more would be started one after
 * the other in an order of its own. */
enum { QUEUE_GROUP = 8 };

/* No clock of a run comes near; a larger one on the wire is damage. */
#define TICKET_LIMIT (UINT64_C(1) << 62)

enum entry_kind { ENTRY_TRANSFER, ENTRY_SUM };

/* Compared member by member: equal clocks still have one order everywhere. */
struct ticket {
    uint64_t clock;
    enum entry_kind kind;
    uint32_t from; /* sender; of a sum the group's id */
    uint32_t to;   /* receiver; of a sum 0 */
    uint64_t number;
};

struct entry {
    struct entry *next;
    struct ticket ticket; /* not final: a lower bound */
    bool final;
    bool queued;
    int peer;   /* world rank at the other end; of a sum -1 */
    bool sends; /* this rank is the sender */
    bool alone; /* not to be started together with others */
};

struct queue {
    uint64_t clock; /* no ticket seen is larger */
    struct entry *first;
};

/* <0, 0, >0. */
int ticket_compare(const struct ticket *a, const struct ticket *b);

/* Queue entry (kind, from, to and number of its ticket are filled in) with a proposal, and return it. */
uint64_t queue_propose(struct queue *queue, struct entry *entry);
/* Queue entry with its final ticket, not below the proposal, and return it.  STATUS_CORRUPT: the proposal came from the
 * wire and is no ticket. */
enum status queue_decide(struct queue *queue, struct entry *entry, uint64_t proposal, uint64_t *ret);
/* The proposed entry's ticket has come.  STATUS_CORRUPT: below its proposal, above any ticket, or nothing was proposed.
 */
enum status queue_settle(struct queue *queue, struct entry *entry, uint64_t clock);
/* Take what may be started now, in order: entries [QUEUE_GROUP], returns how many; they are queued no more.  Together
 * go neighbours in the order, at most one each way between two ranks. */
size_t queue_take(struct queue *queue, struct entry **entries);
/* Forget entry, whether it is queued or not. */
void queue_remove(struct queue *queue, struct entry *entry);

#endif
