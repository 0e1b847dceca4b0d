/* Every process tells the others of its host the numbers of its files and of itself, opens theirs through /proc, and
 * then tells each which it could map.  A peer in another namespace, or that must not be looked into, is one whose files
 * cannot be opened, or are others.
 *
 * Cost: a split of the communicator and a sum of two numbers over it; an exchange of some bytes, and one of a byte for
 * each peer, between the processes of a host. */
#include "backends/mpi/mpi_host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a process tells the others of its host. */
struct notice {
    int32_t pid;
    int32_t fds[HOST_KINDS]; /* -1: it shares none */
    int32_t unused;
    uint64_t bytes[HOST_KINDS];
    uint64_t nonces[HOST_KINDS];
};

_Static_assert(sizeof(struct notice) == 48, "a notice has no gaps");

struct peer {
    struct shared_file files[HOST_KINDS];
    void *at[HOST_KINDS]; /* NULL: not mapped */
};

struct host {
    MPI_Comm comm; /* of its processes, until they have shared */
    int size;
    int place;              /* of this one */
    int *places;            /* [ranks] -1: on another host */
    struct peer *peers;     /* [size] */
    struct notice *notices; /* [size] */
    unsigned char *maps;    /* [size] what is mapped of whose here, a bit for each kind */
    unsigned char *mapped;  /* [size] who has mapped what of this process's */
};

/* Where each rank of comm is.  Both groups are known: nothing is sent.  False: MPI fails. */
static bool find_places(struct host *host, MPI_Comm comm, int rank_count)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group here = MPI_GROUP_NULL;
    bool found = MPI_Comm_group(comm, &all) == MPI_SUCCESS && MPI_Comm_group(host->comm, &here) == MPI_SUCCESS;

    for (int rank = 0; rank < rank_count; rank++)
        host->places[rank] = -1;
    for (int place = 0; found && place < host->size; place++) {
        int rank = MPI_UNDEFINED;

        found = MPI_Group_translate_ranks(here, 1, &place, all, &rank) == MPI_SUCCESS && rank >= 0;
        if (found)
            host->places[rank] = place;
    }
    if (here != MPI_GROUP_NULL)
        (void)MPI_Group_free(&here);
    if (all != MPI_GROUP_NULL)
        (void)MPI_Group_free(&all);
    return found;
}

/* Takes here, on failure, too.  NULL: no memory, or MPI fails. */
static struct host *create(MPI_Comm comm, MPI_Comm here)
{
    struct host *host = calloc(1, sizeof *host);
    int rank_count = 0;

    if (!host) {
        (void)MPI_Comm_free(&here);
        return NULL;
    }
    host->comm = here;
    (void)MPI_Comm_size(comm, &rank_count);
    (void)MPI_Comm_size(here, &host->size);
    (void)MPI_Comm_rank(here, &host->place);
    host->places = calloc((size_t)rank_count, sizeof *host->places);
    host->peers = calloc((size_t)host->size, sizeof *host->peers);
    host->notices = calloc((size_t)host->size, sizeof *host->notices);
    host->maps = calloc((size_t)host->size, 1);
    host->mapped = calloc((size_t)host->size, 1);
    if (host->places && host->peers && host->notices && host->maps && host->mapped &&
        find_places(host, comm, rank_count))
        return host;
    host_close(host);
    return NULL;
}

struct host *host_open(MPI_Comm comm, int *ret_count)
{
    MPI_Comm here = MPI_COMM_NULL;
    struct host *host = NULL;
    int rank = 0;
    int place = 0;
    int own[2]; /* first of its host; lacks what it takes */
    int sums[2] = {0, 1};

    (void)MPI_Comm_rank(comm, &rank);
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here) == MPI_SUCCESS) {
        (void)MPI_Comm_rank(here, &place);
        host = create(comm, here);
    }
    own[0] = place == 0;
    own[1] = !host;
    if (MPI_Allreduce(own, sums, 2, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS)
        sums[1] = 1;
    *ret_count = sums[0];
    if (!sums[1])
        return host;
    host_close(host);
    return NULL;
}

void host_close(struct host *host)
{
    if (!host)
        return;
    for (int place = 0; host->peers && place < host->size; place++) {
        for (int kind = 0; kind < HOST_KINDS; kind++)
            shared_file_unmap(host->peers[place].at[kind], &host->peers[place].files[kind]);
    }
    if (host->comm != MPI_COMM_NULL)
        (void)MPI_Comm_free(&host->comm);
    free(host->places);
    free(host->peers);
    free(host->notices);
    free(host->maps);
    free(host->mapped);
    free(host);
}

int host_size(const struct host *host)
{
    return host ? host->size : 0;
}

int host_place(const struct host *host, int rank)
{
    return host ? host->places[rank] : -1;
}

int host_own_place(const struct host *host)
{
    return host ? host->place : -1;
}

/* NULL: it cannot be opened, or is not what its owner says.  Whatever it is instead, opening it waits for nobody. */
static void *map_peer(int pid, const struct shared_file *file, bool written)
{
    char path[64];
    void *at = NULL;
    int fd = -1;

    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, file->fd);
    fd = open(path, (written ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    at = shared_file_map(fd, file, written);
    (void)close(fd);
    return at;
}

/* Returns a bit for each kind that was mapped. */
static unsigned char meet(struct peer *peer, const struct notice *notice, const struct shared_file own[HOST_KINDS])
{
    unsigned char maps = 0;

    for (int kind = 0; kind < HOST_KINDS; kind++) {
        peer->files[kind] = (struct shared_file){notice->fds[kind], notice->bytes[kind], notice->nonces[kind]};
        if (notice->fds[kind] < 0 || (kind == HOST_MAIL && notice->bytes[kind] != own[kind].bytes))
            continue;
        peer->at[kind] = map_peer(notice->pid, &peer->files[kind], kind == HOST_MAIL);
        maps |= (unsigned char)((peer->at[kind] != NULL) << kind);
    }
    return maps;
}

/* Everybody's notice, and then who could map whose. */
static void introduce(struct host *host, const struct shared_file files[HOST_KINDS], bool takes)
{
    struct notice own = {.pid = (int32_t)getpid()};

    for (int kind = 0; kind < HOST_KINDS; kind++) {
        own.fds[kind] = files[kind].fd;
        own.bytes[kind] = files[kind].bytes;
        own.nonces[kind] = files[kind].nonce;
    }
    if (MPI_Allgather(&own, (int)sizeof own, MPI_BYTE, host->notices, (int)sizeof own, MPI_BYTE, host->comm) !=
        MPI_SUCCESS)
        takes = false;
    for (int place = 0; takes && place < host->size; place++) {
        if (place != host->place)
            host->maps[place] = meet(&host->peers[place], &host->notices[place], files);
    }
    if (MPI_Alltoall(host->maps, 1, MPI_BYTE, host->mapped, 1, MPI_BYTE, host->comm) != MPI_SUCCESS)
        memset(host->mapped, 0, (size_t)host->size);
}

void host_share(struct host *host, const struct shared_file files[HOST_KINDS], bool takes)
{
    if (!host)
        return;
    if (host->size > 1)
        introduce(host, files, takes);
    (void)MPI_Comm_free(&host->comm);
    free(host->notices);
    host->notices = NULL;
}

void *host_memory(const struct host *host, enum host_kind kind, int rank, uint64_t *ret_bytes)
{
    int place = host_place(host, rank);

    if (place < 0)
        return NULL;
    if (ret_bytes)
        *ret_bytes = host->peers[place].files[kind].bytes;
    return host->peers[place].at[kind];
}

bool host_reads(const struct host *host, enum host_kind kind, int rank)
{
    int place = host_place(host, rank);

    return place >= 0 && (host->mapped[place] & 1 << kind);
}
