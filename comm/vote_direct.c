/* The vote of small groups, before payload where an algorithm's own messages do not bring all pairs together: everybody
 * sends everybody a header.  It is also their barrier and failure agreement.
 *
 * One round, n - 1 messages a member, with an agreement's flags as 4 bytes of payload. */
#include "comm/collective.h"

#include "base/bytes.h"

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    struct part part = collective_part(work);
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = round == 0;
    if (round) {
        work->completion.flags = work->flags;
        return STATUS_OK;
    }
    part.bytes = work->completion.operation == OPERATION_FAILURE_AGREEMENT ? 4 : 0;
    st = collective_send_all(work, &part, &payload, err);
    if (st == STATUS_OK && part.bytes)
        put_u32(payload, work->flags);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        if (i != work->rank)
            st = collective_receive(work, i, &part, err);
    }
    return st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    (void)round;
    (void)err;
    for (int i = 0; i < work->receive_count; i++) {
        if (work->receives[i].payload_bytes)
            work->flags &= get_u32(work->receives[i].payload);
    }
    return STATUS_OK;
}

const struct algorithm vote_direct = {.name = "direct", .begin = begin, .end = end};
