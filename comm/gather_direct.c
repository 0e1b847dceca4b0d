/* Gather in small groups: everybody sends its part to everybody.
 *
 * A part that its receiver can read where it is is lent in the first round, whole.  Else, where parts lie together in
 * what is gathered one round, n - 1 messages of the own part a member; or they are packed and travel in pieces, a round
 * each: a piece is unpacked, and the own one copied, while it is still in the cache.  All pairs meet, so the vote is
 * folded in where there is one round. */
#include "comm/collective.h"

/* Of the gathered whole along the axis. */
static struct rows piece_of(const struct collective *work, int member, int round)
{
    return slab_piece(&work->recv_slab, layout_count(&work->from, member), COLLECTIVE_PIECE_BYTES, round);
}

static struct part piece_part(const struct collective *work, int member, struct rows rows)
{
    struct part part = collective_part(work);

    part.send_count = layout_count(&work->from, member);
    part.receive_count = layout_total(&work->from);
    part.shape.dim[work->axis] = part.send_count;
    part.bytes = rows.count * (size_t)part.send_count * work->recv_slab.inner_bytes;
    return part;
}

/* Nothing travels behind the last row of a part, or of one that was lent; an empty part's header does. */
static bool travels(uint64_t lent, int member, struct rows rows, int round)
{
    return !round || (rows.count && !collective_is_in(lent, member));
}

static struct part whole_part(const struct collective *work, int member)
{
    return piece_part(work, member, slab_rows(&work->recv_slab));
}

/* The own part lies by itself, or in its place in the whole. */
static uint64_t own_start(const struct collective *work)
{
    return work->send == work->recv ? work->from.start[work->rank] : 0;
}

/* To whoever can read it. */
static enum status lend_own(struct collective *work, struct error *err)
{
    struct part whole = whole_part(work, work->rank);
    struct runs runs = slab_runs(&work->send_slab, work->send->data, own_start(work), whole.send_count);
    enum status st = STATUS_OK;

    for (int i = 1; i < work->size && st == STATUS_OK; i++) {
        bool lent = false;

        st = collective_lend(work, (work->rank + i) % work->size, &whole, &runs, &lent, err);
    }
    return st;
}

static enum status count_rounds(const struct collective *work, int *ret, struct error *err)
{
    *ret = 1;
    if (collective_all_in(work, work->lent_to & work->lent_from))
        return STATUS_OK;
    for (int i = 0; i < work->size; i++) {
        int pieces = 0;
        enum status st =
            slab_pieces(&work->recv_slab, layout_count(&work->from, i), COLLECTIVE_PIECE_BYTES, &pieces, err);

        if (st != STATUS_OK)
            return st;
        *ret = pieces > *ret ? pieces : *ret;
    }
    return STATUS_OK;
}

static enum status send_own(struct collective *work, int round, struct error *err)
{
    struct rows rows = piece_of(work, work->rank, round);
    struct part part = piece_part(work, work->rank, rows);
    uint64_t start = own_start(work);
    bool together = rows.count <= 1 || work->send_slab.extent == part.send_count;
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    if (round && !rows.count)
        return STATUS_OK;
    if (together)
        return collective_send_all_from(work, &part, slab_at(&work->send_slab, work->send->data, start, rows), err);
    st = collective_send_all_apart(work, &part, &payload, err);
    if (st == STATUS_OK)
        st = slab_pack(work->device, &work->send_slab, work->send->data, start, part.send_count, rows, payload, err);
    return st;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int rounds = 1;
    enum status st = round ? count_rounds(work, &rounds, err) : STATUS_OK;

    *ret_more = st == STATUS_OK && round < rounds;
    if (!*ret_more)
        return st;
    CHECK(!round || !work->folded);
    if (!round)
        st = lend_own(work, err);
    if (st == STATUS_OK && !collective_all_in(work, work->lent_to))
        st = send_own(work, round, err);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        struct rows rows = piece_of(work, i, round);
        struct part part = piece_part(work, i, rows);
        unsigned char *target = NULL;

        if (i == work->rank || !travels(work->lent_from, i, rows, round))
            continue;
        if (rows.count == 1)
            target = slab_at(&work->recv_slab, work->recv->data, work->from.start[i], rows);
        st = collective_receive_from(work, i, &part, target, err);
        if (st == STATUS_OK && !round) {
            part = whole_part(work, i);
            collective_may_be_lent(work, &part);
        }
    }
    return st;
}

static enum status keep_own(struct collective *work, struct rows rows, struct error *err)
{
    if (work->send == work->recv)
        return STATUS_OK;
    return slab_move(work->device, &work->recv_slab, work->recv->data, work->from.start[work->rank], &work->send_slab,
                     work->send->data, 0, layout_count(&work->from, work->rank), rows, err);
}

/* The own part to its place, while others read what was sent to them. */
static enum status keep_piece(struct collective *work, int round, struct error *err)
{
    return keep_own(work, collective_own_rows(work, round, piece_of(work, work->rank, round)), err);
}

static enum status meanwhile(struct collective *work, int round, struct error *err)
{
    return collective_keeps_early(work) ? keep_piece(work, round, err) : STATUS_OK;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    const struct layout *from = &work->from;
    enum status st = STATUS_OK;

    if (!collective_keeps_early(work))
        st = keep_piece(work, round, err);
    for (int i = 0, next = 0; i < work->size && st == STATUS_OK; i++) {
        struct rows rows = piece_of(work, i, round);

        if (i == work->rank || !travels(work->lent_from, i, rows, round))
            continue;
        if (rows.count > 1 || work->receives[next].runs.rows)
            st = collective_unpack(work, i, &work->receives[next], &work->recv_slab, work->recv->data, from->start[i],
                                   layout_count(from, i), rows, err);
        next++;
    }
    return st;
}

const struct algorithm gather_direct = {
    .name = "direct", .begin = begin, .end = end, .meanwhile = meanwhile, .apart = true};
