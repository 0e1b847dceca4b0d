/* A scene of the probe: errors of a call, after which the session goes on. */
#include <stdlib.h>
#include <string.h>

#include "libferry_probe.h"

static enum ferry_status nothing(void *context, struct ferry_error *why)
{
    (void)context;
    (void)why;
    return FERRY_OK;
}

/* Each is refused by name, the last says how many were not. */
static void nulls(struct ferry_group *group, struct ferry_tensor *tensor)
{
    struct ferry_completion *completion = NULL;
    struct ferry_group *found = NULL;
    struct ferry_executor *executor = NULL;
    struct ferry_shape shape = {1, {1}};
    enum ferry_status got[] = {
        ferry_find_group(NULL, "turned", &found, NULL),
        ferry_find_group(session, NULL, &found, NULL),
        ferry_find_group(session, "turned", NULL, NULL),
        ferry_find_line(session, NULL, &found, NULL),
        ferry_find_route(session, NULL, NULL, NULL),
        ferry_progress(NULL, NULL),
        ferry_tensor_create(FERRY_F32, NULL, &tensor, NULL),
        ferry_tensor_create(FERRY_F32, &shape, NULL, NULL),
        ferry_tensor_view(FERRY_F32, NULL, NULL, NULL, NULL, &tensor, NULL),
        ferry_tensor_reshape(NULL, FERRY_F32, &shape, NULL),
        ferry_tensor_reshape(tensor, FERRY_F32, NULL, NULL),
        ferry_all_reduce_sum(NULL, tensor, tensor, &completion, NULL),
        ferry_all_reduce_sum(group, NULL, tensor, &completion, NULL),
        ferry_all_reduce_sum(group, tensor, NULL, &completion, NULL),
        ferry_all_gather_even(group, tensor, NULL, 0, &completion, NULL),
        ferry_all_gather_uneven(group, tensor, tensor, 0, NULL, &completion, NULL),
        ferry_variable_all_to_all(group, tensor, tensor, 0, NULL, NULL, &completion, NULL),
        ferry_broadcast(group, NULL, 0, &completion, NULL),
        ferry_barrier(group, NULL, NULL),
        ferry_failure_agreement(NULL, 0, &completion, NULL),
        ferry_acquire(NULL, NULL, NULL),
        ferry_send(NULL, NULL, 0, &completion, NULL),
        ferry_receive(NULL, NULL, NULL, NULL, 0, &completion, NULL),
        ferry_wait(NULL, 0, NULL),
        ferry_finish(NULL, NULL),
        ferry_retain(NULL, tensor, free, NULL),
        ferry_executor_create(session, NULL, 1, NULL, NULL),
        ferry_executor_create(session, "cpu/0", 0, &executor, NULL),
        ferry_executor_fork(NULL, &executor, NULL),
        ferry_executor_submit(NULL, nothing, NULL, &completion, NULL),
        ferry_executor_flush(NULL, &completion, NULL),
        ferry_executor_after(NULL, NULL, NULL),
        ferry_group_after(group, NULL, NULL),
        ferry_route_after(NULL, NULL, NULL),
    };
    int wrong = ferry_coordinate(session, NULL) != -1;

    for (size_t i = 0; i < sizeof got / sizeof *got; i++)
        wrong += got[i] != FERRY_INVALID;
    report("counts", ferry_all_gather_uneven(group, tensor, tensor, 0, NULL, &completion, &error));
    say("nulls: %d taken", wrong);
}

/* How many calls that succeed write to their error. */
static int touched(struct ferry_group *group)
{
    static const struct ferry_error mark = {.status = FERRY_STUCK, .speak = 7, .text = "as it was"};
    struct ferry_shape shape = {1, {2}};
    struct ferry_completion *completion = NULL, *flushed = NULL;
    struct ferry_executor *executor = NULL;
    struct ferry_tensor *tensor = NULL;
    struct ferry_bundle *bundle = NULL;
    struct ferry_group *found = NULL;
    struct ferry_route *route = NULL;
    struct ferry_error kept = mark;
    int changed = 0, given = 0;

#define QUIETLY(call) changed += (call) != FERRY_OK || memcmp(&kept, &mark, sizeof mark) != 0
    QUIETLY(ferry_find_group(session, "turned", &found, &kept));
    QUIETLY(ferry_find_route(session, "tap", &route, &kept));
    QUIETLY(ferry_tensor_create(FERRY_F32, &shape, &tensor, &kept));
    QUIETLY(ferry_tensor_reshape(tensor, FERRY_U8, &(struct ferry_shape){1, {2}}, &kept));
    QUIETLY(ferry_broadcast(group, tensor, 0, &completion, &kept));
    QUIETLY(ferry_retain(completion, &given, give_back, &kept));
    QUIETLY(ferry_wait(completion, FERRY_FOREVER, &kept));
    QUIETLY(ferry_finish(completion, &kept));
    QUIETLY(ferry_progress(session, &kept));
    QUIETLY(ferry_executor_create(session, "cpu/0", 2, &executor, &kept));
    QUIETLY(ferry_executor_submit(executor, nothing, NULL, &completion, &kept));
    QUIETLY(ferry_group_after(group, completion, &kept));
    QUIETLY(ferry_executor_flush(executor, &flushed, &kept));
    QUIETLY(ferry_finish(flushed, &kept));
    QUIETLY(ferry_finish(completion, &kept));
    if (ferry_rank(session) == ferry_route_from(route)) {
        QUIETLY(ferry_acquire(route, &bundle, &kept));
        ferry_bundle_return(route, bundle);
    }
    QUIETLY(ferry_close(NULL, &kept));
    ferry_executor_release(executor);
    ferry_tensor_release(tensor);
    return changed + (given != 1);
}

/* Sentences about what is odd in the caller's own numbers. */
static void sentences(struct ferry_group *group)
{
    const uint64_t counts[2] = {UINT64_MAX, 2};
    struct ferry_completion *completion = NULL;
    struct ferry_tensor *tensor = floats(4), *made = NULL;
    struct ferry_group *none = NULL;

    report("empty", ferry_find_group(session, "", &none, &error));
    report("dtypes", ferry_tensor_create((enum ferry_dtype)99, &(struct ferry_shape){1, {1}}, &made, &error));
    report("ndim", ferry_tensor_create(FERRY_BF16, &(struct ferry_shape){9, {1}}, &made, &error));
    report("total", ferry_all_gather_uneven(group, tensor, tensor, 0, counts, &completion, &error));
    ferry_tensor_release(tensor);
}

void scene_mistakes(void)
{
    struct ferry_group *group = group_named("turned"), *narrow = group_named("narrow"), *none = NULL;
    struct ferry_completion *completion = NULL;
    struct ferry_tensor *tensor = floats(4);
    struct ferry_route *route = NULL;
    char memory[8];

    report("group", ferry_find_group(session, "turnde", &none, &error));
    report("route", ferry_find_route(session, "tip", &route, &error));
    report("line", ferry_find_line(session, "tensor", &none, &error));
    report("axis", ferry_find_line(session, "depth", &none, &error));
    report("operation", ferry_broadcast(narrow, tensor, 0, &completion, &error));
    report("dtype", ferry_all_reduce_sum(narrow, tensor, tensor, &completion, &error));
    report("root", ferry_broadcast(group, tensor, 99, &completion, &error));
    report("view",
           ferry_tensor_view(FERRY_F32, &(struct ferry_shape){1, {1}}, memory + 1, NULL, NULL, &tensor, &error));
    report("huge", ferry_tensor_create(FERRY_F32, &(struct ferry_shape){2, {UINT64_MAX, 2}}, &tensor, &error));
    report("sum", sum(group, 10));
    nulls(group, tensor);
    ferry_tensor_release(tensor);
    sentences(group);
    say("touched %d", touched(group));
}
