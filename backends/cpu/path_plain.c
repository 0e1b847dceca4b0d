/* Machines without hand-written kernels: the plain path alone. */
#include "backends/cpu/path.h"

#include <string.h>

enum status path_choose(const char *simd, const struct kernels **ret, struct error *err)
{
    if (!strcmp(simd, "avx2") || !strcmp(simd, "avx512"))
        return error_set(err, STATUS_ENVIRONMENT, "compute.simd: %s is built for x86-64 only", simd);
    if (strcmp(simd, "plain") != 0 && strcmp(simd, "auto") != 0)
        return error_set(err, STATUS_INVALID, "simd: %s is none of auto, plain, avx2, avx512", simd);
    *ret = &kernels_plain;
    return STATUS_OK;
}
