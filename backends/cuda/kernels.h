/* What runs on a device: each kernel is one function over an index, compiled by nvcc into the image that the plugin
 * carries, and by the C compiler for whoever wants the same arithmetic on the host.
 *
 * All take (out, in, k): element k of out from element k of in.  Indices are independent of each other, in any order.
 * Halves are converted in integers alone, so that both compilers give the same bits. */
#ifndef BACKENDS_CUDA_KERNELS_H
#define BACKENDS_CUDA_KERNELS_H

#ifdef __CUDACC__
typedef unsigned char kernel_u8;
typedef unsigned short kernel_u16;
typedef unsigned int kernel_u32;
typedef unsigned long long kernel_u64;
#define KERNEL_FUNCTION static __device__ __forceinline__
#else
#include <stdint.h>
typedef uint8_t kernel_u8;
typedef uint16_t kernel_u16;
typedef uint32_t kernel_u32;
typedef uint64_t kernel_u64;
#define KERNEL_FUNCTION static inline
#endif

/* NAME(name): its function is kernel_NAME, on the device it is called ferry_NAME.  Integers wrap, so that signed and
 * unsigned are one. */
#define KERNELS(NAME)                                                                                                  \
    NAME(add_f32)                                                                                                      \
    NAME(add_f64)                                                                                                      \
    NAME(add_u8)                                                                                                       \
    NAME(add_u32)                                                                                                      \
    NAME(add_u64)                                                                                                      \
    NAME(widen_f16)                                                                                                    \
    NAME(widen_bf16)                                                                                                   \
    NAME(narrow_f16)                                                                                                   \
    NAME(narrow_bf16)

KERNEL_FUNCTION void kernel_add_f32(void *out, const void *in, kernel_u64 k)
{
    ((float *)out)[k] += ((const float *)in)[k];
}

KERNEL_FUNCTION void kernel_add_f64(void *out, const void *in, kernel_u64 k)
{
    ((double *)out)[k] += ((const double *)in)[k];
}

KERNEL_FUNCTION void kernel_add_u8(void *out, const void *in, kernel_u64 k)
{
    ((kernel_u8 *)out)[k] = (kernel_u8)(((kernel_u8 *)out)[k] + ((const kernel_u8 *)in)[k]);
}

KERNEL_FUNCTION void kernel_add_u32(void *out, const void *in, kernel_u64 k)
{
    ((kernel_u32 *)out)[k] += ((const kernel_u32 *)in)[k];
}

KERNEL_FUNCTION void kernel_add_u64(void *out, const void *in, kernel_u64 k)
{
    ((kernel_u64 *)out)[k] += ((const kernel_u64 *)in)[k];
}

/* Exact: f32 holds every half.  A subnormal's leading bit is moved up to where f32 leaves it out. */
KERNEL_FUNCTION void kernel_widen_f16(void *out, const void *in, kernel_u64 k)
{
    const kernel_u32 half = ((const kernel_u16 *)in)[k];
    const kernel_u32 sign = (half & 0x8000u) << 16;
    kernel_u32 exponent = (half >> 10) & 31u;
    kernel_u32 fraction = half & 0x3ffu;

    if (exponent == 31u) {
        exponent = 255u;
    } else if (exponent) {
        exponent += 112u;
    } else if (fraction) {
        exponent = 113u;
        while (!(fraction & 0x400u)) {
            fraction <<= 1;
            exponent--;
        }
        fraction &= 0x3ffu;
    }
    ((kernel_u32 *)out)[k] = sign | (exponent << 23) | (fraction << 13);
}

KERNEL_FUNCTION void kernel_widen_bf16(void *out, const void *in, kernel_u64 k)
{
    ((kernel_u32 *)out)[k] = (kernel_u32)((const kernel_u16 *)in)[k] << 16;
}

/* value >> shift, rounded to nearest, ties to even; 1 <= shift <= 31. */
KERNEL_FUNCTION kernel_u32 kernel_shift_even(kernel_u32 value, kernel_u32 shift)
{
    const kernel_u32 odd = (value >> shift) & 1u;

    return (value + ((1u << (shift - 1u)) - 1u) + odd) >> shift;
}

/* A carry out of the fraction goes into the exponent, which is right: it reaches infinity by itself. */
KERNEL_FUNCTION void kernel_narrow_f16(void *out, const void *in, kernel_u64 k)
{
    const kernel_u32 bits = ((const kernel_u32 *)in)[k];
    const kernel_u32 sign = (bits >> 16) & 0x8000u;
    const kernel_u32 rest = bits & 0x7fffffffu;
    kernel_u32 half;

    if (rest > 0x7f800000u)
        half = 0x7e00u | ((rest >> 13) & 0x3ffu); /* not a number stays one */
    else if (rest >= 0x47800000u)
        half = 0x7c00u; /* 65536 and more */
    else if (rest >= 0x38800000u)
        half = kernel_shift_even(rest - 0x38000000u, 13u); /* from 2^-14 on */
    else if (rest >= 0x33000000u)
        half = kernel_shift_even((rest & 0x7fffffu) | 0x800000u, 126u - (rest >> 23)); /* a subnormal */
    else
        half = 0u;
    ((kernel_u16 *)out)[k] = (kernel_u16)(sign | half);
}

KERNEL_FUNCTION void kernel_narrow_bf16(void *out, const void *in, kernel_u64 k)
{
    const kernel_u32 bits = ((const kernel_u32 *)in)[k];

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        ((kernel_u16 *)out)[k] = (kernel_u16)((bits >> 16) | 0x40u);
    else
        ((kernel_u16 *)out)[k] = (kernel_u16)kernel_shift_even(bits, 16u);
}

#endif
