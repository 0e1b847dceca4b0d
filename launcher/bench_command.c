/* Target by target, in the plan's order: its members measure, then the first of them tells everybody, and rank 0
 * prints.  Whoever is no member waits in that broadcast. */
#include "launcher/bench_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/bench_measure.h"
#include "launcher/bench_options.h"
#include "launcher/bench_plot.h"
#include "launcher/bench_report.h"
#include "launcher/job.h"
#include "launcher/keeper.h"
#include "launcher/output.h"
#include "topology/topology.h"

struct bench_run {
    struct bench_options options;
    struct bench_targets targets;
    const struct job_view *view;
    const char *about; /* the transport's own words */
    struct bench *bench;
    struct bench_point *points; /* rank 0: what the plot shows */
    size_t count;
};

static enum status keep(struct bench_run *run, const struct bench_point *point, struct error *err)
{
    struct bench_point *points = realloc(run->points, (run->count + 1) * sizeof *points);

    if (!points)
        return error_set(err, STATUS_NOMEM, "%zu measured points", run->count + 1);
    run->points = points;
    points[run->count++] = *point;
    return STATUS_OK;
}

/* Rank 0. */
static enum status print(struct bench_run *run, const struct bench_point *point, bool first, struct error *err)
{
    const char *transport = run->view->ops->name;
    struct text out = {0};
    enum status st = keep(run, point, err);

    if (run->options.run.json)
        bench_report_json(point, transport, run->options.repeats, &out);
    else if (first)
        bench_report_head(point->target, transport, run->about, &out);
    if (!run->options.run.json)
        bench_report_row(point, &out);
    if (st == STATUS_OK)
        st = output_write(&out, err);
    text_done(&out);
    return st;
}

static enum status measure_target(struct bench_run *run, const struct bench_target *target, struct error *err)
{
    bool member = group_rank(target->group) >= 0;
    struct bench_point point = {.target = target};
    bool first = true;
    int at = 0;
    enum status st = STATUS_OK;
    char phase[64];

    (void)snprintf(phase, sizeof phase, "bench of %s", target->name);
    session_phase(run->view->session, phase);
    if (member)
        st = bench_enter(run->bench, target, err);

    while (st == STATUS_OK && bench_case_next(&run->options, target, &at, &point.point)) {
        if (member)
            st = bench_measure(run->bench, &point.point, &point.result, err);
        if (st == STATUS_OK)
            st = bench_share(run->bench, target, &point.result, err);
        if (st == STATUS_OK && session_rank(run->view->session) == 0)
            st = print(run, &point, first, err);
        first = false;
    }
    if (st == STATUS_OK && member)
        bench_leave(run->bench);
    return st;
}

static enum status save_plot(const struct bench_run *run, struct error *err)
{
    const char *path = run->options.svg;
    struct text out = {0};
    enum status st = STATUS_OK;
    FILE *file;

    bench_plot_svg(run->points, run->count, run->view->topology->name.value, &out);
    if (out.failed) {
        text_done(&out);
        return error_set(err, STATUS_NOMEM, "a plot of %zu points", run->count);
    }
    file = fopen(path, "w");
    if (!file || fwrite(text_string(&out), 1, out.length, file) != out.length)
        st = error_set(err, STATUS_STORAGE, "--svg %s: %s", path, strerror(errno));
    if (file && fclose(file) != 0 && st == STATUS_OK)
        st = error_set(err, STATUS_STORAGE, "--svg %s: %s", path, strerror(errno));
    text_done(&out);
    return st;
}

/* Before hours of measuring, not after them.  What was there stays until there is something new. */
static enum status try_plot(const struct bench_run *run, struct error *err)
{
    const char *path = run->options.svg;
    FILE *file = fopen(path, "a");

    if (!file || fclose(file) != 0)
        return error_set(err, STATUS_STORAGE, "--svg %s: %s", path, strerror(errno));
    return STATUS_OK;
}

static enum status describe(void *context, struct transport *transport, struct error *err)
{
    struct bench_run *run = context;

    (void)err;
    run->about = run->view->ops->describe(transport);
    return STATUS_OK;
}

static enum status run_bench(void *context, const struct job_view *view, struct error *err)
{
    struct bench_run *run = context;
    enum status st = bench_targets_build(&run->options, view, &run->targets, err);

    run->view = view;
    if (st == STATUS_OK && run->options.svg && session_rank(view->session) == 0)
        st = try_plot(run, err);
    if (st == STATUS_OK)
        st = session_alone(view->session, describe, run, err);
    if (st == STATUS_OK)
        st = bench_create(&run->options, view, &run->targets, &run->bench, err);
    for (int i = 0; i < run->targets.count && st == STATUS_OK; i++)
        st = measure_target(run, &run->targets.target[i], err);
    if (st == STATUS_OK && run->options.svg && session_rank(view->session) == 0)
        st = save_plot(run, err);
    if (st == STATUS_OK) /* after a failure the transport may still hold its tensors */
        bench_destroy(run->bench);
    return st;
}

static int worker(void *context, struct keeper *keeper)
{
    struct bench_run *run = context;
    const struct job_task task = {.name = "bench", .run = run_bench, .context = run};
    int code = job_live(&run->options.run, &task, keeper);

    bench_targets_done(&run->targets);
    free(run->points);
    return code;
}

int bench_command(int argc, char **argv)
{
    struct bench_run run = {0};
    int code = bench_options_parse(argc, argv, &run.options);

    return code >= 0 ? code : keeper_run(worker, &run);
}
