/* The vote of a large all-to-all: every member's rows of counts, gathered by recursive doubling and then compared.
 *
 * ceil(log2 n) rounds, 16 n^2 bytes received a member. */
#include "comm/collective.h"

#include <string.h>

#include "comm/alltoall.h"
#include "comm/staging.h"

static int round_rows(const struct collective *work, int round)
{
    int held = 1 << round;

    return held < work->size - held ? held : work->size - held;
}

/* Held are the rows of rank, rank + 1, ...; put them in member order and compare. */
static enum status compare(struct collective *work, struct error *err)
{
    size_t row = alltoall_row_bytes(work);
    struct staging *staging = work->completion.session->staging;
    unsigned char *ordered = staging_take(staging, row * (size_t)work->size);
    enum status st = STATUS_OK;

    if (!ordered)
        return error_set(err, STATUS_NOMEM, "counts of %d members", work->size);
    for (int i = 0; i < work->size; i++)
        memcpy(ordered + row * (size_t)((work->rank + i) % work->size),
               (unsigned char *)work->scratch + row * (size_t)i, row);
    st = alltoall_check_matrix(work, ordered, err);
    staging_give(staging, ordered);
    return st;
}

static enum status begin(struct collective *work, int round, bool *ret_more, struct error *err)
{
    int distance = 1 << round;
    int to = (work->rank + work->size - distance % work->size) % work->size;
    int from = (work->rank + distance) % work->size;
    size_t row = alltoall_row_bytes(work);
    struct part part = collective_part(work);
    unsigned char *payload = NULL;
    enum status st = STATUS_OK;

    *ret_more = distance < work->size;
    if (!*ret_more)
        return STATUS_OK;
    if (!round) {
        st = collective_scratch(work, row * (size_t)work->size, err);
        if (st != STATUS_OK)
            return st;
        alltoall_put_rows(work, work->scratch);
    }
    part.bytes = row * (size_t)round_rows(work, round);
    st = collective_send(work, &to, 1, &part, &payload, err);
    if (st == STATUS_OK)
        memcpy(payload, work->scratch, part.bytes);
    return st == STATUS_OK ? collective_receive(work, from, &part, err) : st;
}

static enum status end(struct collective *work, int round, struct error *err)
{
    size_t row = alltoall_row_bytes(work);

    memcpy((unsigned char *)work->scratch + row * ((size_t)1 << round), work->receives[0].payload,
           work->receives[0].payload_bytes);
    return 2 << round >= work->size ? compare(work, err) : STATUS_OK;
}

const struct algorithm alltoall_vote = {.name = "vote of counts", .begin = begin, .end = end};
