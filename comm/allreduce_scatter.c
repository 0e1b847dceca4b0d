/* Sum of large tensors: each member owns one chunk, gets every other's contribution to it, adds them by the tree, and
 * sends the result to everybody.
 *
 * Two rounds; each member sends about 2 (n - 1) / n of the tensor in 2 (n - 1) messages.  In the first round all pairs
 * meet, so the vote is folded in: recv is written after the second. */
#include "comm/collective.h"

#include <stdlib.h>

#include "base/size.h"

static size_t element_count(const struct collective *work)
{
    return work->send->bytes / dtype_bytes(work->dtype);
}

/* Byte offset and bytes of member's chunk. */
static size_t chunk_at(const struct collective *work, int member)
{
    return (size_t)share_start(element_count(work), (uint64_t)work->size, (uint64_t)member) * dtype_bytes(work->dtype);
}

static struct part chunk_part(const struct collective *work, int member)
{
    struct part part = collective_part(work);

    part.send_count = share_count(element_count(work), (uint64_t)work->size, (uint64_t)member);
    part.bytes = (size_t)part.send_count * dtype_bytes(work->dtype);
    return part;
}

/* Round 0: my contribution to each owner; the others' contributions to mine. */
static enum status begin_scatter(struct collective *work, struct error *err)
{
    struct part mine = chunk_part(work, work->rank);
    enum status st = STATUS_OK;

    for (int i = 1; i < work->size && st == STATUS_OK; i++) {
        int owner = (work->rank + i) % work->size;
        struct part part = chunk_part(work, owner);
        unsigned char *payload = NULL;

        st = collective_send(work, &owner, 1, &part, &payload, err);
        if (st == STATUS_OK)
            st = collective_copy(work, payload, work->send->data + chunk_at(work, owner), part.bytes, err);
    }
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        if (i != work->rank)
            st = collective_receive(work, i, &mine, err);
    }
    return st;
}

/* Round 1: my sum to everybody. */
static enum status begin_gather(struct collective *work, struct error *err)
{
    struct part mine = chunk_part(work, work->rank);
    unsigned char *payload = NULL;
    enum status st = collective_send_all(work, &mine, &payload, err);

    if (st == STATUS_OK)
        st = collective_copy(work, payload, work->scratch, mine.bytes, err);
    for (int i = 0; i < work->size && st == STATUS_OK; i++) {
        struct part part = chunk_part(work, i);

        if (i != work->rank)
            st = collective_receive(work, i, &part, err);
    }
    return st;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    *ret_more = round < 2;
    if (round == 0)
        return begin_scatter(work, err);
    return round == 1 ? begin_gather(work, err) : STATUS_OK;
}

static enum status add_chunk(struct collective *work, struct error *err)
{
    struct part mine = chunk_part(work, work->rank);
    const void **in = calloc((size_t)work->size, sizeof *in);
    enum status st = collective_scratch(work, mine.bytes, err);

    if (st == STATUS_OK && !in)
        st = error_set(err, STATUS_NOMEM, "a list of %d members", work->size);
    if (st == STATUS_OK && mine.send_count) {
        for (int i = 0, next = 0; i < work->size; i++)
            in[i] = i == work->rank ? work->send->data + chunk_at(work, i) : work->receives[next++].payload;
        st = collective_sum(work, in, (size_t)mine.send_count, work->scratch, err);
    }
    free(in);
    return st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    enum status st = STATUS_OK;

    if (!round)
        return add_chunk(work, err);
    for (int i = 0, next = 0; i < work->size && st == STATUS_OK; i++) {
        const void *from = i == work->rank ? work->scratch : work->receives[next++].payload;

        st = collective_copy(work, work->recv->data + chunk_at(work, i), from, chunk_part(work, i).bytes, err);
    }
    return st;
}

const struct algorithm allreduce_scatter = {.name = "scatter", .begin = begin, .end = end};
