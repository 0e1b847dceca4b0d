/* See call.h. */
#include "tests/loop/call.h"

#include <stdio.h>
#include <string.h>

struct call call_sum(enum dtype dtype, uint64_t count)
{
    struct call call = {.operation = OPERATION_ALL_REDUCE_SUM, .dtype = dtype, .shape = {1, {count}}};

    (void)snprintf(call.words, WORDS, "all_reduce_sum %s[%d]", dtype_name(dtype), (int)count);
    return call;
}

struct call call_even(int size, int axis)
{
    uint64_t extent = 4 * (uint64_t)size;
    struct call call = {
        .operation = OPERATION_ALL_GATHER_EVEN, .dtype = DTYPE_F32, .shape = {2, {extent, extent}}, .axis = axis};

    (void)snprintf(call.words, WORDS, "all_gather_even f32[%d,%d] axis %d", (int)extent, (int)extent, axis);
    return call;
}

struct call call_broadcast(int root)
{
    struct call call = {.operation = OPERATION_BROADCAST, .dtype = DTYPE_U8, .shape = {1, {5}}, .root = root};

    (void)snprintf(call.words, WORDS, "broadcast u8[5] root %d", root);
    return call;
}

struct call call_barrier(void)
{
    return (struct call){.operation = OPERATION_BARRIER, .words = "barrier"};
}

struct call call_agreement(void)
{
    return (struct call){.operation = OPERATION_FAILURE_AGREEMENT, .words = "failure_agreement"};
}

static struct tensor *tensor_with(const struct call *call, uint64_t extent, unsigned char byte)
{
    struct shape shape = call->shape;
    struct tensor *tensor = NULL;

    shape.dim[call->axis] = extent;
    EXPECT(tensor_create(call->dtype, &shape, &tensor, NULL) == STATUS_OK);
    memset(tensor->data, byte, tensor->bytes);
    return tensor;
}

bool all_bytes(const struct tensor *tensor, unsigned char byte)
{
    for (size_t k = 0; tensor && k < tensor->bytes; k++) {
        if (tensor->data[k] != byte)
            return false;
    }
    return true;
}

enum status call_post(const struct call *call, struct group *group, struct tensor **send, struct tensor **recv,
                      struct completion **ret, struct error *err)
{
    int size = group_size(group);
    int me = group_rank(group);
    uint64_t extent = call->shape.dim[call->axis];
    uint64_t sent[MOST] = {0};
    uint64_t expected[MOST];

    *send = *recv = NULL;
    if (call->operation == OPERATION_BARRIER)
        return group_barrier(group, ret, err);
    if (call->operation == OPERATION_FAILURE_AGREEMENT)
        return group_failure_agreement(group, 1, ret, err);
    for (int i = 0; i < size; i++)
        sent[i] = expected[i] = extent / (uint64_t)size;
    sent[0] += call->more;
    *recv = tensor_with(call, extent, 0x11);
    switch (call->operation) {
    case OPERATION_ALL_REDUCE_SUM:
        *send = call->in_place ? tensor_retain(*recv) : tensor_with(call, extent, 0x11);
        return group_all_reduce_sum(group, *send, *recv, ret, err);
    case OPERATION_ALL_GATHER_EVEN:
        *send = tensor_with(call, extent / (uint64_t)size, 0x11);
        return group_all_gather_even(group, *send, *recv, call->axis, ret, err);
    case OPERATION_ALL_GATHER_UNEVEN:
        *send = tensor_with(call, call->counts[me], 0x11);
        return group_all_gather_uneven(group, *send, *recv, call->axis, call->counts, ret, err);
    case OPERATION_VARIABLE_ALL_TO_ALL:
        *send = tensor_with(call, extent + call->more, 0x11);
        return group_variable_all_to_all(group, *send, *recv, call->axis, sent, expected, ret, err);
    default:
        memset((*recv)->data, me == call->root ? 0x22 : 0x11, (*recv)->bytes);
        return group_broadcast(group, *recv, call->root, ret, err);
    }
}
