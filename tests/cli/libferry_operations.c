/* A scene of the probe: every operation on the group "turned", whose members descend. */
#include <stdlib.h>
#include <string.h>

#include "libferry_probe.h"

enum { MAX_WORLD = 16, ROWS = 5 };

/* wrong += what differs from the serial answer */
static long check_gather(struct ferry_group *group, int even)
{
    int size = ferry_group_size(group), me = ferry_group_rank(group);
    uint64_t counts[MAX_WORLD], total = 0;
    struct ferry_tensor *send = NULL, *recv = NULL;
    struct ferry_completion *completion = NULL;
    long wrong = 0;

    for (int i = 0; i < size; i++)
        total += counts[i] = even ? 2 : (uint64_t)((i * 3) % 4); /* 0, 3, 2, 1 */
    if (ferry_tensor_create(FERRY_U32, &(struct ferry_shape){3, {2, counts[me], 3}}, &send, &error) ||
        ferry_tensor_create(FERRY_U32, &(struct ferry_shape){3, {2, total, 3}}, &recv, &error))
        return -1;
    for (uint64_t k = 0; k < 2 * counts[me] * 3; k++)
        ((uint32_t *)ferry_tensor_data(send))[k] = (uint32_t)(1000 * me) + (uint32_t)k;
    if ((even ? ferry_all_gather_even(group, send, recv, 1, &completion, &error)
              : ferry_all_gather_uneven(group, send, recv, 1, counts, &completion, &error)) ||
        ferry_finish(completion, &error))
        return -1;
    const uint32_t *got = ferry_tensor_data(recv);

    for (uint64_t outer = 0; outer < 2; outer++)
        for (int i = 0; i < size; i++)
            for (uint64_t k = 0; k < counts[i] * 3; k++)
                wrong += *got++ != (uint32_t)(1000 * i) + (uint32_t)(outer * counts[i] * 3 + k);
    ferry_tensor_release(send);
    ferry_tensor_release(recv);
    return wrong;
}

static long check_all_to_all(struct ferry_group *group)
{
    int size = ferry_group_size(group), me = ferry_group_rank(group);
    uint64_t to[MAX_WORLD], from[MAX_WORLD], sends = 0, receives = 0;
    struct ferry_tensor *send = NULL, *recv = NULL;
    struct ferry_completion *completion = NULL;
    long wrong = 0;

    for (int i = 0; i < size; i++) {
        sends += to[i] = (uint64_t)((me + 2 * i) % 3);
        receives += from[i] = (uint64_t)((i + 2 * me) % 3);
    }
    if (ferry_tensor_create(FERRY_I64, &(struct ferry_shape){1, {sends}}, &send, &error) ||
        ferry_tensor_create(FERRY_I64, &(struct ferry_shape){1, {receives}}, &recv, &error))
        return -1;
    int64_t *out = ferry_tensor_data(send);

    for (int i = 0; i < size; i++)
        for (uint64_t k = 0; k < to[i]; k++)
            *out++ = 10000 * me + 100 * i + (int64_t)k;
    if (ferry_variable_all_to_all(group, send, recv, 0, to, from, &completion, &error) ||
        ferry_finish(completion, &error))
        return -1;
    const int64_t *in = ferry_tensor_data(recv);

    for (int i = 0; i < size; i++)
        for (uint64_t k = 0; k < from[i]; k++)
            wrong += *in++ != 10000 * i + 100 * me + (int64_t)k;
    ferry_tensor_release(send);
    ferry_tensor_release(recv);
    return wrong;
}

void give_back(void *context)
{
    ++*(int *)context;
}

/* A sum in the program's own memory, and who gets it back when. */
static long check_view_sum(struct ferry_group *group, int *given)
{
    static double memory[ROWS]; /* borrowed, perhaps to the end of the process */
    int size = ferry_group_size(group), me = ferry_group_rank(group);
    struct ferry_tensor *view = NULL;
    struct ferry_completion *completion = NULL;
    long wrong = 0;

    for (int k = 0; k < ROWS; k++)
        memory[k] = me + 10 * k;
    if (ferry_tensor_view(FERRY_F64, &(struct ferry_shape){1, {ROWS}}, memory, give_back, given, &view, &error) ||
        ferry_all_reduce_sum(group, view, view, &completion, &error))
        return -1;
    ferry_tensor_release(view);
    if (ferry_finish(completion, &error))
        return -1;
    for (int k = 0; k < ROWS; k++)
        wrong += memory[k] != size * (size - 1) / 2.0 + 10.0 * k * size;
    return wrong;
}

static long check_broadcast(struct ferry_group *group)
{
    int root = ferry_group_size(group) - 1;
    struct ferry_tensor *tensor = NULL;
    struct ferry_completion *completion = NULL;
    long wrong = 0;

    if (ferry_tensor_create(FERRY_U8, &(struct ferry_shape){1, {100}}, &tensor, &error))
        return -1;
    memset(ferry_tensor_data(tensor), 50 + ferry_group_rank(group), 100);
    if (ferry_broadcast(group, tensor, root, &completion, &error) || ferry_finish(completion, &error))
        return -1;
    for (int k = 0; k < 100; k++)
        wrong += ((unsigned char *)ferry_tensor_data(tensor))[k] != 50 + root;
    ferry_tensor_release(tensor);
    return wrong;
}

static long check_agreement(struct ferry_group *group)
{
    struct ferry_completion *completion = NULL;
    uint32_t flags;

    /* Member 0 alone lacks bit 1. */
    if (ferry_failure_agreement(group, ferry_group_rank(group) ? 7 : 5, &completion, &error) ||
        ferry_wait(completion, FERRY_FOREVER, &error))
        return -1;
    flags = ferry_flags(completion);
    ferry_release(completion);
    return flags != 5;
}

static enum ferry_status same_shapes(void *context, struct ferry_tensor *description, struct ferry_shape *shapes,
                                     struct ferry_error *why)
{
    (void)context;
    (void)description;
    (void)shapes;
    (void)why;
    return FERRY_OK;
}

/* Rank 0 to the last rank, with shapes that the receiver says. */
static long check_route(void)
{
    struct ferry_shape shapes[2] = {{2, {ROWS, 4}}, {1, {ROWS}}};
    struct ferry_completion *completion = NULL;
    struct ferry_bundle *bundle = NULL;
    struct ferry_route *route = NULL, *lone = NULL;
    uint64_t step = 0;
    long wrong = 0;

    if (ferry_find_route(session, "tap", &route, &error))
        return -1;
    if (ferry_rank(session) == ferry_route_from(route)) {
        if (ferry_acquire(route, &bundle, &error) ||
            ferry_tensor_reshape(ferry_bundle_tensor(bundle, 0), FERRY_F32, &shapes[0], &error) ||
            ferry_tensor_reshape(ferry_bundle_tensor(bundle, 1), FERRY_U32, &shapes[1], &error))
            return -1;
        for (int k = 0; k < ROWS * 4; k++)
            ((float *)ferry_tensor_data(ferry_bundle_tensor(bundle, 0)))[k] = (float)k / 4;
        for (uint32_t k = 0; k < ROWS; k++)
            ((uint32_t *)ferry_tensor_data(ferry_bundle_tensor(bundle, 1)))[k] = 7 * k;
        if (ferry_send(route, bundle, 9, &completion, &error) || ferry_finish(completion, &error) ||
            ferry_acquire(route, &bundle, &error))
            return -1;
        wrong = ferry_send(route, bundle, 8, &completion, &error) != FERRY_INVALID ||
                !strstr(error.text, "step 8 after step 9") ||
                ferry_send(route, bundle, FERRY_ANY_STEP, &completion, &error) != FERRY_INVALID ||
                !strstr(error.text, "FERRY_ANY_STEP is for receivers");
        ferry_bundle_return(route, bundle);
        return wrong;
    }
    if (ferry_rank(session) != ferry_route_to(route))
        return 0;
    if (ferry_find_route(session, "lone", &lone, &error) ||
        ferry_receive(lone, NULL, same_shapes, NULL, FERRY_ANY_STEP, &completion, &error) != FERRY_INVALID ||
        !strstr(error.text, "route lone: describe tells the shapes of tensors 1 and up, and the route has one"))
        return -1;
    if (ferry_receive(route, shapes, NULL, NULL, FERRY_ANY_STEP, &completion, &error) ||
        ferry_wait(completion, FERRY_FOREVER, &error))
        return -1;
    bundle = ferry_take(completion, &step);
    wrong += step != 9;
    for (int k = 0; k < ROWS * 4; k++)
        wrong += ((float *)ferry_tensor_data(ferry_bundle_tensor(bundle, 0)))[k] != (float)k / 4;
    for (uint32_t k = 0; k < ROWS; k++)
        wrong += ((uint32_t *)ferry_tensor_data(ferry_bundle_tensor(bundle, 1)))[k] != 7 * k;
    ferry_bundle_return(route, bundle);
    ferry_release(completion);
    return wrong;
}

void scene_operations(void)
{
    struct ferry_group *group = group_named("turned");
    struct ferry_completion *barrier = NULL;
    int given = 0;

    say("member %d of %d, world rank of member 0 is %d", ferry_group_rank(group), ferry_group_size(group),
        ferry_group_member(group, 0));
    say("view %ld", check_view_sum(group, &given));
    say("given back %d", given);
    say("even %ld, uneven %ld, all to all %ld", check_gather(group, 1), check_gather(group, 0),
        check_all_to_all(group));
    say("broadcast %ld, agreement %ld", check_broadcast(group), check_agreement(group));
    say("route %ld", ferry_size(session) > 1 ? check_route() : 0);
    report("barrier", ferry_barrier(group, &barrier, &error) ? error.status : ferry_finish(barrier, &error));
}
