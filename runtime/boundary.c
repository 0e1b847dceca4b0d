/* Extents come from the schedule, never from the frame under check: the described receive compares the wave's
 * description, of fixed shape, validates its contents against the plan's ranges, and derives the rest from it. */
#include "runtime/boundary.h"

#include <string.h>

#include "comm/route.h"
#include "runtime/shuttle.h"
#include "runtime/wait.h"

enum status outbox_add(struct outbox *outbox, struct completion *completion, uint64_t *wait_ns, struct error *err)
{
    enum status st = STATUS_OK;
    int kept = 0;

    for (int i = 0; i < outbox->count; i++) {
        if (completion_test(outbox->pending[i]) == COMPLETION_DONE)
            completion_release(outbox->pending[i]);
        else
            outbox->pending[kept++] = outbox->pending[i];
    }
    outbox->count = kept;
    if (outbox->count == OUTBOX_SIZE) {
        st = wait_and_release(outbox->pending[0], wait_ns, err);
        outbox->count--;
        memmove(outbox->pending, outbox->pending + 1, (size_t)outbox->count * sizeof *outbox->pending);
    }
    outbox->pending[outbox->count++] = completion;
    return st;
}

enum status outbox_finish(struct outbox *outbox, bool clean, uint64_t *wait_ns, struct error *err)
{
    enum status st = STATUS_OK;

    for (int i = 0; i < outbox->count; i++) {
        if (clean && st == STATUS_OK)
            st = wait_and_release(outbox->pending[i], wait_ns, err);
        else
            completion_abandon(outbox->pending[i]);
    }
    outbox->count = 0;
    return st;
}

static enum status describe_wave(void *context, const struct tensor *description, struct shape *shapes,
                                 struct error *err)
{
    const struct boundary *boundary = context;
    struct wave wave;
    enum status st = wave_read(description, &boundary->limits, &wave, err);

    if (st == STATUS_OK)
        shapes[1] = (struct shape){2, {wave.rows, boundary->hidden_size}};
    return st;
}

static struct shape slots_shape(const struct boundary *boundary)
{
    return (struct shape){2, {boundary->limits.slots, WAVE_FIELDS}};
}

enum status boundary_expect_wave(struct boundary *boundary, uint64_t step, struct error *err)
{
    const struct shape shapes[2] = {slots_shape(boundary), {2, {0, boundary->hidden_size}}};

    if (boundary->next_wave)
        return STATUS_OK;
    return route_receive(boundary->forward_in, shapes, describe_wave, boundary, step, &boundary->next_wave, err);
}

enum status boundary_use_device(struct boundary *boundary, struct shuttle *shuttle, struct error *err)
{
    const struct shape shape = {2, {boundary->limits.rows, boundary->hidden_size}};
    enum status st = STATUS_OK;

    boundary->shuttle = shuttle;
    if (boundary->forward_in)
        st = shuttle_tensor_here(shuttle, DTYPE_F32, &shape, &boundary->arrived, err);
    for (int i = 0; i < LEAVING_ROWS && boundary->forward_out && st == STATUS_OK; i++)
        st = shuttle_tensor_here(shuttle, DTYPE_F32, &shape, &boundary->leaving[i].rows, err);
    return st;
}

void boundary_done(struct boundary *boundary)
{
    tensor_release(boundary->arrived);
    for (int i = 0; i < LEAVING_ROWS; i++)
        tensor_release(boundary->leaving[i].rows);
}

/* The rows of a bundle that was taken, where the host can read them. */
static enum status read_rows(struct boundary *boundary, struct tensor *rows, const float **ret, struct error *err)
{
    enum status st = STATUS_OK;

    if (boundary->shuttle) {
        st = tensor_reshape(boundary->arrived, DTYPE_F32, &rows->shape, err);
        if (st == STATUS_OK)
            st = shuttle_demote(boundary->shuttle, rows, boundary->arrived, &boundary->wait_ns, err);
        rows = boundary->arrived;
    }
    *ret = (const float *)(const void *)rows->data;
    return st;
}

/* hidden into the rows of a bundle; to a device it is on its way when this returns, and what is sent next waits for it.
 */
static enum status write_rows(struct boundary *boundary, const float *hidden, struct tensor *rows, struct error *err)
{
    struct leaving *leaving = &boundary->leaving[boundary->next_leaving];
    enum status st;

    if (!boundary->shuttle) {
        memcpy(rows->data, hidden, rows->bytes);
        return STATUS_OK;
    }
    boundary->next_leaving = (boundary->next_leaving + 1) % LEAVING_ROWS;
    st = shuttle_settle(&leaving->promotion, &boundary->wait_ns, err);
    if (st == STATUS_OK)
        st = tensor_reshape(leaving->rows, DTYPE_F32, &rows->shape, err);
    if (st != STATUS_OK)
        return st;
    memcpy(leaving->rows->data, hidden, rows->bytes);
    st = shuttle_promote(boundary->shuttle, leaving->rows, rows, &leaving->promotion, err);
    return st == STATUS_OK ? route_after(boundary->forward_out, leaving->promotion, err) : st;
}

enum status boundary_take_wave(struct boundary *boundary, uint64_t step, struct wave *wave, struct bundle **ret_bundle,
                               const float **ret_hidden, struct error *err)
{
    uint64_t start = clock_ns();
    struct bundle *bundle;
    enum status st = boundary_expect_wave(boundary, step, err);

    if (st == STATUS_OK)
        st = completion_wait(boundary->next_wave, DEADLINE_NONE, err);
    boundary->wait_ns += clock_ns() - start;
    if (st != STATUS_OK)
        return st;
    bundle = route_take(boundary->next_wave, NULL);
    completion_release(boundary->next_wave);
    boundary->next_wave = NULL;
    st = wave_read(bundle->tensor[0], &boundary->limits, wave, err);
    if (st == STATUS_OK)
        st = read_rows(boundary, bundle->tensor[1], ret_hidden, err);
    if (st != STATUS_OK) {
        route_return(boundary->forward_in, bundle);
        return st;
    }
    *ret_bundle = bundle;
    return STATUS_OK;
}

void boundary_return_wave(struct boundary *boundary, struct bundle *bundle)
{
    route_return(boundary->forward_in, bundle);
}

static enum status post(struct boundary *boundary, struct route *route, struct bundle *bundle, uint64_t step,
                        struct error *err)
{
    struct completion *completion = NULL;
    enum status st = route_send(route, bundle, step, &completion, err);

    if (st != STATUS_OK) {
        route_return(route, bundle);
        return st;
    }
    return outbox_add(&boundary->sent, completion, &boundary->wait_ns, err);
}

/* A free bundle; the time spent waiting for one counts as waiting. */
static enum status acquire(struct boundary *boundary, struct route *route, struct bundle **ret, struct error *err)
{
    uint64_t start = clock_ns();
    enum status st = route_acquire(route, ret, err);

    boundary->wait_ns += clock_ns() - start;
    return st;
}

enum status boundary_send_wave(struct boundary *boundary, uint64_t step, const struct wave *wave, const float *hidden,
                               struct error *err)
{
    struct shape description = slots_shape(boundary);
    struct shape rows = {2, {wave->rows, boundary->hidden_size}};
    struct bundle *bundle = NULL;
    enum status st = acquire(boundary, boundary->forward_out, &bundle, err);

    if (st != STATUS_OK)
        return st;
    st = tensor_reshape(bundle->tensor[0], DTYPE_U32, &description, err);
    if (st == STATUS_OK)
        st = tensor_reshape(bundle->tensor[1], DTYPE_F32, &rows, err);
    if (st == STATUS_OK)
        st = write_rows(boundary, hidden, bundle->tensor[1], err);
    if (st != STATUS_OK) {
        route_return(boundary->forward_out, bundle);
        return st;
    }
    wave_write(wave, bundle->tensor[0]);
    return post(boundary, boundary->forward_out, bundle, step, err);
}

enum status boundary_send_tokens(struct boundary *boundary, uint64_t step, const struct token *tokens,
                                 struct error *err)
{
    struct shape shape = slots_shape(boundary);
    struct bundle *bundle = NULL;
    enum status st = acquire(boundary, boundary->token_out, &bundle, err);

    if (st != STATUS_OK)
        return st;
    st = tensor_reshape(bundle->tensor[0], DTYPE_U32, &shape, err);
    if (st != STATUS_OK) {
        route_return(boundary->token_out, bundle);
        return st;
    }
    uint32_t *out = (uint32_t *)(void *)bundle->tensor[0]->data;

    for (uint32_t s = 0; s < boundary->limits.slots; s++) {
        const uint32_t fields[WAVE_FIELDS] = {tokens[s].request, tokens[s].token, tokens[s].flags, tokens[s].index};

        memcpy(out + (size_t)s * WAVE_FIELDS, fields, sizeof fields);
    }
    return post(boundary, boundary->token_out, bundle, step, err);
}

enum status boundary_take_tokens(struct boundary *boundary, uint64_t step, struct token *tokens, struct error *err)
{
    const struct shape shape = slots_shape(boundary);
    uint64_t start = clock_ns();
    struct completion *completion = NULL;
    struct bundle *bundle;
    enum status st = route_receive(boundary->token_in, &shape, NULL, NULL, step, &completion, err);

    if (st != STATUS_OK)
        return st;
    st = completion_wait(completion, DEADLINE_NONE, err);
    boundary->wait_ns += clock_ns() - start;
    if (st != STATUS_OK) {
        completion_abandon(completion);
        return st;
    }
    bundle = route_take(completion, NULL);
    completion_release(completion);
    const uint32_t *in = (const uint32_t *)(const void *)bundle->tensor[0]->data;

    for (uint32_t s = 0; s < boundary->limits.slots; s++, in += WAVE_FIELDS)
        tokens[s] = (struct token){in[0], in[1], in[2], in[3]};
    route_return(boundary->token_in, bundle);
    return STATUS_OK;
}

enum status boundary_finish(struct boundary *boundary, bool clean, struct error *err)
{
    enum status st = STATUS_OK;

    if (boundary->next_wave)
        completion_abandon(boundary->next_wave);
    boundary->next_wave = NULL;
    for (int i = 0; i < LEAVING_ROWS; i++) {
        if (clean && st == STATUS_OK)
            st = shuttle_settle(&boundary->leaving[i].promotion, &boundary->wait_ns, err);
        completion_abandon(boundary->leaving[i].promotion);
        boundary->leaving[i].promotion = NULL;
    }
    if (st == STATUS_OK)
        return outbox_finish(&boundary->sent, clean, &boundary->wait_ns, err);
    (void)outbox_finish(&boundary->sent, false, &boundary->wait_ns, NULL);
    return st;
}
