/* A wave: one micro-batch's way through all stages.  The first stage decides it; its description travels ahead as role
 * 0 of every forward bundle, and every later header of the wave follows from it. */
#ifndef RUNTIME_WAVE_H
#define RUNTIME_WAVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/tensor.h"

enum { WAVE_MAX_SLOTS = 64, WAVE_FIELDS = 4 };

/* Bits of a slot's flags. */
enum { WAVE_SAMPLE = 1u, /* the last row's logits give a token */
       WAVE_FINAL = 2u   /* that token is the last one allowed */ };

/* Some rows of one request.  rows 0: the slot is idle, and everything else is 0. */
struct wave_slot {
    uint32_t request;
    uint32_t position; /* of the first row */
    uint32_t rows;
    uint32_t flags;
};

/* What a description may say, from the plan and the prompts. */
struct wave_limits {
    uint32_t slots;    /* of the description */
    uint32_t used;     /* slots that may hold rows; the others stay idle */
    uint32_t rows;     /* of all slots together */
    uint32_t requests;
    uint32_t context;  /* positions of one request */
};

struct wave {
    uint32_t slot_count;
    uint32_t rows; /* sum over the slots */
    struct wave_slot slot[WAVE_MAX_SLOTS];
};

/* Write the description into u32 [slots, 4].  Local. */
void wave_write(const struct wave *wave, struct tensor *description);

/* Read and check a description.  STATUS_MISMATCH names the slot and the value that is out of range. */
enum status wave_read(const struct tensor *description, const struct wave_limits *limits, struct wave *ret,
                      struct error *err);

/* Number of slots whose logits are wanted. */
uint32_t wave_samples(const struct wave *wave);

#endif
