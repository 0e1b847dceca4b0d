/* Gather of large parts in large groups: parts travel around the ring of members.
 *
 * n - 1 rounds, one message of one part a member and round, each link used once a part. */
#include "comm/collective.h"

static struct part slot_part(const struct collective *work, int member)
{
    struct part part = collective_part(work);

    part.send_count = layout_count(&work->from, member);
    part.receive_count = layout_total(&work->from);
    part.shape.dim[work->axis] = part.send_count;
    part.bytes = slab_bytes(&work->recv_slab, part.send_count);
    return part;
}

/* The member whose part leaves here in this round. */
static int sent_in(const struct collective *work, int round)
{
    return (work->rank + work->size - round) % work->size;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int next = (work->rank + 1) % work->size;
    int before = (work->rank + work->size - 1) % work->size;
    int member = sent_in(work, round);
    struct part mine = slot_part(work, member);
    struct part theirs = slot_part(work, sent_in(work, round + 1));
    bool first = round == 0 && work->send != work->recv;
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = round < work->size - 1;
    if (!*ret_more)
        return STATUS_OK;
    st = collective_send(work, &next, 1, &mine, &payload, err);
    if (st != STATUS_OK)
        return st;
    st = slab_pack(work->device, first ? &work->send_slab : &work->recv_slab,
                   first ? work->send->data : work->recv->data, first ? 0 : work->from.start[member], mine.send_count,
                   slab_rows(&work->recv_slab), payload, err);
    return st == STATUS_OK ? collective_receive(work, before, &theirs, err) : st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    int member = sent_in(work, round + 1);
    enum status st = STATUS_OK;

    if (!round)
        st = slab_unpack(work->device, &work->recv_slab, work->recv->data, work->from.start[work->rank],
                         layout_count(&work->from, work->rank), slab_rows(&work->recv_slab), work->sends[0].payload,
                         err);
    if (st != STATUS_OK)
        return st;
    return slab_unpack(work->device, &work->recv_slab, work->recv->data, work->from.start[member],
                       layout_count(&work->from, member), slab_rows(&work->recv_slab), work->receives[0].payload, err);
}

const struct algorithm gather_ring = {.name = "ring", .begin = begin, .end = end};
