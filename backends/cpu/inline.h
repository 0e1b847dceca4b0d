/* What the hand-written kernels need of the compiler: templates made of inlined functions with constant arguments. */
#ifndef BACKENDS_CPU_INLINE_H
#define BACKENDS_CPU_INLINE_H

#define INLINE static inline __attribute__((always_inline))

/* In front of a loop of constant length over arrays of vectors, so that they live in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
