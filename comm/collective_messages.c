/* What algorithms ask for in a round: sends, receives, lent parts, and memory for all of them. */
#include "comm/collective.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/reduce.h"
#include "comm/staging.h"

enum { FIRST_CAPACITY = 8 }; /* messages of a round */

struct part collective_part(const struct collective *work)
{
    return (struct part){.dtype = work->dtype, .shape = work->shape, .receive_count = work->extent};
}

static void fill_frame(const struct collective *work, const struct part *part, struct frame *frame)
{
    *frame = (struct frame){.kind = FRAME_COLLECTIVE,
                            .object_id = work->group->spec.id,
                            .operation = work->completion.operation,
                            .round = (uint32_t)work->round | (work->voting ? UINT32_C(1) << 31 : 0),
                            .root_or_axis = (uint32_t)(work->root + work->axis),
                            .sequence = work->completion.sequence,
                            .send_count = part->send_count,
                            .receive_count = part->receive_count,
                            .schema_digest = work->count_digest,
                            .dtype = part->dtype,
                            .shape = part->shape,
                            .role = work->counts[0] ? work->counts : NULL};
}

/* Room for one more message of the round. */
static enum status grow(struct collective *work, int count, struct error *err)
{
    int capacity = work->capacity ? 2 * work->capacity : FIRST_CAPACITY;
    struct framed_send *sends = NULL;
    struct framed_receive *receives = NULL;

    if (count < work->capacity)
        return STATUS_OK;
    sends = realloc(work->sends, (size_t)capacity * sizeof *sends);
    if (sends)
        work->sends = sends;
    receives = realloc(work->receives, (size_t)capacity * sizeof *receives);
    if (receives)
        work->receives = receives;
    if (!sends || !receives)
        return error_set(err, STATUS_NOMEM, "%d messages", capacity);
    work->capacity = capacity;
    return STATUS_OK;
}

/* Large payloads travel out of and into the caller's memory, where no header may stand in front of them.  Below, a copy
 * costs less than a second message. */
static bool detaches(const struct collective *work, const struct part *part)
{
    return part->bytes >= COLLECTIVE_DETACH_BYTES && !work->completion.session->options.payload_integrity;
}

struct staging *collective_staging(const struct collective *work)
{
    return staging_in(work->completion.session->staging, collective_device(work));
}

static unsigned char *take(const struct collective *work, size_t bytes, struct error *err)
{
    struct staging *staging = collective_staging(work);

    if (staging)
        return staging_take(staging, bytes, err);
    (void)error_set(err, STATUS_NOMEM, "a list of free blocks");
    return NULL;
}

/* How a payload is to lie. */
enum lie {
    LIE_TOGETHER, /* behind its header */
    LIE_APART,    /* if it is large, its header is a message of its own */
    LIE_WRITTEN   /* behind its header, and once it is written nobody here reads it */
};

/* A send to members [count] out of bytes; NULL: out of memory that is still to be filled. */
static enum status open_send(struct collective *work, const int *members, int count, const struct part *part,
                             enum lie lie, const unsigned char *bytes, struct error *err)
{
    enum status st = grow(work, work->send_count, err);
    struct framed_send *send = NULL;
    struct memory *device = collective_device(work);

    if (st != STATUS_OK)
        return st;
    CHECK(work->peer_count + count <= 2 * work->size);
    send = &work->sends[work->send_count];
    memset(send, 0, sizeof *send);
    fill_frame(work, part, &send->frame);
    send->tag = work->group->spec.id;
    send->peers = work->peers + work->peer_count;
    send->peer_count = count;
    send->works = work->works + 2 * work->peer_count;
    memset(send->works, 0, 2 * (size_t)count * sizeof *send->works);
    for (int i = 0; i < count; i++)
        work->peers[work->peer_count + i] = work->group->spec.members[members[i]];
    send->detached = lie == LIE_APART && detaches(work, part);
    send->payload_bytes = part->bytes;
    send->device = device;
    if ((send->detached || device) && bytes)
        send->payload = (unsigned char *)(uintptr_t)bytes;
    else if (lie != LIE_WRITTEN || !framed_send_room(send, work->completion.session))
        send->payload = take(work, part->bytes, err);
    if (!send->payload)
        return error_wrap(err, STATUS_NOMEM, "a message of %zu bytes", part->bytes);
    send->borrowed = send->room || send->payload == bytes;
    send->headroom = !send->borrowed;
    if (bytes && !send->borrowed && part->bytes)
        memcpy(send->payload, bytes, part->bytes);
    work->peer_count += count;
    work->send_count++;
    return STATUS_OK;
}

enum status collective_send(struct collective *work, const int *members, int count, const struct part *part,
                            unsigned char **ret, struct error *err)
{
    enum status st = open_send(work, members, count, part, LIE_TOGETHER, NULL, err);

    if (st == STATUS_OK)
        *ret = work->sends[work->send_count - 1].payload;
    return st;
}

enum status collective_send_from(struct collective *work, const int *members, int count, const struct part *part,
                                 const unsigned char *bytes, struct error *err)
{
    return open_send(work, members, count, part, LIE_APART, bytes, err);
}

enum status collective_send_packed(struct collective *work, int member, const struct part *part,
                                   const struct slab *slab, const unsigned char *tensor, uint64_t start,
                                   struct rows rows, struct error *err)
{
    enum status st = open_send(work, &member, 1, part, LIE_WRITTEN, NULL, err);
    const struct framed_send *send = NULL;

    if (st != STATUS_OK)
        return st;
    send = &work->sends[work->send_count - 1];
    if (send->room && !send->near) {
        slab_stream(slab, tensor, start, part->send_count, rows, send->payload);
        return STATUS_OK;
    }
    return slab_pack(send->device, slab, tensor, start, part->send_count, rows, send->payload, err);
}

static enum status open_send_all(struct collective *work, const struct part *part, enum lie lie,
                                 const unsigned char *bytes, struct error *err)
{
    int *members = calloc((size_t)work->size, sizeof *members);
    int count = 0;
    enum status st;

    if (!members)
        return error_set(err, STATUS_NOMEM, "a list of %d members", work->size);
    /* Start behind oneself, so that not everybody sends to the first member first. */
    for (int i = 1; i < work->size; i++) {
        int member = (work->rank + i) % work->size;

        if (!collective_is_in(work->lent_to, member))
            members[count++] = member;
    }
    st = open_send(work, members, count, part, lie, bytes, err);
    free(members);
    return st;
}

enum status collective_send_all(struct collective *work, const struct part *part, unsigned char **ret,
                                struct error *err)
{
    enum status st = open_send_all(work, part, LIE_TOGETHER, NULL, err);

    if (st == STATUS_OK)
        *ret = work->sends[work->send_count - 1].payload;
    return st;
}

enum status collective_send_all_from(struct collective *work, const struct part *part, const unsigned char *bytes,
                                     struct error *err)
{
    return open_send_all(work, part, LIE_APART, bytes, err);
}

enum status collective_send_all_apart(struct collective *work, const struct part *part, unsigned char **ret,
                                      struct error *err)
{
    enum status st = open_send_all(work, part, LIE_APART, NULL, err);

    if (st == STATUS_OK)
        *ret = work->sends[work->send_count - 1].payload;
    return st;
}

bool collective_all_in(const struct collective *work, uint64_t members)
{
    for (int i = 0; i < work->size; i++) {
        if (i != work->rank && !collective_is_in(members, i))
            return false;
    }
    return true;
}

/* Whole payloads that are worth it, and that are one message. */
static bool is_lendable(const struct collective *work, const struct part *whole)
{
    const struct session *session = work->completion.session;

    return detaches(work, whole) && !work->device && session->ops->reach &&
           whole->bytes <= session->ops->max_message(session->transport) - FRAME_MAX_BYTES;
}

enum status collective_lend(struct collective *work, int member, const struct part *whole, const struct runs *runs,
                            bool *ret, struct error *err)
{
    const struct session *session = work->completion.session;
    int peer = work->group->spec.members[member];
    struct framed_send *send = NULL;
    struct work *lent = NULL;
    enum status st = STATUS_OK;

    *ret = member < 64 && is_lendable(work, whole) &&
           (lent = session->ops->reach(session->transport, peer, runs)) != NULL;
    if (!*ret)
        return STATUS_OK;
    st = open_send(work, &member, 1, whole, LIE_APART, runs->bytes, err);
    if (st != STATUS_OK)
        return st;
    send = &work->sends[work->send_count - 1];
    send->lent = *runs;
    send->lent_work = lent;
    work->lent_to |= UINT64_C(1) << member;
    return STATUS_OK;
}

static enum status open_receive(struct collective *work, int member, const struct part *part, bool detached,
                                unsigned char *target, struct error *err)
{
    enum status st = grow(work, work->receive_count, err);
    struct framed_receive *receive = NULL;

    if (st != STATUS_OK)
        return st;
    receive = &work->receives[work->receive_count];
    memset(receive, 0, sizeof *receive);
    fill_frame(work, part, &receive->frame);
    receive->tag = work->group->spec.id;
    receive->peer = work->group->spec.members[member];
    receive->keep_other = true;
    receive->sizes_only = work->completion.session->options.checks == CHECKS_OFF;
    receive->lane = &work->group->lane;
    receive->detached = detached;
    receive->target = target;
    receive->payload_bytes = part->bytes;
    receive->device = collective_device(work);
    receive->payload = (detached || receive->device) && target && !work->folded ? target : take(work, part->bytes, err);
    receive->headroom = receive->payload != target;
    receive->in_place = receive->payload != target;
    if (!receive->payload)
        return error_wrap(err, STATUS_NOMEM, "a message of %zu bytes", part->bytes);
    work->receive_count++;
    return STATUS_OK;
}

enum status collective_receive(struct collective *work, int member, const struct part *part, struct error *err)
{
    return open_receive(work, member, part, false, NULL, err);
}

enum status collective_receive_from(struct collective *work, int member, const struct part *part, unsigned char *target,
                                    struct error *err)
{
    return open_receive(work, member, part, detaches(work, part), target, err);
}

void collective_may_be_lent(struct collective *work, const struct part *whole)
{
    if (is_lendable(work, whole))
        work->receives[work->receive_count - 1].lent_bytes = whole->bytes;
}

/* Runs of another length than this member's: what was agreed on was not all that matters. */
static enum status unpack_other(struct collective *work, struct framed_receive *receive, const struct slab *slab,
                                unsigned char *tensor, uint64_t start, uint64_t count, struct error *err)
{
    const struct runs *runs = &receive->runs;
    unsigned char *packed = take(work, runs->run * runs->rows, err);
    enum status st = packed ? STATUS_OK : STATUS_NOMEM;
    uint64_t begun = 0;

    if (st != STATUS_OK)
        return st;
    begun = clock_ns();
    runs_copy(packed, runs->run, runs->bytes, runs->stride, runs->run, runs->rows);
    receive->read_ns = clock_ns() - begun;
    st = slab_unpack(NULL, slab, tensor, start, count, slab_rows(slab), packed, err);
    staging_give(collective_staging(work), packed);
    return st;
}

enum status collective_unpack(struct collective *work, int member, struct framed_receive *receive,
                              const struct slab *slab, unsigned char *tensor, uint64_t start, uint64_t count,
                              struct rows rows, struct error *err)
{
    const struct runs *runs = &receive->runs;
    uint64_t begun = 0;

    if (!runs->rows)
        return slab_unpack(work->device, slab, tensor, start, count, rows, receive->payload, err);
    work->lent_from |= UINT64_C(1) << member;
    if (runs->rows != 1 && runs->run != (size_t)count * slab->inner_bytes)
        return unpack_other(work, receive, slab, tensor, start, count, err);
    begun = clock_ns();
    slab_put(slab, tensor, start, count, runs);
    receive->read_ns = clock_ns() - begun;
    return STATUS_OK;
}

enum status collective_sum(const struct collective *work, const void *const *in, size_t count, void *out,
                           struct error *err)
{
    if (work->device)
        return reduce_tree_on(work->device, collective_staging(work), work->dtype, in, work->size, count, out, err);
    reduce_tree(work->dtype, in, work->size, count, out);
    return STATUS_OK;
}

enum status collective_scratch(struct collective *work, size_t bytes, struct error *err)
{
    CHECK(!work->scratch);
    work->scratch_lender = collective_staging(work);
    work->scratch = take(work, bytes, err);
    if (!work->scratch)
        return error_wrap(err, STATUS_NOMEM, "%zu bytes of partial results", bytes);
    return STATUS_OK;
}
