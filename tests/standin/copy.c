/* Copies.  Between device and pinned memory they are queued.  From pageable memory the bytes are taken when the call is
 * made and queued from there; into pageable memory the call returns when they have come; between two places of the host
 * it is done at once, behind the stream: each as CUDA says it may. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tests/standin/inside.h"

struct copy {
    char *to;
    const char *from; /* NULL: fill with value */
    int value;
    size_t to_pitch;
    size_t from_pitch;
    size_t width;
    size_t rows;
    char *staged; /* a copy of pageable memory, freed afterwards */
    bool noted;   /* both ends are noted as used */
};

static void note_ends(const struct copy *copy)
{
    if (copy->from)
        standin_use_rows(copy->from, copy->from_pitch, copy->width, copy->rows, false);
    standin_use_rows(copy->to, copy->to_pitch, copy->width, copy->rows, true);
}

static void forget_ends(const struct copy *copy)
{
    if (copy->from)
        standin_unuse_rows(copy->from, copy->from_pitch, copy->width, copy->rows);
    standin_unuse_rows(copy->to, copy->to_pitch, copy->width, copy->rows);
}

static void copy_run(void *argument)
{
    struct copy *copy = argument;

    for (size_t row = 0; row < copy->rows; row++) {
        char *to = copy->to + row * copy->to_pitch;

        if (copy->from)
            memmove(to, copy->from + row * copy->from_pitch, copy->width);
        else
            memset(to, copy->value, copy->width);
    }
    if (copy->noted)
        forget_ends(copy);
    free(copy->staged);
    free(copy);
}

/* Bytes from the first to the last of all rows. */
static cudaError_t extent_of(size_t pitch, size_t width, size_t rows, size_t *ret)
{
    *ret = 0;
    if (width == 0 || rows == 0)
        return cudaSuccess;
    if (rows > 1 && pitch < width)
        return cudaErrorInvalidPitchValue;
    if (size_mul(pitch, rows - 1, ret) != STATUS_OK || size_add(*ret, width, ret) != STATUS_OK)
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

static bool kind_agrees(enum cudaMemcpyKind kind, enum memory_place to, enum memory_place from)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        return to != PLACE_DEVICE && from != PLACE_DEVICE;
    case cudaMemcpyHostToDevice:
        return to == PLACE_DEVICE && from != PLACE_DEVICE;
    case cudaMemcpyDeviceToHost:
        return to != PLACE_DEVICE && from == PLACE_DEVICE;
    case cudaMemcpyDeviceToDevice:
        /* Pinned memory has an address on the device. */
        return to != PLACE_PAGEABLE && from != PLACE_PAGEABLE;
    default:
        return kind == cudaMemcpyDefault;
    }
}

static cudaError_t check_ends(const struct memory_spot *to, size_t to_bytes, const struct memory_spot *from,
                              size_t from_bytes, enum cudaMemcpyKind kind)
{
    if ((unsigned)kind > (unsigned)cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (to->place == PLACE_FREED || from->place == PLACE_FREED || to_bytes > to->left || from_bytes > from->left)
        return cudaErrorInvalidValue;
    return kind_agrees(kind, to->place, from->place) ? cudaSuccess : cudaErrorInvalidValue;
}

static char *stage(const char *from, size_t pitch, size_t width, size_t rows)
{
    char *staged = malloc(width * rows);

    for (size_t row = 0; staged && row < rows; row++)
        memcpy(staged + row * width, from + row * pitch, width);
    return staged;
}

static cudaError_t copy_queue(struct copy copy, enum memory_place to, enum memory_place from, cudaStream_t stream)
{
    struct copy *queued = malloc(sizeof *queued);

    if (queued && from == PLACE_PAGEABLE && to == PLACE_DEVICE) {
        copy.staged = stage(copy.from, copy.from_pitch, copy.width, copy.rows);
        copy.from = copy.staged;
        copy.from_pitch = copy.width;
    }
    if (!queued || (from == PLACE_PAGEABLE && to == PLACE_DEVICE && !copy.staged)) {
        free(queued);
        return cudaErrorMemoryAllocation;
    }
    copy.noted = to != PLACE_PAGEABLE;
    *queued = copy;
    if (copy.noted)
        note_ends(queued);
    standin_queue(stream, copy_run, queued);
    if (to == PLACE_PAGEABLE || (to != PLACE_DEVICE && from != PLACE_DEVICE))
        standin_sync(stream);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                     size_t rows, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct memory_spot to_spot;
    struct memory_spot from_spot;
    size_t to_bytes = 0;
    size_t from_bytes = 0;
    cudaError_t error = standin_stream_check(stream);

    if (error == cudaSuccess)
        error = extent_of(to_pitch, width, rows, &to_bytes);
    if (error == cudaSuccess)
        error = extent_of(from_pitch, width, rows, &from_bytes);
    if (error != cudaSuccess || to_bytes == 0)
        return standin_give(error);
    to_spot = standin_spot(to);
    from_spot = standin_spot(from);
    error = check_ends(&to_spot, to_bytes, &from_spot, from_bytes, kind);
    if (error == cudaSuccess)
        error = copy_queue((struct copy){.to = to_spot.alias,
                                         .from = from_spot.alias,
                                         .to_pitch = to_pitch,
                                         .from_pitch = from_pitch,
                                         .width = width,
                                         .rows = rows},
                           to_spot.place, from_spot.place, stream);
    return standin_give(error);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                   cudaStream_t stream)
{
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                       cudaStream_t stream)
{
    cudaError_t error = standin_device_check(to_device);

    if (error == cudaSuccess)
        error = standin_device_check(from_device);
    if (error == cudaSuccess && (standin_spot(to).device != to_device || standin_spot(from).device != from_device))
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return standin_give(error);
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);

    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

EXPORT cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                size_t rows, enum cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, kind, NULL);

    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

EXPORT cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t rows, cudaStream_t stream)
{
    struct memory_spot spot;
    size_t bytes = 0;
    cudaError_t error = standin_stream_check(stream);

    if (error == cudaSuccess)
        error = extent_of(pitch, width, rows, &bytes);
    if (error != cudaSuccess || bytes == 0)
        return standin_give(error);
    spot = standin_spot(to);
    if ((spot.place != PLACE_DEVICE && spot.place != PLACE_PINNED) || bytes > spot.left)
        return standin_give(cudaErrorInvalidValue);
    return standin_give(
        copy_queue((struct copy){.to = spot.alias, .value = value, .to_pitch = pitch, .width = width, .rows = rows},
                   PLACE_DEVICE, PLACE_DEVICE, stream));
}

EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return cudaMemset2DAsync(to, bytes, value, bytes, 1, stream);
}

EXPORT cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return cudaMemsetAsync(to, value, bytes, NULL);
}
