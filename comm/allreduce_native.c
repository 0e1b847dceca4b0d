/* Sum by the transport's library, in its own order (native.h).
 *
 * One round, one call.  f16 and bf16 are added as f32 and rounded once: what is added in halves loses more.  The vote
 * goes ahead, for the library's messages have no headers. */
#include "comm/collective.h"
#include "comm/native.h"
#include "comm/reduce.h"

static size_t element_count(const struct collective *work)
{
    return work->send->bytes / dtype_bytes(work->dtype);
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    struct session *session = work->completion.session;
    enum dtype partial = reduce_partial(work->dtype);
    size_t count = element_count(work);
    const void *in = work->send->data;
    void *out = work->recv->data;
    enum status st = STATUS_OK;

    *ret_more = round == 0;
    if (round)
        return STATUS_OK;
    if (partial != work->dtype) {
        st = collective_scratch(work, count * dtype_bytes(partial), err);
        if (st == STATUS_OK)
            st = reduce_widen_on(work->device, work->dtype, in, count, work->scratch, err);
        in = out = work->scratch;
    }
    if (st == STATUS_OK)
        st = session->ops->native->all_reduce(session->transport, work->group->native, work->device, partial, in, out,
                                              count, &work->native, err);
    if (st != STATUS_OK)
        return st;
    session->queued++;
    session->counters.bytes_sent += count * dtype_bytes(partial);
    session_moved(session);
    return STATUS_OK;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    (void)round;
    if (reduce_partial(work->dtype) == work->dtype)
        return STATUS_OK;
    return reduce_narrow_on(work->device, work->dtype, work->scratch, element_count(work), work->recv->data, err);
}

const struct algorithm allreduce_native = {.name = "native", .begin = begin, .end = end};
