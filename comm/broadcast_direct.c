/* Broadcast in small groups: the root sends to everybody.
 *
 * One round.  Of small tensors the vote is folded in: with full checks the others send each other (and the root) bare
 * headers, so that all pairs meet. */
#include "comm/collective.h"

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    struct part header = collective_part(work);
    struct part payload_part = header;
    bool root = work->rank == work->root;
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = round == 0;
    if (round)
        return STATUS_OK;
    payload_part.bytes = work->recv->bytes;
    if (root)
        st = collective_send_all_from(work, &payload_part, work->recv->data, err);
    else if (work->folded)
        st = collective_send_all(work, &header, &payload, err);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        if (i == work->root && !root)
            st = collective_receive_from(work, i, &payload_part, work->recv->data, err);
        else if (i != work->rank && work->folded)
            st = collective_receive(work, i, &header, err);
    }
    return st;
}

const struct algorithm broadcast_direct = {.name = "direct", .begin = begin};
