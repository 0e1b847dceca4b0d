/* Routes: a pool of bundles at each end, transfers in order.
 *
 * A transfer is one frame a tensor, sent straight out of the bundle's memory and received straight into it.  Sends of
 * several bundles may be in flight together; receipts come one after the other, as their expected headers follow from
 * what came before. */
#include "comm/route.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/bundle_pool.h"
#include "comm/completion_private.h"
#include "comm/framed.h"
#include "comm/route_private.h"
#include "comm/route_schema.h"
#include "comm/staging.h"

#define CLEAR_NS NS_PER_S

struct route {
    struct lane lane;
    struct route_spec spec;
    uint64_t digest;
    struct bundle_pool *pool; /* NULL at a rank that is neither end */
    bool held;                /* the transport keeps some of the pool's memory to the end of the process */
    uint64_t sequence;        /* of the next transfer */
    uint64_t last_epoch;      /* received */
    bool seen;                /* any frame has come, the last with */
    uint64_t last_sequence;
    _Atomic(struct transfer *) spare; /* one that has ended, for the next: large blocks cost malloc a search */
};

struct transfer {
    struct completion completion; /* first */
    struct route *route;
    struct bundle *bundle; /* a receive has none until it starts */
    int tensor;            /* of a receive: the one under way */
    bool open;             /* of a receive: its frame is being received */
    bool any_epoch;
    bool described;
    bool taken;
    route_describe *describe;
    void *context;
    struct shape shapes[ROUTE_MAX_TENSORS];
    struct work *works[ROUTE_MAX_TENSORS]; /* of sends */
    struct framed_receive receive;
    struct framed_send sends[]; /* [tensor_count] of a send */
};

const struct route_spec *route_spec(const struct route *route)
{
    return &route->spec;
}

enum status route_create(struct session *session, const struct route_spec *spec, struct route **ret, struct error *err)
{
    struct route *route = NULL;
    enum status st = route_schema_check(spec, session->size, err);

    if (st != STATUS_OK)
        return st;
    route = calloc(1, sizeof *route);
    if (!route)
        return error_set(err, STATUS_NOMEM, "route %s", spec->name);
    route->lane = (struct lane){.session = session, .id = spec->id, .kind = "route", .name = spec->name};
    route->spec = *spec;
    route->digest = route_spec_digest(spec);
    route->sequence = session->options.first_sequence;
    if (session->rank == spec->from || session->rank == spec->to)
        st = bundle_pool_create(spec, spec->memory ? spec->memory : session->options.memory, session->options.shared,
                                &route->pool, err);
    if (st != STATUS_OK) {
        route_destroy(route);
        return st;
    }
    *ret = route;
    return STATUS_OK;
}

const struct lane *route_lane(const struct route *route)
{
    return &route->lane;
}

void route_close(struct route *route)
{
    route->held = !lane_close(&route->lane);
}

void route_destroy(struct route *route)
{
    if (!route)
        return;
    if (!route->held)
        bundle_pool_destroy(route->pool);
    free(atomic_load(&route->spare));
    free(route);
}

static enum status check_end(const struct route *route, bool sender, struct error *err)
{
    int end = sender ? route->spec.from : route->spec.to;

    if (route->lane.session->rank == end)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "rank %d cannot %s on route %s (rank %d to rank %d)",
                     route->lane.session->rank, sender ? "send" : "receive", route->spec.name, route->spec.from,
                     route->spec.to);
}

static void fill_frame(const struct route *route, const struct transfer *transfer, int tensor,
                       const struct shape *shape, struct frame *ret)
{
    *ret = (struct frame){.kind = FRAME_ROUTE,
                          .object_id = route->spec.id,
                          .operation = OPERATION_SEND_RECEIVE,
                          .sequence = transfer->completion.sequence,
                          .epoch = transfer->completion.epoch,
                          .schema_digest = route->digest,
                          .role_ordinal = (uint16_t)tensor,
                          .role_count = (uint16_t)route->spec.tensor_count,
                          .dtype = route->spec.tensors[tensor].dtype,
                          .shape = *shape,
                          .role = route->spec.tensors[tensor].role};
}

/* Tensors leave in order: the next one is posted when all pieces of this one are. */
static enum status step_send(struct completion *completion, bool *ret_over, struct error *err)
{
    struct transfer *transfer = (struct transfer *)completion;
    bool over = true;

    for (int t = 0; t < transfer->route->spec.tensor_count; t++) {
        enum status st = framed_send_step(&transfer->sends[t], completion->session, err);

        if (st != STATUS_OK)
            return st;
        over = over && transfer->sends[t].over;
        if (!framed_send_posted(&transfer->sends[t]))
            break;
    }
    if (over) {
        bundle_pool_give(transfer->route->pool, transfer->bundle);
        transfer->bundle = NULL;
    }
    *ret_over = over;
    return STATUS_OK;
}

static bool posted_send(const struct completion *completion)
{
    const struct transfer *transfer = (const struct transfer *)completion;

    for (int t = 0; t < transfer->route->spec.tensor_count; t++) {
        if (!framed_send_posted(&transfer->sends[t]))
            return false;
    }
    return true;
}

static bool let_go_send(struct completion *completion)
{
    struct transfer *transfer = (struct transfer *)completion;
    bool all = true;

    for (int t = 0; t < transfer->route->spec.tensor_count; t++)
        all = framed_send_let_go(&transfer->sends[t], completion->session) && all;
    return all;
}

static int peer_send(const struct completion *completion)
{
    return ((const struct transfer *)completion)->route->spec.to;
}

static void destroy(struct completion *completion)
{
    struct transfer *transfer = (struct transfer *)completion;

    if (!transfer->taken)
        bundle_pool_give(transfer->route->pool, transfer->bundle);
    if (completion->kind->posted) {
        for (int t = 0; t < transfer->route->spec.tensor_count; t++)
            framed_send_done(&transfer->sends[t]);
    }
    framed_receive_done(&transfer->receive);
    free(atomic_exchange(&transfer->route->spare, transfer));
}

static const struct work_kind send_kind = {
    .step = step_send, .posted = posted_send, .let_go = let_go_send, .peer = peer_send, .destroy = destroy};

/* Shapes of tensors 1.. out of the contents of tensor 0. */
static enum status describe(struct transfer *transfer, struct error *err)
{
    const struct route *route = transfer->route;
    enum status st = transfer->describe(transfer->context, transfer->bundle->tensor[0], transfer->shapes, err);

    transfer->described = true;
    if (st == STATUS_OK)
        st = route_schema_shapes(&route->spec, transfer->shapes, err);
    if (st == STATUS_OK)
        return st;
    return error_wrap(err, st, "route %s (rank %d to rank %d), sequence %" PRIu64, route->spec.name, route->spec.from,
                      route->spec.to, transfer->completion.sequence);
}

/* Expect the frame of the next tensor. */
static enum status open_receive(struct transfer *transfer, struct error *err)
{
    struct route *route = transfer->route;
    int t = transfer->tensor;
    struct tensor *tensor = transfer->bundle->tensor[t];
    struct framed_receive *receive = &transfer->receive;
    enum status st = STATUS_OK;

    if (t && transfer->describe && !transfer->described)
        st = describe(transfer, err);
    if (st == STATUS_OK)
        st = tensor_reshape(tensor, route->spec.tensors[t].dtype, &transfer->shapes[t], err);
    if (st != STATUS_OK)
        return st;
    if (transfer->any_epoch && !t)
        transfer->completion.epoch = route->last_epoch;
    memset(receive, 0, offsetof(struct framed_receive, expected)); /* what follows is written before it is read */
    fill_frame(route, transfer, t, &transfer->shapes[t], &receive->frame);
    receive->tag = route->spec.id;
    receive->peer = route->spec.from;
    receive->any_epoch = transfer->any_epoch && !t;
    receive->payload = tensor->data;
    receive->payload_bytes = tensor->bytes;
    receive->device = memory_device(tensor->memory);
    receive->headroom = true;
    receive->lane = &route->lane;
    transfer->open = true;
    return STATUS_OK;
}

static enum status move_receive(struct transfer *transfer, struct error *err)
{
    struct route *route = transfer->route;
    struct framed_receive *receive = &transfer->receive;
    enum status st = framed_receive_step(receive, transfer->completion.session, err);

    if (receive->seen) {
        route->seen = true;
        route->last_sequence = receive->last_sequence;
    }
    if (st != STATUS_OK || !receive->over)
        return st;
    transfer->completion.epoch = receive->frame.epoch;
    route->last_epoch = receive->frame.epoch;
    transfer->completion.session->epoch = receive->frame.epoch;
    framed_receive_done(receive);
    transfer->open = false;
    transfer->tensor++;
    return STATUS_OK;
}

static enum status step_receive(struct completion *completion, bool *ret_over, struct error *err)
{
    struct transfer *transfer = (struct transfer *)completion;

    if (!transfer->bundle)
        transfer->bundle = bundle_pool_take(transfer->route->pool);
    while (transfer->bundle && transfer->tensor < transfer->route->spec.tensor_count) {
        enum status st = STATUS_OK;

        if (!transfer->open)
            st = open_receive(transfer, err);
        if (st == STATUS_OK)
            st = move_receive(transfer, err);
        if (st != STATUS_OK || transfer->open)
            return st;
    }
    *ret_over = transfer->tensor == transfer->route->spec.tensor_count;
    return STATUS_OK;
}

static bool let_go_receive(struct completion *completion)
{
    return framed_receive_let_go(&((struct transfer *)completion)->receive, completion->session);
}

static int peer_receive(const struct completion *completion)
{
    return ((const struct transfer *)completion)->route->spec.from;
}

static void hint_receive(const struct completion *completion, struct text *out)
{
    const struct route *route = ((const struct transfer *)completion)->route;

    text_add(out, "; route %s expected sequence %" PRIu64, route->spec.name, completion->sequence);
    if (route->seen)
        text_add(out, ", last seen %" PRIu64, route->last_sequence);
    else
        text_add(out, ", none seen");
}

static const struct work_kind receive_kind = {
    .step = step_receive, .let_go = let_go_receive, .peer = peer_receive, .hint = hint_receive, .destroy = destroy};

enum status route_after(struct route *route, struct completion *completion, struct error *err)
{
    return lane_after(&route->lane, completion, err);
}

static bool any_free(void *context)
{
    return bundle_pool_any(((const struct route *)context)->pool);
}

enum status route_acquire(struct route *route, struct bundle **ret, struct error *err)
{
    struct session *session = route->lane.session;
    enum status st = check_end(route, true, err);

    if (st != STATUS_OK)
        return st;
    session_lock(session);
    st = lane_check(&route->lane, err);
    if (st == STATUS_OK && !bundle_pool_any(route->pool) && !route->lane.first)
        st = error_set(err, STATUS_INVALID, "route %s: the caller holds all of its %d bundles", route->spec.name,
                       route->spec.depth);
    if (st == STATUS_OK && !bundle_pool_any(route->pool))
        st = session_wait(session, &route->lane, any_free, route, DEADLINE_NONE, err);
    if (st == STATUS_OK)
        *ret = bundle_pool_take(route->pool);
    session_unlock(session);
    return st;
}

static struct transfer *create_transfer(struct route *route, const struct work_kind *kind, uint64_t epoch)
{
    size_t bytes = sizeof(struct transfer);
    struct transfer *transfer = atomic_exchange(&route->spare, NULL);

    if (kind->posted)
        bytes += (size_t)route->spec.tensor_count * sizeof transfer->sends[0];
    if (!transfer)
        transfer = malloc(bytes);
    if (!transfer)
        return NULL;
    memset(transfer, 0, offsetof(struct transfer, shapes)); /* the rest is written before it is read, but for these */
    transfer->receive.work = NULL;
    transfer->receive.device_work = false;
    transfer->receive.lent = NULL;
    transfer->receive.scratch = NULL;
    transfer->receive.refusal = NULL;
    transfer->receive.way = NULL;
    for (int t = 0; kind->posted && t < route->spec.tensor_count; t++) {
        transfer->sends[t].works = NULL;
        transfer->sends[t].way = NULL;
    }
    transfer->completion.session = route->lane.session;
    transfer->completion.kind = kind;
    transfer->completion.operation = OPERATION_SEND_RECEIVE;
    transfer->completion.epoch = epoch;
    transfer->route = route;
    return transfer;
}

/* What is posted must be what the schema says: shapes, and the dtype that the pool made. */
static enum status check_bundle(const struct route *route, const struct bundle *bundle, struct shape *shapes,
                                struct error *err)
{
    for (int t = 0; t < bundle->count; t++) {
        if (bundle->tensor[t]->dtype != route->spec.tensors[t].dtype)
            return error_set(err, STATUS_INVALID, "route %s, tensor %s: %s, the plan says %s", route->spec.name,
                             route->spec.tensors[t].role, dtype_name(bundle->tensor[t]->dtype),
                             dtype_name(route->spec.tensors[t].dtype));
        shapes[t] = bundle->tensor[t]->shape;
    }
    return route_schema_shapes(&route->spec, shapes, err);
}

static void init_sends(struct transfer *transfer)
{
    const struct route *route = transfer->route;

    for (int t = 0; t < route->spec.tensor_count; t++) {
        struct tensor *tensor = transfer->bundle->tensor[t];
        struct framed_send *send = &transfer->sends[t];

        memset(send, 0, offsetof(struct framed_send, saved)); /* what follows is written before it is read */
        fill_frame(route, transfer, t, &transfer->shapes[t], &send->frame);
        send->tag = route->spec.id;
        send->peer_count = 1;
        send->peers = &route->spec.to;
        send->payload = tensor->data;
        send->payload_bytes = tensor->bytes;
        send->device = memory_device(tensor->memory);
        send->headroom = true;
        send->works = &transfer->works[t];
        transfer->works[t] = NULL;
        transfer->completion.bytes += tensor->bytes;
    }
}

enum status route_send(struct route *route, struct bundle *bundle, uint64_t epoch, struct completion **ret,
                       struct error *err)
{
    struct session *session = route->lane.session;
    struct transfer *transfer = NULL;
    bool skip = false;
    enum status st = check_end(route, true, err);

    if (st != STATUS_OK)
        return st;
    transfer = create_transfer(route, &send_kind, epoch);
    if (!transfer)
        return error_set(err, STATUS_NOMEM, "a transfer on route %s", route->spec.name);
    st = check_bundle(route, bundle, transfer->shapes, err);
    session_lock(session);
    if (st == STATUS_OK)
        st = lane_check(&route->lane, err);
    if (st == STATUS_OK)
        st = session_admit(session, &skip, err);
    transfer->completion.sequence = route->sequence;
    transfer->bundle = bundle;
    if (st != STATUS_OK) {
        transfer->bundle = NULL;
        destroy(&transfer->completion);
        session_unlock(session);
        return st;
    }
    init_sends(transfer);
    REQUIRE(bundle_pool_lent(transfer->bundle), "a bundle is sent that is not lent: it was returned or sent before");
    bundle_pool_send(transfer->bundle);
    route->sequence++;
    session->epoch = epoch;
    if (skip) {
        bundle_pool_give(route->pool, transfer->bundle);
        transfer->bundle = NULL;
        lane_skip(&route->lane, &transfer->completion);
    } else {
        lane_submit(&route->lane, &transfer->completion);
    }
    *ret = &transfer->completion;
    session_unlock(session);
    return STATUS_OK;
}

/* On a device out of a block of zeros, which must stay until they are there: a queue that does not get to it keeps it.
 */
static enum status clear(struct session *session, struct tensor *tensor, struct error *err)
{
    struct memory *device = memory_device(tensor->memory);
    unsigned char *zeros = NULL;
    enum status st = STATUS_OK;

    if (!device) {
        memset(tensor->data, 0, tensor->capacity_bytes);
        return STATUS_OK;
    }
    zeros = staging_take(session->staging, tensor->capacity_bytes, err);
    if (!zeros)
        return error_wrap(err, STATUS_NOMEM, "%zu zeros", tensor->capacity_bytes);
    memset(zeros, 0, tensor->capacity_bytes);
    st = memory_copy(device, tensor->data, zeros, tensor->capacity_bytes, err);
    if (st == STATUS_OK)
        st = memory_wait(device, clock_ns() + CLEAR_NS, err);
    if (st != STATUS_TIMEOUT)
        staging_give(session->staging, zeros);
    return st;
}

/* A receipt that a rehearsed fault leaves out: zeros in the largest shapes. */
static enum status receive_nothing(struct transfer *transfer, struct error *err)
{
    struct route *route = transfer->route;

    transfer->bundle = bundle_pool_take(route->pool);
    if (!transfer->bundle)
        return error_set(err, STATUS_NOMEM, "route %s: every bundle is in use", route->spec.name);
    for (int t = 0; t < route->spec.tensor_count; t++) {
        enum status st = clear(route->lane.session, transfer->bundle->tensor[t], err);

        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

/* It is read on the host. */
static enum status check_description(const struct route *route, struct error *err)
{
    const struct memory *memory = route->spec.memory ? route->spec.memory : route->lane.session->options.memory;

    if (!(route->spec.memory_tensors & 1) || memory_host_view(memory))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "route %s: tensor %s says the shapes of the others, and cannot lie in %s",
                     route->spec.name, route->spec.tensors[0].role, memory->ops->name(memory));
}

enum status route_receive(struct route *route, const struct shape *shapes, route_describe *describe_bundle,
                          void *context, uint64_t epoch, struct completion **ret, struct error *err)
{
    struct session *session = route->lane.session;
    struct transfer *transfer = NULL;
    bool skip = false;
    enum status st = check_end(route, false, err);

    if (st != STATUS_OK)
        return st;
    transfer = create_transfer(route, &receive_kind, epoch == EPOCH_ANY ? 0 : epoch);
    if (!transfer)
        return error_set(err, STATUS_NOMEM, "a transfer on route %s", route->spec.name);
    transfer->any_epoch = epoch == EPOCH_ANY;
    transfer->describe = describe_bundle;
    transfer->context = context;
    st = route_schema_expect(&route->spec, shapes, describe_bundle != NULL, transfer->shapes, err);
    if (st == STATUS_OK && describe_bundle)
        st = check_description(route, err);
    session_lock(session);
    if (st == STATUS_OK)
        st = lane_check(&route->lane, err);
    if (st == STATUS_OK)
        st = session_admit(session, &skip, err);
    if (st == STATUS_OK && skip)
        st = receive_nothing(transfer, err);
    if (st != STATUS_OK) {
        destroy(&transfer->completion);
        session_unlock(session);
        return st;
    }
    transfer->completion.sequence = route->sequence++;
    if (skip)
        lane_skip(&route->lane, &transfer->completion);
    else
        lane_submit(&route->lane, &transfer->completion);
    *ret = &transfer->completion;
    session_unlock(session);
    return STATUS_OK;
}

struct bundle *route_take(struct completion *completion, uint64_t *ret_epoch)
{
    struct transfer *transfer = (struct transfer *)completion;
    struct bundle *bundle = NULL;

    session_lock(completion->session);
    REQUIRE(completion->kind == &receive_kind && completion->state == COMPLETION_DONE,
            "a bundle is taken from what is no receipt, or none that is done");
    REQUIRE(!transfer->taken, "the bundle of a receipt is taken twice");
    transfer->taken = true;
    bundle = transfer->bundle;
    if (ret_epoch)
        *ret_epoch = completion->epoch;
    session_unlock(completion->session);
    return bundle;
}

void route_return(struct route *route, struct bundle *bundle)
{
    if (!bundle)
        return;
    session_lock(route->lane.session);
    bundle_pool_give(route->pool, bundle);
    session_unlock(route->lane.session);
}
