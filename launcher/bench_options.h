/* The options of `ferry bench`. */
#ifndef LAUNCHER_BENCH_OPTIONS_H
#define LAUNCHER_BENCH_OPTIONS_H

#include "comm/spec.h"
#include "launcher/run_options.h"

enum { BENCH_MIN_REPEATS = 5, BENCH_MAX_REPEATS = 101 };

struct bench_options {
    struct run_options run; /* topology, set, json, quiet: what every job has */
    const char *svg;        /* path; NULL: no plot */
    size_t first_bytes;     /* sizes from here */
    size_t last_bytes;      /* to here, each four times the one before */
    int repeats;
    const char *target;       /* one group or route by name; NULL: all */
    enum operation operation; /* OPERATION_NONE: all that are selected */
};

/* Parse argv (argv[0] is "bench").  Prints help or a usage error itself.
 * Returns -1 to go on, else the process's exit code. */
int bench_options_parse(int argc, char **argv, struct bench_options *ret);

#endif
