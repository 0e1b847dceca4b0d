/* Members of a group were called with different operations, orders, dtypes, shapes, counts, roots or axes: one sentence
 * that says who was called with what.
 *
 * Ranks with the same words stand together, by rank, so that members that heard the same write the same sentence; of a
 * large group those that differ are named, the rest counted.  Whoever was not heard in the round is asked (roll.h).
 * Where all words are equal the members differ in what only pairs see: the counts of an all-to-all. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/alltoall.h"
#include "comm/collective.h"
#include "comm/roll.h"

enum {
    ASK_AGAIN_MS = 50, /* a member that has not been called yet */
    FEW = 8,           /* ranks that are listed one by one */
    PARTS_TOLD = 16,   /* ranks or ranges of one listing */
    KINDS_TOLD = 6     /* different calls, beside that of most */
};

/* What one member was called with. */
struct voice {
    int rank;
    uint64_t sequence;
    struct text words;
    bool told;
};

static bool has_axis(enum operation operation)
{
    return operation == OPERATION_ALL_GATHER_EVEN || operation == OPERATION_ALL_GATHER_UNEVEN ||
           operation == OPERATION_VARIABLE_ALL_TO_ALL;
}

/* " f32[8,2]": of a gather the whole, of an all-to-all without the extent that differs from pair to pair. */
static void add_shape(struct text *out, const struct frame *frame)
{
    struct shape shape = frame->shape;
    bool gathers = has_axis(frame->operation) && frame->operation != OPERATION_VARIABLE_ALL_TO_ALL;

    text_add(out, " %s[", dtype_name(frame->dtype));
    for (int i = 0; i < shape.ndim; i++) {
        bool along = has_axis(frame->operation) && (uint32_t)i == frame->root_or_axis;

        text_add(out, i ? "," : "");
        if (along && !gathers)
            text_add(out, "*");
        else
            text_add(out, "%" PRIu64, along ? frame->receive_count : shape.dim[i]);
    }
    text_add(out, "]");
}

void collective_describe(struct text *out, const struct frame *frame)
{
    text_add(out, "%s", operation_name(frame->operation));
    if (frame->operation == OPERATION_BARRIER || frame->operation == OPERATION_FAILURE_AGREEMENT)
        return;
    add_shape(out, frame);
    if (has_axis(frame->operation))
        text_add(out, " axis %" PRIu32, frame->root_or_axis);
    if (frame->operation == OPERATION_BROADCAST)
        text_add(out, " root %" PRIu32, frame->root_or_axis);
    if (frame->role && frame->role[0])
        text_add(out, frame->operation == OPERATION_ALL_REDUCE_SUM ? " %s" : " counts %s", frame->role);
}

void collective_signature(const struct collective *work, struct frame *ret)
{
    *ret = (struct frame){.operation = work->completion.operation,
                          .root_or_axis = (uint32_t)(work->root + work->axis),
                          .sequence = work->completion.sequence,
                          .receive_count = work->extent,
                          .dtype = work->dtype,
                          .shape = work->shape,
                          .role = work->counts};
}

/* The message of this round that has come from a rank; NULL: none. */
static const struct framed_receive *received(const struct collective *work, int rank)
{
    for (int i = 0; i < work->receive_count; i++) {
        if (work->receives[i].peer == rank && work->receives[i].over)
            return &work->receives[i];
    }
    return NULL;
}

/* What its header says; false: nothing that can be told. */
static bool read_header(const struct collective *work, const struct framed_receive *receive, struct frame *ret,
                        char role[ROUTE_ROLE_BYTES + 1])
{
    collective_signature(work, ret);
    return !receive->other || frame_read(receive->saved, sizeof receive->saved, ret, role);
}

/* What a member was called with: as it tells, or by its header of the round.  One that has gone on, so that its header
 * speaks of a later call, is asked. */
static bool hear(const struct collective *work, int member, struct voice *voice)
{
    int rank = work->group->spec.members[member];
    const char *words = roll_words(work, member);
    const struct framed_receive *receive = received(work, rank);
    char role[ROUTE_ROLE_BYTES + 1];
    struct frame frame;

    *voice = (struct voice){.rank = rank, .sequence = work->completion.sequence};
    collective_signature(work, &frame);
    if (words) {
        text_add(&voice->words, "%s", words);
        return true;
    }
    if (member != work->rank && (!receive || !read_header(work, receive, &frame, role)))
        return false;
    voice->sequence = frame.sequence;
    collective_describe(&voice->words, &frame);
    return true;
}

bool collective_heard(struct collective *work)
{
    bool all = true;

    for (int i = 0; i < work->size && i < ROLL_MOST; i++) {
        enum roll_state state = roll_state(work, i);
        const struct framed_receive *receive = received(work, work->group->spec.members[i]);
        char role[ROUTE_ROLE_BYTES + 1];
        struct frame frame;

        if (i == work->rank || state == ROLL_CALLED || state == ROLL_PAST)
            continue;
        if (receive && read_header(work, receive, &frame, role) && frame.sequence == work->completion.sequence)
            continue;
        roll_ask(work, i, ASK_AGAIN_MS * NS_PER_MS);
        all = false;
    }
    return all;
}

/* Everybody who can be heard.  Returns how many. */
static int listen(const struct collective *work, struct voice *voices)
{
    int count = 0;

    for (int i = 0; i < work->size; i++)
        count += hear(work, i, &voices[count]);
    return count;
}

static int by_rank(const void *a, const void *b)
{
    const struct voice *one = a;
    const struct voice *other = b;

    return (one->rank > other->rank) - (one->rank < other->rank);
}

static bool same(const struct voice *one, const struct voice *other)
{
    return one->sequence == other->sequence && !strcmp(text_string(&one->words), text_string(&other->words));
}

static bool all_same(const struct voice *voices, int count)
{
    for (int i = 1; i < count; i++) {
        if (!same(&voices[0], &voices[i]))
            return false;
    }
    return true;
}

/* Ranks in rising order, as they are told: a few one by one, many in ranges, and not without an end. */
struct listing {
    bool ranges;
    int parts;
    int count;
    int first; /* of the range that is still open */
    int last;
};

static void end_range(struct text *out, struct listing *listing)
{
    const char *comma = listing->parts ? ", " : " ";

    if (!listing->count || listing->parts++ >= PARTS_TOLD)
        return;
    text_add(out, "%s%d", comma, listing->first);
    if (listing->last > listing->first)
        text_add(out, "-%d", listing->last);
}

static void list_rank(struct text *out, struct listing *listing, int rank)
{
    bool next = listing->ranges && listing->count && rank == listing->last + 1;

    if (!next) {
        end_range(out, listing);
        listing->first = rank;
    }
    listing->last = rank;
    listing->count++;
}

static void end_listing(struct text *out, struct listing *listing)
{
    end_range(out, listing);
    if (listing->parts > PARTS_TOLD)
        text_add(out, " and further, %d in all", listing->count);
}

static int count_like(const struct voice *voices, int count, int which)
{
    int like = 0;

    for (int i = 0; i < count; i++)
        like += same(&voices[which], &voices[i]);
    return like;
}

/* The first of the most common words, where so many share them that they are called the others; -1: none. */
static int find_others(const struct voice *voices, int count)
{
    int most = FEW;
    int found = -1;

    for (int i = 0; i < count; i++) {
        int like = voices[i].told ? 0 : count_like(voices, count, i);

        if (like > most) {
            most = like;
            found = i;
        }
    }
    return found;
}

/* "; ranks 0, 1, 3: all_reduce_sum f32[4]" */
static void tell(struct text *out, struct voice *voices, int count, int which, bool others, bool sequences)
{
    int like = count_like(voices, count, which);
    struct listing listing = {.ranges = like > FEW};

    text_add(out, others ? "the other %d ranks" : like > 1 ? "ranks" : "rank", like);
    for (int i = 0; i < count; i++) {
        if (!same(&voices[which], &voices[i]))
            continue;
        voices[i].told = true;
        if (!others)
            list_rank(out, &listing, voices[i].rank);
    }
    end_listing(out, &listing);
    text_add(out, ": ");
    if (sequences)
        text_add(out, "sequence %" PRIu64 ", ", voices[which].sequence);
    text_add(out, "%s", text_string(&voices[which].words));
}

/* "; not heard from: 3, 7": members of this state whose call is not known. */
static void tell_missing(struct text *out, const struct collective *work, const struct voice *voices, int count,
                         bool before, const char *what)
{
    struct listing listing = {.ranges = true};

    for (int i = 0; i < work->size && i < ROLL_MOST; i++) {
        int rank = work->group->spec.members[i];
        bool known = false;

        for (int k = 0; k < count && !known; k++)
            known = voices[k].rank == rank;
        if (known || (roll_state(work, i) == ROLL_BEFORE) != before)
            continue;
        if (!listing.count)
            text_add(out, "; %s:", what);
        list_rank(out, &listing, rank);
    }
    end_listing(out, &listing);
}

static void tell_all(struct text *out, const struct collective *work, struct voice *voices, int count)
{
    bool sequences = false;
    int others = find_others(voices, count);
    int kinds = 0;

    for (int i = 1; i < count; i++)
        sequences = sequences || voices[i].sequence != voices[0].sequence;
    text_add(out, "group %s%s", work->group->spec.name, sequences ? ": " : ", ");
    if (!sequences)
        text_add(out, "sequence %" PRIu64 ": ", voices[0].sequence);
    for (int i = 0; i < count && kinds < KINDS_TOLD; i++) {
        if (voices[i].told || (others >= 0 && same(&voices[others], &voices[i])))
            continue;
        text_add(out, kinds++ ? "; " : "");
        tell(out, voices, count, i, false, sequences);
    }
    if (others >= 0) {
        text_add(out, "; ");
        tell(out, voices, count, others, true, sequences);
    }
    kinds = 0;
    for (int i = 0; i < count; i++)
        kinds += !voices[i].told;
    if (kinds)
        text_add(out, "; %d more ranks with other calls", kinds);
    tell_missing(out, work, voices, count, true, "not called yet");
    tell_missing(out, work, voices, count, false, "not heard from");
    if (work->size > ROLL_MOST)
        text_add(out, "; %d members were not asked", work->size - ROLL_MOST);
}

/* The counts of two members of an all-to-all differ, one way or the other. */
static enum status tell_pair(const struct collective *work, const struct framed_receive *receive, struct error *err)
{
    struct frame frame;
    char role[ROUTE_ROLE_BYTES + 1];
    const int *members = work->group->spec.members;
    int peer = 0;

    if (!frame_read(receive->saved, sizeof receive->saved, &frame, role))
        return STATUS_OK;
    while (members[peer] != receive->peer)
        peer++;
    return alltoall_check_pair(work, peer, frame.send_count, frame.receive_count, err);
}

/* Where all but one were called with the same, that one is to blame. */
static enum status blame_lone(const struct voice *voices, int count, enum status st, struct error *err)
{
    for (int i = 0; i < count && count > 2; i++) {
        if (count_like(voices, count, i) == 1 && count_like(voices, count, i ? 0 : 1) == count - 1)
            return error_blame(err, st, voices[i].rank);
    }
    return st;
}

enum status collective_disagree(const struct collective *work, struct error *err)
{
    struct voice *voices = calloc((size_t)work->size, sizeof *voices);
    const struct framed_receive *refused = NULL;
    struct text text = {0};
    enum status st = STATUS_OK;
    int count = 0;

    if (!voices)
        return error_set(err, STATUS_NOMEM, "what %d members were called with", work->size);
    count = listen(work, voices);
    qsort(voices, (size_t)count, sizeof *voices, by_rank);
    if (!all_same(voices, count)) {
        tell_all(&text, work, voices, count);
        st = blame_lone(voices, count, error_set(err, STATUS_MISMATCH, "%.1500s", text_string(&text)), err);
    }
    for (int i = 0; i < work->receive_count && st == STATUS_OK; i++) {
        const struct framed_receive *receive = &work->receives[i];

        if (receive->other && work->completion.operation == OPERATION_VARIABLE_ALL_TO_ALL)
            st = tell_pair(work, receive, err);
        if (receive->other && receive->refusal)
            refused = receive;
    }
    if (st == STATUS_OK && refused)
        st = error_blame(err, error_set(err, STATUS_MISMATCH, "%s", refused->refusal), refused->peer);
    else if (st == STATUS_OK)
        st = error_set(err, STATUS_MISMATCH, "members of the group disagree");
    for (int i = 0; i < count; i++)
        text_done(&voices[i].words);
    free(voices);
    text_done(&text);
    return st;
}
