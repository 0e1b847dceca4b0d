/* The vote of small groups, before payload where an algorithm's own messages do not bring all pairs together: everybody
 * sends everybody a header.  It is also their barrier and failure agreement.
 *
 * One round, n - 1 messages a member, with an agreement's flags as 4 bytes of payload, or an all-to-all's rows of
 * counts: so every member sees the whole matrix. */
#include "comm/collective.h"

#include <string.h>

#include "base/bytes.h"
#include "comm/alltoall.h"

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    struct part part = collective_part(work);
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = round == 0;
    if (round) {
        work->completion.flags = work->flags;
        return STATUS_OK;
    }
    if (work->completion.operation == OPERATION_FAILURE_AGREEMENT)
        part.bytes = 4;
    else if (alltoall_has_rows(work))
        part.bytes = alltoall_row_bytes(work);
    st = collective_send_all(work, &part, &payload, err);
    if (st == STATUS_OK && alltoall_has_rows(work))
        alltoall_put_rows(work, payload);
    else if (st == STATUS_OK && part.bytes)
        put_u32(payload, work->flags);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        if (i != work->rank)
            st = collective_receive(work, i, &part, err);
    }
    return st;
}

static enum status check_rows(struct collective *work, struct error *err)
{
    size_t row = alltoall_row_bytes(work);
    enum status st = collective_scratch(work, row * (size_t)work->size, err);

    if (st != STATUS_OK)
        return st;
    for (int i = 0, next = 0; i < work->size; i++) {
        unsigned char *to = (unsigned char *)work->scratch + row * (size_t)i;

        if (i == work->rank)
            alltoall_put_rows(work, to);
        else
            memcpy(to, work->receives[next++].payload, row);
    }
    return alltoall_check_matrix(work, work->scratch, err);
}

static enum status end(struct collective *work, int round, struct error *err)
{
    (void)round;
    if (alltoall_has_rows(work))
        return check_rows(work, err);
    for (int i = 0; i < work->receive_count; i++) {
        if (work->receives[i].payload_bytes)
            work->flags &= get_u32(work->receives[i].payload);
    }
    return STATUS_OK;
}

const struct algorithm vote_direct = {.name = "direct", .begin = begin, .end = end};
