/* Rows and JSON lines; docs/bench.md explains every column and field. */
#include "launcher/bench_report.h"

#include <stdio.h>
#include <string.h>

static const char *const checks_word[BENCH_CHECKS] = {"off", "light", "full"};

double bench_report_ratio(const struct bench_result *result, enum checks checks)
{
    double us = result->us[checks];

    return us > 0 && result->raw_us > 0 ? result->raw_us / us : 0;
}

/* Whose calls are measured beside ours. */
static const char *library_of(const char *transport)
{
    return strcmp(transport, "nccl") == 0 ? "NCCL" : "MPI";
}

void bench_report_head(const struct bench_target *target, const char *transport, const char *about, struct text *out)
{
    const char *library = library_of(transport);
    char names[3][24];

    (void)snprintf(names[0], sizeof names[0], "%s us", library);
    (void)snprintf(names[1], sizeof names[1], "%s/ours", library);
    (void)snprintf(names[2], sizeof names[2], "%s's call", library);
    text_add(out, "\n%s %s: rank%s", target->is_route ? "route" : "group", target->name, target->size == 1 ? "" : "s");
    for (int i = 0; i < target->size && i < 16; i++)
        text_add(out, "%s%d", i ? target->is_route ? " to " : ", " : " ", target->members[i]);
    text_add(out, "%s; %s (%s); %s\n", target->size > 16 ? ", ..." : "", transport, about, dtype_name(target->dtype));
    text_add(out, "%-20s %7s %9s  %-11s %10s %10s %7s %8s %10s %9s  %s\n", "operation", "runs", "bytes", "algorithm",
             target->is_route ? "us" : "light us", target->is_route ? "-" : "full us", target->is_route ? "-" : "cost",
             "bus GB/s", names[0], names[1], names[2]);
}

static void add_number(struct text *out, const char *format, double value, int width)
{
    char cell[32] = "-";

    if (value > 0)
        (void)snprintf(cell, sizeof cell, format, value);
    text_add(out, " %*s", width, cell);
}

void bench_report_row(const struct bench_point *point, struct text *out)
{
    const struct bench_result *result = &point->result;
    double light = result->us[CHECKS_LIGHT];
    double full = result->us[CHECKS_FULL];
    char run[24] = "-";
    char cost[24] = "-";

    if (point->point.run_bytes)
        (void)snprintf(run, sizeof run, "%zu", point->point.run_bytes);
    if (light > 0 && full > 0)
        (void)snprintf(cost, sizeof cost, "%+.0f %%", 100 * (full / light - 1));
    text_add(out, "%-20s %7s %9zu  %-11s", operation_name(point->point.operation), run, point->point.bytes,
             result->algorithm);
    add_number(out, "%.2f", light, 10);
    add_number(out, "%.2f", full, 10);
    text_add(out, " %7s", cost);
    add_number(out, "%.3f", bench_case_bus(&point->point, point->target->size, light), 8);
    add_number(out, "%.2f", result->raw_us, 10);
    add_number(out, "%.2f", bench_report_ratio(result, CHECKS_LIGHT), 9);
    text_add(out, "  %s\n", result->call[0] ? result->call : "-");
}

static void add_text(struct text *out, const char *key, const char *value)
{
    text_add(out, ", \"%s\": ", key);
    if (value)
        text_add_json(out, value, strlen(value));
    else
        text_add(out, "null");
}

/* 0 stands for what was not measured. */
static void add_measured(struct text *out, const char *key, double value)
{
    if (value > 0)
        text_add(out, ", \"%s\": %.6g", key, value);
    else
        text_add(out, ", \"%s\": null", key);
}

static void add_object(const struct bench_point *point, const char *transport, int repeats, enum checks checks,
                       struct text *out)
{
    const struct bench_case *what = &point->point;
    const struct bench_result *result = &point->result;
    const char *operation = operation_name(what->operation);

    text_add(out, "{\"operation\": ");
    text_add_json(out, operation, strlen(operation));
    add_text(out, "target", point->target->name);
    add_text(out, "kind", point->target->is_route ? "route" : "group");
    add_text(out, "transport", transport);
    text_add(out, ", \"ranks\": %d, \"bytes\": %zu", point->target->size, what->bytes);
    add_text(out, "dtype", dtype_name(what->dtype));
    text_add(out, what->axis < 0 ? ", \"axis\": null" : ", \"axis\": %d", what->axis);
    text_add(out, what->run_bytes ? ", \"run_bytes\": %zu" : ", \"run_bytes\": null", what->run_bytes);
    add_text(out, "checks", point->target->is_route ? "always" : checks_word[checks]);
    add_text(out, "algorithm", result->algorithm);
    add_measured(out, "median_us", result->us[checks]);
    text_add(out, ", \"bus_gb_per_s\": %.6g", bench_case_bus(what, point->target->size, result->us[checks]));
    add_text(out, "mpi_call", result->call[0] ? result->call : NULL);
    add_measured(out, "mpi_median_us", result->raw_us);
    add_measured(out, "ratio", bench_report_ratio(result, checks));
    text_add(out, ", \"repeats\": %d, \"iterations\": %d}\n", repeats, result->iterations);
}

void bench_report_json(const struct bench_point *point, const char *transport, int repeats, struct text *out)
{
    for (int checks = 0; checks < BENCH_CHECKS; checks++) {
        if (point->result.us[checks] > 0)
            add_object(point, transport, repeats, (enum checks)checks, out);
    }
}
