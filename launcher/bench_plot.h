/* The plot of a bench: time over size, one panel for each target, operation and length of runs. */
#ifndef LAUNCHER_BENCH_PLOT_H
#define LAUNCHER_BENCH_PLOT_H

#include "launcher/bench_report.h"

/* SVG of points [count], in the order in which they were measured.  Readable on light and on dark ground. */
void bench_plot_svg(const struct bench_point *points, size_t count, const char *title, struct text *out);

#endif
