/* Which kernels this machine can run. */
#ifndef BACKENDS_CPU_PATH_H
#define BACKENDS_CPU_PATH_H

#include "backends/cpu/kernels.h"
#include "base/status.h"

/* The table named simd ("auto": the fastest that this machine has).  STATUS_INVALID: no such name;
 * STATUS_ENVIRONMENT: this machine, or this build, lacks it. */
enum status path_choose(const char *simd, const struct kernels **ret, struct error *err);

#endif
