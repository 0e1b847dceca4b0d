/* Variable all-to-all in small groups: every pair exchanges at once, also where nothing goes either way.
 *
 * A part that its receiver can read where it is is lent in the first round, whole, in the sender's runs, and nothing is
 * packed.  Else, where a pair's part lies together one message; else it is packed and travels in pieces, a round each,
 * that are unpacked while they are still in the cache.  Rounds of a pair without pieces are empty.  With full checks
 * the vote goes ahead, and brings the whole matrix of counts. */
#include "comm/collective.h"

#include "comm/alltoall.h"

static struct rows piece_of(const struct collective *work, uint64_t count, int round)
{
    return slab_piece(&work->recv_slab, count, COLLECTIVE_PIECE_BYTES, round);
}

static struct part piece_part(const struct collective *work, uint64_t send_count, uint64_t receive_count,
                              struct rows rows)
{
    struct part part = collective_part(work);

    part.send_count = send_count;
    part.receive_count = receive_count;
    part.shape.dim[work->axis] = send_count;
    part.bytes = rows.count * (size_t)send_count * work->recv_slab.inner_bytes;
    return part;
}

/* Nothing travels behind the last row of a part, or of one that was lent; an empty part's header does. */
static bool travels(uint64_t lent, int member, struct rows rows, int round)
{
    return !round || (rows.count && !collective_is_in(lent, member));
}

static enum status count_rounds(const struct collective *work, int *ret, struct error *err)
{
    *ret = 1;
    if (collective_all_in(work, work->lent_to & work->lent_from))
        return STATUS_OK;
    for (int i = 0; i < 2 * work->size; i++) {
        const struct layout *layout = i < work->size ? &work->to : &work->from;
        int pieces = 0;
        enum status st =
            slab_pieces(&work->recv_slab, layout_count(layout, i % work->size), COLLECTIVE_PIECE_BYTES, &pieces, err);

        if (st != STATUS_OK)
            return st;
        *ret = pieces > *ret ? pieces : *ret;
    }
    return STATUS_OK;
}

static enum status send_to(struct collective *work, int to, int round, struct error *err)
{
    uint64_t count = layout_count(&work->to, to);
    struct rows rows = piece_of(work, count, round);
    struct part part = piece_part(work, count, layout_count(&work->from, to), rows);

    bool lent = false;
    enum status st = STATUS_OK;

    if (!round) {
        struct part whole = piece_part(work, count, layout_count(&work->from, to), slab_rows(&work->recv_slab));
        struct runs runs = slab_runs(&work->send_slab, work->send->data, work->to.start[to], count);

        st = collective_lend(work, to, &whole, &runs, &lent, err);
    }
    if (st != STATUS_OK || lent || !travels(work->lent_to, to, rows, round))
        return st;
    if (rows.count == 1)
        return collective_send_from(work, &to, 1, &part,
                                    slab_at(&work->send_slab, work->send->data, work->to.start[to], rows), err);
    return collective_send_packed(work, to, &part, &work->send_slab, work->send->data, work->to.start[to], rows, err);
}

static enum status receive_from(struct collective *work, int from, int round, struct error *err)
{
    uint64_t count = layout_count(&work->from, from);
    struct rows rows = piece_of(work, count, round);
    struct part part = piece_part(work, count, layout_count(&work->to, from), rows);

    enum status st = STATUS_OK;

    if (!travels(work->lent_from, from, rows, round))
        return STATUS_OK;
    if (rows.count == 1)
        st = collective_receive_from(work, from, &part,
                                     slab_at(&work->recv_slab, work->recv->data, work->from.start[from], rows), err);
    else
        st = collective_receive(work, from, &part, err);
    if (st == STATUS_OK && !round) {
        part = piece_part(work, count, layout_count(&work->to, from), slab_rows(&work->recv_slab));
        collective_may_be_lent(work, &part);
    }
    return st;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int rounds = 1;
    enum status st = round ? count_rounds(work, &rounds, err) : STATUS_OK;

    *ret_more = st == STATUS_OK && round < rounds;
    if (!*ret_more)
        return st;
    for (int i = 1; i < work->size && st == STATUS_OK; i++)
        st = send_to(work, (work->rank + i) % work->size, round, err);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        if (i != work->rank)
            st = receive_from(work, i, round, err);
    }
    return st;
}

/* The own part to its place, while others read what was sent to them. */
static enum status keep_piece(struct collective *work, int round, struct error *err)
{
    struct rows rows = piece_of(work, layout_count(&work->from, work->rank), round);

    return alltoall_keep_own(work, collective_own_rows(work, round, rows), err);
}

static enum status meanwhile(struct collective *work, int round, struct error *err)
{
    return collective_keeps_early(work) ? keep_piece(work, round, err) : STATUS_OK;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    const struct layout *from = &work->from;
    enum status st = STATUS_OK;

    for (int i = 0, next = 0; i < work->size && st == STATUS_OK; i++) {
        struct rows rows = piece_of(work, layout_count(from, i), round);

        if (i == work->rank || !travels(work->lent_from, i, rows, round))
            continue;
        if (rows.count > 1 || work->receives[next].runs.rows)
            st = collective_unpack(work, i, &work->receives[next], &work->recv_slab, work->recv->data, from->start[i],
                                   layout_count(from, i), rows, err);
        next++;
    }
    if (st == STATUS_OK && !collective_keeps_early(work))
        st = keep_piece(work, round, err);
    return st;
}

const struct algorithm alltoall_direct = {
    .name = "direct", .begin = begin, .end = end, .meanwhile = meanwhile, .apart = true};
