/* A whole generation with the shipped model, its ranks as threads over loopback, for tests. */
#ifndef TESTS_LOOP_GENERATING_H
#define TESTS_LOOP_GENERATING_H

#include "comm/fault.h"
#include "comm/session.h"
#include "runtime/compute.h"
#include "runtime/generate.h"
#include "runtime/prompts.h"

enum { GENERATING_PROMPTS = 16, GENERATING_NEW = 12, GENERATING_RANKS = 8 };

/* How one rank ended. */
struct outcome {
    struct generating *job;
    int rank;
    enum status st;
    struct error err;
    bool generated;    /* it came as far as that */
    enum status again; /* of a second generation_run after a failed one */
    struct error again_err;
    struct epoch last[2]; /* newest first, what the rank knows of them */
    struct generate_stats stats;
    uint64_t operations; /* comm's count */
    int blocks;          /* of the device's memory, when all is over */
};

/* One run.  Zeros are defaults. */
struct generating {
    const char *mesh;                   /* "pipeline: 2" */
    const char *model;                  /* its folder; borrowed */
    uint32_t microbatch;                /* 0: auto */
    uint32_t chunk;                     /* 0: 5 */
    const struct compute_ops *ops;      /* NULL: the CPU's */
    const struct transport_ops *device; /* tensors travel in a device's memory over this; NULL: in the host's */
    const struct fault *faults;
    int fault_count;
    uint64_t timeout_ns;
    struct prompts prompts; /* rank 0's; borrowed */

    struct topology *topology; /* made by the run */
    struct loopback_world *world;
    int ranks;
    struct outcome outcome[GENERATING_RANKS];
    /* As rank 0 was told. */
    uint32_t tokens[GENERATING_PROMPTS][GENERATING_NEW];
    uint32_t counts[GENERATING_PROMPTS];
    uint64_t digests[GENERATING_PROMPTS];
    uint32_t flags[GENERATING_PROMPTS]; /* of the last token */
};

/* Run it.  The caller looks at the outcomes. */
void generating_run(struct generating *job);

/* The prompts of tests/parity/golden/NAME.json and the tokens that transformers computed for them with that model;
 * fewer than 8 prompts come more than once.  "kjv" is the shipped model; that of "llama-10-layers" takes a thirtieth of
 * its arithmetic, for tests of many runs in which only what is around the model matters. */
struct golden {
    char model[256]; /* its folder */
    struct prompts prompts;
    uint64_t begin[GENERATING_PROMPTS + 1];
    uint32_t ids[4096];
    uint32_t expected[GENERATING_PROMPTS][GENERATING_NEW];
};
void golden_load(const char *name, struct golden *ret);

#endif
