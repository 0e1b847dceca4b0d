/* A mailbox is an unnamed file in memory that peers of the same host open through /proc and map: no name is left
 * behind, however a process ends.  A number drawn at random, told over MPI, proves that what was opened is the peer's.
 *
 * It holds a table of slots and room for their messages, in units of some pages.  Only its owner looks for room and
 * fills slots; a slot is full until its receiver, and nobody else, has emptied it.  The envelope names the message's
 * slot, number, place and size.  A slot's state is the number of the message in it, of which no two are the same:
 * nothing is searched, and an envelope opens its own message or none.  Peers can write the whole file, so nobody acts
 * on anything in it but the states: where messages lie the owner keeps for itself, and the receiver copies from its
 * envelope.  Behind the room lie the rings of the post, one to each process of the host.
 *
 * Cost: two copies between mapped pages, one on each side, and one cell of the post.  A long message's envelope leaves
 * before the message is whole, so that the receiver copies behind the sender: its slot says how many bytes lie there by
 * now.
 *
 * Pages of a mailbox were read last by another core.  Where the two share a cache plain stores are the quickest; where
 * they do not, stores past the cache are (base/stream.h), by as much.  Which holds may change while a job runs: systems
 * move processes, and those under them virtual processors.  So it is measured: the state of a slot is a line that the
 * peer wrote last, and tells by how long it takes to come. */
#include "backends/mpi/mpi_mailbox.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/stream.h"

enum {
    SLOTS = 128,
    UNIT_BYTES = 16384,
    UNITS = 512,
    STEP_BYTES = 32768, /* are written before the receiver hears of them, and read at once */

    /* Of a look at a peer's line: 10 to 60 with one cache, 90 to 170 and more without (of an AMD EPYC).  What takes
     * longer than the second tells of something else. */
    NEAR_NS = 75,
    LOST_NS = 2000,
    SURE = 4, /* looks that balance each other */
    CLOCK_TURNS = 32
};

/* Free, or the number of the message that lies there, which grows from message to message, and whether it is matched.
 */
enum { SLOT_FREE };

static uint64_t slot_full(uint64_t number)
{
    return number << 1;
}

static uint64_t slot_matched(uint64_t number)
{
    return number << 1 | 1;
}

struct mailbox_slot {
    _Alignas(64) _Atomic uint64_t state;
    _Atomic uint64_t written; /* bytes of the message */
};

/* What lies in the shared file; behind it the rings [processes of the host]. */
struct box {
    uint64_t nonce;
    struct mailbox_slot slots[SLOTS];
    _Alignas(4096) unsigned char room[UNITS][UNIT_BYTES];
};

struct mailbox {
    int size; /* of the world */
    int rank;
    size_t bytes; /* of every box */
    int place;    /* among the processes of the host */
    int *places;  /* [size] of those that are among them */
    struct box *own;
    struct box **boxes; /* [size] of the peers whose mail is read; else NULL */
    bool *reaches;      /* [size] who reads ours */
    int8_t *near;       /* [size] looks that came soon less those that did not, at most SURE of either */
    uint64_t clock_ns;  /* what two looks at the clock differ by */

    /* Of its own box. */
    uint64_t number;
    int slots_used; /* slots from here on were never used, or are free again */
    bool held[SLOTS];
    uint64_t numbers[SLOTS]; /* of the message in a held slot */
    int first[SLOTS];        /* its unit */
    int units[SLOTS];
    int peers[SLOTS]; /* who takes it */
    bool unit_held[UNITS];
};

/* What a process tells the others of its host. */
struct notice {
    int32_t rank;
    int32_t pid;
    int32_t fd; /* -1: it has no mailbox */
    int32_t unused;
    uint64_t nonce;
};

/* Without it in a dump of memory after a crash, which would fill every page of every mailbox of the host. */
static struct box *map(int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED)
        return NULL;
    (void)madvise(at, bytes, MADV_DONTDUMP);
    return at;
}

/* A file that would exceed the limit on files kills its writer. */
static bool may_grow(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

/* Returns its file, -1 without one. */
static int create_box(struct mailbox *mailbox)
{
    uint64_t nonce = 0;
    int fd = may_grow(mailbox->bytes) ? memfd_create("ferry-mailbox", MFD_CLOEXEC) : -1;

    if (fd >= 0 && getrandom(&nonce, sizeof nonce, 0) == sizeof nonce && !ftruncate(fd, (off_t)mailbox->bytes))
        mailbox->own = map(fd, mailbox->bytes);
    if (mailbox->own) {
        mailbox->own->nonce = nonce;
        return fd;
    }
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* NULL where it cannot be opened, or is another's. */
static struct box *open_box(const struct notice *notice, size_t bytes)
{
    struct box *box = NULL;
    char path[64];
    struct stat about;
    int fd = -1;

    if (notice->fd < 0)
        return NULL;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)notice->pid, (int)notice->fd);
    if (stat(path, &about) || !S_ISREG(about.st_mode) || about.st_size != (off_t)bytes)
        return NULL;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    if (!fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_size == (off_t)bytes)
        box = map(fd, bytes);
    (void)close(fd);
    if (box && box->nonce != notice->nonce) {
        (void)munmap(box, bytes);
        box = NULL;
    }
    return box;
}

/* Everybody's notice, and then who could read whose.  Collective over the host's processes [count]. */
static bool introduce(struct mailbox *mailbox, MPI_Comm host, int count, int fd, struct notice *notices, char *reads,
                      char *read_by)
{
    struct notice own = {.rank = mailbox->rank, .pid = (int32_t)getpid(), .fd = fd};

    own.nonce = mailbox->own ? mailbox->own->nonce : 0;
    if (MPI_Allgather(&own, (int)sizeof own, MPI_BYTE, notices, (int)sizeof own, MPI_BYTE, host) != MPI_SUCCESS)
        return false;
    for (int i = 0; i < count; i++) {
        int peer = notices[i].rank;

        mailbox->places[peer] = i;
        if (peer == mailbox->rank)
            continue;
        mailbox->boxes[peer] = open_box(&notices[i], mailbox->bytes);
        reads[i] = mailbox->boxes[peer] != NULL;
    }
    if (MPI_Alltoall(reads, 1, MPI_CHAR, read_by, 1, MPI_CHAR, host) != MPI_SUCCESS)
        return false;
    for (int i = 0; i < count; i++)
        mailbox->reaches[notices[i].rank] = read_by[i] != 0;
    return true;
}

/* The least of some. */
static uint64_t clock_cost(void)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < CLOCK_TURNS; i++) {
        uint64_t begun = clock_ns();
        uint64_t ns = clock_ns() - begun;

        least = ns < least ? ns : least;
    }
    return least;
}

/* Lists for a world of size ranks, and how large the boxes of a host of count processes are.  NULL: no memory. */
static struct mailbox *create(int count, int size)
{
    struct mailbox *mailbox = calloc(1, sizeof *mailbox);
    size_t rings = 0;

    if (!mailbox)
        return NULL;
    mailbox->boxes = calloc((size_t)size, sizeof(struct box *));
    mailbox->reaches = calloc((size_t)size, sizeof *mailbox->reaches);
    mailbox->near = calloc((size_t)size, sizeof *mailbox->near);
    mailbox->places = calloc((size_t)size, sizeof *mailbox->places);
    if (mailbox->boxes && mailbox->reaches && mailbox->near && mailbox->places &&
        size_mul((size_t)count, ring_bytes(), &rings) == STATUS_OK &&
        size_add(sizeof(struct box), rings, &mailbox->bytes) == STATUS_OK)
        return mailbox;
    mailbox_close(mailbox);
    return NULL;
}

/* A process without memory for its lists takes part in what tells the others so, and in nothing else. */
static struct mailbox *share(MPI_Comm host, int count, int rank, int size, bool able)
{
    struct mailbox *mailbox = create(count, size);
    struct notice *notices = calloc((size_t)count, sizeof *notices);
    char *flags = calloc(2 * (size_t)count, 1);
    bool ready = able && mailbox && notices && flags;
    bool open = false;
    int fd = -1;
    int own = ready;
    int all = 0;

    if (MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, host) == MPI_SUCCESS && ready && all) {
        mailbox->size = size;
        mailbox->rank = rank;
        mailbox->clock_ns = clock_cost();
        (void)MPI_Comm_rank(host, &mailbox->place);
        fd = create_box(mailbox);
        open = introduce(mailbox, host, count, fd, notices, flags, flags + count);
    }
    if (fd >= 0)
        (void)close(fd);
    free(flags);
    free(notices);
    if (open)
        return mailbox;
    mailbox_close(mailbox);
    return NULL;
}

struct mailbox *mailbox_open(MPI_Comm comm, bool able)
{
    struct mailbox *mailbox = NULL;
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
        mailbox = share(host, count, rank, size, able);
    (void)MPI_Comm_free(&host);
    return mailbox;
}

void mailbox_close(struct mailbox *mailbox)
{
    if (!mailbox)
        return;
    for (int i = 0; mailbox->boxes && i < mailbox->size; i++) {
        if (mailbox->boxes[i])
            (void)munmap(mailbox->boxes[i], mailbox->bytes);
    }
    if (mailbox->own)
        (void)munmap(mailbox->own, mailbox->bytes);
    free(mailbox->places);
    free(mailbox->boxes);
    free(mailbox->reaches);
    free(mailbox->near);
    free(mailbox);
}

static struct ring *ring_of(struct box *box, int place)
{
    return ring_at(box + 1, (size_t)place);
}

struct ring *mailbox_ring_to(const struct mailbox *mailbox, int peer)
{
    return mailbox && mailbox->reaches[peer] ? ring_of(mailbox->own, mailbox->places[peer]) : NULL;
}

struct ring *mailbox_ring_from(const struct mailbox *mailbox, int peer)
{
    return mailbox && mailbox->boxes[peer] ? ring_of(mailbox->boxes[peer], mailbox->place) : NULL;
}

static int units_of(size_t bytes)
{
    return (int)((bytes + UNIT_BYTES - 1) / UNIT_BYTES);
}

static void let_go(struct mailbox *mailbox, int slot)
{
    memset(mailbox->unit_held + mailbox->first[slot], 0, (size_t)mailbox->units[slot] * sizeof(bool));
    mailbox->held[slot] = false;
}

void mailbox_looked(struct mailbox *mailbox, int peer, uint64_t ns)
{
    int8_t *near = &mailbox->near[peer];

    if (ns < NEAR_NS)
        *near = (int8_t)(*near < SURE ? *near + 1 : SURE);
    else if (ns < LOST_NS)
        *near = (int8_t)(*near > -SURE ? *near - 1 : -SURE);
}

/* A line of this peer's, asked for at begun, has just come. */
static void looked(struct mailbox *mailbox, int peer, uint64_t begun)
{
    uint64_t ns = clock_ns() - begun;

    mailbox_looked(mailbox, peer, ns > mailbox->clock_ns ? ns - mailbox->clock_ns : 0);
}

bool mailbox_is_near(const struct mailbox *mailbox, int peer)
{
    return mailbox->near[peer] > 0;
}

static bool is_emptied(const struct mailbox *mailbox, int slot)
{
    return atomic_load_explicit(&mailbox->own->slots[slot].state, memory_order_acquire) == SLOT_FREE;
}

/* Take back what receivers have emptied.  The first look is enough to know how near one is. */
static void reclaim(struct mailbox *mailbox)
{
    bool look = true;
    int last = 0;

    for (int i = 0; i < mailbox->slots_used; i++) {
        uint64_t begun = 0;

        if (!mailbox->held[i])
            continue;
        begun = look ? clock_ns() : 0;
        if (is_emptied(mailbox, i)) {
            if (look)
                looked(mailbox, mailbox->peers[i], begun);
            let_go(mailbox, i);
        }
        look = false;
        if (mailbox->held[i])
            last = i + 1;
    }
    mailbox->slots_used = last;
}

static int find_slot(const struct mailbox *mailbox)
{
    for (int i = 0; i < SLOTS; i++) {
        if (!mailbox->held[i])
            return i;
    }
    return -1;
}

/* The first of enough units side by side; -1: there are none. */
static int find_units(const struct mailbox *mailbox, int units)
{
    int first = 0;

    for (int i = 0; i < UNITS; i++) {
        if (mailbox->unit_held[i])
            first = i + 1;
        else if (i + 1 - first >= units)
            return first;
    }
    return units ? -1 : 0;
}

bool mailbox_reserve(struct mailbox *mailbox, int peer, size_t count, struct mail *ret)
{
    int units = units_of(count);
    int at = -1;
    int first = -1;

    reclaim(mailbox);
    at = find_slot(mailbox);
    first = find_units(mailbox, units);
    if (at < 0 || first < 0)
        return false;
    *ret = (struct mail){.slot = (uint32_t)at, .unit = (uint32_t)first, .number = ++mailbox->number, .bytes = count};
    mailbox->held[at] = true;
    mailbox->numbers[at] = ret->number;
    mailbox->first[at] = first;
    mailbox->units[at] = units;
    mailbox->peers[at] = peer;
    memset(mailbox->unit_held + first, true, (size_t)units * sizeof(bool));
    if (mailbox->slots_used <= at)
        mailbox->slots_used = at + 1;
    atomic_store_explicit(&mailbox->own->slots[at].written, 0, memory_order_relaxed);
    atomic_store_explicit(&mailbox->own->slots[at].state, slot_full(ret->number), memory_order_release);
    return true;
}

size_t mailbox_write(struct mailbox *mailbox, const struct mail *mail, const void *bytes, size_t done, size_t most)
{
    unsigned char *room = mailbox->own->room[mail->unit];
    const unsigned char *from = bytes;
    bool near = mailbox_is_near(mailbox, mailbox->peers[mail->slot]);

    while (done < mail->bytes && most) {
        size_t step = (size_t)mail->bytes - done;

        step = step < STEP_BYTES ? step : STEP_BYTES;
        step = step < most ? step : most;
        if (near)
            memcpy(room + done, from + done, step);
        else
            stream_copy(room + done, from + done, step);
        done += step;
        most -= step;
        atomic_store_explicit(&mailbox->own->slots[mail->slot].written, done, memory_order_release);
    }
    return done;
}

unsigned char *mailbox_room(const struct mailbox *mailbox, const struct mail *mail)
{
    return mailbox->own->room[mail->unit];
}

void mailbox_wrote(struct mailbox *mailbox, const struct mail *mail)
{
    atomic_store_explicit(&mailbox->own->slots[mail->slot].written, mail->bytes, memory_order_release);
}

/* No two held slots share a unit, and nobody has the address of one that was sent. */
bool mailbox_is_room(const struct mailbox *mailbox, const void *bytes, size_t count, struct mail *ret)
{
    uintptr_t from = (uintptr_t)mailbox->own->room;
    uintptr_t at = (uintptr_t)bytes;
    size_t unit = (at - from) / UNIT_BYTES;

    if (at < from || unit >= UNITS || (at - from) % UNIT_BYTES)
        return false;
    for (int i = 0; i < mailbox->slots_used; i++) {
        if (!mailbox->held[i] || mailbox->first[i] != (int)unit || !mailbox->units[i])
            continue;
        *ret =
            (struct mail){.slot = (uint32_t)i, .unit = (uint32_t)unit, .number = mailbox->numbers[i], .bytes = count};
        return units_of(count) <= mailbox->units[i];
    }
    return false;
}

enum status mailbox_match(struct mailbox *mailbox, int peer, uint32_t tag, const struct mail *mail, struct error *err)
{
    uint64_t state = slot_full(mail->number);
    uint64_t begun = 0;

    if (mail->bytes > MAILBOX_MOST_BYTES || mail->unit > UNITS || (size_t)units_of(mail->bytes) > UNITS - mail->unit)
        return error_set(err, STATUS_CORRUPT, "rank %d says that %" PRIu64 " bytes lie at unit %" PRIu32, peer,
                         mail->bytes, mail->unit);
    begun = clock_ns();
    if (mail->slot >= SLOTS || !mail->number ||
        !atomic_compare_exchange_strong_explicit(&mailbox->boxes[peer]->slots[mail->slot].state, &state,
                                                 slot_matched(mail->number), memory_order_acquire,
                                                 memory_order_relaxed))
        return error_set(err, STATUS_CORRUPT, "rank %d sent word of a message with tag %" PRIu32 " that is not there",
                         peer, tag);
    looked(mailbox, peer, begun);
    return STATUS_OK;
}

static size_t written(const struct mailbox *mailbox, int peer, const struct mail *mail)
{
    uint64_t bytes = atomic_load_explicit(&mailbox->boxes[peer]->slots[mail->slot].written, memory_order_acquire);

    return bytes < mail->bytes ? (size_t)bytes : (size_t)mail->bytes;
}

bool mailbox_whole(const struct mailbox *mailbox, int peer, const struct mail *mail)
{
    return written(mailbox, peer, mail) == mail->bytes;
}

size_t mailbox_read(const struct mailbox *mailbox, int peer, const struct mail *mail, void *to, size_t done)
{
    const unsigned char *room = mailbox->boxes[peer]->room[mail->unit];
    size_t all = 0;

    while (done < mail->bytes && (all = written(mailbox, peer, mail)) > done) {
        memcpy((unsigned char *)to + done, room + done, all - done);
        done = all;
    }
    return done;
}

bool mailbox_is_returned(const struct mailbox *mailbox, const struct mail *mail)
{
    return !mailbox->held[mail->slot] || mailbox->numbers[mail->slot] != mail->number ||
           is_emptied(mailbox, (int)mail->slot);
}

unsigned char *mailbox_bytes(const struct mailbox *mailbox, int peer, const struct mail *mail)
{
    return mailbox->boxes[peer]->room[mail->unit];
}

void mailbox_return(struct mailbox *mailbox, int peer, const struct mail *mail)
{
    atomic_store_explicit(&mailbox->boxes[peer]->slots[mail->slot].state, SLOT_FREE, memory_order_release);
}
