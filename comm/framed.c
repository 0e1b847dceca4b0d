/* What sending and receiving share: pieces of a payload, the way to one that lies in a device's memory, and letting go.
 */
#include "comm/framed_private.h"

#include <stdlib.h>

/* Payload bytes of a full piece. */
static size_t piece_limit(const struct session *session, size_t header_bytes)
{
    size_t limit = session->ops->max_message(session->transport);

    CHECK(limit > FRAME_MAX_BYTES);
    limit -= header_bytes;
    return limit > FRAME_ALIGN ? limit & ~(size_t)(FRAME_ALIGN - 1) : limit;
}

enum status framed_piece_fields(const struct session *session, struct frame *frame, size_t all, size_t done,
                                struct error *err)
{
    size_t limit = piece_limit(session, frame_bytes(frame));
    bool single = all <= limit; /* as nearly all are: nothing is divided */
    size_t count = single ? 1 : (all - 1) / limit + 1;

    if (count > UINT32_MAX)
        return error_set(err, STATUS_OVERFLOW, "%zu bytes in pieces of %zu", all, limit);
    frame->piece = single ? 0 : (uint32_t)(done / limit);
    frame->piece_count = (uint32_t)count;
    frame->payload_bytes = all - done < limit ? all - done : limit;
    frame->session_digest = session->digest;
    return STATUS_OK;
}

/* Can the transport fetch and deliver payloads there by itself?  Of no bytes there is nothing to fetch. */
static bool reaches(const struct session *session, const struct memory *device, size_t bytes)
{
    const struct device_message_ops *ops = session->ops->device;

    return bytes && ops && ops->reaches(session->transport, device);
}

enum status framed_choose_way(struct session *session, const struct memory *device, size_t bytes,
                              struct framed_memory **ret, struct error *err)
{
    *ret = calloc(1, sizeof **ret);
    if (!*ret)
        return error_set(err, STATUS_NOMEM, "a message of %zu bytes", bytes);
    (*ret)->direct = reaches(session, device, bytes);
    return STATUS_OK;
}

enum status framed_take_block(struct framed_memory *way, struct session *session, size_t bytes, struct error *err)
{
    way->lender = staging_in(session->staging, session->options.pinned);
    way->block = way->lender ? staging_take_at_hand(way->lender, bytes) : NULL;
    if (!way->block) { /* to pin some takes time, and the session's lock is held: a detour does */
        way->lender = session->staging;
        way->block = staging_take(way->lender, bytes, err);
    }
    return way->block ? STATUS_OK : error_wrap(err, STATUS_NOMEM, "a message of %zu bytes", bytes);
}

void framed_give_block(struct framed_memory *way)
{
    if (way->block)
        staging_give(way->lender, way->block);
    way->block = NULL;
}

void framed_leave_way(struct framed_memory **way, unsigned char **payload)
{
    if (*way && (*way)->origin)
        *payload = (*way)->origin;
    if (*way)
        framed_give_block(*way);
    free(*way);
    *way = NULL;
}

bool framed_let_go(struct session *session, struct work **work, bool device)
{
    bool ended = false;
    enum status st = STATUS_OK;

    if (!*work)
        return true;
    st = session->ops->test(session->transport, *work, &ended, NULL);
    if (!ended && session->ops->teardown == TEARDOWN_NATIVE) {
        if (!session->ops->cancel(session->transport, *work))
            return false;
    } else if (!ended && st == STATUS_OK) {
        return false;
    }
    *work = NULL;
    session->queued -= device;
    return true;
}
