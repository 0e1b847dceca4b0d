/* Broadcast in small groups: the root sends to everybody, or lends to whoever can read the tensor where it is.
 *
 * One round.  Of small tensors the vote is folded in: with full checks the others send each other (and the root) bare
 * headers, so that all pairs meet. */
#include "comm/collective.h"

/* The tensor as one run. */
static struct slab whole_slab(const struct collective *work)
{
    return (struct slab){.outer = 1, .extent = 1, .inner_bytes = work->recv->bytes};
}

static enum status begin_root(struct collective *work, const struct part *payload, struct error *err)
{
    struct slab slab = whole_slab(work);
    struct runs runs = slab_runs(&slab, work->recv->data, 0, 1);
    enum status st = STATUS_OK;

    for (int i = 1; i < work->size && st == STATUS_OK; i++) {
        bool lent = false;

        st = collective_lend(work, (work->rank + i) % work->size, payload, &runs, &lent, err);
    }
    if (st != STATUS_OK || collective_all_in(work, work->lent_to))
        return st;
    return collective_send_all_from(work, payload, work->recv->data, err);
}

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
        st = begin_root(work, &payload_part, err);
    else if (work->folded)
        st = collective_send_all(work, &header, &payload, err);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        if (i == work->root && !root) {
            st = collective_receive_from(work, i, &payload_part, work->recv->data, err);
            if (st == STATUS_OK)
                collective_may_be_lent(work, &payload_part);
        } else if (i != work->rank && work->folded) {
            st = collective_receive(work, i, &header, err);
        }
    }
    return st;
}

/* What was not lent lies there already. */
static enum status end(struct collective *work, int round, struct error *err)
{
    struct slab slab = whole_slab(work);

    (void)round;
    for (int i = 0; i < work->receive_count; i++) {
        if (work->receives[i].runs.rows)
            return collective_unpack(work, work->root, &work->receives[i], &slab, work->recv->data, 0, 1,
                                     slab_rows(&slab), err);
    }
    return STATUS_OK;
}

const struct algorithm broadcast_direct = {.name = "direct", .begin = begin, .end = end, .apart = true};
