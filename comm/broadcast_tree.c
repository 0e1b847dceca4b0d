/* Broadcast in large groups: a binomial tree from the root.
 *
 * ceil(log2 n) rounds; in round k those that have it (2^k members, counted from the root) send it 2^k further. */
#include "comm/collective.h"

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int distance = 1 << round;
    int place = (work->rank + work->size - work->root) % work->size;
    int to = (work->rank + distance) % work->size;
    int from = (work->rank + work->size - distance % work->size) % work->size;
    struct part part = collective_part(work);
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = distance < work->size;
    part.bytes = work->recv->bytes;
    if (!*ret_more)
        return STATUS_OK;
    if (place >= distance && place < 2 * distance)
        return collective_receive(work, from, &part, err);
    if (place >= distance || place + distance >= work->size)
        return STATUS_OK;
    st = collective_send(work, &to, 1, &part, &payload, err);
    return st == STATUS_OK ? collective_copy(work, payload, work->recv->data, part.bytes, err) : st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    (void)round;
    if (!work->receive_count)
        return STATUS_OK;
    return collective_copy(work, work->recv->data, work->receives[0].payload, work->recv->bytes, err);
}

const struct algorithm broadcast_tree = {.name = "tree", .begin = begin, .end = end};
