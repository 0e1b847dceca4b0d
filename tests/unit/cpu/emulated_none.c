#include "tests/unit/cpu/emulated.h"

const struct kernels *const emulated_kernels = NULL;
