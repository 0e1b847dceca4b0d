/* What `ferry bench` prints of each measured point: a line of a table, or lines of JSON. */
#ifndef LAUNCHER_BENCH_REPORT_H
#define LAUNCHER_BENCH_REPORT_H

#include "base/text.h"
#include "launcher/bench_case.h"
#include "launcher/bench_measure.h"

/* One measured point, kept for the plot. */
struct bench_point {
    const struct bench_target *target;
    struct bench_case point;
    struct bench_result result;
};

/* The target and the columns, in front of its first row.  about: the transport's own words. */
void bench_report_head(const struct bench_target *target, const char *transport, const char *about, struct text *out);
void bench_report_row(const struct bench_point *point, struct text *out);

/* One object for each kind of checks that was measured. */
void bench_report_json(const struct bench_point *point, const char *transport, int repeats, struct text *out);

/* MPI's time over ours with these checks; 0: one of them is missing. */
double bench_report_ratio(const struct bench_result *result, enum checks checks);

#endif
