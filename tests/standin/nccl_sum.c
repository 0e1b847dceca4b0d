/* Sums as a ring makes them: one addition at a time, in the type itself, halves rounded to halves after each. */
#include "base/dtype.h"
#include "tests/standin/nccl_inside.h"

size_t type_bytes(ncclDataType_t type)
{
    static const size_t bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return (int)type >= 0 && type < ncclNumTypes ? bytes[type] : 0;
}

#define SUM(c_type)                                                                                                    \
    for (size_t k = 0; k < count; k++)                                                                                 \
    ((c_type *)left)[k] = (c_type)(((c_type *)left)[k] + ((const c_type *)right)[k])

#define SUM_HALF(widen, narrow)                                                                                        \
    for (size_t k = 0; k < count; k++)                                                                                 \
    ((uint16_t *)left)[k] = narrow(widen(((uint16_t *)left)[k]) + widen(((const uint16_t *)right)[k]))

void sum_into(ncclDataType_t type, void *left, const void *right, size_t count)
{
    switch ((int)type) {
    case ncclInt8:
    case ncclUint8:
        SUM(uint8_t);
        break;
    case ncclInt32:
    case ncclUint32:
        SUM(uint32_t);
        break;
    case ncclInt64:
    case ncclUint64:
        SUM(uint64_t);
        break;
    case ncclFloat16:
        SUM_HALF(f16_to_f32, f32_to_f16);
        break;
    case ncclBfloat16:
        SUM_HALF(bf16_to_f32, f32_to_bf16);
        break;
    case ncclFloat32:
        SUM(float);
        break;
    case ncclFloat64:
        SUM(double);
        break;
    default:
        break;
    }
}
