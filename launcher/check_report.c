/* One line a target; equal hosts are told once.  The numbers come from the ranks, the words from the plan. */
#include "launcher/check_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fit.h"
#include "checkpoint/weight_type.h"
#include "comm/control.h"
#include "comm/device.h"
#include "launcher/job.h"
#include "runtime/compute.h"
#include "runtime/plan.h"
#include "topology/topology.h"

static const char *const results[] = {"not reached", "pass", "FAILED"};

/* Where tensors go from GPU to GPU more can stand still, or refuse, than a host. */
static const char *advice_over_nccl(enum status st)
{
    if (st == STATUS_TIMEOUT)
        return "the rank that is named stood still, or NCCL and the GPUs between it and its peers did: run with "
               "NCCL_DEBUG=INFO on these ranks, look at nvidia-smi and the Xid lines of dmesg for the GPU of each (the "
               "lines of the hosts above say which), at the interface that NCCL takes (NCCL_SOCKET_IFNAME), and at "
               "`ferry doctor` on the run's folder; whether it is NCCL's is shown by --set communication.transport=mpi";
    if (st == STATUS_TRANSPORT || st == STATUS_ENVIRONMENT)
        return "a GPU, NCCL or MPI has refused or failed: look at nvidia-smi and the Xid lines of dmesg on the host of "
               "the rank that is named (a GPU that fell off comes back with a reset of it, or of its host), run with "
               "NCCL_DEBUG=WARN, and with --set communication.transport=mpi to see whether the rest is sound";
    return NULL;
}

const char *check_advice(enum status st, const char *transport)
{
    const char *advice = strcmp(transport, "nccl") == 0 ? advice_over_nccl(st) : NULL;

    if (advice)
        return advice;
    switch (st) {
    case STATUS_MISMATCH:
    case STATUS_CORRUPT:
        return "bytes were changed on their way between these ranks, or the ranks run different programs: look at "
               "memory and network of their hosts (dmesg, error counters of the interface), compare the installations, "
               "and run with --set communication.integrity=payload, which finds it at the message";
    case STATUS_TIMEOUT:
        return "the rank that is named stood still: look at its host (load, memory, a stopped process, its network), "
               "and at `ferry doctor` on the run's folder; a host that is only slow needs a larger "
               "communication.timeout";
    case STATUS_LOST:
        return "a process has gone: its host's log (dmesg, the batch system's) tells who ended it";
    case STATUS_NOMEM:
    case STATUS_OVERFLOW:
        return "make groups' limits or routes' extents smaller, or give the rank more memory";
    case STATUS_TRANSPORT:
    case STATUS_ENVIRONMENT:
        return "MPI itself has refused: try the same hosts with an example program of your MPI, then its log "
               "(--mca btl_base_verbose 30)";
    default:
        return "the line above says what is wrong";
    }
}

/* The members or ends of a target. */
static const int *members_of(const struct check_target *target, int ends[2], size_t *count)
{
    if (target->group) {
        *count = (size_t)target->group->size;
        return target->group->members;
    }
    ends[0] = target->route->from;
    ends[1] = target->route->to;
    *count = 2;
    return ends;
}

/* Does an earlier member stand on the same host? */
static bool told_before(const struct check_report *report, const int *members, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (!strcmp(report->hosts[members[i]].name, report->hosts[members[index]].name))
            return true;
    }
    return false;
}

static void add_hosts(const struct check_report *report, const int *members, size_t count, struct text *out)
{
    enum { MOST = 4 };
    int shown = 0;

    for (size_t i = 0; report->hosts && i < count && shown <= MOST; i++) {
        if (told_before(report, members, i))
            continue;
        if (shown++ == MOST)
            text_add(out, ", ...");
        else
            text_add(out, "%s%s", shown == 1 ? " on " : ", ", report->hosts[members[i]].name);
    }
}

/* A group: its operations.  A route: what its bundle carries. */
static void add_work(const struct check_target *target, struct text *out)
{
    const uint32_t every = OPERATIONS_ALL & ~OPERATION_BIT(OPERATION_SEND_RECEIVE);
    bool all = target->group && target->group->operations == every;
    const char *between = "";

    if (all)
        text_add(out, "every operation");
    for (int op = OPERATION_NONE + 1; target->group && !all && op < OPERATION_COUNT; op++) {
        if (!(target->group->operations & OPERATION_BIT(op)))
            continue;
        text_add(out, "%s%s", between, operation_name((enum operation)op));
        between = ", ";
    }
    for (int t = 0; target->route && t < target->route->tensor_count; t++) {
        text_add(out, "%s%s ", between, target->route->tensors[t].role);
        plan_add_tensor(out, target->route, &target->route->tensors[t]);
        between = ", ";
    }
}

static const char *name_of(const struct check_target *target)
{
    return target->group ? target->group->name : target->route->name;
}

static void add_row(const struct check_report *report, const struct check_target *target, int width, struct text *out)
{
    struct text who = {0};
    int ends[2];
    size_t count;
    const int *members = members_of(target, ends, &count);

    if (target->group)
        plan_add_ranks(&who, members, count);
    else
        text_add(&who, "%d -> %d", ends[0], ends[1]);
    add_hosts(report, members, count, &who);
    text_add(out, "%-*s  %-5s  %-11s  ", width, name_of(target), target->group ? "group" : "route",
             results[target->result]);
    if (target->ns != CHECK_UNKNOWN && target->result == CHECK_PASSED)
        text_add(out, "%5" PRIu64 "  %8.1f ms  ", target->cases, (double)target->ns / 1e6);
    else
        text_add(out, "%5s  %8s     ", "-", "-");
    text_add(out, "%s: ", text_string(&who));
    add_work(target, out);
    text_add(out, "\n");
    text_done(&who);
}

static void add_types(const char *what, uint32_t types, struct text *out)
{
    text_add(out, "%s", what);
    for (int type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        if (types & (1u << type))
            text_add(out, " %s", weight_type_name((enum weight_type)type));
    }
}

static void add_rate(double per_ns, const char *unit, struct text *out)
{
    if (per_ns < 0)
        text_add(out, "%s unknown", unit);
    else
        text_add(out, "%s %.2f", unit, per_ns);
}

static void add_backend(const struct check_report *report, struct text *out)
{
    const struct compute_capabilities *can = report->compute->capabilities;

    text_add(out, "backend    %s (%s)", report->compute->name,
             report->view->topology->compute.backend.value == TOPOLOGY_CPU ? "asked for" : "auto: no other is built");
    if (!can) {
        text_add(out, ", capabilities unknown\n");
        return;
    }
    text_add(out, ", %s; from host %s, to host %s\n", can->substrate, can->path_in ? can->path_in : "by host staging",
             can->path_out ? can->path_out : "by host staging");
    add_types("           products:", can->product_types, out);
    add_types("\n           embedding:", can->embed_types, out);
    text_add(out, "\n           other operations:");
    for (int dtype = DTYPE_NONE + 1; dtype < DTYPE_COUNT; dtype++) {
        if (can->activation_types & (1u << dtype))
            text_add(out, " %s", dtype_name((enum dtype)dtype));
    }
    text_add(out, "; alignment %zu B, rows padded to %zu; ", can->alignment, can->granularity);
    add_rate(can->flop_per_ns, "FLOP/ns", out);
    add_rate(can->bytes_per_ns, ", bytes/ns", out);
    text_add(out, "\n");
}

/* How much is left, and whether that is comfortable. */
static void add_space(uint64_t available, uint64_t total, struct text *out)
{
    text_add(out, "memory ");
    if (available == MEMORY_UNKNOWN)
        text_add(out, "unknown");
    else
        text_add_size(out, available);
    text_add(out, " available of ");
    if (total == MEMORY_UNKNOWN || !total)
        text_add(out, "unknown");
    else
        text_add_size(out, total);
    text_add(out, ", %s", fit_name(would_fit(0, (struct memory_space){available, total})));
}

/* A host is told at its first rank. */
static bool first_on_host(const struct check_report *report, int rank)
{
    for (int earlier = 0; earlier < rank; earlier++) {
        if (!strcmp(report->hosts[earlier].name, report->hosts[rank].name))
            return false;
    }
    return true;
}

static size_t ranks_on_host(const struct check_report *report, int rank, int *ranks)
{
    size_t count = 0;

    for (int other = rank; other < report->view->plan->mesh.world; other++) {
        if (!strcmp(report->hosts[other].name, report->hosts[rank].name))
            ranks[count++] = other;
    }
    return count;
}

static void add_host_lines(const struct check_report *report, struct text *out)
{
    int world = report->view->plan->mesh.world;
    int *ranks = calloc((size_t)world, sizeof *ranks);

    if (!ranks) {
        out->failed = true;
        return;
    }
    for (int rank = 0; report->hosts && rank < world; rank++) {
        const struct check_host *host = &report->hosts[rank];

        if (!first_on_host(report, rank))
            continue;
        text_add(out, "host       %s: rank%s ", host->name, ranks_on_host(report, rank, ranks) == 1 ? "" : "s");
        plan_add_ranks(out, ranks, ranks_on_host(report, rank, ranks));
        text_add(out, "; simd %s, %" PRIu64 " thread%s a rank; ", host->simd[0] ? host->simd : "unknown", host->threads,
                 host->threads == 1 ? "" : "s");
        add_space(host->memory_available, host->memory_total, out);
        text_add(out, "\n");
    }
    free(ranks);
}

/* The dtypes of a mask; "none". */
static void add_dtypes(const char *what, uint32_t types, struct text *out)
{
    text_add(out, "%s", what);
    for (int dtype = DTYPE_NONE + 1; dtype < DTYPE_COUNT; dtype++) {
        if (types & DTYPE_BIT(dtype))
            text_add(out, " %s", dtype_name((enum dtype)dtype));
    }
    if (!types)
        text_add(out, " none");
}

static void add_device_abilities(const struct device *device, struct text *out)
{
    const struct device_capabilities *can = &device->capabilities;

    text_add(out, "devices    %s; from host: %s; to host: %s\n", can->substrate,
             can->path_in ? can->path_in : "by host staging", can->path_out ? can->path_out : "by host staging");
    add_dtypes("           copies:", can->copy_types, out);
    add_dtypes("\n           sums:", can->add_types, out);
    add_dtypes("; to f32:", can->widen_types, out);
    add_dtypes("; from f32:", can->narrow_types, out);
    text_add(out, "\n           alignment %zu B, granularity %zu B; ", can->alignment, can->granularity);
    add_rate(can->flop_per_ns, "FLOP/ns", out);
    add_rate(can->bytes_per_ns, ", bytes/ns", out);
    text_add(out, "\n");
}

/* Each rank has one of its own. */
static void add_devices(const struct check_report *report, struct text *out)
{
    if (!report->view->device)
        return;
    add_device_abilities(report->view->device, out);
    for (int rank = 0; report->hosts && rank < report->view->plan->mesh.world; rank++) {
        const struct check_host *host = &report->hosts[rank];

        text_add(out, "device     rank %d on %s: %s at %s; ", rank, host->name, host->device, host->pci);
        add_space(host->device_available, host->device_total, out);
        text_add(out, "\n");
    }
}

static size_t count_results(const struct check_report *report, enum check_result result)
{
    size_t count = 0;

    for (size_t i = 0; i < report->count; i++)
        count += report->targets[i].result == result;
    return count;
}

void check_report_table(const struct check_report *report, struct text *out)
{
    int width = 8;

    text_add(out, "%s: %d rank%s\n", report->view->topology->name.value, report->view->plan->mesh.world,
             report->view->plan->mesh.world == 1 ? "" : "s");
    text_add(out, "transport  %s (%s): %s, %s\n", report->view->ops->name, report->view->chosen,
             report->view->transport, report->view->plugin);
    text_add(out, "tensors    in %s\n", report->view->memory);
    add_backend(report, out);
    add_host_lines(report, out);
    add_devices(report, out);
    for (size_t i = 0; i < report->count; i++) {
        int length = (int)strlen(name_of(&report->targets[i]));

        width = length > width ? length : width;
    }
    text_add(out, "\n%-*s  kind   result       cases         time  members and operations, ends and bundle\n", width,
             "target");
    for (size_t i = 0; i < report->count; i++)
        add_row(report, &report->targets[i], width, out);
    text_add(out, "\n%zu passed, %zu failed, %zu not reached\n", count_results(report, CHECK_PASSED),
             count_results(report, CHECK_FAILED), count_results(report, CHECK_NOT_REACHED));
    if (report->cause)
        text_add(out, "cause: %s: %s\nwhat to do: %s\n", status_name(report->cause->status), report->cause->text,
                 check_advice(report->cause->status, report->view->ops->name));
}

static void add_string(const char *key, const char *value, struct text *out)
{
    text_add(out, "\"%s\": ", key);
    if (value)
        text_add_json(out, value, strlen(value));
    else
        text_add(out, "null");
}

static void add_number(const char *key, uint64_t value, uint64_t unknown, struct text *out)
{
    if (value == unknown)
        text_add(out, "\"%s\": null", key);
    else
        text_add(out, "\"%s\": %" PRIu64, key, value);
}

static void add_list(const char *key, const int *numbers, size_t count, struct text *out)
{
    text_add(out, "\"%s\": [", key);
    for (size_t i = 0; i < count; i++)
        text_add(out, "%s%d", i ? ", " : "", numbers[i]);
    text_add(out, "]");
}

/* Words of the bits of mask, by name. */
static void add_words(const char *key, uint32_t mask, int count, const char *(*name)(int bit), struct text *out)
{
    const char *between = "";

    text_add(out, "\"%s\": [", key);
    for (int bit = 0; bit < count; bit++) {
        if (!(mask & (1u << bit)))
            continue;
        text_add(out, "%s\"%s\"", between, name(bit));
        between = ", ";
    }
    text_add(out, "]");
}

static const char *operation_word(int bit)
{
    return operation_name((enum operation)bit);
}

static const char *dtype_word(int bit)
{
    return dtype_name((enum dtype)bit);
}

static const char *weight_word(int bit)
{
    return weight_type_name((enum weight_type)bit);
}

static void add_rate_json(const char *key, double per_ns, struct text *out)
{
    if (per_ns < 0)
        text_add(out, "\"%s\": null", key);
    else
        text_add(out, "\"%s\": %.3f", key, per_ns);
}

static void json_backend(const struct check_report *report, struct text *out)
{
    const struct compute_capabilities *can = report->compute->capabilities;

    if (!can)
        return;
    text_add(out, "{\"kind\": \"backend\", ");
    add_string("name", report->compute->name, out);
    text_add(out, ", ");
    add_string("substrate", can->substrate, out);
    text_add(out, ", ");
    add_string("path_in", can->path_in ? can->path_in : "host staging", out);
    text_add(out, ", ");
    add_string("path_out", can->path_out ? can->path_out : "host staging", out);
    text_add(out, ", \"alignment\": %zu, \"granularity\": %zu, ", can->alignment, can->granularity);
    add_words("products", can->product_types, WEIGHT_TYPE_COUNT, weight_word, out);
    text_add(out, ", ");
    add_words("embedding", can->embed_types, WEIGHT_TYPE_COUNT, weight_word, out);
    text_add(out, ", ");
    add_words("other", can->activation_types, DTYPE_COUNT, dtype_word, out);
    text_add(out, ", ");
    add_rate_json("flop_per_ns", can->flop_per_ns, out);
    text_add(out, ", ");
    add_rate_json("bytes_per_ns", can->bytes_per_ns, out);
    text_add(out, "}\n");
}

static void json_host(const struct check_report *report, int rank, const int *ranks, size_t count, struct text *out)
{
    const struct check_host *host = &report->hosts[rank];

    text_add(out, "{\"kind\": \"host\", ");
    add_string("name", host->name, out);
    text_add(out, ", ");
    add_list("ranks", ranks, count, out);
    text_add(out, ", ");
    add_string("simd", host->simd[0] ? host->simd : NULL, out);
    text_add(out, ", \"threads\": %" PRIu64 ", ", host->threads);
    add_number("memory_available", host->memory_available, MEMORY_UNKNOWN, out);
    text_add(out, ", ");
    add_number("memory_total", host->memory_total ? host->memory_total : MEMORY_UNKNOWN, MEMORY_UNKNOWN, out);
    text_add(out, "}\n");
}

static void json_hosts(const struct check_report *report, struct text *out)
{
    int world = report->view->plan->mesh.world;
    int *ranks = calloc((size_t)world, sizeof *ranks);

    if (!ranks) {
        out->failed = true;
        return;
    }
    for (int rank = 0; report->hosts && rank < world; rank++) {
        if (first_on_host(report, rank))
            json_host(report, rank, ranks, ranks_on_host(report, rank, ranks), out);
    }
    free(ranks);
}

static void json_device(const struct check_report *report, int rank, struct text *out)
{
    const struct check_host *host = &report->hosts[rank];
    const struct device_capabilities *can = &report->view->device->capabilities;

    text_add(out, "{\"kind\": \"device\", \"rank\": %d, ", rank);
    add_string("host", host->name, out);
    text_add(out, ", ");
    add_string("name", host->device, out);
    text_add(out, ", ");
    add_string("pci", host->pci, out);
    text_add(out, ", ");
    add_number("memory_available", host->device_available, MEMORY_UNKNOWN, out);
    text_add(out, ", ");
    add_number("memory_total", host->device_total, MEMORY_UNKNOWN, out);
    text_add(out, ", ");
    add_string("substrate", can->substrate, out);
    text_add(out, ", ");
    add_string("path_in", can->path_in ? can->path_in : "host staging", out);
    text_add(out, ", ");
    add_string("path_out", can->path_out ? can->path_out : "host staging", out);
    text_add(out, ", \"alignment\": %zu, \"granularity\": %zu, ", can->alignment, can->granularity);
    add_words("copies", can->copy_types, DTYPE_COUNT, dtype_word, out);
    text_add(out, ", ");
    add_words("sums", can->add_types, DTYPE_COUNT, dtype_word, out);
    text_add(out, ", ");
    add_rate_json("flop_per_ns", can->flop_per_ns, out);
    text_add(out, ", ");
    add_rate_json("bytes_per_ns", can->bytes_per_ns, out);
    text_add(out, "}\n");
}

static void json_target(const struct check_target *target, struct text *out)
{
    static const char *const words[] = {"not_reached", "pass", "failed"};
    bool told = target->ns != CHECK_UNKNOWN && target->result == CHECK_PASSED;
    int ends[2];
    size_t count;
    const int *members = members_of(target, ends, &count);

    text_add(out, "{\"kind\": \"%s\", ", target->group ? "group" : "route");
    add_string("target", name_of(target), out);
    text_add(out, ", ");
    add_list(target->group ? "members" : "ends", members, count, out);
    text_add(out, ", ");
    if (target->group) {
        add_words("operations", target->group->operations, OPERATION_COUNT, operation_word, out);
        text_add(out, ", ");
        add_words("dtypes", target->group->dtypes, DTYPE_COUNT, dtype_word, out);
    } else {
        text_add(out, "\"operations\": [\"send_receive\"], \"bundle\": [");
        for (int t = 0; t < target->route->tensor_count; t++) {
            text_add(out, "%s", t ? ", " : "");
            text_add_json(out, target->route->tensors[t].role, strlen(target->route->tensors[t].role));
        }
        text_add(out, "]");
    }
    text_add(out, ", \"result\": \"%s\", ", words[target->result]);
    add_number("cases", told ? target->cases : CHECK_UNKNOWN, CHECK_UNKNOWN, out);
    if (told)
        text_add(out, ", \"seconds\": %.6f}\n", (double)target->ns / 1e9);
    else
        text_add(out, ", \"seconds\": null}\n");
}

void check_report_json(const struct check_report *report, struct text *out)
{
    text_add(out, "{\"kind\": \"check\", ");
    add_string("name", report->view->topology->name.value, out);
    text_add(out, ", \"world\": %d, ", report->view->plan->mesh.world);
    add_string("transport", report->view->ops->name, out);
    text_add(out, ", ");
    add_string("chosen", report->view->chosen, out);
    text_add(out, ", ");
    add_string("memory", report->view->memory, out);
    text_add(out, ", ");
    add_string("about", report->view->transport, out);
    text_add(out, ", ");
    add_string("plugin", report->view->plugin, out);
    text_add(out, ", \"passed\": %zu, \"failed\": %zu, \"not_reached\": %zu, ", count_results(report, CHECK_PASSED),
             count_results(report, CHECK_FAILED), count_results(report, CHECK_NOT_REACHED));
    text_add(out, "\"exit_code\": %d, ", report->cause ? status_exit_code(report->cause->status) : 0);
    add_string("cause", report->cause ? report->cause->text : NULL, out);
    text_add(out, ", ");
    add_string("advice", report->cause ? check_advice(report->cause->status, report->view->ops->name) : NULL, out);
    text_add(out, "}\n");
    json_backend(report, out);
    json_hosts(report, out);
    for (int rank = 0; report->view->device && report->hosts && rank < report->view->plan->mesh.world; rank++)
        json_device(report, rank, out);
    for (size_t i = 0; i < report->count; i++)
        json_target(&report->targets[i], out);
}
