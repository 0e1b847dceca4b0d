/* Variable all-to-all in small groups: every pair exchanges at once, also where nothing goes either way.
 *
 * One round, n - 1 messages a member.  With full checks each message also carries its sender's two rows of counts, so
 * that every member sees the whole matrix before it touches a payload. */
#include "comm/collective.h"

#include <string.h>

#include "base/bytes.h"
#include "comm/alltoall.h"

static struct part pair_part(const struct collective *work, uint64_t send_count, uint64_t receive_count)
{
    struct part part = collective_part(work);

    part.send_count = send_count;
    part.receive_count = receive_count;
    part.shape.dim[work->axis] = send_count;
    part.bytes = slab_bytes(&work->recv_slab, send_count) + (work->full ? alltoall_row_bytes(work) : 0);
    return part;
}

/* Parts lie together and travel without rows of counts: they need no packing. */
static bool whole(const struct collective *work)
{
    return work->recv_slab.outer == 1 && !work->full;
}

static size_t start_bytes(const struct collective *work, const struct layout *layout, int member)
{
    return (size_t)layout->start[member] * work->recv_slab.inner_bytes;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    size_t rows = work->full ? alltoall_row_bytes(work) : 0;
    enum status st = STATUS_OK;

    *ret_more = round == 0;
    if (round)
        return STATUS_OK;
    for (int i = 1; i < work->size && st == STATUS_OK; i++) {
        int to = (work->rank + i) % work->size;
        struct part part = pair_part(work, layout_count(&work->to, to), layout_count(&work->from, to));
        unsigned char *payload = NULL;

        if (whole(work)) {
            st = collective_send_from(work, &to, 1, &part, work->send->data + start_bytes(work, &work->to, to), err);
            continue;
        }
        st = collective_send(work, &to, 1, &part, &payload, err);
        if (st != STATUS_OK)
            return st;
        if (rows)
            alltoall_put_rows(work, payload);
        slab_pack(&work->send_slab, work->send->data, work->to.start[to], layout_count(&work->to, to), payload + rows);
    }
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        struct part part = pair_part(work, layout_count(&work->from, i), layout_count(&work->to, i));

        if (i == work->rank)
            continue;
        if (whole(work))
            st = collective_receive_from(work, i, &part, work->recv->data + start_bytes(work, &work->from, i), err);
        else
            st = collective_receive(work, i, &part, err);
    }
    return st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    size_t rows = work->full ? alltoall_row_bytes(work) : 0;
    enum status st = STATUS_OK;

    (void)round;
    if (rows) {
        st = collective_scratch(work, rows * (size_t)work->size, err);
        if (st != STATUS_OK)
            return st;
        for (int i = 0, next = 0; i < work->size; i++) {
            unsigned char *to = (unsigned char *)work->scratch + rows * (size_t)i;

            if (i == work->rank)
                alltoall_put_rows(work, to);
            else
                memcpy(to, work->receives[next++].payload, rows);
        }
        st = alltoall_check_matrix(work, work->scratch, err);
        if (st != STATUS_OK)
            return st;
    }
    for (int i = 0, next = 0; i < work->size && !whole(work); i++) {
        if (i == work->rank)
            continue;
        slab_unpack(&work->recv_slab, work->recv->data, work->from.start[i], layout_count(&work->from, i),
                    work->receives[next++].payload + rows);
    }
    alltoall_keep_own(work);
    return STATUS_OK;
}

const struct algorithm alltoall_direct = {.name = "direct", .begin = begin, .end = end};
