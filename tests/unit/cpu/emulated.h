/* The AVX-512 kernels compiled against instructions in software: the test double for a processor that is not
 * here.  NULL where the compiler has no AVX2 for the rest of them. */
#ifndef TESTS_UNIT_CPU_EMULATED_H
#define TESTS_UNIT_CPU_EMULATED_H

#include "backends/cpu/kernels.h"

extern const struct kernels *const emulated_kernels;

#endif
