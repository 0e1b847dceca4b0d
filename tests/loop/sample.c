/* The serial references walk a result in memory order and say for each element, or byte, what must stand there. */
#include "tests/loop/sample.h"

#include <string.h>

void sample_permute(int size, int *members)
{
    for (int i = 0; i < size; i++)
        members[i] = i;
    for (int i = 0; i + 2 < size; i += 2) {
        int other = members[i];

        members[i] = members[i + 2];
        members[i + 2] = other;
    }
}

void sample_run(int size, const int *members, struct sample *sample, rank_body *body, struct ranks *more)
{
    struct ranks local = {.session.checks = CHECKS_FULL};
    struct ranks *ranks = more ? more : &local;
    struct group_spec group = GROUP(1, size, members);

    sample->members = members;
    ranks->size = size;
    ranks->groups = &group;
    ranks->group_count = 1;
    ranks->body = body;
    ranks->context = sample;
    ranks_run(ranks);
    ranks_check(ranks);
}

float sample_contribution(int member, uint64_t element)
{
    uint64_t state = element * 977 + (uint64_t)member * 31 + 1;

    (void)random_next(&state);
    return (float)((double)random_next(&state) / 3e8 - 3.0);
}

float sample_tree(const float *in, int count)
{
    int left = (count + 1) / 2;

    return count == 1 ? in[0] : sample_tree(in, left) + sample_tree(in + left, count - left);
}

static void put_value(enum dtype dtype, void *data, uint64_t k, int member)
{
    float value = sample_contribution(member, k);

    switch (dtype) {
    case DTYPE_F32:
        ((float *)data)[k] = value;
        break;
    case DTYPE_F16:
        ((uint16_t *)data)[k] = f32_to_f16(value);
        break;
    case DTYPE_BF16:
        ((uint16_t *)data)[k] = f32_to_bf16(value);
        break;
    case DTYPE_I8:
        ((int8_t *)data)[k] = (int8_t)(100 + member);
        break;
    default:
        ((int64_t *)data)[k] = INT64_MAX - member * 7 - (int64_t)k;
        break;
    }
}

static void check_value(enum dtype dtype, const void *data, uint64_t k, int size)
{
    float in[MOST];
    uint64_t sum = 0;

    for (int i = 0; i < size; i++) {
        in[i] = sample_contribution(i, k);
        if (dtype == DTYPE_F16)
            in[i] = f16_to_f32(f32_to_f16(in[i]));
        if (dtype == DTYPE_BF16)
            in[i] = bf16_to_f32(f32_to_bf16(in[i]));
        sum += dtype == DTYPE_I8 ? (uint64_t)(100 + i) : (uint64_t)(INT64_MAX - i * 7 - (int64_t)k);
    }
    switch (dtype) {
    case DTYPE_F32: {
        float expected = sample_tree(in, size);

        EXPECT(!memcmp(&expected, (const float *)data + k, sizeof expected));
        break;
    }
    case DTYPE_F16:
        EXPECT(((const uint16_t *)data)[k] == f32_to_f16(sample_tree(in, size)));
        break;
    case DTYPE_BF16:
        EXPECT(((const uint16_t *)data)[k] == f32_to_bf16(sample_tree(in, size)));
        break;
    case DTYPE_I8:
        EXPECT(((const uint8_t *)data)[k] == (uint8_t)sum);
        break;
    default:
        EXPECT(((const uint64_t *)data)[k] == sum);
        break;
    }
}

enum status sample_sum(struct rank *self)
{
    const struct sample *sample = self->context;
    struct group *group = session_group(self->session, 1);
    struct tensor *send = TENSOR(sample->dtype, sample->elements, 1);
    struct tensor *recv = sample->in_place ? tensor_retain(send) : TENSOR(sample->dtype, sample->elements, 1);
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    for (uint64_t k = 0; k < sample->elements; k++)
        put_value(sample->dtype, send->data, k, group_rank(group));
    st = finish(group_all_reduce_sum(group, send, recv, &completion, &self->err), &completion, &self->err);
    for (uint64_t k = 0; k < sample->elements && st == STATUS_OK; k++)
        check_value(sample->dtype, recv->data, k, self->size);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

/* Byte k of a member's part of a gather. */
static unsigned char gather_byte(int member, size_t k)
{
    return (unsigned char)(member * 37 + (int)(k % 251) + 1);
}

static size_t inner_bytes(const struct sample *sample)
{
    size_t bytes = dtype_bytes(sample->dtype);

    for (int i = sample->axis + 1; i < sample->ndim; i++)
        bytes *= sample->dims[i];
    return bytes;
}

static size_t outer_count(const struct sample *sample)
{
    size_t count = 1;

    for (int i = 0; i < sample->axis; i++)
        count *= sample->dims[i];
    return count;
}

/* The serial reference: walk the whole in memory order and say which member's which byte stands there. */
static void check_gathered(const struct sample *sample, const struct tensor *recv, int size)
{
    size_t inner = inner_bytes(sample);
    size_t outer = outer_count(sample);
    size_t at = 0;

    for (size_t o = 0; o < outer; o++) {
        for (int i = 0; i < size; i++) {
            size_t run = (size_t)sample->counts[i] * inner;

            for (size_t k = 0; k < run; k++, at++)
                EXPECT(recv->data[at] == gather_byte(i, o * run + k));
        }
    }
    EXPECT(at == recv->bytes);
}

enum status sample_gather(struct rank *self)
{
    const struct sample *sample = self->context;
    struct group *group = session_group(self->session, 1);
    int me = group_rank(group);
    uint64_t dims[4];
    struct tensor *recv = tensor_of(sample->dtype, sample->ndim, sample->dims);
    struct tensor *send = NULL;
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    memcpy(dims, sample->dims, sizeof dims);
    dims[sample->axis] = sample->counts[me];
    send = tensor_of(sample->dtype, sample->ndim, dims);
    for (size_t k = 0; k < send->bytes; k++)
        send->data[k] = gather_byte(me, k);
    if (sample->even)
        st = group_all_gather_even(group, send, recv, sample->axis, &completion, &self->err);
    else
        st = group_all_gather_uneven(group, send, recv, sample->axis, sample->counts, &completion, &self->err);
    st = finish(st, &completion, &self->err);
    if (st == STATUS_OK)
        check_gathered(sample, recv, self->size);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

/* What member i sends to member k: distinct bytes. */
static unsigned char exchange_byte(int from, int to, size_t k)
{
    return (unsigned char)(from * 61 + to * 17 + (int)(k % 199) + 3);
}

/* Fill or check one side: rows of every peer along the axis, in member order. */
static void walk_exchange(const struct sample *sample, struct tensor *tensor, int me, int size, bool check)
{
    size_t inner = inner_bytes(sample);
    size_t outer = outer_count(sample);
    size_t at = 0;

    for (size_t o = 0; o < outer; o++) {
        for (int i = 0; i < size; i++) {
            size_t run = (size_t)(check ? sample->matrix[i][me] : sample->matrix[me][i]) * inner;

            for (size_t k = 0; k < run; k++, at++) {
                if (check)
                    EXPECT(tensor->data[at] == exchange_byte(i, me, o * run + k));
                else
                    tensor->data[at] = exchange_byte(me, i, o * run + k);
            }
        }
    }
    EXPECT(at == tensor->bytes);
}

enum status sample_exchange(struct rank *self)
{
    const struct sample *sample = self->context;
    struct group *group = session_group(self->session, 1);
    int me = group_rank(group);
    uint64_t send_counts[MOST] = {0};
    uint64_t recv_counts[MOST] = {0};
    uint64_t sent[4];
    uint64_t received[4];
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    memcpy(sent, sample->dims, sizeof sent);
    memcpy(received, sample->dims, sizeof received);
    sent[sample->axis] = received[sample->axis] = 0;
    for (int i = 0; i < self->size; i++) {
        sent[sample->axis] += send_counts[i] = sample->matrix[me][i];
        received[sample->axis] += recv_counts[i] = sample->matrix[i][me];
    }
    struct tensor *send = tensor_of(sample->dtype, sample->ndim, sent);
    struct tensor *recv = tensor_of(sample->dtype, sample->ndim, received);
    struct tensor *back = tensor_of(sample->dtype, sample->ndim, sent);

    walk_exchange(sample, send, me, self->size, false);
    st = finish(
        group_variable_all_to_all(group, send, recv, sample->axis, send_counts, recv_counts, &completion, &self->err),
        &completion, &self->err);
    if (st == STATUS_OK) {
        walk_exchange(sample, recv, me, self->size, true);
        st = finish(group_variable_all_to_all(group, recv, back, sample->axis, recv_counts, send_counts, &completion,
                                              &self->err),
                    &completion, &self->err);
    }
    if (st == STATUS_OK && back->bytes)
        EXPECT(!memcmp(back->data, send->data, back->bytes));
    tensor_release(send);
    tensor_release(recv);
    tensor_release(back);
    return st;
}

enum status sample_broadcast(struct rank *self)
{
    const struct sample *sample = self->context;
    struct group *group = session_group(self->session, 1);
    struct tensor *tensor = TENSOR(DTYPE_F32, sample->elements);
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    /* What the others hold, here not-a-number, must not matter. */
    memset(tensor->data, 0xff, tensor->bytes);
    for (uint64_t k = 0; k < sample->elements && group_rank(group) == sample->root; k++)
        ((float *)tensor->data)[k] = sample_contribution(sample->root, k);
    st = finish(group_broadcast(group, tensor, sample->root, &completion, &self->err), &completion, &self->err);
    for (uint64_t k = 0; k < sample->elements && st == STATUS_OK; k++)
        EXPECT(((float *)tensor->data)[k] == sample_contribution(sample->root, k));
    tensor_release(tensor);
    return st;
}
