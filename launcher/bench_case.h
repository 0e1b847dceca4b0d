/* One point that `ferry bench` measures: an operation, a size, an axis; its tensors, their contents, and what must come
 * of them. */
#ifndef LAUNCHER_BENCH_CASE_H
#define LAUNCHER_BENCH_CASE_H

#include "base/tensor.h"
#include "launcher/bench_target.h"

struct bench_case {
    enum operation operation;
    enum dtype dtype;
    int axis;         /* 0, or 1 where the parts are runs; of what has no axis -1 */
    size_t run_bytes; /* axis 1: contiguous bytes of one member's part in one row (of uneven parts, on average) */
    size_t bytes;     /* of the whole tensor: what is summed, gathered, exchanged by one member, sent */
    size_t outer;     /* rows */
    size_t extent;    /* along the axis */
};

/* The cases of a target in a fixed order, one after the other; false when there are no more.  at starts at 0. */
bool bench_case_next(const struct bench_options *options, const struct bench_target *target, int *at,
                     struct bench_case *ret);

/* Extents along the axis by member; of an all-to-all the same both ways.  counts [target->size]. */
void bench_case_counts(const struct bench_case *point, const struct bench_target *target, uint64_t *counts);

/* Describe the tensors of member (reshape) and fill what it sends; what it receives is spoilt first. */
enum status bench_case_fill(const struct bench_case *point, const struct bench_target *target, int member,
                            const uint64_t *counts, struct tensor *send, struct tensor *recv, struct error *err);

/* Does recv hold what the operation must have brought?  The expected bytes are computed from what every member sent.
 * STATUS_CORRUPT names the first byte that differs. */
enum status bench_case_verify(const struct bench_case *point, const struct bench_target *target, int member,
                              const uint64_t *counts, const struct tensor *recv, const char *who, struct error *err);

/* bytes over time, by the definition of NVIDIA's nccl-tests (doc/PERFORMANCE.md): times 2 (n - 1) / n for a sum,
 * (n - 1) / n for gathers and the all-to-all, 1 for broadcasts and transfers.  In GB/s, 10^9 bytes. */
double bench_case_bus(const struct bench_case *point, int members, double us);

#endif
