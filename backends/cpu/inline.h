/* What the hand-written kernels need of the compiler: templates made of inlined functions with constant arguments. */
#ifndef BACKENDS_CPU_INLINE_H
#define BACKENDS_CPU_INLINE_H

#define INLINE static inline __attribute__((always_inline))

/* UNROLL: in front of a loop of constant length over arrays of vectors, so that they live in registers.  KEEP_LOOP: in
 * front of a loop over lanes with a selection, which gcc turns into vectors only if it has not unrolled it before. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define KEEP_LOOP
#else
#define UNROLL _Pragma("GCC unroll 16")
#define KEEP_LOOP _Pragma("GCC unroll 1")
#endif

#endif
