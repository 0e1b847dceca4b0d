/* The AVX-512 instructions: the processor's, or (a test build) their emulation in software. */
#ifndef BACKENDS_CPU_AVX512_INTRINSICS_H
#define BACKENDS_CPU_AVX512_INTRINSICS_H

#if defined(FERRY_EMULATE_AVX512)
#include "tests/unit/cpu/emulated_intrinsics.h"
#else
#include <immintrin.h>
#endif

#endif
