/* Scenes of the probe with executors. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "libferry_probe.h"

/* A piece of work: behind its gate, fill the memory. */
struct piece {
    const volatile int *gate; /* NULL: none */
    float *memory;
    int count;
    float value;
    enum ferry_status result;
};

static enum ferry_status fill(void *context, struct ferry_error *why)
{
    const struct piece *piece = context;
    double start = seconds();

    while (piece->gate && !__atomic_load_n(piece->gate, __ATOMIC_ACQUIRE) && seconds() - start < 20)
        (void)ferry_progress(session, NULL);
    for (int k = 0; k < piece->count; k++)
        piece->memory[k] = piece->value;
    (void)snprintf(why->text, sizeof why->text, "the tape\nis torn");
    return piece->result;
}

static enum ferry_status open_gate(void *context, struct ferry_error *why)
{
    (void)why;
    __atomic_store_n((int *)context, 1, __ATOMIC_RELEASE);
    return FERRY_OK;
}

static long unlike(const float *got, int count, float expected)
{
    long wrong = 0;

    for (int k = 0; k < count; k++)
        wrong += got[k] != expected;
    return wrong;
}

/* Compute, then the sum of what it made, then compute on the sum; the first piece is held back until another executor
 * has run, which was told later. */
void scene_executors(void)
{
    static int gate, given;
    struct ferry_group *group = group_named("turned");
    int size = ferry_group_size(group), me = ferry_group_rank(group);
    struct ferry_tensor *tensor = floats(1000);
    struct ferry_executor *one = NULL, *other = NULL;
    struct ferry_completion *made = NULL, *total = NULL, *used = NULL, *opened = NULL, *more = NULL;
    struct piece make = {&gate, ferry_tensor_data(tensor), 1000, (float)(me + 1), FERRY_OK};
    struct piece use = {NULL, ferry_tensor_data(tensor), 500, -1, FERRY_OK};

    if (ferry_executor_create(session, "cpu/0", 2, &one, &error) || ferry_executor_fork(one, &other, &error) ||
        ferry_executor_submit(one, fill, &make, &made, &error) || ferry_group_after(group, made, &error) ||
        ferry_retain(made, &given, give_back, &error) || ferry_all_reduce_sum(group, tensor, tensor, &total, &error) ||
        ferry_executor_after(one, total, &error) || ferry_executor_submit(one, fill, &use, &used, &error))
        exit(97);
    report("full", ferry_executor_submit(one, fill, &use, &more, &error));
    say("load %d of %d, session %d of %d", (int)ferry_executor_load(one).pending,
        (int)ferry_executor_load(one).capacity, (int)ferry_load(session).pending, (int)ferry_load(session).capacity);
    say("held %d, kept %d", ferry_wait(total, 50000000, NULL) == FERRY_TIMEOUT, given == 0);
    if (ferry_executor_submit(other, open_gate, &gate, &opened, &error) || ferry_finish(opened, &error) ||
        ferry_finish(made, &error) || ferry_executor_flush(one, &more, &error) || ferry_finish(more, &error))
        exit(98);
    say("sum %ld, used %ld, given back %d", unlike(make.memory + 500, 500, (float)(size * (size + 1)) / 2),
        unlike(make.memory, 500, -1), given);
    ferry_release(total);
    ferry_abandon(used);
    say("idle %d, unknown %d", ferry_executor_load(one).pending == 0,
        ferry_executor_load(NULL).pending == FERRY_UNKNOWN && ferry_load(NULL).capacity == FERRY_UNKNOWN);
    ferry_executor_release(one);
    ferry_executor_release(other);
    ferry_tensor_release(tensor);
}

/* Rank 1's piece of work fails: what was ordered after it never leaves. */
static void tear(enum ferry_status status)
{
    struct ferry_group *group = group_named("turned");
    struct piece torn = {.result = status};
    struct ferry_executor *executor = NULL;
    struct ferry_completion *completion = NULL;

    (void)sum(group, 10);
    if (ferry_rank(session) == 1 && (ferry_executor_create(session, "cpu/0", 1, &executor, &error) ||
                                     ferry_executor_submit(executor, fill, &torn, &completion, &error)))
        exit(99);
    if (completion)
        (void)ferry_group_after(group, completion, NULL);
    report("sum", sum(group, 10));
    ferry_abandon(completion);
    ferry_executor_release(executor);
    after_failure();
}

void scene_torn(void)
{
    tear(FERRY_STORAGE);
}

/* It returns what is no status. */
void scene_odd(void)
{
    tear((enum ferry_status) - 7);
}

static enum ferry_status stand_still(void *context, struct ferry_error *why)
{
    double start = seconds();

    (void)context;
    (void)why;
    while (seconds() - start < 20)
        usleep(100000);
    return FERRY_OK;
}

/* Rank 1's work goes on when the session is to end, and gives no sign of life. */
void scene_lingering(void)
{
    struct ferry_executor *executor = NULL;
    struct ferry_completion *completion = NULL;

    if (sum(group_named("turned"), 10))
        exit(95);
    if (ferry_rank(session) == 1 && (ferry_executor_create(session, "cpu/0", 1, &executor, &error) ||
                                     ferry_executor_submit(executor, stand_still, NULL, &completion, &error)))
        exit(96);
    ferry_abandon(completion);
    ferry_executor_release(executor);
}
