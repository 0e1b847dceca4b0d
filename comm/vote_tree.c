/* The vote of large groups, before payload where an algorithm's own messages do not bring all members together: headers
 * up the balanced tree to the first member, then down.  It is also their barrier and failure agreement.
 *
 * 2 ceil(log2 n) rounds.  A member goes up only after its whole subtree was compared, so whoever hears the way down
 * knows that all headers were equal.  An agreement's flags travel with them, 4 bytes; and up go an all-to-all's rows of
 * counts, 16 n^2 bytes in all to the first member, which compares the whole matrix. */
#include "comm/collective.h"

#include <string.h>

#include "base/bytes.h"
#include "comm/alltoall.h"
#include "comm/member_tree.h"

/* What goes up from a right half of this many members, or down. */
static struct part vote_part(const struct collective *work, bool up, int members)
{
    struct part part = collective_part(work);

    if (work->completion.operation == OPERATION_FAILURE_AGREEMENT)
        part.bytes = 4;
    else if (up && alltoall_has_rows(work))
        part.bytes = alltoall_row_bytes(work) * (size_t)members;
    return part;
}

/* Rows of the subtree that this member leads lie in scratch, its own first. */
static enum status start(struct collective *work, struct error *err)
{
    enum status st;

    if (!alltoall_has_rows(work))
        return STATUS_OK;
    st = collective_scratch(work, alltoall_row_bytes(work) * (size_t)(work->size - work->rank), err);
    if (st == STATUS_OK)
        alltoall_put_rows(work, work->scratch);
    return st;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    bool up = round < tree_depth(work->size);
    struct tree_place place = tree_round(work->size, work->rank, round);
    struct part part = vote_part(work, up, place.right);
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = round < 2 * tree_depth(work->size);
    if (!*ret_more) {
        work->completion.flags = work->flags;
        return STATUS_OK;
    }
    if (!round)
        st = start(work, err);
    if (st != STATUS_OK || place.other < 0 || (!place.leads && !place.follows))
        return st;
    if (up ? place.leads : place.follows)
        return collective_receive(work, place.other, &part, err);
    st = collective_send(work, &place.other, 1, &part, &payload, err);
    if (st != STATUS_OK || !part.bytes)
        return st;
    if (alltoall_has_rows(work))
        memcpy(payload, work->scratch, part.bytes);
    else
        put_u32(payload, work->flags);
    return STATUS_OK;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    int depth = tree_depth(work->size);
    const struct framed_receive *came = work->receive_count ? &work->receives[0] : NULL;
    struct tree_place place = tree_round(work->size, work->rank, round);

    if (came && came->payload_bytes && alltoall_has_rows(work))
        memcpy((unsigned char *)work->scratch + alltoall_row_bytes(work) * (size_t)(place.other - work->rank),
               came->payload, came->payload_bytes);
    else if (came && came->payload_bytes)
        work->flags &= get_u32(came->payload);
    if (alltoall_has_rows(work) && round == depth - 1 && work->rank == 0)
        return alltoall_check_matrix(work, work->scratch, err);
    return STATUS_OK;
}

const struct algorithm vote_tree = {.name = "tree", .begin = begin, .end = end};
