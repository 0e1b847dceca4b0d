/* The AVX-512 instructions: the processor's, or those of the header that a test build names. */
#ifndef BACKENDS_CPU_AVX512_INTRINSICS_H
#define BACKENDS_CPU_AVX512_INTRINSICS_H

#if defined(FERRY_EMULATE_AVX512)
#include FERRY_EMULATE_AVX512
#else
#include <immintrin.h>
#endif

#endif
