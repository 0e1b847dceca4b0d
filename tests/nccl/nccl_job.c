/* A job over NCCL with a rehearsed fault: a ring of bundles in device memory and a vote each step.  Whoever speaks for
 * all prints the cause; every rank that is left prints "rank R: left", and that its device's memory is its own again.
 *
 * usage: nccl_job TIMEOUT_S [FAULT] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/fault.h"
#include "comm/group.h"
#include "comm/route.h"
#include "comm/session.h"
#include "tests/nccl/device_world.h"

enum { STEPS = 12, VALUES = 5000, SUM_VALUES = 300, MAX_RANKS = 8 };

struct job {
    struct device_world world;
    struct session *session;
    struct fault fault;
    int faults;
    uint64_t timeout_ns;
    int members[MAX_RANKS];
    char names[MAX_RANKS][16];
    struct route_spec routes[MAX_RANKS];
    unsigned char *own; /* device memory that no transfer may touch */
};

static const struct tensor_spec hidden = {"hidden", DTYPE_F32, 1, {{VALUES, VALUES, -1}}};

static enum status send_step(struct job *job, int step, struct completion **ret, struct error *err)
{
    struct route *route = session_route(job->session, 10 + (uint32_t)job->world.rank);
    struct bundle *bundle = NULL;
    float values[VALUES];
    enum status st = route_acquire(route, &bundle, err);

    for (int i = 0; i < VALUES; i++)
        values[i] = (float)(job->world.rank * 100 + step) + (float)i / VALUES;
    if (st == STATUS_OK)
        device_put(&job->world, bundle->tensor[0]->data, values, sizeof values);
    return st == STATUS_OK ? route_send(route, bundle, (uint64_t)step, ret, err) : st;
}

static enum status check_step(struct job *job, int from, int step, struct completion *completion, struct error *err)
{
    struct route *route = session_route(job->session, 10 + (uint32_t)from);
    struct bundle *bundle = route_take(completion, NULL);
    float values[VALUES];
    enum status st = STATUS_OK;

    device_get(&job->world, values, bundle->tensor[0]->data, sizeof values);
    for (int i = 0; i < VALUES && st == STATUS_OK; i++) {
        if (values[i] != (float)(from * 100 + step) + (float)i / VALUES)
            st = error_set(err, STATUS_INTERNAL, "step %d: value %d of rank %d is %f", step, i, from, values[i]);
    }
    route_return(route, bundle);
    return st;
}

static enum status vote(struct job *job, struct error *err)
{
    struct completion *completion = NULL;
    enum status st = group_failure_agreement(session_group(job->session, 1), true, &completion, err);

    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    completion_abandon(completion);
    return st;
}

/* NCCL's all-reduce, on a communicator of its own. */
static enum status sum(struct job *job, int step, struct error *err)
{
    struct shape shape = {1, {SUM_VALUES}};
    struct tensor *tensor = NULL;
    struct completion *completion = NULL;
    float values[SUM_VALUES];
    enum status st = tensor_create_in(job->world.memory, DTYPE_F32, &shape, &tensor, err);

    for (int i = 0; i < SUM_VALUES; i++)
        values[i] = (float)(job->world.rank + step);
    if (st == STATUS_OK) {
        device_put(&job->world, tensor->data, values, sizeof values);
        st = group_all_reduce_sum(session_group(job->session, 1), tensor, tensor, &completion, err);
    }
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    if (st == STATUS_OK) {
        int total = job->world.size * step + job->world.size * (job->world.size - 1) / 2;

        device_get(&job->world, values, tensor->data, sizeof values);
        if (values[SUM_VALUES - 1] != (float)total)
            st = error_set(err, STATUS_INTERNAL, "step %d: the sum is %f", step, values[SUM_VALUES - 1]);
    }
    completion_abandon(completion);
    tensor_release(tensor);
    return st;
}

static enum status run_step(struct job *job, int step, struct error *err)
{
    int left = (job->world.rank + job->world.size - 1) % job->world.size;
    struct shape shape = {1, {VALUES}};
    struct completion *sent = NULL;
    struct completion *received = NULL;
    enum status st = send_step(job, step, &sent, err);

    if (st == STATUS_OK)
        st = route_receive(session_route(job->session, 10 + (uint32_t)left), &shape, NULL, NULL, (uint64_t)step,
                           &received, err);
    if (st == STATUS_OK)
        st = completion_wait(received, DEADLINE_NONE, err);
    if (st == STATUS_OK)
        st = check_step(job, left, step, received, err);
    if (st == STATUS_OK)
        st = completion_wait(sent, DEADLINE_NONE, err);
    completion_abandon(sent);
    completion_abandon(received);
    if (st == STATUS_OK)
        st = vote(job, err);
    return st == STATUS_OK ? sum(job, step, err) : st;
}

static enum status start(struct job *job, struct error *err)
{
    struct session_options options = {.timeout_ns = job->timeout_ns,
                                      .startup_timeout_ns = job->timeout_ns,
                                      .checks = CHECKS_FULL,
                                      .reduction = REDUCTION_NATIVE,
                                      .faults = &job->fault,
                                      .fault_count = job->faults};
    struct group_spec world = {.id = 1,
                               .name = "world/0",
                               .members = job->members,
                               .operations = OPERATIONS_ALL,
                               .dtypes = DTYPES_ALL,
                               .max_bytes = 1 << 20};
    struct manifest manifest = {.topology_digest = 1};
    enum status st = device_world_open(60 * NS_PER_S, job->timeout_ns, &job->world, err);

    if (st != STATUS_OK)
        return st;
    job->own = device_room(&job->world, VALUES);
    options.memory = job->world.memory;
    options.pinned = job->world.device->pinned;
    world.size = job->world.size;
    for (int i = 0; i < world.size; i++) {
        job->members[i] = i;
        (void)snprintf(job->names[i], sizeof job->names[i], "ring/%d", i);
        job->routes[i] = (struct route_spec){.id = 10 + (uint32_t)i,
                                             .name = job->names[i],
                                             .from = i,
                                             .to = (i + 1) % world.size,
                                             .tensor_count = 1,
                                             .tensors = &hidden,
                                             .depth = 2,
                                             .memory_tensors = 1};
    }
    st = session_create(job->world.ops, job->world.transport, &options, &job->session, err);
    if (st == STATUS_OK)
        st = session_consensus(job->session, &manifest, err);
    return st == STATUS_OK ? session_build(job->session, &world, 1, job->routes, (size_t)world.size, err) : st;
}

/* Written by its owner it stays as it is, and the device still works. */
static bool memory_is_own(struct job *job)
{
    unsigned char bytes[VALUES];
    bool same = true;

    memset(bytes, 0x3c, sizeof bytes);
    device_put(&job->world, job->own, bytes, sizeof bytes);
    memset(bytes, 0, sizeof bytes);
    device_get(&job->world, bytes, job->own, sizeof bytes);
    for (int i = 0; i < VALUES; i++)
        same &= bytes[i] == 0x3c;
    return same;
}

static int leave(struct job *job, enum status st, struct error *err)
{
    bool speaks = false;

    if (job->session) {
        session_fail(job->session, st, err->text);
        st = session_settle(job->session, err, &speaks);
        if (speaks)
            printf("cause: %s: %s\n", status_name(st), err->text);
        (void)session_close(job->session, false, NULL);
    } else {
        printf("rank %d: %s\n", job->world.rank, err->text);
    }
    printf("rank %d: left, memory %s\n", job->world.rank, memory_is_own(job) ? "its own" : "overwritten");
    (void)fflush(stdout);
    _exit(status_exit_code(st));
}

int main(int argc, char **argv)
{
    static struct job job;
    struct error err = {0};
    enum status st = STATUS_OK;

    if (argc < 2)
        return 2;
    job.timeout_ns = (uint64_t)(strtod(argv[1], NULL) * 1e9);
    if (argc > 2) {
        st = fault_parse(argv[2], &job.fault, &err);
        job.faults = 1;
    }
    if (st == STATUS_OK)
        st = start(&job, &err);
    for (int step = 0; step < STEPS && st == STATUS_OK; step++)
        st = run_step(&job, step, &err);
    if (st == STATUS_OK)
        st = session_close(job.session, true, &err);
    if (st != STATUS_OK)
        return leave(&job, st, &err);
    device_free(&job.world, job.own);
    device_world_end(&job.world);
    printf("rank %d: done\n", job.world.rank);
    return 0;
}
