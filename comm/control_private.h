/* The inside of the control channel, for control.c and settlement.c alone. */
#ifndef COMM_CONTROL_PRIVATE_H
#define COMM_CONTROL_PRIVATE_H

#include "comm/control_message.h"
#include "comm/suspicion.h"

/* Up to this many ranks everybody tells everybody; above, news floods over the ranks 1, 2, 4, 8, ... away. */
enum { CONTROL_DIRECT_RANKS = 64 };

struct control {
    const struct transport_ops *ops;
    struct transport *transport;
    const struct wait_state *state;
    int rank;
    int size;
    uint64_t start_ns;

    struct inbox *inbox;
    struct parcel *parcel; /* the one that is being served */
    uint64_t *heard_ns;    /* [size] */

    uint64_t counter;    /* of state, as last seen */
    uint64_t changed_ns; /* when it was seen to change */
    uint64_t looked_ns;  /* when it was looked at last */
    uint64_t awake_ns;   /* since when there was no long break between two looks */
    struct suspicion suspicion;

    uint64_t told_ns; /* when a line about a wait was told last; 0: never */
    uint64_t gap_ns;  /* and how long until the next */

    bool poisoned;
    struct cause cause; /* the first failure known here */

    bool settling;
    bool *settled_with; /* [size] when settling directly */
    struct claim best;  /* the best cause, and the lowest rank that takes part in settling */
    bool has_verdict;
    struct claim verdict;

    void (*print)(void *context, int rank, const char *line);
    void *print_context;
    control_take_roll *take_roll;
    void *roll_context;
    cause_speak *speak;
    void *speak_context;
};

/* Send content to one rank, or to all neighbours (everybody, in a small world).  Best effort: a rank that cannot be
 * told is found by the timeout rule. */
void control_tell(struct control *control, int peer, enum control_kind kind, const unsigned char *data, size_t bytes);
void control_tell_neighbours(struct control *control, enum control_kind kind, const unsigned char *data, size_t bytes);

/* Another cause than the first: kept for settling when it explains more. */
void control_consider(struct control *control, const struct cause *cause);

/* Claims of others. */
void control_take_settle(struct control *control, int peer, const struct claim *claim);
void control_take_verdict(struct control *control, const struct claim *claim);

#endif
