/* As with mailboxes every process tells the others of its host the number of its file, opens theirs through /proc, and
 * knows them by the numbers drawn at random.
 *
 * A file cannot become shorter, so a read within its length, as it was when it was mapped, finds memory, whatever its
 * owner does or says. */
#include "backends/mpi/mpi_lending.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory_shared.h"
#include "base/size.h"

struct peer {
    const unsigned char *at; /* its memory; NULL: not mapped */
    struct shared_file file;
    bool reads; /* it has mapped ours */
};

struct lending {
    const struct memory *memory;
    int size; /* of the world */
    struct peer peers[];
};

/* What a process tells the others of its host. */
struct notice {
    int32_t rank;
    int32_t pid;
    int32_t fd; /* -1: it shares nothing */
    int32_t unused;
    uint64_t bytes;
    uint64_t nonce;
};

static void map_peer(struct peer *peer, const struct notice *notice)
{
    char path[64];
    struct stat about;
    int fd = -1;

    peer->file = (struct shared_file){.fd = -1, .bytes = notice->bytes, .nonce = notice->nonce};
    if (notice->fd < 0)
        return;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)notice->pid, (int)notice->fd);
    if (stat(path, &about) || !S_ISREG(about.st_mode))
        return;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return;
    peer->at = memory_shared_map(fd, &peer->file);
    (void)close(fd);
}

/* Everybody's notice, and then who could read whose.  Collective over the host's processes [count]. */
static bool introduce(struct lending *lending, MPI_Comm host, int rank, int count, struct notice *notices, char *reads,
                      char *read_by)
{
    struct notice own = {.rank = rank, .pid = (int32_t)getpid(), .fd = -1};
    bool any = false;

    if (lending->memory) {
        struct shared_file file = memory_shared_file(lending->memory);

        own.fd = file.fd;
        own.bytes = file.bytes;
        own.nonce = file.nonce;
    }
    if (MPI_Allgather(&own, (int)sizeof own, MPI_BYTE, notices, (int)sizeof own, MPI_BYTE, host) != MPI_SUCCESS)
        return false;
    for (int i = 0; i < count; i++) {
        if (notices[i].rank == rank)
            continue;
        map_peer(&lending->peers[notices[i].rank], &notices[i]);
        reads[i] = lending->peers[notices[i].rank].at != NULL;
    }
    if (MPI_Alltoall(reads, 1, MPI_CHAR, read_by, 1, MPI_CHAR, host) != MPI_SUCCESS)
        return false;
    for (int i = 0; i < count; i++) {
        lending->peers[notices[i].rank].reads = read_by[i] != 0;
        any = any || reads[i] || read_by[i];
    }
    return any;
}

/* A process without memory for its lists takes part in what tells the others so, and in nothing else. */
static struct lending *share(MPI_Comm host, int count, int rank, int size, const struct memory *memory)
{
    struct lending *lending = calloc(1, sizeof *lending + (size_t)size * sizeof lending->peers[0]);
    struct notice *notices = calloc((size_t)count, sizeof *notices);
    char *flags = calloc(2 * (size_t)count, 1);
    int own = lending && notices && flags;
    int all = 0;
    bool open = false;

    if (lending) {
        lending->memory = memory;
        lending->size = size;
    }
    if (MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, host) == MPI_SUCCESS && all && lending && notices && flags)
        open = introduce(lending, host, rank, count, notices, flags, flags + count);
    free(flags);
    free(notices);
    if (open)
        return lending;
    lending_close(lending);
    return NULL;
}

struct lending *lending_open(MPI_Comm comm, const struct memory *memory)
{
    struct lending *lending = NULL;
    MPI_Comm host = MPI_COMM_NULL;
    int rank = 0;
    int size = 0;
    int count = 0;

    (void)MPI_Comm_rank(comm, &rank);
    (void)MPI_Comm_size(comm, &size);
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host) != MPI_SUCCESS)
        return NULL;
    (void)MPI_Comm_size(host, &count);
    if (count > 1)
        lending = share(host, count, rank, size, memory);
    (void)MPI_Comm_free(&host);
    return lending;
}

void lending_close(struct lending *lending)
{
    for (int i = 0; lending && i < lending->size; i++)
        memory_shared_unmap(lending->peers[i].at, &lending->peers[i].file);
    free(lending);
}

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

    if (!lending || !lending->peers[peer].reads || lent.run != runs->run || lent.rows != runs->rows ||
        span(&lent, &bytes) != STATUS_OK || !memory_shared_find(lending->memory, runs->bytes, bytes, &lent.offset))
        return false;
    *ret = lent;
    return true;
}

enum status lending_check(const struct lending *lending, int peer, const struct lent *lent, struct error *err)
{
    const struct peer *from = lending ? &lending->peers[peer] : NULL;
    size_t count = 0;

    if (!from || !from->at)
        return error_set(err, STATUS_CORRUPT, "rank %d lends memory that this rank cannot read", peer);
    if (!lent->run || span(lent, &count) != STATUS_OK || lent->offset > from->file.bytes ||
        count > from->file.bytes - lent->offset)
        return error_set(err, STATUS_CORRUPT,
                         "rank %d says that %" PRIu32 " runs of %" PRIu32 " bytes, %" PRIu64 " apart, lie at %" PRIu64
                         " of the %" PRIu64 " bytes that it shares",
                         peer, lent->rows, lent->run, lent->stride, lent->offset, from->file.bytes);
    return STATUS_OK;
}

struct runs lending_runs(const struct lending *lending, int peer, const struct lent *lent)
{
    return (struct runs){.bytes = lending->peers[peer].at + lent->offset,
                         .run = lent->run,
                         .stride = (size_t)lent->stride,
                         .rows = lent->rows};
}
