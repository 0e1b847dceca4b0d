/* The AVX-512 kernels compiled against SIMDe's software instructions: the test double for a processor that is not
 * here.  NULL where SIMDe is not installed. */
#ifndef TESTS_UNIT_CPU_EMULATED_H
#define TESTS_UNIT_CPU_EMULATED_H

#include "backends/cpu/kernels.h"

extern const struct kernels *const emulated_kernels;

#endif
