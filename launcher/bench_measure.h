/* Measures one case of one target: interleaved repeats of ours and of the transport's own calls. */
#ifndef LAUNCHER_BENCH_MEASURE_H
#define LAUNCHER_BENCH_MEASURE_H

#include "comm/raw.h"
#include "comm/session.h"
#include "launcher/bench_case.h"

enum { BENCH_CHECKS = 3, BENCH_NAME_BYTES = 32 };

/* Medians over the repeats; a repeat's time is that of its slowest member. */
struct bench_result {
    double us[BENCH_CHECKS]; /* by enum checks; 0: not measured.  A transfer's are one way, and the same */
    double raw_us;           /* of the fastest of the transport's calls; 0: it has none for this */
    int iterations;          /* per repeat */
    char algorithm[BENCH_NAME_BYTES];
    char call[BENCH_NAME_BYTES]; /* "MPI_Allreduce" */
};

struct bench; /* one rank's buffers and places */

/* Borrows all until bench_destroy.  STATUS_NOMEM. */
enum status bench_create(const struct bench_options *options, const struct job_view *view,
                         const struct bench_targets *targets, struct bench **ret, struct error *err);
void bench_destroy(struct bench *bench);

/* Collective over the target's members: before its first case, and after its last. */
enum status bench_enter(struct bench *bench, const struct bench_target *target, struct error *err);
void bench_leave(struct bench *bench);

/* Collective over the target's members; blocks.  ret is the same on all of them.
 * STATUS_CORRUPT: the data that came was wrong; else statuses of the operation. */
enum status bench_measure(struct bench *bench, const struct bench_case *point, struct bench_result *ret,
                          struct error *err);

/* Collective over the world: the result of members [0] to every rank. */
enum status bench_share(struct bench *bench, const struct bench_target *target, struct bench_result *result,
                        struct error *err);

#endif
