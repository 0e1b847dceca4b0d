/* Each iteration is what a program would do: post, wait, release. */
#include <stdio.h>

#include "base/clock.h"
#include "base/rewrite.h"
#include "launcher/bench_private.h"
#include "runtime/wait.h"

#define COPY_NS (10 * NS_PER_S)

enum status bench_wait(enum status st, struct completion *completion, struct error *err)
{
    uint64_t ignored = 0;

    return st == STATUS_OK ? wait_and_release(completion, &ignored, err) : st;
}

struct bench_sent bench_sent(const struct bench *bench)
{
    const struct tensor *tensor = bench->send.here;

    if (bench->point->operation == OPERATION_BROADCAST)
        tensor = bench->member ? NULL : bench->recv.here;
    if (bench->shuttle || !tensor || !bench->point->bytes)
        return (struct bench_sent){NULL, 0};
    return (struct bench_sent){tensor->data, tensor->bytes};
}

bool bench_meets(const struct bench *bench)
{
    return bench->point->bytes && bench->point->operation != OPERATION_BARRIER &&
           bench->point->operation != OPERATION_FAILURE_AGREEMENT;
}

enum status bench_meet(struct bench *bench, struct error *err)
{
    struct completion *completion = NULL;
    enum status st = group_barrier(bench->target->group, &completion, err);

    return bench_wait(st, completion, err);
}

static enum status post(struct bench *bench, struct completion **ret, struct error *err)
{
    struct tensor *send = bench->send.there;
    struct tensor *recv = bench->recv.there;
    struct group *group = bench->target->group;
    const struct bench_case *point = bench->point;

    switch (point->operation) {
    case OPERATION_ALL_REDUCE_SUM:
        return group_all_reduce_sum(group, send, recv, ret, err);
    case OPERATION_ALL_GATHER_EVEN:
        return group_all_gather_even(group, send, recv, point->axis, ret, err);
    case OPERATION_ALL_GATHER_UNEVEN:
        return group_all_gather_uneven(group, send, recv, point->axis, bench->counts, ret, err);
    case OPERATION_VARIABLE_ALL_TO_ALL:
        return group_variable_all_to_all(group, send, recv, point->axis, bench->counts, bench->counts, ret, err);
    case OPERATION_BROADCAST:
        return group_broadcast(group, recv, 0, ret, err);
    case OPERATION_BARRIER:
        return group_barrier(group, ret, err);
    default:
        return group_failure_agreement(group, 1, ret, err);
    }
}

/* Within one memory, and wait. */
static enum status copy(const struct tensor *to, const struct tensor *from, size_t bytes, struct error *err)
{
    enum status st = memory_copy(to->memory, to->data, from->data, bytes, err);

    return st == STATUS_OK && to->memory ? memory_wait(to->memory, clock_ns() + COPY_NS, err) : st;
}

/* A bundle for this route; fill: with the pattern, else it is sent as it lies there. */
static enum status fill_bundle(struct bench *bench, struct route *route, bool fill, struct bundle **ret,
                               struct error *err)
{
    struct shape shape = {.ndim = 1, .dim = {bench->point->bytes}};
    enum status st = route_acquire(route, ret, err);

    if (st == STATUS_OK)
        st = tensor_reshape((*ret)->tensor[0], DTYPE_U8, &shape, err);
    if (st == STATUS_OK && fill)
        st = copy((*ret)->tensor[0], bench->send.there, bench->point->bytes, err);
    return st;
}

static enum status send_bundle(struct route *route, struct bundle *bundle, struct error *err)
{
    struct completion *completion = NULL;
    enum status st = route_send(route, bundle, 0, &completion, err);

    return bench_wait(st, completion, err);
}

static enum status receive_bundle(struct bench *bench, struct route *route, bool keep, struct error *err)
{
    struct shape shape = {.ndim = 1, .dim = {bench->point->bytes}};
    struct completion *completion = NULL;
    struct bundle *bundle = NULL;
    enum status st = route_receive(route, &shape, NULL, NULL, 0, &completion, err);

    if (st != STATUS_OK)
        return st;
    st = completion_wait(completion, DEADLINE_NONE, err);
    if (st == STATUS_OK) {
        bundle = route_take(completion, NULL);
        if (keep)
            st = copy(bench->recv.there, bundle->tensor[0], bench->point->bytes, err);
        route_return(route, bundle);
    }
    if (st != STATUS_OK && completion_test(completion) == COMPLETION_PENDING)
        completion_abandon(completion);
    else
        completion_release(completion);
    return st;
}

/* What is sent is written anew, and everybody is there; *ret_ns: what that took. */
static enum status get_ready(struct bench *bench, struct bench_sent sent, uint64_t *ret_ns, struct error *err)
{
    uint64_t begun = clock_ns();
    enum status st = STATUS_OK;

    rewrite(sent.bytes, sent.count);
    if (bench_meets(bench))
        st = bench_meet(bench, err);
    *ret_ns = clock_ns() - begun;
    return st;
}

/* first: carry the pattern there and back; later what lies in the bundles travels. */
static enum status there_and_back(struct bench *bench, bool first, uint64_t *ret_ns, struct error *err)
{
    const struct bench_target *target = bench->target;
    struct route *out = bench->member ? target->back : target->route;
    struct route *in = bench->member ? target->route : target->back;
    struct bench_sent sent = {NULL, 0};
    struct bundle *bundle = NULL;
    uint64_t ready_ns = 0;
    uint64_t begun = clock_ns();
    enum status st = fill_bundle(bench, out, first, &bundle, err);

    if (st == STATUS_OK && !bench->shuttle)
        sent = (struct bench_sent){bundle->tensor[0]->data, bench->point->bytes};
    if (st == STATUS_OK)
        st = get_ready(bench, sent, &ready_ns, err);
    if (st == STATUS_OK && bench->member == 0)
        st = send_bundle(out, bundle, err);
    if (st == STATUS_OK)
        st = receive_bundle(bench, in, first, err);
    if (st == STATUS_OK && bench->member)
        st = send_bundle(out, bundle, err);
    *ret_ns = clock_ns() - begun - ready_ns;
    return st;
}

/* One iteration of a collective. */
static enum status together(struct bench *bench, bool first, uint64_t *ret_ns, struct error *err)
{
    struct completion *completion = NULL;
    uint64_t begun = 0;
    enum status st = get_ready(bench, bench_sent(bench), ret_ns, err);

    begun = clock_ns();
    if (st == STATUS_OK)
        st = post(bench, &completion, err);
    if (first && st == STATUS_OK)
        (void)snprintf(bench->algorithm, sizeof bench->algorithm, "%s", group_algorithm(completion));
    st = bench_wait(st, completion, err);
    *ret_ns = clock_ns() - begun;
    return st;
}

enum status bench_ours(struct bench *bench, int iterations, bool first, uint64_t *ret_ns, struct error *err)
{
    enum status st = STATUS_OK;

    *ret_ns = 0;
    for (int i = 0; i < iterations && st == STATUS_OK; i++) {
        uint64_t ns = 0;

        st = bench->target->is_route ? there_and_back(bench, first, &ns, err) : together(bench, first, &ns, err);
        *ret_ns += ns;
    }
    return st;
}
