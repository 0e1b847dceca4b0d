/* Sum of small tensors in large groups: up the balanced tree over member order, then down again.
 *
 * 2 ceil(log2 n) rounds, at most one message of the whole tensor a member and round.  A node's first member
 * adds the right half's sum to the left half's.  f16 and bf16 travel as f32 on the way up and are rounded once, at the
 * root.  Nothing comes down before every member has gone up and was compared, so the vote is folded in; it goes up the
 * same tree as vote_tree, so that members with other operations meet. */
#include "comm/collective.h"

#include "base/size.h"
#include "comm/member_tree.h"
#include "comm/reduce.h"
#include "comm/staging.h"

static size_t element_count(const struct collective *work)
{
    return work->send->bytes / dtype_bytes(work->dtype);
}

static struct part tree_part(const struct collective *work, bool up)
{
    struct part part = collective_part(work);

    /* The header says what is summed, not what partial sums travel as: f16 here and f32 there must differ. */
    part.bytes = element_count(work) * dtype_bytes(up ? reduce_partial(work->dtype) : work->dtype);
    return part;
}

/* My own contribution, as a partial sum. */
static enum status start(struct collective *work, struct error *err)
{
    enum status st = collective_scratch(work, tree_part(work, true).bytes, err);

    if (st == STATUS_OK)
        st = reduce_widen_on(work->device, work->dtype, work->send->data, element_count(work), work->scratch, err);
    return st;
}

/* The root's sum, rounded once.  On a device not in place. */
static enum status round_sum(struct collective *work, struct error *err)
{
    struct staging *staging = collective_staging(work);
    unsigned char *rounded = NULL;
    enum status st = STATUS_OK;

    if (!work->device || reduce_partial(work->dtype) == work->dtype) {
        reduce_narrow(work->dtype, work->scratch, work->device ? 0 : element_count(work), work->scratch);
        return STATUS_OK;
    }
    rounded = staging_take(staging, work->send->bytes, err);
    if (!rounded)
        return error_wrap(err, STATUS_NOMEM, "a sum of %zu bytes", work->send->bytes);
    st = reduce_narrow_on(work->device, work->dtype, work->scratch, element_count(work), rounded, err);
    if (st == STATUS_OK)
        st = collective_copy(work, work->scratch, rounded, work->send->bytes, err);
    staging_give(staging, rounded);
    return st;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int depth = tree_depth(work->size);
    bool up = round < depth;
    struct tree_place place = tree_round(work->size, work->rank, round);
    struct part part = tree_part(work, up);
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = round < 2 * depth;
    if (!*ret_more)
        return STATUS_OK;
    if (!round)
        st = start(work, err);
    if (st == STATUS_OK && round == depth && work->rank == 0)
        st = round_sum(work, err);
    if (st != STATUS_OK || place.other < 0 || (!place.leads && !place.follows))
        return st;
    if (up ? place.leads : place.follows)
        return collective_receive(work, place.other, &part, err);
    st = collective_send(work, &place.other, 1, &part, &payload, err);
    if (st == STATUS_OK)
        st = collective_copy(work, payload, work->scratch, part.bytes, err);
    return st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    int depth = tree_depth(work->size);
    const unsigned char *came = work->receive_count ? work->receives[0].payload : NULL;
    enum status st = STATUS_OK;

    if (came && round < depth)
        st = reduce_add_on(work->device, reduce_partial(work->dtype), work->scratch, came, element_count(work), err);
    else if (came)
        st = collective_copy(work, work->scratch, came, work->send->bytes, err);
    if (st == STATUS_OK && round == 2 * depth - 1)
        st = collective_copy(work, work->recv->data, work->scratch, work->recv->bytes, err);
    return st;
}

const struct algorithm allreduce_tree = {.name = "tree", .begin = begin, .end = end};
