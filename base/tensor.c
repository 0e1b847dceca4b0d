/* One allocation a tensor: headroom, then elements, both aligned to a cache line. */
#include "base/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"

enum status shape_bytes(const struct shape *shape, enum dtype dtype, size_t *ret, struct error *err)
{
    size_t bytes = dtype_bytes(dtype);
    bool zero = false;

    if (!bytes)
        return error_set(err, STATUS_INVALID, "no dtype has the number %d: %d (%s) to %d (%s) are dtypes", (int)dtype,
                         DTYPE_NONE + 1, dtype_name(DTYPE_NONE + 1), DTYPE_COUNT - 1, dtype_name(DTYPE_COUNT - 1));
    if (shape->ndim < 0 || shape->ndim > TENSOR_MAX_NDIM)
        return error_set(err, STATUS_INVALID, "%s with %d dimensions: 0 to %d are allowed", dtype_name(dtype),
                         shape->ndim, TENSOR_MAX_NDIM);
    for (int i = 0; i < shape->ndim; i++) {
        if (!shape->dim[i])
            zero = true;
        else if (size_mul(bytes, shape->dim[i], &bytes) != STATUS_OK)
            return error_set(err, STATUS_OVERFLOW, "dimension %d of %d: %" PRIu64, i, shape->ndim, shape->dim[i]);
    }
    *ret = zero ? 0 : bytes;
    return STATUS_OK;
}

/* The process's own memory is asked for directly, and aligned to a cache line alone. */
static enum status allocate(struct memory *memory, size_t bytes, unsigned char **ret, struct error *err)
{
    size_t all = 0;
    void *block = NULL;
    enum status st = STATUS_OK;

    if (size_add(bytes, TENSOR_HEADROOM + TENSOR_ALIGN, &all) != STATUS_OK)
        return error_set(err, STATUS_OVERFLOW, "tensor of %zu bytes", bytes);
    all &= ~(size_t)(TENSOR_ALIGN - 1);
    if (memory)
        st = memory->ops->allocate(memory, all, &block, err);
    else if (!(block = aligned_alloc(TENSOR_ALIGN, all)))
        st = error_set(err, STATUS_NOMEM, "tensor of %zu bytes", bytes);
    *ret = block;
    return st;
}

static void release(struct memory *memory, unsigned char *block)
{
    if (memory)
        memory->ops->release(memory, block);
    else
        free(block);
}

enum status tensor_create_in(struct memory *memory, enum dtype dtype, const struct shape *shape, struct tensor **ret,
                             struct error *err)
{
    struct tensor *tensor = NULL;
    unsigned char *block = NULL;
    size_t bytes = 0;
    enum status st = shape_bytes(shape, dtype, &bytes, err);

    if (st == STATUS_OK)
        st = allocate(memory, bytes, &block, err);
    if (st != STATUS_OK)
        return st;
    tensor = calloc(1, sizeof *tensor);
    if (!tensor) {
        release(memory, block);
        return error_set(err, STATUS_NOMEM, "tensor of %zu bytes", bytes);
    }
    atomic_init(&tensor->references, 1);
    atomic_init(&tensor->pending, 0);
    tensor->dtype = dtype;
    tensor->shape = *shape;
    tensor->bytes = tensor->capacity_bytes = bytes;
    tensor->memory = memory;
    tensor->block = block;
    tensor->data = block + TENSOR_HEADROOM;
    *ret = tensor;
    return STATUS_OK;
}

enum status tensor_create(enum dtype dtype, const struct shape *shape, struct tensor **ret, struct error *err)
{
    return tensor_create_in(NULL, dtype, shape, ret, err);
}

enum status tensor_view_in(struct memory *memory, enum dtype dtype, const struct shape *shape, void *block,
                           tensor_give_back *give_back, void *context, struct tensor **ret, struct error *err)
{
    struct tensor *tensor = NULL;
    size_t bytes = 0;
    enum status st = shape_bytes(shape, dtype, &bytes, err);

    if (st != STATUS_OK)
        return st;
    if (bytes && !block)
        return error_set(err, STATUS_INVALID, "a view of %zu bytes without memory", bytes);
    if ((uintptr_t)block % dtype_bytes(dtype))
        return error_set(err, STATUS_INVALID, "a view at %p: %s wants addresses that are multiples of %zu", block,
                         dtype_name(dtype), dtype_bytes(dtype));
    tensor = calloc(1, sizeof *tensor);
    if (!tensor)
        return error_set(err, STATUS_NOMEM, "a view of %zu bytes", bytes);
    atomic_init(&tensor->references, 1);
    atomic_init(&tensor->pending, 0);
    tensor->dtype = dtype;
    tensor->shape = *shape;
    tensor->bytes = tensor->capacity_bytes = bytes;
    tensor->memory = memory;
    tensor->data = block ? block : (unsigned char *)tensor; /* of no bytes: any address */
    tensor->give_back = give_back;
    tensor->context = context;
    *ret = tensor;
    return STATUS_OK;
}

enum status tensor_view(enum dtype dtype, const struct shape *shape, void *memory, tensor_give_back *give_back,
                        void *context, struct tensor **ret, struct error *err)
{
    return tensor_view_in(NULL, dtype, shape, memory, give_back, context, ret, err);
}

enum status tensor_reshape(struct tensor *tensor, enum dtype dtype, const struct shape *shape, struct error *err)
{
    size_t bytes = 0;
    enum status st = shape_bytes(shape, dtype, &bytes, err);

    if (st != STATUS_OK)
        return st;
    if (bytes > tensor->capacity_bytes)
        return error_set(err, STATUS_OVERFLOW, "%zu bytes in a tensor of %zu", bytes, tensor->capacity_bytes);
    tensor->dtype = dtype;
    tensor->shape = *shape;
    tensor->bytes = bytes;
    return STATUS_OK;
}

struct tensor *tensor_retain(struct tensor *tensor)
{
    atomic_fetch_add_explicit(&tensor->references, 1, memory_order_relaxed);
    return tensor;
}

void tensor_release(struct tensor *tensor)
{
    if (!tensor || atomic_fetch_sub_explicit(&tensor->references, 1, memory_order_acq_rel) != 1)
        return;
    if (tensor->block)
        release(tensor->memory, tensor->block);
    if (tensor->give_back)
        tensor->give_back(tensor->context);
    free(tensor);
}

void shape_text(const struct shape *shape, enum dtype dtype, char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(text, text_bytes, "%s[", dtype_name(dtype));

    for (int i = 0; i < shape->ndim && i < TENSOR_MAX_NDIM && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%" PRIu64, i ? "," : "", shape->dim[i]);
    if (used < text_bytes)
        (void)snprintf(text + used, text_bytes - used, "]");
}
