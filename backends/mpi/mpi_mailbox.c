/* A mailbox is a file in memory that its peers have mapped, too (base/shared_file.h).
 *
 * It holds a table of slots and room for their messages, in units of some pages.  Only its owner looks for room and
 * fills slots; a slot is full until its receiver, and nobody else, has emptied it.  The envelope names the message's
 * slot, number, place and size.  A slot's state is the number of the message in it, of which no two are the same:
 * nothing is searched, and an envelope opens its own message or none.  Peers can write the whole file, so nobody acts
 * on anything in it but the states: where messages lie the owner keeps for itself, and the receiver copies from its
 * envelope.  Beside its state a slot says how long reading took, in the same line: that decides which way the next
 * messages take, and nothing else.  Behind the room lie the rings of the post, one to each process of the host.
 *
 * Cost: two copies between mapped pages, one on each side, and one cell of the post.  A long message's envelope leaves
 * before the message is whole, so that the receiver copies behind the sender: its slot says how many bytes lie there by
 * now.
 *
 * Pages of a mailbox were read last by another core.  Where the two share a cache plain stores are the quickest; where
 * they do not, stores past the cache are (base/stream.h), by as much.  Which holds is measured (mpi_distance.h): the
 * state of a slot with mail is a line that the peer wrote last, and tells by how long it takes to come; and plain stores tell
 * themselves by how long they take. */
#include "backends/mpi/mpi_mailbox.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/stream.h"

enum {
    SLOTS = 128,
    UNIT_BYTES = 16384,
    UNITS = 512,
    STEP_BYTES = 32768, /* are written before the receiver hears of them, and read at once */
    MEASURED_BYTES =
        8192, /* of messages whose writing is measured, at least: more than what their envelope goes after */
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
    _Atomic uint64_t read_ns; /* of what was lent by it; its receiver's word, 0: none */
};

/* What lies in the shared file; behind it the rings [processes of the host]. */
struct box {
    unsigned char nonce[SHARED_FILE_NONCE_BYTES];
    struct mailbox_slot slots[SLOTS];
    _Alignas(4096) unsigned char room[UNITS][UNIT_BYTES];
};

struct mailbox {
    const struct host *host;
    int rank_count;
    struct shared_file file;
    struct box *own;            /* NULL: none */
    struct box **boxes;         /* [rank_count] of the peers whose mail is read; else NULL */
    struct distance *distances; /* [rank_count] */
    uint64_t clock_ns;          /* what two looks at the clock differ by */

    /* Of its own box. */
    uint64_t number;
    int slots_used; /* slots from here on were never used, or are free again */
    bool held[SLOTS];
    uint64_t numbers[SLOTS]; /* of the message in a held slot */
    int first[SLOTS];        /* its unit */
    int units[SLOTS];
    int peers[SLOTS];     /* who takes it */
    uint64_t lent[SLOTS]; /* lines; 0: none, or what he said of them was heard */
    bool plain[SLOTS];    /* it is written by plain stores */
    bool unit_held[UNITS];
};

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

struct mailbox *mailbox_create(const struct host *host, int rank_count)
{
    struct mailbox *mailbox = NULL;
    size_t bytes = 0;

    if (host_size(host) < 2 || !(mailbox = calloc(1, sizeof *mailbox)))
        return NULL;
    mailbox->host = host;
    mailbox->rank_count = rank_count;
    mailbox->file.fd = -1;
    mailbox->boxes = calloc((size_t)rank_count, sizeof(struct box *));
    mailbox->distances = calloc((size_t)rank_count, sizeof *mailbox->distances);
    if (!mailbox->boxes || !mailbox->distances ||
        size_mul((size_t)host_size(host), ring_bytes(), &bytes) != STATUS_OK ||
        size_add(sizeof(struct box), bytes, &bytes) != STATUS_OK) {
        mailbox_close(mailbox);
        return NULL;
    }
    mailbox->clock_ns = clock_cost();
    if (shared_file_create("ferry-mailbox", bytes, &mailbox->file))
        mailbox->own = shared_file_map(mailbox->file.fd, &mailbox->file, true);
    if (!mailbox->own)
        shared_file_close(&mailbox->file);
    return mailbox;
}

struct shared_file mailbox_file(const struct mailbox *mailbox)
{
    return mailbox ? mailbox->file : (struct shared_file){.fd = -1};
}

void mailbox_open(struct mailbox *mailbox)
{
    for (int rank = 0; mailbox && rank < mailbox->rank_count; rank++)
        mailbox->boxes[rank] = host_memory(mailbox->host, HOST_MAIL, rank, NULL);
    if (mailbox)
        shared_file_close(&mailbox->file);
}

void mailbox_close(struct mailbox *mailbox)
{
    if (!mailbox)
        return;
    shared_file_unmap(mailbox->own, &mailbox->file);
    shared_file_close(&mailbox->file);
    free(mailbox->boxes);
    free(mailbox->distances);
    free(mailbox);
}

static struct ring *ring_of(struct box *box, int place)
{
    return ring_at(box + 1, (size_t)place);
}

struct ring *mailbox_ring_to(const struct mailbox *mailbox, int peer)
{
    if (!mailbox || !host_reads(mailbox->host, HOST_MAIL, peer))
        return NULL;
    return ring_of(mailbox->own, host_place(mailbox->host, peer));
}

struct ring *mailbox_ring_from(const struct mailbox *mailbox, int peer)
{
    if (!mailbox || !mailbox->boxes[peer])
        return NULL;
    return ring_of(mailbox->boxes[peer], host_own_place(mailbox->host));
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

struct distance *mailbox_distance(const struct mailbox *mailbox, int peer)
{
    return &mailbox->distances[peer];
}

/* A line of this peer's, asked for at begun, has just come. */
static void looked(struct mailbox *mailbox, int peer, uint64_t begun)
{
    uint64_t ns = clock_ns() - begun;

    distance_looked(&mailbox->distances[peer], ns > mailbox->clock_ns ? ns - mailbox->clock_ns : 0);
}

static bool is_emptied(const struct mailbox *mailbox, int slot)
{
    return atomic_load_explicit(&mailbox->own->slots[slot].state, memory_order_acquire) == SLOT_FREE;
}

/* What the receiver says of an emptied slot, in a line that has just come. */
static void hear(struct mailbox *mailbox, int slot)
{
    uint64_t ns = atomic_load_explicit(&mailbox->own->slots[slot].read_ns, memory_order_relaxed);

    distance_read(&mailbox->distances[mailbox->peers[slot]], mailbox->lent[slot], ns);
    mailbox->lent[slot] = 0;
}

/* Take back what receivers have emptied.  The first look is enough to know how near one is, unless it is the second at
 * that line: whoever sent a message without room looks for himself whether it was read, and hears how quickly. */
static void reclaim(struct mailbox *mailbox)
{
    bool look = true;
    int last = 0;

    for (int i = 0; i < mailbox->slots_used; i++) {
        uint64_t begun = 0;
        bool measures = look && mailbox->units[i];

        if (!mailbox->held[i])
            continue;
        begun = measures ? clock_ns() : 0;
        if (is_emptied(mailbox, i)) {
            if (measures)
                looked(mailbox, mailbox->peers[i], begun);
            hear(mailbox, i);
            let_go(mailbox, i);
        }
        look = look && !measures;
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
    struct distance *distance = &mailbox->distances[mailbox->peers[mail->slot]];
    bool *plain = &mailbox->plain[mail->slot];
    size_t before = done;
    uint64_t begun = 0;

    if (!done)
        *plain = mail->bytes < MEASURED_BYTES ? distance_is_stored_to(distance) : distance_stores(distance);
    if (*plain && !distance_is_near(distance))
        begun = clock_ns();
    while (done < mail->bytes && most) {
        size_t step = (size_t)mail->bytes - done;

        step = step < STEP_BYTES ? step : STEP_BYTES;
        step = step < most ? step : most;
        if (*plain)
            memcpy(room + done, from + done, step);
        else
            stream_copy(room + done, from + done, step);
        done += step;
        most -= step;
        atomic_store_explicit(&mailbox->own->slots[mail->slot].written, done, memory_order_release);
    }
    if (begun)
        distance_stored(distance, (done - before) / DISTANCE_LINE_BYTES, clock_ns() - begun);
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
    begun = mail->bytes ? clock_ns() : 0;
    if (mail->slot >= SLOTS || !mail->number ||
        !atomic_compare_exchange_strong_explicit(&mailbox->boxes[peer]->slots[mail->slot].state, &state,
                                                 slot_matched(mail->number), memory_order_acquire,
                                                 memory_order_relaxed))
        return error_set(err, STATUS_CORRUPT, "rank %d sent word of a message with tag %" PRIu32 " that is not there",
                         peer, tag);
    if (mail->bytes)
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

void mailbox_lends(struct mailbox *mailbox, const struct mail *mail, uint64_t lines)
{
    mailbox->lent[mail->slot] = lines;
}

bool mailbox_is_returned(struct mailbox *mailbox, const struct mail *mail)
{
    if (!mailbox->held[mail->slot] || mailbox->numbers[mail->slot] != mail->number)
        return true;
    if (!is_emptied(mailbox, (int)mail->slot))
        return false;
    hear(mailbox, (int)mail->slot);
    return true;
}

unsigned char *mailbox_bytes(const struct mailbox *mailbox, int peer, const struct mail *mail)
{
    return mailbox->boxes[peer]->room[mail->unit];
}

void mailbox_return(struct mailbox *mailbox, int peer, const struct mail *mail, uint64_t read_ns)
{
    struct mailbox_slot *slot = &mailbox->boxes[peer]->slots[mail->slot];

    atomic_store_explicit(&slot->read_ns, read_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->state, SLOT_FREE, memory_order_release);
}
