/* What the files of the bench share. */
#ifndef LAUNCHER_BENCH_PRIVATE_H
#define LAUNCHER_BENCH_PRIVATE_H

#include "launcher/bench_measure.h"
#include "runtime/mirror.h"

struct completion;

struct bench {
    const struct bench_options *options;
    const struct job_view *view;
    const struct bench_targets *targets;
    const struct raw_ops *ops;
    struct shuttle *shuttle; /* to this rank's device; NULL: what is measured lies in host memory */
    struct mirror send;
    struct mirror recv;
    struct tensor *times;   /* f64 [repeats * ways], of this member */
    struct tensor *all;     /* f64 [members * repeats * ways] */
    struct tensor *numbers; /* f64 [NUMBERS], of a result */
    struct tensor *names;   /* u8 [2 * BENCH_NAME_BYTES] */
    uint64_t *counts;       /* [largest target] */

    const struct bench_target *target;
    int member;
    struct raw *raw; /* NULL: the transport measures nothing */
    bool raw_here;   /* it does not reach the device: its own calls move the host's tensors */
    const struct bench_case *point;
    char algorithm[BENCH_NAME_BYTES];
};

/* Wait for what was posted with this status, and release it. */
enum status bench_wait(enum status st, struct completion *completion, struct error *err);

/* What this member sends, where that is host memory; NULL: nothing is. */
struct bench_sent {
    void *bytes;
    size_t count;
};

struct bench_sent bench_sent(const struct bench *bench);

/* Whether the members meet before each iteration: writing what is sent takes some of them longer, and the others' wait
 * for those is not the operation's.  The same on all members. */
bool bench_meets(const struct bench *bench);

/* Wait for the target's members.  Collective; statuses of a barrier. */
enum status bench_meet(struct bench *bench, struct error *err);

/* The case by Ferry, so many times; what is sent is written anew each time.  first: with the pattern, for comparing
 * what comes.  *ret_ns: what that took, without the writing and the meeting.  Statuses of the operation. */
enum status bench_ours(struct bench *bench, int iterations, bool first, uint64_t *ret_ns, struct error *err);

#endif
