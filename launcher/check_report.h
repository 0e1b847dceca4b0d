/* What `ferry check` found, as a table or as JSON lines. */
#ifndef LAUNCHER_CHECK_REPORT_H
#define LAUNCHER_CHECK_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

struct cause;
struct compute_ops;
struct job_view;

enum check_result { CHECK_NOT_REACHED, CHECK_PASSED, CHECK_FAILED };

/* One group or route of the plan. */
struct check_target {
    const struct group_spec *group; /* NULL: a route */
    const struct route_spec *route;
    enum check_result result;
    uint64_t ns; /* at its first member; CHECK_UNKNOWN: not told (the check has failed before) */
    uint64_t cases;
};

#define CHECK_UNKNOWN UINT64_MAX

enum { CHECK_HOST_BYTES = 64, CHECK_SIMD_BYTES = 32, CHECK_DEVICE_BYTES = 80, CHECK_PCI_BYTES = 24 };

/* What each rank tells about its host, gathered as bytes of fixed size. */
struct check_host {
    char name[CHECK_HOST_BYTES];
    char simd[CHECK_SIMD_BYTES]; /* "": the asked path is not there */
    uint64_t memory_available;   /* MEMORY_UNKNOWN */
    uint64_t memory_total;
    uint64_t threads; /* of the rank */

    char device[CHECK_DEVICE_BYTES]; /* that the rank works on: its name; "": none */
    char pci[CHECK_PCI_BYTES];
    uint64_t device_available; /* MEMORY_UNKNOWN */
    uint64_t device_total;
};

struct check_report {
    const struct job_view *view;
    const struct compute_ops *compute;
    const struct check_host *hosts; /* [world]; NULL: not told */
    const struct check_target *targets;
    size_t count;
    const struct cause *cause; /* NULL: all passed */
};

void check_report_table(const struct check_report *report, struct text *out);
void check_report_json(const struct check_report *report, struct text *out);

/* What a person can do about a failure of this kind over the transport of this name. */
const char *check_advice(enum status st, const char *transport);

#endif
