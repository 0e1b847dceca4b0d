/* Broadcast in small groups: the root sends to everybody.
 *
 * One round.  With full checks the others send each other (and the root) bare headers, so that all pairs meet and the
 * vote is folded in. */
#include "comm/collective.h"

#include <string.h>

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
    if (root || work->full)
        st = collective_send_all(work, root ? &payload_part : &header, &payload, err);
    if (st == STATUS_OK && root && payload_part.bytes)
        memcpy(payload, work->recv->data, payload_part.bytes);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        if (i != work->rank && (i == work->root || work->full))
            st = collective_receive(work, i, i == work->root ? &payload_part : &header, err);
    }
    return st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    int at = work->full && work->rank < work->root ? work->root - 1 : work->full ? work->root : 0;

    (void)round;
    (void)err;
    if (work->rank != work->root && work->recv->bytes)
        memcpy(work->recv->data, work->receives[at].payload, work->recv->bytes);
    return STATUS_OK;
}

const struct algorithm broadcast_direct = {.name = "direct", .begin = begin, .end = end};
