/* What a run did, rank by rank, gathered on all ranks and printed by rank 0. */
#ifndef LAUNCHER_SUMMARY_H
#define LAUNCHER_SUMMARY_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

struct group;
struct plan;

/* One rank's figures; all u64, so that they travel as they are. */
struct summary {
    uint64_t elapsed_ns;
    uint64_t compute_ns;
    uint64_t wait_ns;
    uint64_t steps;
    uint64_t waves;
    uint64_t rows;
    uint64_t cache_bytes;
    uint64_t owned_bytes;
    uint64_t replica_bytes;
    uint64_t read_bytes;
    uint64_t resident_bytes;
    uint64_t load_ns;
    uint64_t frames_checked;
    uint64_t frames_sent;
    uint64_t bytes_sent;
    uint64_t bytes_received;
};

/* What only rank 0 knows. */
struct summary_totals {
    uint64_t tokens;
    uint64_t prompt_tokens;
    uint64_t first_token_ns;
    const char *transport;
    const char *memory; /* where tensors lay; NULL: the host's */
    const char *simd;
    int threads;
};

/* Gather everybody's figures: all [group size], filled on every rank.  Collective over the world group; blocks. */
enum status summary_gather(const struct summary *mine, struct group *world, struct summary *all, struct error *err);

/* The table: one line a stage (times of its slowest rank), one a rank for bytes. */
void summary_text(const struct plan *plan, const struct summary *all, const struct summary_totals *totals,
                  struct text *out);

#endif
