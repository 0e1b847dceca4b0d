#include "tests/unit/cpu/emulated.h"

extern const struct kernels kernels_avx512_emulated;

const struct kernels *const emulated_kernels = &kernels_avx512_emulated;
