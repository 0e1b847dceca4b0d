/* Groups: what may be asked of them, checked before anything is posted, and which algorithm answers.
 *
 * With full checks small groups meet pair by pair in their first round, and larger ones go up one tree; an operation
 * whose own messages do not do that, or are too large to be kept until they have, votes first. */
#include "comm/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/size.h"
#include "comm/collective.h"
#include "comm/native.h"
#include "comm/reduce.h"
#include "comm/roll.h"

enum {
    DIRECT_MEMBERS = 8,         /* up to here every pair exchanges at once */
    BROADCAST_MEMBERS = 4,      /* the same for a broadcast, where the votes are extra messages */
    SMALL_REDUCE_BYTES = 32768, /* whole tensors travel up to here and between two members, else chunks */
    SMALL_GATHER_BYTES = 65536  /* gathered whole: doubling up to here, the ring above */
};

const struct group_spec *group_spec(const struct group *group)
{
    return &group->spec;
}

int group_rank(const struct group *group)
{
    return group->rank;
}

int group_size(const struct group *group)
{
    return group->spec.size;
}

static int by_number(const void *a, const void *b)
{
    int one = *(const int *)a;
    int other = *(const int *)b;

    return (one > other) - (one < other);
}

static enum status check_members(const struct session *session, const struct group_spec *spec, struct error *err)
{
    int *sorted = NULL;
    enum status st = STATUS_OK;

    if (spec->size < 1)
        return error_set(err, STATUS_INVALID, "group %s has %d members", spec->name, spec->size);
    sorted = calloc((size_t)spec->size, sizeof *sorted);
    if (!sorted)
        return error_set(err, STATUS_NOMEM, "group %s of %d", spec->name, spec->size);
    memcpy(sorted, spec->members, (size_t)spec->size * sizeof *sorted);
    qsort(sorted, (size_t)spec->size, sizeof *sorted, by_number);
    for (int i = 0; i < spec->size && st == STATUS_OK; i++) {
        if (sorted[i] < 0 || sorted[i] >= session->size)
            st = error_set(err, STATUS_INVALID, "group %s: rank %d is not among the %d of this job", spec->name,
                           sorted[i], session->size);
        else if (i && sorted[i] == sorted[i - 1])
            st = error_set(err, STATUS_INVALID, "group %s: rank %d is a member twice", spec->name, sorted[i]);
    }
    free(sorted);
    return st;
}

enum status group_create(struct session *session, const struct group_spec *spec, struct group **ret, struct error *err)
{
    struct group *group = NULL;
    enum status st = check_members(session, spec, err);

    if (st != STATUS_OK)
        return st;
    group = calloc(1, sizeof *group);
    if (!group)
        return error_set(err, STATUS_NOMEM, "group %s", spec->name);
    group->lane = (struct lane){.session = session, .id = spec->id, .kind = "group", .name = spec->name};
    group->spec = *spec;
    group->sequence = session->options.first_sequence;
    group->rank = -1;
    for (int i = 0; i < spec->size; i++) {
        if (spec->members[i] == session->rank)
            group->rank = i;
    }
    *ret = group;
    return STATUS_OK;
}

void group_destroy(struct group *group)
{
    if (!group)
        return;
    past_destroy(group->past);
    collective_free(atomic_load(&group->spare));
    free(group);
}

static enum status check_member(const struct group *group, struct error *err)
{
    struct text members = {0};
    enum status st;

    if (group->rank >= 0)
        return STATUS_OK;
    for (int i = 0; i < group->spec.size && i < 16; i++)
        text_add(&members, "%s%d", i ? ", " : "", group->spec.members[i]);
    st = error_set(err, STATUS_INVALID, "rank %d is not a member of group %s (ranks %s%s)", group->lane.session->rank,
                   group->spec.name, text_string(&members), group->spec.size > 16 ? ", ..." : "");
    text_done(&members);
    return st;
}

static bool overlap(const struct tensor *a, const struct tensor *b)
{
    return a != b && a->bytes && b->bytes && a->data < b->data + b->bytes && b->data < a->data + a->bytes;
}

static enum status check_tensor(const struct group *group, const struct tensor *tensor, struct error *err)
{
    const char *name = group->spec.name;

    if (!tensor)
        return error_set(err, STATUS_INVALID, "group %s: a tensor is missing", name);
    if (!(group->spec.dtypes & DTYPE_BIT(tensor->dtype))) {
        group_spec_lacks_dtype(&group->spec, tensor->dtype, err);
        return STATUS_INVALID;
    }
    if (tensor->bytes > group->spec.max_bytes)
        return error_set(err, STATUS_OVERFLOW, "group %s: %zu bytes exceed its limit of %" PRIu64, name, tensor->bytes,
                         group->spec.max_bytes);
    return STATUS_OK;
}

static const char *memory_text(const struct memory *memory)
{
    return memory ? memory->ops->name(memory) : "host";
}

static enum status check_tensors(const struct group *group, const struct tensor *send, const struct tensor *recv,
                                 struct error *err)
{
    enum status st = check_tensor(group, send, err);

    if (st == STATUS_OK)
        st = check_tensor(group, recv, err);
    if (st != STATUS_OK)
        return st;
    if (send->dtype != recv->dtype)
        return error_set(err, STATUS_INVALID, "group %s: sends %s, receives %s", group->spec.name,
                         dtype_name(send->dtype), dtype_name(recv->dtype));
    if (memory_device(send->memory) != memory_device(recv->memory))
        return error_set(err, STATUS_INVALID, "group %s: sends out of memory %s, receives into %s", group->spec.name,
                         memory_text(send->memory), memory_text(recv->memory));
    if (overlap(send, recv))
        return error_set(err, STATUS_INVALID, "group %s: what is sent and what is received overlap", group->spec.name);
    return STATUS_OK;
}

/* A collective with its tensors retained, not yet posted. */
static enum status prepare(struct group *group, enum operation operation, struct tensor *send, struct tensor *recv,
                           struct collective **ret, struct error *err)
{
    struct collective *work = NULL;
    enum status st = check_member(group, err);

    if (st != STATUS_OK)
        return st;
    if (!(group->spec.operations & OPERATION_BIT(operation))) {
        group_spec_lacks_operation(&group->spec, operation, err);
        return STATUS_INVALID;
    }
    if (operation != OPERATION_BARRIER && operation != OPERATION_FAILURE_AGREEMENT)
        st = check_tensors(group, send, recv, err);
    if (st != STATUS_OK)
        return st;
    work = collective_take(group);
    if (!work)
        return error_set(err, STATUS_NOMEM, "an operation on group %s", group->spec.name);
    work->completion.session = group->lane.session;
    work->completion.kind = &collective_kind;
    work->completion.operation = operation;
    if (recv) {
        work->send = tensor_retain(send);
        work->recv = tensor_retain(recv);
        work->completion.tensors[0] = send;
        work->completion.tensors[1] = recv;
        work->device = memory_device(recv->memory);
        work->dtype = recv->dtype;
        work->shape = recv->shape;
        work->completion.bytes = send->bytes > recv->bytes ? send->bytes : recv->bytes;
    }
    *ret = work;
    return STATUS_OK;
}

/* Nobody else is there. */
static enum status begin_alone(struct collective *work, int round, bool *ret_more, struct error *err)
{
    (void)round;
    work->completion.flags = work->flags;
    *ret_more = false;
    if (!work->recv || work->recv == work->send)
        return STATUS_OK;
    return collective_copy(work, work->recv->data, work->send->data, work->recv->bytes, err);
}

static const struct algorithm alone = {.name = "alone", .begin = begin_alone};

/* Post prepared work; st is what its preparation came to. */
static enum status submit(struct group *group, struct collective *work, enum status st, struct completion **ret,
                          struct error *err)
{
    struct session *session = group->lane.session;
    bool skip = false;

    session_lock(session);
    if (st == STATUS_OK)
        st = lane_check(&group->lane, err);
    if (st == STATUS_OK)
        st = session_admit(session, &skip, err);
    if (st != STATUS_OK) {
        if (work)
            collective_kind.destroy(&work->completion);
        session_unlock(session);
        return st;
    }
    work->completion.sequence = group->sequence++;
    work->completion.local = work->size == 1;
    if (work->completion.local)
        work->algorithm = &alone;
    work->voting = work->vote && !work->completion.local;
    if (skip)
        lane_skip(&group->lane, &work->completion);
    else
        lane_submit(&group->lane, &work->completion);
    *ret = &work->completion;
    session_unlock(session);
    return STATUS_OK;
}

static bool is_full(const struct collective *work)
{
    return work->completion.session->options.checks == CHECKS_FULL;
}

/* With full checks every operation begins with the same meeting: all pairs of a small group, the tree of a large one.
 * So members that were called with different operations hear of each other, whatever these are. */
static const struct algorithm *vote_of(const struct collective *work)
{
    return work->size <= DIRECT_MEMBERS ? &vote_direct : &vote_tree;
}

/* meets: the algorithm's own first messages are that meeting, and small enough to lie in staging memory until all have
 * come.  Equal on all members that were called with the same. */
static void plan_vote(struct collective *work, bool meets)
{
    work->folded = is_full(work) && meets;
    if (is_full(work) && !meets)
        work->vote = vote_of(work);
}

static bool equal_shapes(const struct shape *a, const struct shape *b)
{
    bool equal = a->ndim == b->ndim;

    for (int i = 0; equal && i < a->ndim; i++)
        equal = a->dim[i] == b->dim[i];
    return equal;
}

/* Shapes that may differ along one axis only. */
static enum status check_slabs(const struct group *group, struct collective *work, int axis, struct error *err)
{
    struct shape send = work->send->shape;
    char one[160];
    char other[160];
    enum status st = slab_of(&work->recv->shape, work->dtype, axis, &work->recv_slab, err);

    if (st == STATUS_OK)
        st = slab_of(&send, work->dtype, axis, &work->send_slab, err);
    if (st != STATUS_OK)
        return error_wrap(err, st, "group %s", group->spec.name);
    work->axis = axis;
    send.dim[axis] = work->recv->shape.dim[axis];
    if (equal_shapes(&send, &work->recv->shape))
        return STATUS_OK;
    shape_text(&work->send->shape, work->dtype, one, sizeof one);
    shape_text(&work->recv->shape, work->dtype, other, sizeof other);
    return error_set(err, STATUS_INVALID, "group %s: %s and %s differ beside axis %d", group->spec.name, one, other,
                     axis);
}

/* Can the library add these tensors?  The same answer on all members that were called with the same. */
static bool adds_native(const struct group *group, const struct collective *work)
{
    const struct session *session = group->lane.session;

    return group->native && work->device && work->recv->bytes &&
           session->ops->native->adds(session->transport, work->device, reduce_partial(work->dtype));
}

/* The library's messages have no headers: whatever is checked is checked by a vote ahead of them. */
static enum status plan_sum(const struct group *group, struct collective *work, struct error *err)
{
    const struct session *session = group->lane.session;
    enum reduction reduction = session->options.reduction;

    if (reduction != REDUCTION_ORDERED && adds_native(group, work)) {
        work->algorithm = &allreduce_native;
        (void)snprintf(work->counts, sizeof work->counts, "native");
        work->vote = session->options.checks == CHECKS_OFF ? NULL : vote_of(work);
        return STATUS_OK;
    }
    if (reduction == REDUCTION_NATIVE && work->recv->bytes && work->size > 1)
        return error_set(err, STATUS_INVALID, "group %s: transport %s cannot add %s in memory %s by itself",
                         group->spec.name, session->ops->name, dtype_name(work->dtype),
                         memory_text(work->recv->memory));
    if (work->send->bytes > SMALL_REDUCE_BYTES && work->size > 2)
        work->algorithm = &allreduce_scatter;
    else
        work->algorithm = work->size <= DIRECT_MEMBERS ? &allreduce_direct : &allreduce_tree;
    return STATUS_OK;
}

enum status group_all_reduce_sum(struct group *group, struct tensor *send, struct tensor *recv, struct completion **ret,
                                 struct error *err)
{
    struct collective *work = NULL;
    char one[160];
    char other[160];
    enum status st = prepare(group, OPERATION_ALL_REDUCE_SUM, send, recv, &work, err);

    if (st == STATUS_OK && !reduce_supports(work->dtype))
        st = error_set(err, STATUS_INVALID, "group %s: %s cannot be summed", group->spec.name, dtype_name(work->dtype));
    if (st == STATUS_OK && !equal_shapes(&send->shape, &recv->shape)) {
        shape_text(&send->shape, send->dtype, one, sizeof one);
        shape_text(&recv->shape, recv->dtype, other, sizeof other);
        st = error_set(err, STATUS_INVALID, "group %s: sums %s into %s", group->spec.name, one, other);
    }
    if (st == STATUS_OK)
        st = plan_sum(group, work, err);
    return submit(group, work, st, ret, err);
}

/* Every count, in order: what all members of a gather agree on. */
static uint64_t digest_counts(struct collective *work, const uint64_t *counts)
{
    for (int i = 0; i < work->size; i++)
        put_u64(work->words + 8 * i, counts[i]);
    return XXH3_64bits(work->words, 8 * (size_t)work->size);
}

/* In decimal digits, which end before end; returns where they begin. */
static char *say_count(uint64_t count, char *end)
{
    do
        *--end = (char)('0' + count % 10);
    while (count /= 10);
    return end;
}

/* The counts themselves, where they fit into a header: so that each member sees what another believes.  By hand: printf
 * takes as long as all else that is planned here. */
static void say_counts(const uint64_t *counts, int size, char text[ROUTE_ROLE_BYTES + 1])
{
    size_t at = 0;

    for (int i = 0; i < size; i++) {
        char digits[24];
        char *first = say_count(counts[i], digits + sizeof digits);
        size_t count = (size_t)(digits + sizeof digits - first);

        if (i)
            *--first = ',';
        count += i ? 1 : 0;
        if (at + count > ROUTE_ROLE_BYTES) {
            text[0] = '\0';
            return;
        }
        memcpy(text + at, first, count);
        at += count;
        text[at] = '\0';
    }
}

static enum status check_counts(const struct group *group, const struct layout *layout, const char *what,
                                uint64_t extent, struct error *err)
{
    if (layout_total(layout) == extent)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "group %s: %s counts add up to %" PRIu64 ", the tensor has %" PRIu64,
                     group->spec.name, what, layout_total(layout), extent);
}

/* Where each member's part lies. */
static enum status lay_out(const struct group *group, const char *what, const uint64_t *counts, int size,
                           struct layout *ret, struct error *err)
{
    enum status st = layout_init(ret, counts, size, err);

    return st == STATUS_OK ? st : error_wrap(err, st, "group %s: %s counts", group->spec.name, what);
}

static enum status plan_gather(struct group *group, struct collective *work, int axis, const uint64_t *counts,
                               struct error *err)
{
    uint64_t own = 0;
    enum status st = check_slabs(group, work, axis, err);

    if (st == STATUS_OK)
        st = lay_out(group, "receive", counts, work->size, &work->from, err);
    if (st == STATUS_OK)
        st = check_counts(group, &work->from, "receive", work->recv->shape.dim[axis], err);
    if (st != STATUS_OK)
        return st;
    own = work->send->shape.dim[axis];
    if (work->send != work->recv && own != counts[work->rank])
        return error_set(err, STATUS_INVALID,
                         "group %s: member %d sends %" PRIu64 " along axis %d, its count is %" PRIu64, group->spec.name,
                         work->rank, own, axis, counts[work->rank]);
    work->count_digest = digest_counts(work, counts);
    work->extent = layout_total(&work->from);
    if (work->completion.operation == OPERATION_ALL_GATHER_UNEVEN)
        say_counts(counts, work->size, work->counts);
    if (work->size <= DIRECT_MEMBERS) {
        work->algorithm = &gather_direct;
        plan_vote(work, work->recv->bytes <= COLLECTIVE_PIECE_BYTES);
        return st;
    }
    plan_vote(work, false);
    work->algorithm = work->recv->bytes <= SMALL_GATHER_BYTES ? &gather_doubling : &gather_ring;
    return st;
}

enum status group_all_gather_uneven(struct group *group, struct tensor *send, struct tensor *recv, int axis,
                                    const uint64_t *counts, struct completion **ret, struct error *err)
{
    struct collective *work = NULL;
    enum status st = prepare(group, OPERATION_ALL_GATHER_UNEVEN, send, recv, &work, err);

    if (st == STATUS_OK)
        st = plan_gather(group, work, axis, counts, err);
    return submit(group, work, st, ret, err);
}

enum status group_all_gather_even(struct group *group, struct tensor *send, struct tensor *recv, int axis,
                                  struct completion **ret, struct error *err)
{
    struct collective *work = NULL;
    enum status st = prepare(group, OPERATION_ALL_GATHER_EVEN, send, recv, &work, err);

    if (st == STATUS_OK && (axis < 0 || axis >= recv->shape.ndim))
        st = error_set(err, STATUS_INVALID, "group %s: axis %d of a tensor with %d dimensions", group->spec.name, axis,
                       recv->shape.ndim);
    if (st == STATUS_OK && recv->shape.dim[axis] % (uint64_t)work->size)
        st = error_set(err, STATUS_INVALID, "group %s: %" PRIu64 " along axis %d cannot be even parts of %d members",
                       group->spec.name, recv->shape.dim[axis], axis, work->size);
    if (st == STATUS_OK) {
        for (int i = 0; i < work->size; i++)
            work->even[i] = recv->shape.dim[axis] / (uint64_t)work->size;
        st = plan_gather(group, work, axis, work->even, err);
    }
    return submit(group, work, st, ret, err);
}

static enum status plan_alltoall(struct group *group, struct collective *work, int axis, const uint64_t *send_counts,
                                 const uint64_t *recv_counts, struct error *err)
{
    enum status st = check_slabs(group, work, axis, err);

    if (st == STATUS_OK && work->send == work->recv)
        st = error_set(err, STATUS_INVALID, "group %s: variable_all_to_all cannot work in place", group->spec.name);
    if (st == STATUS_OK)
        st = lay_out(group, "send", send_counts, work->size, &work->to, err);
    if (st == STATUS_OK)
        st = lay_out(group, "receive", recv_counts, work->size, &work->from, err);
    if (st == STATUS_OK)
        st = check_counts(group, &work->to, "send", work->send->shape.dim[axis], err);
    if (st == STATUS_OK)
        st = check_counts(group, &work->from, "receive", work->recv->shape.dim[axis], err);
    if (st == STATUS_OK && send_counts[work->rank] != recv_counts[work->rank])
        st = error_set(err, STATUS_INVALID, "group %s: member %d sends itself %" PRIu64 " and expects %" PRIu64,
                       group->spec.name, work->rank, send_counts[work->rank], recv_counts[work->rank]);
    if (st != STATUS_OK)
        return st;
    work->shape.dim[axis] = 0;
    work->algorithm = work->size <= DIRECT_MEMBERS ? &alltoall_direct : &alltoall_pairwise;
    plan_vote(work, false);
    return STATUS_OK;
}

enum status group_variable_all_to_all(struct group *group, struct tensor *send, struct tensor *recv, int axis,
                                      const uint64_t *send_counts, const uint64_t *recv_counts, struct completion **ret,
                                      struct error *err)
{
    struct collective *work = NULL;
    enum status st = prepare(group, OPERATION_VARIABLE_ALL_TO_ALL, send, recv, &work, err);

    if (st == STATUS_OK)
        st = plan_alltoall(group, work, axis, send_counts, recv_counts, err);
    return submit(group, work, st, ret, err);
}

enum status group_broadcast(struct group *group, struct tensor *tensor, int root, struct completion **ret,
                            struct error *err)
{
    struct collective *work = NULL;
    enum status st = prepare(group, OPERATION_BROADCAST, tensor, tensor, &work, err);

    if (st == STATUS_OK && (root < 0 || root >= work->size))
        st = error_set(err, STATUS_INVALID, "group %s: root %d among %d members", group->spec.name, root, work->size);
    if (st == STATUS_OK) {
        work->root = root;
        work->algorithm = work->size <= BROADCAST_MEMBERS ? &broadcast_direct : &broadcast_tree;
        plan_vote(work, work->size <= BROADCAST_MEMBERS && work->recv->bytes <= COLLECTIVE_PIECE_BYTES);
    }
    return submit(group, work, st, ret, err);
}

enum status group_barrier(struct group *group, struct completion **ret, struct error *err)
{
    struct collective *work = NULL;
    enum status st = prepare(group, OPERATION_BARRIER, NULL, NULL, &work, err);

    if (st == STATUS_OK)
        work->algorithm = is_full(work) ? vote_of(work) : &agreement_dissemination;
    return submit(group, work, st, ret, err);
}

enum status group_failure_agreement(struct group *group, uint32_t flags, struct completion **ret, struct error *err)
{
    struct collective *work = NULL;
    enum status st = prepare(group, OPERATION_FAILURE_AGREEMENT, NULL, NULL, &work, err);

    if (st == STATUS_OK) {
        work->flags = flags;
        work->algorithm = is_full(work) ? vote_of(work) : &agreement_dissemination;
    }
    return submit(group, work, st, ret, err);
}

const char *group_algorithm(const struct completion *completion)
{
    return completion->kind == &collective_kind ? ((const struct collective *)completion)->algorithm->name : NULL;
}

enum status group_after(struct group *group, struct completion *completion, struct error *err)
{
    return lane_after(&group->lane, completion, err);
}
