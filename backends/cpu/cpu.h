/* The CPU backend: SIMD chosen at run time, a pool of threads, the bits of docs/numerics.md on every path. */
#ifndef BACKENDS_CPU_CPU_H
#define BACKENDS_CPU_CPU_H

#include "runtime/compute.h"

enum {
    CPU_MAX_HEAD_DIM = 1024,
    CPU_MAX_CONTEXT = 1 << 20 /* positions of one cache; cache_bytes is 0 beyond either limit */
};

/* Limits that the runtime checks when it binds: cache_bytes is not 0.
 *
 * Beside the words of compute_options.simd, open knows "plain-avx2" and "plain-avx512": the plain file compiled for
 * those instructions, for tests and benchmarks. */
extern const struct compute_ops cpu_compute;

#endif
