/* Agreement and barrier: in round k each member tells rank + 2^k what it has heard, and hears from rank - 2^k.
 *
 * ceil(log2 n) rounds, one message a member and round: 4 bytes for an agreement, none for a barrier.  AND may hear the
 * same member twice, so any group size will do. */
#include "comm/collective.h"

#include "base/bytes.h"

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int distance = 1 << round;
    int to = (work->rank + distance) % work->size;
    int from = (work->rank + work->size - distance % work->size) % work->size;
    struct part part = collective_part(work);
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = distance < work->size;
    if (!*ret_more) {
        work->completion.flags = work->flags;
        return STATUS_OK;
    }
    part.bytes = work->completion.operation == OPERATION_FAILURE_AGREEMENT ? 4 : 0;
    st = collective_send(work, &to, 1, &part, &payload, err);
    if (st == STATUS_OK && part.bytes)
        put_u32(payload, work->flags);
    return st == STATUS_OK ? collective_receive(work, from, &part, err) : st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    (void)round;
    (void)err;
    if (work->receives[0].payload_bytes)
        work->flags &= get_u32(work->receives[0].payload);
    return STATUS_OK;
}

const struct algorithm agreement_dissemination = {.name = "dissemination", .begin = begin, .end = end};
