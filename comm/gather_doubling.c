/* Gather of small parts in large groups by recursive doubling (Bruck): what a member holds doubles each round.
 *
 * ceil(log2 n) rounds, one message a member and round, n - 1 parts sent in all.  Held are the parts of the members
 * rank, rank + 1, ... in scratch, packed; round k sends the first 2^k of them (or what is still missing there) to
 * rank - 2^k and gets as many from rank + 2^k. */
#include "comm/collective.h"

/* Extents of count members' parts from member first on, in cyclic order. */
static uint64_t run_extents(const struct collective *work, int first, int count)
{
    uint64_t extents = 0;

    for (int i = 0; i < count; i++)
        extents += layout_count(&work->from, (first + i) % work->size);
    return extents;
}

static int round_parts(const struct collective *work, int round)
{
    int held = 1 << round;

    return held < work->size - held ? held : work->size - held;
}

static struct part run_part(const struct collective *work, int first, int count)
{
    struct part part = collective_part(work);

    part.send_count = run_extents(work, first, count);
    part.receive_count = layout_total(&work->from);
    part.bytes = slab_bytes(&work->recv_slab, part.send_count);
    return part;
}

static enum status start(struct collective *work, struct error *err)
{
    enum status st = collective_scratch(work, slab_bytes(&work->recv_slab, layout_total(&work->from)), err);

    if (st == STATUS_OK)
        st = slab_pack(work->device, &work->send_slab, work->send->data,
                       work->send == work->recv ? work->from.start[work->rank] : 0,
                       layout_count(&work->from, work->rank), slab_rows(&work->send_slab), work->scratch, err);
    return st;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int distance = 1 << round;
    int to = (work->rank + work->size - distance % work->size) % work->size;
    int from = (work->rank + distance) % work->size;
    struct part mine;
    struct part theirs;
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = distance < work->size;
    if (!*ret_more)
        return STATUS_OK;
    if (!round)
        st = start(work, err);
    mine = run_part(work, work->rank, round_parts(work, round));
    theirs = run_part(work, from, round_parts(work, round));
    if (st == STATUS_OK)
        st = collective_send(work, &to, 1, &mine, &payload, err);
    if (st == STATUS_OK)
        st = collective_copy(work, payload, work->scratch, mine.bytes, err);
    return st == STATUS_OK ? collective_receive(work, from, &theirs, err) : st;
}

/* All parts are here: each to its slot. */
static enum status deliver(struct collective *work, struct error *err)
{
    const unsigned char *packed = work->scratch;
    enum status st = STATUS_OK;

    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        int member = (work->rank + i) % work->size;
        uint64_t count = layout_count(&work->from, member);

        st = slab_unpack(work->device, &work->recv_slab, work->recv->data, work->from.start[member], count,
                         slab_rows(&work->recv_slab), packed, err);
        packed += slab_bytes(&work->recv_slab, count);
    }
    return st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    size_t held = slab_bytes(&work->recv_slab, run_extents(work, work->rank, 1 << round));
    enum status st = collective_copy(work, (unsigned char *)work->scratch + held, work->receives[0].payload,
                                     work->receives[0].payload_bytes, err);

    return st == STATUS_OK && 2 << round >= work->size ? deliver(work, err) : st;
}

const struct algorithm gather_doubling = {.name = "doubling", .begin = begin, .end = end};
