/* libferry's tensors: base's own. */
#include "runtime/ferry_private.h"

#define SAME(theirs, ours) _Static_assert((int)(theirs) == (int)(ours), #theirs " is " #ours)
SAME(FERRY_F32, DTYPE_F32);
SAME(FERRY_F16, DTYPE_F16);
SAME(FERRY_BF16, DTYPE_BF16);
SAME(FERRY_F64, DTYPE_F64);
SAME(FERRY_I8, DTYPE_I8);
SAME(FERRY_U8, DTYPE_U8);
SAME(FERRY_I32, DTYPE_I32);
SAME(FERRY_U32, DTYPE_U32);
SAME(FERRY_I64, DTYPE_I64);
SAME(FERRY_U64, DTYPE_U64);
SAME(FERRY_BOOL, DTYPE_BOOL);
SAME(FERRY_MAX_NDIM, TENSOR_MAX_NDIM);
_Static_assert(FERRY_BOOL + 1 == (int)DTYPE_COUNT, "every dtype has a name in ferry.h");
_Static_assert(sizeof(struct ferry_shape) == sizeof(struct shape) &&
                   offsetof(struct ferry_shape, dim) == offsetof(struct shape, dim),
               "shapes are the same");

static const struct shape *shape_of(const struct ferry_shape *shape)
{
    return (const struct shape *)shape;
}

size_t ferry_dtype_bytes(enum ferry_dtype dtype)
{
    return dtype_bytes((enum dtype)dtype);
}

const char *ferry_dtype_name(enum ferry_dtype dtype)
{
    return dtype_name((enum dtype)dtype);
}

enum ferry_status ferry_tensor_create(enum ferry_dtype dtype, const struct ferry_shape *shape,
                                      struct ferry_tensor **ret, struct ferry_error *error)
{
    struct error err = {0};
    enum ferry_status given = GIVEN(error, NAMED(shape), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    return ferry_result(NULL, tensor_create((enum dtype)dtype, shape_of(shape), (struct tensor **)ret, &err), &err,
                        error);
}

enum ferry_status ferry_tensor_view(enum ferry_dtype dtype, const struct ferry_shape *shape, void *memory,
                                    void (*give_back)(void *context), void *context, struct ferry_tensor **ret,
                                    struct ferry_error *error)
{
    struct error err = {0};
    enum status st;
    enum ferry_status given = GIVEN(error, NAMED(shape), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    st = tensor_view((enum dtype)dtype, shape_of(shape), memory, give_back, context, (struct tensor **)ret, &err);
    return ferry_result(NULL, st, &err, error);
}

enum ferry_status ferry_tensor_reshape(struct ferry_tensor *tensor, enum ferry_dtype dtype,
                                       const struct ferry_shape *shape, struct ferry_error *error)
{
    struct error err = {0};
    enum status st;
    enum ferry_status given = GIVEN(error, NAMED(tensor), NAMED(shape));

    if (given != FERRY_OK)
        return given;
    if (atomic_load(&((struct tensor *)tensor)->pending)) {
        st = error_set(&err, STATUS_INVALID,
                       "an operation that has not ended goes by the tensor's shape: reshape it "
                       "when its completion is done");
        return ferry_result(NULL, st, &err, error);
    }
    st = tensor_reshape((struct tensor *)tensor, (enum dtype)dtype, shape_of(shape), &err);
    return ferry_result(NULL, st, &err, error);
}

void *ferry_tensor_data(struct ferry_tensor *tensor)
{
    return tensor ? ((struct tensor *)tensor)->data : NULL;
}

size_t ferry_tensor_bytes(const struct ferry_tensor *tensor)
{
    return tensor ? ((const struct tensor *)tensor)->bytes : 0;
}

enum ferry_dtype ferry_tensor_dtype(const struct ferry_tensor *tensor)
{
    return tensor ? (enum ferry_dtype)((const struct tensor *)tensor)->dtype : (enum ferry_dtype)0;
}

struct ferry_shape ferry_tensor_shape(const struct ferry_tensor *tensor)
{
    const struct shape none = {.ndim = 1};
    const struct shape *shape = tensor ? &((const struct tensor *)tensor)->shape : &none;
    struct ferry_shape ret = {.ndim = shape->ndim};

    for (int i = 0; i < shape->ndim; i++)
        ret.dim[i] = shape->dim[i];
    return ret;
}

struct ferry_tensor *ferry_tensor_retain(struct ferry_tensor *tensor)
{
    return tensor ? (struct ferry_tensor *)tensor_retain((struct tensor *)tensor) : NULL;
}

void ferry_tensor_release(struct ferry_tensor *tensor)
{
    tensor_release((struct tensor *)tensor);
}
