/* Variable all-to-all in large groups: in round r each member sends to rank + r and receives from rank - r.
 *
 * n - 1 rounds, one message a member and round, also where nothing goes. */
#include "comm/collective.h"

#include "comm/alltoall.h"

static struct part pair_part(const struct collective *work, uint64_t send_count, uint64_t receive_count)
{
    struct part part = collective_part(work);

    part.send_count = send_count;
    part.receive_count = receive_count;
    part.shape.dim[work->axis] = send_count;
    part.bytes = slab_bytes(&work->recv_slab, send_count);
    return part;
}

static int from_in(const struct collective *work, int round)
{
    return (work->rank + work->size - round - 1) % work->size;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int to = (work->rank + round + 1) % work->size;
    int from = from_in(work, round);
    struct part out = pair_part(work, layout_count(&work->to, to), layout_count(&work->from, to));
    struct part in = pair_part(work, layout_count(&work->from, from), layout_count(&work->to, from));
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = round < work->size - 1;
    if (!*ret_more)
        return STATUS_OK;
    st = collective_send(work, &to, 1, &out, &payload, err);
    if (st != STATUS_OK)
        return st;
    st = slab_pack(work->device, &work->send_slab, work->send->data, work->to.start[to], layout_count(&work->to, to),
                   slab_rows(&work->send_slab), payload, err);
    return st == STATUS_OK ? collective_receive(work, from, &in, err) : st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    int from = from_in(work, round);
    enum status st =
        slab_unpack(work->device, &work->recv_slab, work->recv->data, work->from.start[from],
                    layout_count(&work->from, from), slab_rows(&work->recv_slab), work->receives[0].payload, err);

    if (st == STATUS_OK && !round)
        st = alltoall_keep_own(work, slab_rows(&work->recv_slab), err);
    return st;
}

const struct algorithm alltoall_pairwise = {.name = "pairwise", .begin = begin, .end = end};
