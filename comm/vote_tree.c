/* The vote before payload where an algorithm's own messages do not bring all members together: bare headers up a
 * binomial tree to the first member, then down.
 *
 * 2 ceil(log2 n) rounds.  A member goes up only after its whole subtree was compared, so whoever hears the way down
 * knows that all headers were equal. */
#include "comm/collective.h"

static int depth_of(int size)
{
    int depth = 0;

    while ((1 << depth) < size)
        depth++;
    return depth;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int depth = depth_of(work->size);
    bool up = round < depth;
    int distance = 1;
    struct part part = collective_part(work);
    unsigned char *payload = NULL;
    int upper = 0;
    int lower = 0;

    *ret_more = round < 2 * depth;
    if (!*ret_more)
        return STATUS_OK;
    distance = 1 << (up ? round : 2 * depth - 1 - round);
    upper = work->rank - distance;
    lower = work->rank + distance;
    if (work->rank % distance)
        return STATUS_OK;
    if (work->rank & distance)
        return up ? collective_send(work, &upper, 1, &part, &payload, err)
                  : collective_receive(work, upper, &part, err);
    if (lower >= work->size)
        return STATUS_OK;
    return up ? collective_receive(work, lower, &part, err) : collective_send(work, &lower, 1, &part, &payload, err);
}

const struct algorithm vote_tree = {.name = "vote", .begin = begin};
