/* One operation of two ranks whose first rank damages a bit of one of its messages: over any transport. */
#ifndef TESTS_LOOP_FLIP_H
#define TESTS_LOOP_FLIP_H

#include "base/memory.h"
#include "comm/session.h"

enum flip_kind {
    FLIP_SUM,
    FLIP_LARGE_SUM,
    FLIP_GATHER,
    FLIP_UNEVEN_GATHER,
    FLIP_EXCHANGE,
    FLIP_BROADCAST,
    FLIP_BARRIER,
    FLIP_AGREEMENT,
    FLIP_BUNDLE,
    FLIP_KINDS
};

/* What to damage; taken by rank 0 alone. */
struct flip {
    enum flip_kind kind;
    int message; /* the how many-th of rank 0, from 0 */
    int header_bytes;
};

/* Every header that the operations send, rounds, roles and tensors included. */
extern const struct flip flips[];
extern const int flip_count;

const char *flip_name(enum flip_kind kind);

/* The groups and routes that a session needs for it. */
extern const struct group_spec flip_group;
extern const struct route_spec flip_route;

/* Put a damaging send in front of the table's own, of device messages, too; one at a time in a process. */
struct transport_ops flip_transport(const struct transport_ops *ops);
/* Bit number bit of that message will be damaged, once; of a device message both ahead and in band. */
void flip_arm(const struct flip *flip, int bit);
/* The same of the how many-th device message that rank 1 receives, in band alone. */
void flip_arm_in_band(int message, int bit);

/* Run the operation.  Collective over the two ranks.  memory: where tensors lie, the session's; NULL: on the host.
 * *ret_delivered: some output that the caller can see was written. */
enum status flip_run(struct session *session, struct memory *memory, enum flip_kind kind, bool *ret_delivered,
                     struct error *err);

#endif
