/* The paths under test: every one that this machine runs, and the AVX-512 kernels in software. */
#ifndef TESTS_UNIT_CPU_PATHS_H
#define TESTS_UNIT_CPU_PATHS_H

#include "runtime/compute.h"

int paths_count(void);
const char *paths_name(int path);
/* Say on stderr which paths are skipped here. */
void paths_say(void);
/* The backend on this path, or NULL: the processor lacks it. */
struct compute *paths_open(int path, int threads);

#endif
