/* The options of `ferry run`. */
#ifndef LAUNCHER_RUN_OPTIONS_H
#define LAUNCHER_RUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/fault.h"

enum { RUN_MAX_SETS = 256, RUN_MAX_FAULTS = 16 };

struct run_options {
    const char *topology; /* path; borrowed from argv, as all strings here */
    const char *set[RUN_MAX_SETS];
    size_t set_count;
    struct fault fault[RUN_MAX_FAULTS];
    int fault_count;
    bool json;
    bool quiet; /* no notes, no summary */
    bool logits_digest;
    uint32_t top_logits;
};

struct argp_state;

/* --set KEY=VALUE and --fault TEXT, the same in run, check and bench.  What is wrong ends the parsing as argp_error
 * does. */
void run_options_set(struct run_options *options, const char *text, struct argp_state *state);
void run_options_fault(struct run_options *options, const char *text, struct argp_state *state);

/* Parse argv (argv[0] is "run").  Prints help or a usage error itself.
 * Returns -1 to go on, else the process's exit code. */
int run_options_parse(int argc, char **argv, struct run_options *ret);

#endif
