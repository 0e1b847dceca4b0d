/* NCCL's own all-reduce, on a communicator of the group's members: with an id of its own, or, of a line of an axis, a
 * part of the communicator of all ranks (nccl_lines.c).
 *
 * The first member gathers who has come to the building, then makes the id and sends it: so it can name who is missing
 * instead of waiting inside NCCL.  A sum: every member tells the first when it has come to it, which holds back
 * nothing; when all have, the first asks all for a proposal, and the largest is the ticket (nccl_queue.h).  So whatever
 * order the programs of members of several groups have, all start the sums in one.  Cost: 4 notes a member and sum. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda_stream.h"
#include "backends/nccl/nccl_errors.h"
#include "backends/nccl/nccl_private.h"
#include "base/clock.h"

enum { NAMED_RANKS = 8 };

static bool native_adds(const struct transport *transport, const struct memory *memory, enum dtype dtype)
{
    /* NCCL adds halves in halves: comm casts them. */
    return nccl_device_ops.reaches(transport, memory) && dtype != DTYPE_BOOL && dtype != DTYPE_F16 &&
           dtype != DTYPE_BF16;
}

static struct native *find(const struct transport *transport, uint32_t id)
{
    struct native *native = transport->natives;

    while (native && native->id != id)
        native = native->next;
    return native;
}

const struct native *nccl_native_find(const struct transport *transport, uint32_t id, const int *members, int size)
{
    const struct native *native = find(transport, id);

    return native && native->size == size && !memcmp(native->members, members, (size_t)size * sizeof *members) ? native
                                                                                                               : NULL;
}

static enum status tell_all(struct native *native, const struct note *note, struct error *err)
{
    enum status st = STATUS_OK;

    for (int i = 0; i < native->size && st == STATUS_OK; i++)
        st = nccl_tell(native->transport, native->members[i], note, err);
    return st;
}

static int index_of(const struct native *native, int rank)
{
    int index = 0;

    while (index < native->size && native->members[index] != rank)
        index++;
    return index;
}

bool nccl_native_member(const struct native *native, int rank)
{
    return index_of(native, rank) < native->size;
}

int nccl_native_next(const struct native *native)
{
    return native->members[(native->index + 1) % native->size];
}

static enum status not_agreed(const struct native *native, int peer, const struct note *note, struct error *err)
{
    return error_set(err, STATUS_CORRUPT,
                     "rank %d sends note %d about sum %" PRIu64 " of group %" PRIu32 ", out of turn", peer,
                     (int)note->kind, note->number, native->id);
}

/* At the first member: one more has come to the building. */
static enum status take_here(struct native *native, int peer, const struct note *note, struct error *err)
{
    int index = index_of(native, peer);
    struct note id = {.kind = NOTE_GROUP_ID, .object = native->id, .data_bytes = NCCL_UNIQUE_ID_BYTES};
    ncclUniqueId unique;
    enum status st;

    if (native->index != 0 || index == native->size || native->came[index])
        return not_agreed(native, peer, note, err);
    native->came[index] = true;
    if (++native->came_count < native->size)
        return STATUS_OK;
    st = nccl_status(ncclGetUniqueId(&unique), "ncclGetUniqueId", NULL, err);
    if (st != STATUS_OK)
        return st;
    memcpy(id.data, unique.internal, NCCL_UNIQUE_ID_BYTES);
    return tell_all(native, &id, err);
}

/* One more has built: at the first member anybody, elsewhere the first. */
static enum status take_built(struct native *native, int peer, const struct note *note, struct error *err)
{
    int index = index_of(native, peer);

    if (index == native->size || (native->index != 0 && index != 0) || native->built_by[index])
        return not_agreed(native, peer, note, err);
    native->built_by[index] = true;
    return STATUS_OK;
}

static enum status take_id(struct native *native, int peer, const struct note *note, struct error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    enum status st;

    if (peer != native->members[0] || native->building || native->built || note->data_bytes != NCCL_UNIQUE_ID_BYTES)
        return not_agreed(native, peer, note, err);
    memcpy(unique.internal, note->data, NCCL_UNIQUE_ID_BYTES);
    config.blocking = 0;
    st = nccl_use_device(native->transport, err);
    if (st == STATUS_OK)
        st = nccl_status(ncclCommInitRankConfig(&native->comm, native->size, unique, native->index, &config),
                         "ncclCommInitRankConfig", NULL, err);
    native->building = st == STATUS_OK;
    return st == STATUS_OK ? st : error_wrap(err, st, "group %" PRIu32 " of %d ranks", native->id, native->size);
}

static struct meeting *meet(struct native *native, uint64_t number, struct error *err)
{
    struct meeting *meeting = native->meetings;

    while (meeting && meeting->number != number)
        meeting = meeting->next;
    if (meeting)
        return meeting;
    meeting = calloc(1, sizeof *meeting);
    if (!meeting) {
        (void)error_set(err, STATUS_NOMEM, "sum %" PRIu64 " of group %" PRIu32, number, native->id);
        return NULL;
    }
    meeting->number = number;
    meeting->next = native->meetings;
    native->meetings = meeting;
    return meeting;
}

static void end_meeting(struct native *native, struct meeting *meeting)
{
    struct meeting **link = &native->meetings;

    while (*link != meeting)
        link = &(*link)->next;
    *link = meeting->next;
    free(meeting);
}

/* At the first member: REACHED and PROPOSE of everybody, this rank among them. */
static enum status take_meeting(struct native *native, int peer, const struct note *note, struct error *err)
{
    struct note answer = {.kind = NOTE_ASK, .object = native->id, .number = note->number};
    struct meeting *meeting = NULL;
    enum status st = STATUS_OK;

    if (native->index != 0 || index_of(native, peer) == native->size || note->ticket > TICKET_LIMIT)
        return not_agreed(native, peer, note, err);
    meeting = meet(native, note->number, err);
    if (!meeting)
        return STATUS_NOMEM;
    if (note->kind == NOTE_REACHED)
        return ++meeting->reached == native->size ? tell_all(native, &answer, err) : STATUS_OK;
    if (meeting->reached < native->size || note->ticket == 0)
        return not_agreed(native, peer, note, err);
    if (note->ticket > meeting->largest)
        meeting->largest = note->ticket;
    if (++meeting->proposed < native->size)
        return STATUS_OK;
    answer.kind = NOTE_TICKET;
    answer.ticket = meeting->largest;
    st = tell_all(native, &answer, err);
    end_meeting(native, meeting);
    return st;
}

static struct work *find_sum(const struct native *native, uint64_t number)
{
    struct work *work = native->transport->works;

    while (work && !(work->kind == WORK_SUM && work->native == native && work->number == number))
        work = work->next;
    return work;
}

/* At every member: ASK and TICKET. */
static enum status take_turn(struct native *native, int peer, const struct note *note, struct error *err)
{
    struct queue *queue = &native->transport->queue;
    struct work *work = find_sum(native, note->number);
    struct note answer = {.kind = NOTE_PROPOSE, .object = native->id, .number = note->number};

    if (work && work->state == WORK_CANCELLED)
        return STATUS_OK;
    if (!work || peer != native->members[0] || !work->reached)
        return not_agreed(native, peer, note, err);
    if (note->kind == NOTE_TICKET)
        return queue_settle(queue, &work->entry, note->ticket) == STATUS_OK ? STATUS_OK
                                                                            : not_agreed(native, peer, note, err);
    if (work->state != WORK_POSTED)
        return not_agreed(native, peer, note, err);
    work->state = WORK_QUEUED;
    answer.ticket = queue_propose(queue, &work->entry);
    return nccl_tell(native->transport, peer, &answer, err);
}

static enum status take(struct native *native, int peer, const struct note *note, struct error *err)
{
    switch (note->kind) {
    case NOTE_HERE:
        return take_here(native, peer, note, err);
    case NOTE_GROUP_BUILT:
        return take_built(native, peer, note, err);
    case NOTE_GROUP_ID:
        return take_id(native, peer, note, err);
    case NOTE_REACHED:
    case NOTE_PROPOSE:
        return take_meeting(native, peer, note, err);
    default:
        return take_turn(native, peer, note, err);
    }
}

/* Others may come to the building before this rank does. */
static enum status keep_early(struct transport *transport, int peer, const struct note *note, struct error *err)
{
    struct early *early = NULL;
    struct early **end = &transport->early;

    if (transport->early_count < MAX_EARLY_NOTES)
        early = malloc(sizeof *early);
    if (!early)
        return error_set(err, STATUS_NOMEM, "%zu notes about groups that are not open here", transport->early_count);
    *early = (struct early){.peer = peer, .note = *note};
    while (*end)
        end = &(*end)->next;
    *end = early;
    transport->early_count++;
    return STATUS_OK;
}

enum status nccl_native_note(struct transport *transport, int peer, const struct note *note, struct error *err)
{
    struct native *native = find(transport, note->object);

    return native ? take(native, peer, note, err) : keep_early(transport, peer, note, err);
}

static enum status take_early(struct native *native, struct error *err)
{
    struct transport *transport = native->transport;
    struct early **link = &transport->early;
    enum status st = STATUS_OK;

    while (*link && st == STATUS_OK) {
        struct early *early = *link;

        if (early->note.object != native->id) {
            link = &early->next;
            continue;
        }
        *link = early->next;
        transport->early_count--;
        st = take(native, early->peer, &early->note, err);
        free(early);
    }
    return st;
}

void nccl_native_free(struct native *native)
{
    while (native->meetings)
        end_meeting(native, native->meetings);
    free(native->members);
    free(native->came);
    free(native->built_by);
    free(native);
}

/* Linked into the transport's, where it stays: others may know of it. */
static enum status add(struct transport *transport, uint32_t id, const int *members, int size, struct native **ret,
                       struct error *err)
{
    struct native *native = calloc(1, sizeof *native);

    if (!native || !(native->members = calloc((size_t)size, sizeof *native->members)) ||
        !(native->came = calloc((size_t)size, sizeof *native->came)) ||
        !(native->built_by = calloc((size_t)size, sizeof *native->built_by))) {
        if (native)
            nccl_native_free(native);
        return error_set(err, STATUS_NOMEM, "a communicator of %d ranks", size);
    }
    native->transport = transport;
    native->id = id;
    native->size = size;
    memcpy(native->members, members, (size_t)size * sizeof *members);
    native->index = index_of(native, transport->rank);
    CHECK(native->index < size);
    native->next = transport->natives;
    transport->natives = native;
    *ret = native;
    return STATUS_OK;
}

/* All members of a line have come when it is opened; nobody makes an id. */
static void begin_line(struct native *native, uint32_t first_line)
{
    native->first_line = first_line;
    native->building = true;
    native->came_count = native->size;
    memset(native->came, true, (size_t)native->size * sizeof *native->came);
}

static enum status native_open(struct transport *transport, uint32_t id, uint32_t first_line, const int *members,
                               int size, struct native **ret, struct error *err)
{
    struct note here = {.kind = NOTE_HERE, .object = id};
    struct native *native = NULL;
    enum status st = nccl_failed(transport, err);

    if (st == STATUS_OK && find(transport, id))
        st = error_set(err, STATUS_INVALID, "group %" PRIu32 " has native sums already", id);
    if (st == STATUS_OK)
        st = add(transport, id, members, size, &native, err);
    if (st != STATUS_OK)
        return st;
    if (first_line)
        begin_line(native, first_line);
    else
        st = nccl_tell(transport, members[0], &here, err);
    if (st == STATUS_OK)
        st = take_early(native, err);
    if (st == STATUS_OK)
        *ret = native;
    return st;
}

/* Its communicator ends with the transport: to end it now would have to wait for the other members. */
static void native_close(struct transport *transport, struct native *native)
{
    (void)transport;
    (void)native;
}

static enum status native_all_reduce(struct transport *transport, struct native *native, struct memory *memory,
                                     enum dtype dtype, const void *send, void *recv, size_t count, struct work **ret,
                                     struct error *err)
{
    struct work *work = NULL;
    enum status st = nccl_failed(transport, err);

    CHECK(native_adds(transport, memory, dtype));
    if (st != STATUS_OK)
        return st;
    work = nccl_work_take(transport, WORK_SUM);
    if (!work)
        return error_set(err, STATUS_NOMEM, "a sum of group %" PRIu32, native->id);
    work->native = native;
    work->dtype = dtype;
    work->send = send;
    work->recv = recv;
    work->count = count;
    work->number = native->number + 1;
    work->entry.ticket = (struct ticket){.kind = ENTRY_SUM, .from = native->id, .number = work->number};
    work->entry.peer = -1;
    work->entry.alone = true;
    st = nccl_use_device(transport, err);
    if (st == STATUS_OK)
        st = nccl_event_behind(transport, memory, &work->before, err);
    if (st != STATUS_OK) {
        nccl_work_give(transport, work);
        return st;
    }
    native->number++;
    nccl_work_link(transport, work);
    *ret = work;
    nccl_progress(transport);
    return STATUS_OK;
}

static int native_missing(const struct transport *transport, const struct native *native, int *ranks, int capacity)
{
    bool gathering = native->index == 0 && native->came_count < native->size;
    int count = 0;

    (void)transport;
    for (int i = 0; i < native->size; i++) {
        bool known = native->index == 0 || i == 0 || i == native->index; /* the first member knows of the others */
        bool has = i == native->index && !gathering ? native->built : gathering ? native->came[i] : native->built_by[i];

        if (!known || has)
            continue;
        if (count < capacity)
            ranks[count] = native->members[i];
        count++;
    }
    return count;
}

static int native_awaits(const struct transport *transport, const struct native *native)
{
    int ranks[2];
    int count = native_missing(transport, native, ranks, 2);

    if (!count)
        return -1;
    if (native->building)
        return transport->rank; /* all have come: NCCL itself does not end here */
    return count > 1 && ranks[0] == transport->rank ? ranks[1] : ranks[0];
}

static void name_ranks(const int *ranks, int count, struct text *out)
{
    for (int i = 0; i < count && i < NAMED_RANKS; i++)
        text_add(out, "%s%d", i ? ", " : "", ranks[i]);
    if (count > NAMED_RANKS)
        text_add(out, " and %d more", count - NAMED_RANKS);
}

/* Of a communicator that is not built. */
static void tell_building(const struct native *native, struct text *out)
{
    int ranks[NAMED_RANKS];
    int count = native_missing(native->transport, native, ranks, NAMED_RANKS);
    bool gathering = native->index == 0 && native->came_count < native->size;

    if (!native->building) { /* else the sentence begins with them */
        text_add(out, "; its communicator is not built, these ranks have not %s it: ", gathering ? "come to" : "built");
        name_ranks(ranks, count, out);
    }
    text_add(out, "; NCCL_DEBUG=INFO on them says where it stands");
}

static void native_tell(const struct transport *transport, const struct work *work, struct text *out)
{
    const struct native *native = work->native;

    if (native_missing(transport, native, NULL, 0)) {
        tell_building(native, out);
        return;
    }
    text_add(out, "; NCCL's all-reduce of ranks ");
    name_ranks(native->members, native->size, out);
    if (work->state == WORK_STARTED)
        text_add(out, " is on the device of rank %d since %.1f s", transport->rank,
                 (double)(clock_ns() - work->started_ns) / 1e9);
    else
        text_add(out, " is not on the device of rank %d yet", transport->rank);
}

enum status nccl_native_built(struct native *native, struct error *err)
{
    struct note note = {.kind = NOTE_GROUP_BUILT, .object = native->id};

    native->building = false;
    native->built = true;
    return native->index == 0 ? tell_all(native, &note, err)
                              : nccl_tell(native->transport, native->members[0], &note, err);
}

static enum status look_at(struct native *native, struct error *err)
{
    ncclResult_t state = ncclSuccess;
    enum status st =
        nccl_status(ncclCommGetAsyncError(native->comm, &state), "ncclCommGetAsyncError", native->comm, err);

    if (st == STATUS_OK)
        st = nccl_status(state, native->built ? "NCCL, asynchronously" : "ncclCommInitRankConfig", native->comm, err);
    if (st != STATUS_OK)
        return error_wrap(err, st, "group %" PRIu32 " of %d ranks", native->id, native->size);
    return native->building && state == ncclSuccess ? nccl_native_built(native, err) : STATUS_OK;
}

/* A sum counts as reached when its communicator is built. */
enum status nccl_native_step(struct transport *transport, struct error *err)
{
    enum status st = nccl_lines_step(transport, err);

    for (struct native *native = transport->natives; native && st == STATUS_OK; native = native->next) {
        if (native->comm)
            st = look_at(native, err);
    }
    for (struct work *work = transport->works; work && st == STATUS_OK; work = work->next) {
        struct note note = {.kind = NOTE_REACHED, .number = work->number};

        if (work->kind != WORK_SUM || work->state != WORK_POSTED || work->reached || !work->native->built)
            continue;
        note.object = work->native->id;
        work->reached = true;
        st = nccl_tell(transport, work->native->members[0], &note, err);
    }
    return st;
}

const struct native_ops nccl_native_ops = {
    .adds = native_adds,
    .open = native_open,
    .close = native_close,
    .all_reduce = native_all_reduce,
    .missing = native_missing,
    .failed = nccl_failed,
    .awaits = native_awaits,
    .tell = native_tell,
};
