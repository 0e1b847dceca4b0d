/* What is timed is the same loop for all: meet, run once untimed, then some iterations.  Each repeat does this once for
 * every way (ours with each kind of checks, each of the transport's calls), so that a slow spell of the machine falls on
 * all of them.  The first time each way is run, what it brought is compared with what was sent. */
#include "launcher/bench_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "launcher/bench_private.h"
#include "launcher/watchdog.h"
#include "topology/topology.h"

enum {
    BATCH_US = 4000, /* one way's iterations of one repeat last about so long */
    MIN_ITERATIONS = 3,
    MAX_ITERATIONS = 2000,
    WARM_ITERATIONS = 50, /* of sizes below, before the first that tells how long one takes */
    SMALL_BYTES = 65536,
    MAX_WAYS = 8,
    RAW_GRACE_S = 10, /* beyond the timeout, for calls that have none of their own */
    NUMBERS = BENCH_CHECKS + 2
};

/* One way to do the case. */
struct way {
    int raw; /* of the transport; -1: ours, with */
    enum checks checks;
};

static enum status create(enum dtype dtype, size_t count, struct tensor **ret, struct error *err)
{
    return tensor_create(dtype, &(struct shape){.ndim = 1, .dim = {count}}, ret, err);
}

enum status bench_create(const struct bench_options *options, const struct job_view *view,
                         const struct bench_targets *targets, struct bench **ret, struct error *err)
{
    struct bench *bench = calloc(1, sizeof *bench);
    size_t most = (size_t)group_size(targets->world);
    size_t numbers = (size_t)options->repeats * MAX_WAYS;
    struct shape largest = {.ndim = 1, .dim = {options->last_bytes}};
    enum status st = STATUS_OK;

    if (!bench || !(bench->counts = calloc(most + 2, sizeof *bench->counts))) {
        free(bench);
        return error_set(err, STATUS_NOMEM, "a bench");
    }
    bench->options = options;
    bench->view = view;
    bench->targets = targets;
    bench->ops = view->ops->raw;
    bench->raw_here = view->device && !view->ops->device;
    if (view->device)
        st = shuttle_create(view->session, view->devices, view->device, &bench->shuttle, err);
    if (st == STATUS_OK)
        st = mirror_init(bench->shuttle, view->shared, DTYPE_U8, &largest, &bench->send, err);
    if (st == STATUS_OK)
        st = mirror_init(bench->shuttle, view->shared, DTYPE_U8, &largest, &bench->recv, err);
    if (st == STATUS_OK)
        st = create(DTYPE_F64, numbers, &bench->times, err);
    if (st == STATUS_OK)
        st = create(DTYPE_F64, numbers * most, &bench->all, err);
    if (st == STATUS_OK)
        st = create(DTYPE_F64, NUMBERS, &bench->numbers, err);
    if (st == STATUS_OK)
        st = create(DTYPE_U8, (size_t)2 * BENCH_NAME_BYTES, &bench->names, err);
    if (st != STATUS_OK) {
        bench_destroy(bench);
        return st;
    }
    *ret = bench;
    return STATUS_OK;
}

void bench_destroy(struct bench *bench)
{
    if (!bench)
        return;
    mirror_done(&bench->send);
    mirror_done(&bench->recv);
    shuttle_destroy(bench->shuttle);
    tensor_release(bench->times);
    tensor_release(bench->all);
    tensor_release(bench->numbers);
    tensor_release(bench->names);
    free(bench->counts);
    free(bench);
}

/* What the transport is asked to do while nobody else is in it. */
struct errand {
    struct bench *bench;
    struct raw_call call; /* prepare */
    int *ret_ways;
    int way; /* run */
    int iterations;
    uint64_t elapsed_ns;
};

static enum status open_raw(void *context, struct transport *transport, struct error *err)
{
    struct bench *bench = context;

    return bench->ops->open(transport, bench->target->members, bench->target->size, &bench->raw, err);
}

static enum status close_raw(void *context, struct transport *transport, struct error *err)
{
    struct bench *bench = context;

    (void)transport;
    (void)err;
    bench->ops->close(bench->raw);
    return STATUS_OK;
}

static enum status prepare_raw(void *context, struct transport *transport, struct error *err)
{
    struct errand *errand = context;

    (void)transport;
    return errand->bench->ops->prepare(errand->bench->raw, &errand->call, errand->ret_ways, err);
}

static enum status run_raw(void *context, struct transport *transport, struct error *err)
{
    struct errand *errand = context;
    struct bench *bench = errand->bench;

    (void)transport;
    return bench->ops->run(bench->raw, errand->way, errand->iterations, &errand->elapsed_ns, err);
}

/* The transport's calls have no deadline: the watchdog owns one. */
static enum status alone(struct bench *bench, const char *phase,
                         enum status (*call)(void *context, struct transport *transport, struct error *err),
                         void *context, struct error *err)
{
    uint64_t limit = bench->view->topology->communication.timeout_ns.value + RAW_GRACE_S * NS_PER_S;
    enum status st;

    watchdog_arm(bench->view->watchdog, clock_ns() + limit, phase, "communication.timeout");
    st = session_alone(bench->view->session, call, context, err);
    watchdog_disarm(bench->view->watchdog);
    return st;
}

enum status bench_enter(struct bench *bench, const struct bench_target *target, struct error *err)
{
    bench->target = target;
    bench->member = group_rank(target->group);
    return bench->ops ? alone(bench, "opening a communicator", open_raw, bench, err) : STATUS_OK;
}

void bench_leave(struct bench *bench)
{
    if (bench->raw)
        (void)alone(bench, "closing a communicator", close_raw, bench, NULL);
    bench->raw = NULL;
}

static enum status prepare(struct bench *bench, int *ret_ways, struct error *err)
{
    const struct bench_case *point = bench->point;
    struct errand errand = {.bench = bench, .ret_ways = ret_ways};
    struct bench_sent sent = bench_sent(bench);

    *ret_ways = 0;
    if (!bench->raw)
        return STATUS_OK;
    errand.call = (struct raw_call){.operation = point->operation,
                                    .dtype = point->dtype,
                                    .send = (bench->raw_here ? bench->send.here : bench->send.there)->data,
                                    .recv = (bench->raw_here ? bench->recv.here : bench->recv.there)->data,
                                    .outer = point->outer,
                                    .inner_bytes = dtype_bytes(point->dtype),
                                    .send_counts = bench->counts,
                                    .recv_counts = bench->counts,
                                    .bytes = point->bytes,
                                    .sent = sent.bytes,
                                    .sent_bytes = sent.count,
                                    .meet = bench_meets(bench)};
    return alone(bench, "preparing plain calls", prepare_raw, &errand, err);
}

/* Run one way; *ret_ns: of all iterations. */
static enum status run_way(struct bench *bench, const struct way *way, int iterations, bool first, uint64_t *ret_ns,
                           struct error *err)
{
    struct errand errand = {.bench = bench, .way = way->raw, .iterations = iterations};
    enum status st;

    if (way->raw < 0) {
        session_set_checks(bench->view->session, way->checks);
        return bench_ours(bench, iterations, first, ret_ns, err);
    }
    st = alone(bench, "plain calls", run_raw, &errand, err);
    *ret_ns = errand.elapsed_ns;
    return st;
}

/* What the operation finds: filled on the host, and brought to where it is measured. */
static enum status fill(struct bench *bench, struct error *err)
{
    struct tensor *send = bench->send.here;
    struct tensor *recv = bench->recv.here;
    uint64_t waited = 0;
    enum status st = bench_case_fill(bench->point, bench->target, bench->member, bench->counts, send, recv, err);

    if (st == STATUS_OK)
        st = mirror_reshape(&bench->send, send->dtype, &send->shape, err);
    if (st == STATUS_OK)
        st = mirror_reshape(&bench->recv, recv->dtype, &recv->shape, err);
    if (st == STATUS_OK)
        st = mirror_upload(&bench->send, &waited, err);
    return st == STATUS_OK ? mirror_upload(&bench->recv, &waited, err) : st;
}

/* The first time: spoil, run, compare. */
static enum status try_way(struct bench *bench, const struct way *way, uint64_t *ret_ns, struct error *err)
{
    const char *who = way->raw < 0 ? "ferry" : bench->ops->way(bench->raw, way->raw);
    uint64_t waited = 0;
    enum status st = fill(bench, err);

    if (st == STATUS_OK)
        st = run_way(bench, way, 1, true, ret_ns, err);
    if (st == STATUS_OK && (way->raw < 0 || !bench->raw_here))
        st = mirror_demote(&bench->recv, &waited, err);
    if (st == STATUS_OK)
        st = bench_case_verify(bench->point, bench->target, bench->member, bench->counts, bench->recv.here, who, err);
    return st;
}

static enum status time_way(struct bench *bench, const struct way *way, int iterations, double *ret_us,
                            struct error *err)
{
    uint64_t ns = 0;
    enum status st = bench_meet(bench, err);

    if (st == STATUS_OK)
        st = run_way(bench, way, 1, false, &ns, err);
    if (st == STATUS_OK)
        st = run_way(bench, way, iterations, false, &ns, err);
    *ret_us = (double)ns / 1e3 / iterations / (bench->target->is_route ? 2 : 1);
    return st;
}

/* Member 0's view of how long one takes decides for all. */
static enum status agree_iterations(struct bench *bench, uint64_t ns, int *ret, struct error *err)
{
    struct shape one = {.ndim = 1, .dim = {1}};
    struct completion *completion = NULL;
    double iterations = (double)(BATCH_US * NS_PER_US) / (double)(ns ? ns : 1);
    enum status st = tensor_reshape(bench->times, DTYPE_F64, &one, err);

    if (st != STATUS_OK)
        return st;
    iterations = iterations > MAX_ITERATIONS   ? MAX_ITERATIONS
                 : iterations < MIN_ITERATIONS ? MIN_ITERATIONS
                                               : iterations;
    memcpy(bench->times->data, &iterations, sizeof iterations);
    st = group_broadcast(bench->target->group, bench->times, 0, &completion, err);
    st = bench_wait(st, completion, err);
    memcpy(&iterations, bench->times->data, sizeof iterations);
    *ret = (int)iterations;
    return st;
}

static int compare(const void *a, const void *b)
{
    double one = *(const double *)a;
    double other = *(const double *)b;

    return (one > other) - (one < other);
}

/* Of way's repeats, each the slowest member's. */
static double median(const struct bench *bench, const double *all, int ways, int way)
{
    int repeats = bench->options->repeats;
    double slowest[BENCH_MAX_REPEATS] = {0};

    for (int r = 0; r < repeats; r++) {
        for (int m = 0; m < bench->target->size; m++) {
            double us = all[((size_t)m * (size_t)repeats + (size_t)r) * (size_t)ways + (size_t)way];

            slowest[r] = us > slowest[r] ? us : slowest[r];
        }
    }
    qsort(slowest, (size_t)repeats, sizeof slowest[0], compare);
    return repeats % 2 ? slowest[repeats / 2] : (slowest[repeats / 2 - 1] + slowest[repeats / 2]) / 2;
}

/* Every member's times to every member. */
static enum status exchange(struct bench *bench, const double *mine, int ways, struct error *err)
{
    size_t count = (size_t)bench->options->repeats * (size_t)ways;
    struct completion *completion = NULL;
    enum status st = tensor_reshape(bench->times, DTYPE_F64, &(struct shape){.ndim = 1, .dim = {count}}, err);

    if (st == STATUS_OK)
        st = tensor_reshape(bench->all, DTYPE_F64,
                            &(struct shape){.ndim = 1, .dim = {count * (size_t)bench->target->size}}, err);
    if (st != STATUS_OK)
        return st;
    memcpy(bench->times->data, mine, count * sizeof *mine);
    st = group_all_gather_even(bench->target->group, bench->times, bench->all, 0, &completion, err);
    return bench_wait(st, completion, err);
}

static void conclude(const struct bench *bench, const struct way *ways, int count, struct bench_result *ret)
{
    const double *all = (const double *)(const void *)bench->all->data;

    for (int w = 0; w < count; w++) {
        double us = median(bench, all, count, w);

        if (ways[w].raw < 0) {
            ret->us[ways[w].checks] = us;
        } else if (ret->raw_us <= 0 || us < ret->raw_us) {
            ret->raw_us = us;
            (void)snprintf(ret->call, sizeof ret->call, "%s", bench->ops->way(bench->raw, ways[w].raw));
        }
    }
    (void)snprintf(ret->algorithm, sizeof ret->algorithm, "%s", bench->algorithm);
}

/* Ours with each kind of checks (a transfer has one kind), then the transport's. */
static int list_ways(const struct bench *bench, int raw_ways, struct way *ways)
{
    bool off = bench->view->topology->communication.checks.value == TOPOLOGY_CHECKS_OFF;
    int count = 0;

    if (off && !bench->target->is_route)
        ways[count++] = (struct way){-1, CHECKS_OFF};
    ways[count++] = (struct way){-1, CHECKS_LIGHT};
    if (!bench->target->is_route)
        ways[count++] = (struct way){-1, CHECKS_FULL};
    for (int i = 0; i < raw_ways && count < MAX_WAYS; i++)
        ways[count++] = (struct way){i, CHECKS_LIGHT};
    return count;
}

static enum status repeat(struct bench *bench, const struct way *ways, int count, int iterations, double *mine,
                          struct error *err)
{
    enum status st = STATUS_OK;

    for (int r = 0; r < bench->options->repeats; r++) {
        for (int w = 0; w < count && st == STATUS_OK; w++)
            st = time_way(bench, &ways[w], iterations, &mine[r * count + w], err);
    }
    return st;
}

enum status bench_measure(struct bench *bench, const struct bench_case *point, struct bench_result *ret,
                          struct error *err)
{
    double mine[BENCH_MAX_REPEATS * MAX_WAYS];
    struct way ways[MAX_WAYS];
    int raw_ways = 0;
    int count = 0;
    int warm = point->bytes < SMALL_BYTES ? WARM_ITERATIONS : 1;
    uint64_t ns = 0;
    enum status st;

    *ret = (struct bench_result){0};
    bench->point = point;
    (void)snprintf(bench->algorithm, sizeof bench->algorithm, "framed");
    bench_case_counts(point, bench->target, bench->counts);
    st = fill(bench, err);
    if (st == STATUS_OK)
        st = prepare(bench, &raw_ways, err);
    count = list_ways(bench, raw_ways, ways);
    for (int w = count - 1; w >= 0 && st == STATUS_OK; w--)
        st = try_way(bench, &ways[w], &ns, err);
    if (st == STATUS_OK)
        st = run_way(bench, &ways[0], warm, false, &ns, err);
    if (st == STATUS_OK)
        st = run_way(bench, &ways[0], warm, false, &ns, err);
    if (st == STATUS_OK)
        st = agree_iterations(bench, ns / (uint64_t)warm, &ret->iterations, err);
    if (st == STATUS_OK)
        st = repeat(bench, ways, count, ret->iterations, mine, err);
    if (st == STATUS_OK)
        st = exchange(bench, mine, count, err);
    if (st == STATUS_OK)
        conclude(bench, ways, count, ret);
    /* Whoever is no member of the target has kept the topology's. */
    session_set_checks(bench->view->session, (enum checks)bench->view->topology->communication.checks.value);
    return st;
}

enum status bench_share(struct bench *bench, const struct bench_target *target, struct bench_result *result,
                        struct error *err)
{
    double numbers[NUMBERS];
    char names[2][BENCH_NAME_BYTES];
    struct completion *completion = NULL;
    enum status st;

    memcpy(numbers, result->us, sizeof result->us);
    numbers[BENCH_CHECKS] = result->raw_us;
    numbers[BENCH_CHECKS + 1] = result->iterations;
    memcpy(bench->numbers->data, numbers, sizeof numbers);
    memcpy(bench->names->data, result->algorithm, BENCH_NAME_BYTES);
    memcpy(bench->names->data + BENCH_NAME_BYTES, result->call, BENCH_NAME_BYTES);
    st = group_broadcast(bench->targets->world, bench->numbers, target->members[0], &completion, err);
    st = bench_wait(st, completion, err);
    if (st == STATUS_OK)
        st = group_broadcast(bench->targets->world, bench->names, target->members[0], &completion, err);
    st = st == STATUS_OK ? bench_wait(st, completion, err) : st;
    if (st != STATUS_OK)
        return st;
    memcpy(numbers, bench->numbers->data, sizeof numbers);
    memcpy(names, bench->names->data, sizeof names);
    memcpy(result->us, numbers, sizeof result->us);
    result->raw_us = numbers[BENCH_CHECKS];
    result->iterations = (int)numbers[BENCH_CHECKS + 1];
    (void)snprintf(result->algorithm, sizeof result->algorithm, "%.31s", names[0]);
    (void)snprintf(result->call, sizeof result->call, "%.31s", names[1]);
    return STATUS_OK;
}
