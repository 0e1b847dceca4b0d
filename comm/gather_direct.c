/* Gather in small groups: everybody sends its part to everybody.
 *
 * One round, n - 1 messages of the own part a member, all from one buffer.  All pairs meet, so the vote is folded in.
 */
#include "comm/collective.h"

#include <string.h>

static struct part slot_part(const struct collective *work, int member)
{
    struct part part = collective_part(work);

    part.send_count = layout_count(&work->from, member);
    part.receive_count = layout_total(&work->from);
    part.shape.dim[work->axis] = part.send_count;
    part.bytes = slab_bytes(&work->recv_slab, part.send_count);
    return part;
}

/* Parts are whole: they need no packing. */
static bool contiguous(const struct collective *work)
{
    return work->recv_slab.outer == 1;
}

static size_t start_bytes(const struct collective *work, int member)
{
    return (size_t)work->from.start[member] * work->recv_slab.inner_bytes;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    struct part mine = slot_part(work, work->rank);
    bool in_place = work->send == work->recv;
    size_t skip = in_place ? start_bytes(work, work->rank) : 0;
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = round == 0;
    if (round)
        return STATUS_OK;
    if (contiguous(work))
        st = collective_send_all_from(work, &mine, work->send->data + skip, in_place, err);
    else
        st = collective_send_all(work, &mine, &payload, err);
    if (st == STATUS_OK && payload)
        slab_pack(&work->send_slab, work->send->data, work->send == work->recv ? work->from.start[work->rank] : 0,
                  mine.send_count, payload);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        struct part part = slot_part(work, i);

        if (i == work->rank)
            continue;
        if (contiguous(work))
            st = collective_receive_from(work, i, &part, work->recv->data + start_bytes(work, i), err);
        else
            st = collective_receive(work, i, &part, err);
    }
    return st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    (void)round;
    (void)err;
    if (contiguous(work)) {
        if (work->send != work->recv && work->send->bytes)
            memcpy(work->recv->data + start_bytes(work, work->rank), work->send->data, work->send->bytes);
        return STATUS_OK;
    }
    for (int i = 0, next = 0; i < work->size; i++) {
        const unsigned char *packed = i == work->rank ? work->sends[0].payload : work->receives[next++].payload;

        slab_unpack(&work->recv_slab, work->recv->data, work->from.start[i], layout_count(&work->from, i), packed);
    }
    return STATUS_OK;
}

const struct algorithm gather_direct = {.name = "direct", .begin = begin, .end = end};
