/* Members of a group were called with different operations, orders, dtypes, shapes, counts, roots or axes: one sentence
 * that says who was called with what.
 *
 * Ranks with the same words stand together, by rank, so that members that heard the same headers write the same
 * sentence.  Where all words are equal the members differ in what only pairs see: the counts of an all-to-all. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "comm/alltoall.h"
#include "comm/collective.h"

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
        text_add(out, " counts %s", frame->role);
}

/* This member first, then those of the round in the order of its receives.  Returns how many were heard. */
static int listen(const struct collective *work, struct voice *voices)
{
    struct frame own = {.operation = work->completion.operation,
                        .root_or_axis = (uint32_t)(work->root + work->axis),
                        .receive_count = work->extent,
                        .dtype = work->dtype,
                        .shape = work->shape,
                        .role = work->counts};
    int count = 0;

    voices[count].rank = work->completion.session->rank;
    voices[count].sequence = work->completion.sequence;
    collective_describe(&voices[count++].words, &own);
    for (int i = 0; i < work->receive_count; i++) {
        const struct framed_receive *receive = &work->receives[i];
        struct frame frame = own;
        char role[ROUTE_ROLE_BYTES + 1];

        if (!receive->over)
            continue;
        frame.sequence = work->completion.sequence;
        if (receive->other && !frame_read(receive->saved, sizeof receive->saved, &frame, role))
            continue;
        voices[count].rank = receive->peer;
        voices[count].sequence = frame.sequence;
        collective_describe(&voices[count++].words, &frame);
    }
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

/* "; ranks 0, 1, 3: all_reduce_sum f32[4]" */
static void tell(struct text *out, struct voice *voices, int count, int first, bool sequences)
{
    int ranks = 0;

    for (int i = first; i < count; i++)
        ranks += same(&voices[first], &voices[i]);
    text_add(out, "%s%s", first ? "; " : "", ranks > 1 ? "ranks" : "rank");
    for (int i = first, said = 0; i < count; i++) {
        if (!same(&voices[first], &voices[i]))
            continue;
        voices[i].told = true;
        text_add(out, "%s%d", said++ ? ", " : " ", voices[i].rank);
    }
    text_add(out, ": ");
    if (sequences)
        text_add(out, "sequence %" PRIu64 ", ", voices[first].sequence);
    text_add(out, "%s", text_string(&voices[first].words));
}

static void tell_all(struct text *out, const struct collective *work, struct voice *voices, int count)
{
    bool sequences = false;
    int missing = 0;

    for (int i = 1; i < count; i++)
        sequences = sequences || voices[i].sequence != voices[0].sequence;
    text_add(out, "group %s%s", work->group->spec.name, sequences ? ": " : ", ");
    if (!sequences)
        text_add(out, "sequence %" PRIu64 ": ", voices[0].sequence);
    for (int i = 0; i < count; i++) {
        if (!voices[i].told)
            tell(out, voices, count, i, sequences);
    }
    for (int i = 0; i < work->receive_count; i++) {
        if (!work->receives[i].over)
            text_add(out, "%s%d", missing++ ? ", " : "; not heard from: ", work->receives[i].peer);
    }
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

enum status collective_disagree(const struct collective *work, struct error *err)
{
    struct voice *voices = calloc((size_t)work->receive_count + 1, sizeof *voices);
    const char *refusal = "members of the group disagree";
    struct text text = {0};
    enum status st = STATUS_OK;
    int count = 0;

    if (!voices)
        return error_set(err, STATUS_NOMEM, "what %d members were called with", work->receive_count + 1);
    count = listen(work, voices);
    qsort(voices, (size_t)count, sizeof *voices, by_rank);
    if (!all_same(voices, count)) {
        tell_all(&text, work, voices, count);
        st = error_set(err, STATUS_MISMATCH, "%.1500s", text_string(&text));
    }
    for (int i = 0; i < work->receive_count && st == STATUS_OK; i++) {
        const struct framed_receive *receive = &work->receives[i];

        if (receive->other && work->completion.operation == OPERATION_VARIABLE_ALL_TO_ALL)
            st = tell_pair(work, receive, err);
        if (receive->other && receive->refusal)
            refusal = receive->refusal;
    }
    if (st == STATUS_OK)
        st = error_set(err, STATUS_MISMATCH, "%s", refusal);
    for (int i = 0; i < count; i++)
        text_done(&voices[i].words);
    free(voices);
    text_done(&text);
    return st;
}
