/* A file cannot become shorter, so a read within its length, as it was when it was mapped, finds memory, whatever its
 * owner does or says. */
#include "backends/mpi/mpi_lending.h"

#include <inttypes.h>

#include "backends/mpi/mpi_distance.h"
#include "base/memory_shared.h"
#include "base/size.h"

/* From the first byte of the first run behind the last of the last.  STATUS_OVERFLOW. */
static enum status span(const struct lent *lent, size_t *ret)
{
    size_t starts = 0;

    if (!lent->rows || size_mul((size_t)lent->rows - 1, (size_t)lent->stride, &starts) != STATUS_OK)
        return STATUS_OVERFLOW;
    return size_add(starts, (size_t)lent->run, ret);
}

bool lending_reaches(const struct lending *lending, int peer, const struct runs *runs, struct lent *ret)
{
    struct lent lent = {.stride = runs->stride, .run = (uint32_t)runs->run, .rows = (uint32_t)runs->rows};
    size_t bytes = 0;

    if (!host_reads(lending->host, HOST_TENSORS, peer) || lent.run != runs->run || lent.rows != runs->rows ||
        span(&lent, &bytes) != STATUS_OK || !memory_shared_find(lending->memory, runs->bytes, bytes, &lent.offset))
        return false;
    *ret = lent;
    return true;
}

enum status lending_check(const struct lending *lending, int peer, const struct lent *lent, struct error *err)
{
    uint64_t most = 0;
    size_t count = 0;

    if (!host_memory(lending->host, HOST_TENSORS, peer, &most))
        return error_set(err, STATUS_CORRUPT, "rank %d lends memory that this rank cannot read", peer);
    if (!lent->run || span(lent, &count) != STATUS_OK || lent->offset > most || count > most - lent->offset)
        return error_set(err, STATUS_CORRUPT,
                         "rank %d says that %" PRIu32 " runs of %" PRIu32 " bytes, %" PRIu64 " apart, lie at %" PRIu64
                         " of the %" PRIu64 " bytes that it shares",
                         peer, lent->rows, lent->run, lent->stride, lent->offset, most);
    return STATUS_OK;
}

/* Each run's own, but for neighbours that share some.  No sum is too large: it was found to lie in a file. */
uint64_t lending_lines(const struct lent *lent)
{
    uint64_t of_runs = ((uint64_t)lent->run + DISTANCE_LINE_BYTES - 1) / DISTANCE_LINE_BYTES * lent->rows;
    size_t bytes = 0;
    enum status st = span(lent, &bytes);

    CHECK(st == STATUS_OK);
    bytes = bytes / DISTANCE_LINE_BYTES + 1;
    return of_runs < bytes ? of_runs : bytes;
}

struct runs lending_runs(const struct lending *lending, int peer, const struct lent *lent)
{
    const unsigned char *from = host_memory(lending->host, HOST_TENSORS, peer, NULL);

    return (struct runs){
        .bytes = from + lent->offset, .run = lent->run, .stride = (size_t)lent->stride, .rows = lent->rows};
}
