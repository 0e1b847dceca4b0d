/* Post, wait, compare.  Tensors are filled with what a member contributes, and everything behind is a canary.
 *
 * What lies in another memory is copied there, and not waited for: the operation begins behind it.  Afterwards it is
 * copied back, and compared on the host. */
#include "tests/loop/property.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "comm/group.h"
#include "comm/route.h"

enum { MOST_POSTED = 6, CANARY = 0xa5 };

/* One case on this rank. */
struct running {
    struct property_case c;
    struct session *session;
    struct group *group;
    struct route *route;
    int me; /* member index; of a route 0: sends, 1: receives; -1: takes no part */
    struct memory *memory;
    struct tensor *send;
    struct tensor *recv;        /* may be send */
    struct tensor *placed_send; /* the same in memory; with none they are send and recv themselves */
    struct tensor *placed_recv;
    struct tensor *images[PROPERTY_TENSORS]; /* of a bundle that is sent: what its tensors are copied from */
    struct completion *completion;
    uint32_t flags;
};

static size_t extents_before(const struct property_case *c)
{
    size_t count = 1;

    for (int i = 0; i < c->axis; i++)
        count *= c->shape.dim[i];
    return count;
}

static size_t bytes_behind(const struct property_case *c)
{
    size_t bytes = dtype_bytes(c->dtype);

    for (int i = c->axis + 1; i < c->shape.ndim; i++)
        bytes *= c->shape.dim[i];
    return bytes;
}

/* A tensor with this extent along the axis, all canary. */
static struct tensor *tensor_along(const struct property_case *c, uint64_t extent, struct error *err)
{
    struct shape shape = c->shape;
    struct tensor *tensor = NULL;

    if (shape.ndim)
        shape.dim[c->axis] = extent;
    if (tensor_create(c->dtype, &shape, &tensor, err) == STATUS_OK)
        memset(tensor->data, CANARY, tensor->capacity_bytes);
    return tensor;
}

/* The runs of which a tensor consists along the axis: for each outer index the part of each member in order. */
struct run {
    uint64_t counts[PROPERTY_RANKS];
    int from[PROPERTY_RANKS];
    int to[PROPERTY_RANKS];
    int count;
};

/* Write (or compare, when only >= -1 asks so) a tensor's runs; only: the one run to write, -1: all. */
static bool walk(const struct property_case *c, const struct run *runs, struct tensor *tensor, bool compare, int only)
{
    size_t behind = bytes_behind(c);
    size_t at = 0;

    for (size_t o = 0; o < extents_before(c); o++) {
        for (int i = 0; i < runs->count; i++) {
            size_t bytes = (size_t)runs->counts[i] * behind;

            for (size_t k = 0; k < bytes; k++) {
                unsigned char byte = property_byte(c, runs->from[i], runs->to[i], o * bytes + k);

                if (compare && tensor->data[at + k] != byte)
                    return false;
                if (!compare && (only < 0 || only == i))
                    tensor->data[at + k] = byte;
            }
            at += bytes;
        }
    }
    return at == tensor->bytes;
}

/* What a gather brings together, and one member's part of it. */
static struct run gathered(const struct property_case *c)
{
    struct run runs = {.count = c->size};

    for (int i = 0; i < runs.count; i++) {
        runs.counts[i] = c->counts[i];
        runs.from[i] = i;
        runs.to[i] = -1;
    }
    return runs;
}

static struct run part_of(const struct property_case *c, int member)
{
    struct run runs = {.count = 1, .counts = {c->counts[member]}, .from = {member}, .to = {-1}};

    return runs;
}

static struct run exchanged(const struct property_case *c, int me, bool sent)
{
    struct run runs = {.count = c->size};

    for (int i = 0; i < runs.count; i++) {
        runs.counts[i] = sent ? c->matrix[me][i] : c->matrix[i][me];
        runs.from[i] = sent ? me : i;
        runs.to[i] = sent ? i : me;
    }
    return runs;
}

static uint64_t total(const struct run *runs)
{
    uint64_t all = 0;

    for (int i = 0; i < runs->count; i++)
        all += runs->counts[i];
    return all;
}

static struct tensor *placed(const struct running *r, struct tensor *tensor, enum status *st, struct error *err)
{
    struct tensor *other = NULL;

    if (!r->memory)
        return tensor_retain(tensor);
    if (*st == STATUS_OK)
        *st = tensor_create_in(r->memory, tensor->dtype, &tensor->shape, &other, err);
    if (*st == STATUS_OK)
        *st = memory_copy(r->memory, other->data, tensor->data, tensor->bytes, err);
    return other;
}

static enum status place(struct running *r, struct error *err)
{
    enum status st = STATUS_OK;

    r->placed_send = placed(r, r->send, &st, err);
    if (r->recv && r->recv != r->send)
        r->placed_recv = placed(r, r->recv, &st, err);
    else if (r->placed_send)
        r->placed_recv = tensor_retain(r->placed_send);
    return st;
}

/* Back to the host. */
static enum status fetch(struct running *r, struct error *err)
{
    enum status st = STATUS_OK;

    if (!r->memory || !r->placed_send)
        return STATUS_OK;
    st = memory_copy(r->memory, r->send->data, r->placed_send->data, r->send->bytes, err);
    if (st == STATUS_OK && r->recv && r->recv != r->send)
        st = memory_copy(r->memory, r->recv->data, r->placed_recv->data, r->recv->bytes, err);
    return st == STATUS_OK ? memory_wait(r->memory, UINT64_MAX, err) : st;
}

static enum status post_sum(struct running *r, struct error *err)
{
    size_t bytes = dtype_bytes(r->c.dtype);
    enum status st = STATUS_OK;

    r->send = tensor_along(&r->c, r->c.shape.dim[r->c.axis], err);
    r->recv = r->c.in_place ? tensor_retain(r->send) : tensor_along(&r->c, r->c.shape.dim[r->c.axis], err);
    for (size_t k = 0; k < r->send->bytes / bytes; k++)
        property_put(&r->c, r->me, k, r->send->data + k * bytes);
    st = place(r, err);
    if (st == STATUS_OK)
        st = group_all_reduce_sum(r->group, r->placed_send, r->placed_recv, &r->completion, err);
    /* Refused alike on every member, before anything is sent. */
    return st == STATUS_INVALID && r->c.dtype == DTYPE_BOOL && !r->completion ? STATUS_OK : st;
}

static enum status post_gather(struct running *r, struct error *err)
{
    struct run all = gathered(&r->c);
    struct run own = part_of(&r->c, r->me);
    bool even = r->c.operation == OPERATION_ALL_GATHER_EVEN;
    enum status st = STATUS_OK;

    r->recv = tensor_along(&r->c, total(&all), err);
    r->send = r->c.in_place ? tensor_retain(r->recv) : tensor_along(&r->c, own.counts[0], err);
    if (r->c.in_place)
        (void)walk(&r->c, &all, r->recv, false, r->me);
    else
        (void)walk(&r->c, &own, r->send, false, -1);
    st = place(r, err);
    if (st != STATUS_OK)
        return st;
    return even ? group_all_gather_even(r->group, r->placed_send, r->placed_recv, r->c.axis, &r->completion, err)
                : group_all_gather_uneven(r->group, r->placed_send, r->placed_recv, r->c.axis, r->c.counts,
                                          &r->completion, err);
}

static enum status post_exchange(struct running *r, struct error *err)
{
    struct run sent = exchanged(&r->c, r->me, true);
    struct run received = exchanged(&r->c, r->me, false);
    enum status st = STATUS_OK;

    r->send = tensor_along(&r->c, total(&sent), err);
    r->recv = tensor_along(&r->c, total(&received), err);
    (void)walk(&r->c, &sent, r->send, false, -1);
    st = place(r, err);
    if (st != STATUS_OK)
        return st;
    return group_variable_all_to_all(r->group, r->placed_send, r->placed_recv, r->c.axis, sent.counts, received.counts,
                                     &r->completion, err);
}

static enum status post_broadcast(struct running *r, struct error *err)
{
    enum status st = STATUS_OK;

    r->send = tensor_along(&r->c, r->c.shape.dim[r->c.axis], err);
    for (size_t k = 0; r->me == r->c.root && k < r->send->bytes; k++)
        r->send->data[k] = property_byte(&r->c, r->c.root, -1, k);
    st = place(r, err);
    return st == STATUS_OK ? group_broadcast(r->group, r->placed_send, r->c.root, &r->completion, err) : st;
}

static enum status post_bundle(struct running *r, struct error *err)
{
    struct bundle *bundle = NULL;
    enum status st;

    if (r->me)
        return route_receive(r->route, r->c.bundle, NULL, NULL, r->c.index, &r->completion, err);
    st = route_acquire(r->route, &bundle, err);
    for (int t = 0; st == STATUS_OK && t < bundle->count; t++) {
        struct tensor *tensor = bundle->tensor[t];

        st = tensor_reshape(tensor, r->c.route->tensors[t].dtype, &r->c.bundle[t], err);
        if (st == STATUS_OK)
            st = tensor_create(tensor->dtype, &tensor->shape, &r->images[t], err);
        for (size_t k = 0; st == STATUS_OK && k < tensor->bytes; k++)
            r->images[t]->data[k] = property_byte(&r->c, t, -1, k);
        if (st == STATUS_OK)
            st = memory_copy(tensor->memory, tensor->data, r->images[t]->data, tensor->bytes, err);
    }
    return st == STATUS_OK ? route_send(r->route, bundle, r->c.index, &r->completion, err) : st;
}

/* What member i gives to a failure agreement. */
static uint32_t flags_of(const struct property_case *c, int member)
{
    return (uint32_t)property_mix(c->seed + (uint64_t)member) | (uint32_t)property_mix(c->seed + 77);
}

static enum status post(struct running *r, atomic_int *arrived, struct error *err)
{
    switch (r->c.operation) {
    case OPERATION_ALL_REDUCE_SUM:
        return post_sum(r, err);
    case OPERATION_ALL_GATHER_EVEN:
    case OPERATION_ALL_GATHER_UNEVEN:
        return post_gather(r, err);
    case OPERATION_VARIABLE_ALL_TO_ALL:
        return post_exchange(r, err);
    case OPERATION_BROADCAST:
        return post_broadcast(r, err);
    case OPERATION_BARRIER:
        if (arrived)
            (void)atomic_fetch_add(arrived, 1);
        return group_barrier(r->group, &r->completion, err);
    case OPERATION_FAILURE_AGREEMENT:
        return group_failure_agreement(r->group, flags_of(&r->c, r->me), &r->completion, err);
    default:
        return post_bundle(r, err);
    }
}

/* Who is not a member is told so. */
static enum status refuse(const struct running *r, struct error *err)
{
    struct completion *completion = NULL;
    struct error refusal = {0};

    if (!r->group || group_barrier(r->group, &completion, &refusal) == STATUS_INVALID)
        return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "case %" PRIu64 ": who is not a member was let in", r->c.index);
}

static enum status begin(struct session *session, struct memory *memory, const struct property_world *world,
                         uint64_t index, struct running *r, atomic_int *arrived, struct error *err)
{
    *r = (struct running){.session = session, .memory = memory, .me = -1};
    property_case_draw(world, index, &r->c);
    if (r->c.group) {
        r->group = session_group(session, r->c.group->id);
        r->me = group_rank(r->group);
    } else {
        r->route = session_route(session, r->c.route->id);
        r->me = session_rank(session) == r->c.route->from ? 0 : session_rank(session) == r->c.route->to ? 1 : -1;
    }
    return r->me < 0 ? refuse(r, err) : post(r, arrived, err);
}

static bool sum_is_right(const struct running *r, bool sent)
{
    size_t bytes = dtype_bytes(r->c.dtype);

    for (size_t k = 0; k < r->recv->bytes / bytes; k++) {
        unsigned char expected[8];

        if (sent)
            property_put(&r->c, r->me, k, expected);
        else
            property_sum(&r->c, k, expected);
        if (memcmp(expected, (sent ? r->send : r->recv)->data + k * bytes, bytes) != 0)
            return false;
    }
    return true;
}

static bool tensor_is_right(const struct property_case *c, int t, const struct tensor *tensor)
{
    struct tensor *image = NULL;
    bool right = tensor_create(tensor->dtype, &tensor->shape, &image, NULL) == STATUS_OK &&
                 memory_copy(tensor->memory, image->data, tensor->data, tensor->bytes, NULL) == STATUS_OK &&
                 memory_wait(tensor->memory, UINT64_MAX, NULL) == STATUS_OK;

    for (size_t k = 0; right && k < tensor->bytes; k++)
        right = image->data[k] == property_byte(c, t, -1, k);
    tensor_release(image);
    return right;
}

static bool bundle_is_right(const struct running *r)
{
    uint64_t epoch = 0;
    struct bundle *bundle = route_take(r->completion, &epoch);
    bool right = epoch == r->c.index && bundle->count == r->c.route->tensor_count;

    for (int t = 0; t < bundle->count; t++) {
        const struct tensor *tensor = bundle->tensor[t];

        for (int i = 0; i < tensor->shape.ndim; i++)
            right = right && tensor->shape.dim[i] == r->c.bundle[t].dim[i];
        right = right && tensor_is_right(&r->c, t, tensor);
    }
    route_return(r->route, bundle);
    return right;
}

static bool broadcast_is_right(const struct running *r)
{
    for (size_t k = 0; k < r->send->bytes; k++) {
        if (r->send->data[k] != property_byte(&r->c, r->c.root, -1, k))
            return false;
    }
    return true;
}

static bool agreement_is_right(const struct running *r)
{
    uint32_t flags = UINT32_MAX;

    for (int i = 0; i < r->c.size; i++)
        flags &= flags_of(&r->c, i);
    return completion_flags(r->completion) == flags;
}

/* The result against the reference; and what was sent, which must be as it was. */
static bool is_right(const struct running *r, const atomic_int *arrived)
{
    struct run received = {0};
    struct run sent = {0};

    switch (r->c.operation) {
    case OPERATION_ALL_REDUCE_SUM:
        return sum_is_right(r, false) && (r->send == r->recv || sum_is_right(r, true));
    case OPERATION_ALL_GATHER_EVEN:
    case OPERATION_ALL_GATHER_UNEVEN:
        received = gathered(&r->c);
        sent = part_of(&r->c, r->me);
        break;
    case OPERATION_VARIABLE_ALL_TO_ALL:
        received = exchanged(&r->c, r->me, false);
        sent = exchanged(&r->c, r->me, true);
        break;
    case OPERATION_BROADCAST:
        return broadcast_is_right(r);
    case OPERATION_BARRIER:
        return !arrived || atomic_load(arrived) == r->c.size;
    case OPERATION_FAILURE_AGREEMENT:
        return agreement_is_right(r);
    default:
        return r->me == 0 || bundle_is_right(r);
    }
    return walk(&r->c, &received, r->recv, true, -1) && (r->send == r->recv || walk(&r->c, &sent, r->send, true, -1));
}

static enum status end(struct running *r, const struct property_world *world, const atomic_int *arrived,
                       struct error *wrong, struct error *err)
{
    enum status st = STATUS_OK;

    if (r->completion) {
        st = completion_wait(r->completion, DEADLINE_NONE, err);
        if (st == STATUS_OK)
            st = fetch(r, err);
        if (st == STATUS_OK && !is_right(r, arrived) && !wrong->status) {
            char text[160];

            shape_text(&r->c.shape, r->c.dtype, text, sizeof text);
            (void)error_set(wrong, STATUS_INTERNAL,
                            "rank %d of %d, seed %" PRIu64 ", case %" PRIu64 ": %s on %s, %s axis %d%s: wrong",
                            session_rank(r->session), world->size, world->seed, r->c.index,
                            operation_name(r->c.operation), r->c.group ? r->c.group->name : r->c.route->name, text,
                            r->c.axis, r->c.in_place ? " in place" : "");
        }
        completion_abandon(r->completion);
    }
    /* Of an operation that was refused the copies into memory may not have happened yet. */
    if (!r->completion && r->placed_send)
        st = memory_wait(r->memory, UINT64_MAX, err);
    tensor_release(r->send);
    tensor_release(r->recv);
    tensor_release(r->placed_send);
    tensor_release(r->placed_recv);
    for (int t = 0; t < PROPERTY_TENSORS; t++)
        tensor_release(r->images[t]);
    return st;
}

enum status property_run(struct session *session, struct memory *memory, const struct property_world *world,
                         uint64_t first, int count, atomic_int *arrived, struct error *err)
{
    struct running running[MOST_POSTED];
    struct error wrong = {0};
    enum status st = STATUS_OK;

    for (int done = 0; done < count && st == STATUS_OK;) {
        int most = 1 + (int)(property_mix(world->seed + first + (uint64_t)done) % MOST_POSTED);
        int posted = 0;

        for (; posted < most && done + posted < count && st == STATUS_OK; posted++)
            st = begin(session, memory, world, first + (uint64_t)(done + posted), &running[posted],
                       arrived ? &arrived[done + posted] : NULL, err);
        if (st != STATUS_OK)
            return error_wrap(err, st, "seed %" PRIu64 ", case %" PRIu64, world->seed,
                              first + (uint64_t)(done + posted - 1));
        for (int i = 0; i < posted; i++) {
            enum status ended = end(&running[i], world, arrived ? &arrived[done + i] : NULL, &wrong, err);

            if (ended != STATUS_OK && st == STATUS_OK)
                st = error_wrap(err, ended, "seed %" PRIu64 ", case %" PRIu64, world->seed, running[i].c.index);
        }
        done += posted;
    }
    if (st == STATUS_OK && wrong.status)
        *err = wrong;
    return st == STATUS_OK ? wrong.status : st;
}
