/* The paths of x86-64, chosen by what the processor says that it has (and the system saves). */
#include "backends/cpu/path.h"

#include <cpuid.h>
#include <stdbool.h>
#include <string.h>

static bool always(void)
{
    return true;
}

/* Not every compiler's __builtin_cpu_supports knows f16c; it needs the state that avx2 already asks for. */
static bool has_f16c(void)
{
    unsigned a;
    unsigned b;
    unsigned c;
    unsigned d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/* The fastest first: auto takes the first that is supported. */
static const struct {
    const char *name;
    const struct kernels *kernels;
    bool (*supported)(void);
} paths[] = {
    {"avx512", &kernels_avx512, has_avx512},
    {"avx2", &kernels_avx2, has_avx2},
    {"plain-avx512", &kernels_plain_avx512, has_avx512},
    {"plain-avx2", &kernels_plain_avx2, has_avx2},
    {"plain", &kernels_plain, always},
};

enum status path_choose(const char *simd, const struct kernels **ret, struct error *err)
{
    bool automatic = !strcmp(simd, "auto");

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (!automatic && strcmp(simd, paths[i].name) != 0)
            continue;
        if (paths[i].supported()) {
            *ret = paths[i].kernels;
            return STATUS_OK;
        }
        if (!automatic)
            return error_set(err, STATUS_ENVIRONMENT, "compute.simd: this processor lacks the instructions of %s; auto takes the fastest that it has", simd);
    }
    return error_set(err, STATUS_INVALID, "simd: %s is none of auto, plain, avx2, avx512", simd);
}
