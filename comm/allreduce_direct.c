/* Sum of small tensors in small groups, and of any in groups of two: everybody sends everything to everybody and adds
 * alone.
 *
 * One round, n - 1 messages of the whole tensor a member.  All pairs meet, so the vote is folded in: the sum is
 * written only when every member's header was the expected one. */
#include "comm/collective.h"

#include <stdlib.h>

#include "comm/reduce.h"

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    struct part part = collective_part(work);
    enum status st = STATUS_OK;

    *ret_more = round == 0;
    if (round)
        return STATUS_OK;
    part.bytes = work->send->bytes;
    st = collective_send_all_from(work, &part, work->send->data, err);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        if (i != work->rank)
            st = collective_receive_from(work, i, &part, NULL, err);
    }
    return st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    const void **in = calloc((size_t)work->size, sizeof *in);
    enum status st = STATUS_OK;

    (void)round;
    if (!in)
        return error_set(err, STATUS_NOMEM, "a list of %d members", work->size);
    for (int i = 0, next = 0; i < work->size; i++)
        in[i] = i == work->rank ? work->send->data : work->receives[next++].payload;
    st = collective_sum(work, in, work->send->bytes / dtype_bytes(work->dtype), work->recv->data, err);
    free(in);
    return st;
}

const struct algorithm allreduce_direct = {.name = "direct", .begin = begin, .end = end};
