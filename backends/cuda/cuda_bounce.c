/* Copies between a device and pageable memory of the host, without waiting.
 *
 * CUDA's own copy to pageable memory returns when the bytes are there, so it would wait for everything queued before
 * it. Here they go through a pinned buffer, a piece at a time: a copy by the device, and a function of the host that
 * the stream calls between two copies.  All of it happens in the order of the stream, so one buffer is enough, and
 * bytes are read and written when it is their turn.  Cost: a copy by the processor more than from pinned memory. */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda_private.h"

/* rows of run_bytes, moved by the host when the stream comes to it. */
struct errand {
    unsigned char *to;
    size_t to_stride;
    const unsigned char *from;
    size_t from_stride;
    size_t run_bytes;
    size_t rows;
};

static void CUDART_CB run_errand(void *context)
{
    struct errand *errand = context;

    for (size_t row = 0; row < errand->rows; row++)
        memcpy(errand->to + row * errand->to_stride, errand->from + row * errand->from_stride, errand->run_bytes);
    free(errand);
}

static enum status queue_errand(struct cuda_memory *memory, const struct errand *errand, struct error *err)
{
    struct errand *copy = malloc(sizeof *copy);
    enum status st;

    if (!copy)
        return error_set(err, STATUS_NOMEM, "a copy through pinned memory");
    *copy = *errand;
    st = cuda_status(cudaLaunchHostFunc(memory->stream, run_errand, copy), "cudaLaunchHostFunc", err);
    if (st != STATUS_OK)
        free(copy);
    return st;
}

/* rows whole rows, or a part of one, that fit into the buffer; packed there. */
static enum status move_piece(struct cuda_memory *memory, const struct errand *piece, bool to_host, struct error *err)
{
    struct errand errand = *piece;
    enum status st = STATUS_OK;

    if (!to_host) {
        errand.to = memory->bounce;
        errand.to_stride = piece->run_bytes;
        st = queue_errand(memory, &errand, err);
        if (st == STATUS_OK)
            st = cuda_status(cudaMemcpy2DAsync(piece->to, piece->to_stride, memory->bounce, piece->run_bytes,
                                               piece->run_bytes, piece->rows, cudaMemcpyHostToDevice, memory->stream),
                             "cudaMemcpy2DAsync", err);
        return st;
    }
    errand.from = memory->bounce;
    errand.from_stride = piece->run_bytes;
    st = cuda_status(cudaMemcpy2DAsync(memory->bounce, piece->run_bytes, piece->from, piece->from_stride,
                                       piece->run_bytes, piece->rows, cudaMemcpyDeviceToHost, memory->stream),
                     "cudaMemcpy2DAsync", err);
    return st == STATUS_OK ? queue_errand(memory, &errand, err) : st;
}

/* One long row, in parts. */
static enum status move_parts(struct cuda_memory *memory, const struct errand *row, bool to_host, struct error *err)
{
    enum status st = STATUS_OK;

    for (size_t at = 0; st == STATUS_OK && at < row->run_bytes; at += BOUNCE_BYTES) {
        size_t rest = row->run_bytes - at;
        struct errand part = {.to = row->to + at, .from = row->from + at, .rows = 1};

        part.run_bytes = rest < BOUNCE_BYTES ? rest : BOUNCE_BYTES;
        part.to_stride = part.from_stride = part.run_bytes;
        st = move_piece(memory, &part, to_host, err);
    }
    return st;
}

/* Strides beyond what CUDA takes are those of rows that go one by one. */
static size_t rows_at_once(const struct cuda_memory *memory, const struct bounce_copy *copy)
{
    const size_t limit = memory->device->max_pitch;

    if (copy->run_bytes > BOUNCE_BYTES || copy->to_stride > limit || copy->from_stride > limit)
        return 1;
    return BOUNCE_BYTES / copy->run_bytes;
}

static enum status move_all(struct cuda_memory *memory, const struct bounce_copy *copy, struct error *err)
{
    const size_t most = rows_at_once(memory, copy);
    enum status st = STATUS_OK;

    for (size_t row = 0; st == STATUS_OK && row < copy->rows; row += most) {
        struct errand piece = {.to = (unsigned char *)copy->to + row * copy->to_stride,
                               .to_stride = copy->to_stride,
                               .from = (const unsigned char *)copy->from + row * copy->from_stride,
                               .from_stride = copy->from_stride,
                               .run_bytes = copy->run_bytes,
                               .rows = copy->rows - row < most ? copy->rows - row : most};

        st = piece.rows == 1 ? move_parts(memory, &piece, copy->to_host, err)
                             : move_piece(memory, &piece, copy->to_host, err);
    }
    return st;
}

/* Two threads' pieces must not come between each other: the buffer is one. */
enum status cuda_bounce(struct cuda_memory *memory, const struct bounce_copy *copy, struct error *err)
{
    enum status st;

    pthread_mutex_lock(&memory->bounce_lock);
    st = move_all(memory, copy, err);
    pthread_mutex_unlock(&memory->bounce_lock);
    return st;
}
