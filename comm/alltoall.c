/* Rows of counts: written, and compared pair by pair over the whole matrix. */
#include "comm/alltoall.h"

#include <inttypes.h>

#include "base/bytes.h"

void alltoall_put_rows(const struct collective *work, unsigned char *bytes)
{
    for (int i = 0; i < work->size; i++) {
        put_u64(bytes + 8 * i, layout_count(&work->to, i));
        put_u64(bytes + 8 * (work->size + i), layout_count(&work->from, i));
    }
}

static enum status refuse_pair(const struct collective *work, int from, int to, uint64_t sends, uint64_t expects,
                               struct error *err)
{
    return error_set(err, STATUS_MISMATCH,
                     "group %s, sequence %" PRIu64 ": variable_all_to_all: rank %d sends %" PRIu64
                     " to rank %d, which expects %" PRIu64,
                     work->group->spec.name, work->completion.sequence, work->group->spec.members[from], sends,
                     work->group->spec.members[to], expects);
}

enum status alltoall_check_matrix(const struct collective *work, const unsigned char *rows, struct error *err)
{
    size_t row = alltoall_row_bytes(work);

    for (int i = 0; i < work->size; i++) {
        for (int k = 0; k < work->size; k++) {
            uint64_t sends = get_u64(rows + row * (size_t)i + 8 * (size_t)k);
            uint64_t expects = get_u64(rows + row * (size_t)k + 8 * (size_t)(work->size + i));

            if (sends != expects)
                return refuse_pair(work, i, k, sends, expects, err);
        }
    }
    return STATUS_OK;
}

enum status alltoall_check_pair(const struct collective *work, int member, uint64_t sends, uint64_t expects,
                                struct error *err)
{
    uint64_t own_sends = layout_count(&work->to, member);
    uint64_t own_expects = layout_count(&work->from, member);
    bool ours = own_sends != expects;
    bool theirs = sends != own_expects;

    /* The lower member's sending first, as when the whole matrix is compared. */
    if (ours && (work->rank < member || !theirs))
        return refuse_pair(work, work->rank, member, own_sends, expects, err);
    return theirs ? refuse_pair(work, member, work->rank, sends, own_expects, err) : STATUS_OK;
}

enum status alltoall_keep_own(struct collective *work, struct rows rows, struct error *err)
{
    return slab_move(work->device, &work->recv_slab, work->recv->data, work->from.start[work->rank], &work->send_slab,
                     work->send->data, work->to.start[work->rank], layout_count(&work->to, work->rank), rows, err);
}
