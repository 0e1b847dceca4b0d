/* Targets are exercised in the order of their ids, a few at a time; then all ranks meet.  So there is one order for
 * everybody and no waiting in a circle, and when something fails, every rank knows what had passed before. */
#include "launcher/check_command.h"

#include <argp.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "base/fit.h"
#include "base/log.h"
#include "comm/control.h"
#include "comm/device.h"
#include "comm/group.h"
#include "comm/route.h"
#include "comm/session.h"
#include "launcher/check_probe.h"
#include "launcher/check_report.h"
#include "launcher/job.h"
#include "launcher/keeper.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/run_options.h"
#include "runtime/compute.h"
#include "runtime/mirror.h"
#include "runtime/plan.h"
#include "runtime/wait.h"
#include "topology/topology.h"

enum { MEETINGS = 256 }; /* at most about so many */

struct check {
    struct run_options options;
    struct job_view own;         /* a copy: the job's own ends with run */
    const struct job_view *view; /* NULL: not begun */
    struct check_host *hosts;    /* [world], once gathered */
    struct shuttle *shuttle;     /* to this rank's device; NULL: none */
    struct check_target *targets;
    size_t count;
    size_t first; /* of those under way */
    size_t end;
    bool printed;
};

/* ---- options ---- */

enum { KEY_SET = 's', KEY_JSON = 'j', KEY_QUIET = 'q', KEY_FAULT = 256 };

static const struct argp_option table[] = {
    {"set", KEY_SET, "KEY=VALUE", 0, "Override a key of the topology: --set mesh.tensor=2.  May be repeated.", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object a line: the check, the backend, hosts, groups, routes.", 0},
    {"quiet", KEY_QUIET, NULL, 0, "No notes at the start.", 0},
    {"fault", KEY_FAULT, "rank=R,op=N,kind=KIND", 0, "Rehearse a fault, as with `ferry run`.  May be repeated.", 0},
    {0},
};

static const char doc[] =
    "Exercise every group and route of TOPOLOGY on the ranks of a job, with data that is verified, and print a table.  "
    "Each operation that a group selects, in each dtype and several sizes; each route's bundle.  Needs no workload, "
    "and "
    "of a model only its description."
    "\vExamples:\n"
    "  mpirun -n 4 ferry check topology.yaml\n"
    "  mpirun -n 4 ferry check topology.yaml --json |\n"
    "      jq 'select(.result == \"failed\")'\n"
    "\n"
    "Exit codes: 0 everything passed, 2 usage, 3 topology, 4 model, 5 environment, 6 mismatch or damaged bytes, "
    "7 timeout, 8 a rank died, 9 storage.";

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct run_options *options = state->input;

    switch (key) {
    case KEY_SET:
        run_options_set(options, text, state);
        return 0;
    case KEY_JSON:
        options->json = options->quiet = true;
        return 0;
    case KEY_QUIET:
        options->quiet = true;
        return 0;
    case KEY_FAULT:
        run_options_fault(options, text, state);
        return 0;
    case ARGP_KEY_ARG:
        options_take_path(state, "topology", text, &options->topology);
        return 0;
    case ARGP_KEY_END:
        if (!options->topology)
            argp_error(state, "which topology?  ferry check TOPOLOGY");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int parse_options(int argc, char **argv, struct run_options *ret)
{
    static const struct argp argp = {table, parse, "TOPOLOGY", doc, NULL, NULL, NULL};
    char name[] = "ferry check";

    return options_parse(&argp, name, argc, argv, ret);
}

/* ---- what the ranks tell ---- */

static void own_host(const struct job_view *view, struct check_host *ret)
{
    static const char *const words[] = {"auto", "plain", "avx2", "avx512"};
    const struct compute_options options = {.threads = 1, .simd = words[view->topology->compute.simd.value]};
    struct memory_space memory = memory_here();
    struct compute *compute = NULL;

    *ret = (struct check_host){
        .memory_available = memory.available, .memory_total = memory.total, .threads = (uint64_t)view->threads};
    if (gethostname(ret->name, sizeof ret->name - 1))
        (void)snprintf(ret->name, sizeof ret->name, "unknown");
    if (cpu_compute.open(&options, &compute, NULL) == STATUS_OK) {
        (void)snprintf(ret->simd, sizeof ret->simd, "%s", cpu_compute.simd(compute));
        cpu_compute.close(compute);
    }
}

static void own_device(struct device *device, struct check_host *ret)
{
    struct memory_space space = {MEMORY_UNKNOWN, device->facts.memory_bytes};

    (void)snprintf(ret->device, sizeof ret->device, "%s", device->facts.name);
    (void)snprintf(ret->pci, sizeof ret->pci, "%s", device->facts.pci);
    (void)device->memory->ops->space(device->memory, &space, NULL); /* else it stays unknown */
    ret->device_available = space.available;
    ret->device_total = space.total;
}

/* Every rank's host, on every rank. */
static enum status gather_hosts(struct check *check, struct group *world, struct error *err)
{
    struct shape one = {2, {1, sizeof(struct check_host)}};
    struct shape every = {2, {(uint64_t)group_size(world), sizeof(struct check_host)}};
    struct completion *completion = NULL;
    struct tensor *send = NULL;
    struct tensor *recv = NULL;
    struct check_host own;
    uint64_t waited = 0;
    enum status st = tensor_create(DTYPE_U8, &one, &send, err);

    if (st == STATUS_OK)
        st = tensor_create(DTYPE_U8, &every, &recv, err);
    if (st == STATUS_OK) {
        own_host(check->view, &own);
        if (check->view->device)
            own_device(check->view->device, &own);
        memcpy(send->data, &own, sizeof own);
        st = group_all_gather_even(world, send, recv, 0, &completion, err);
    }
    if (st == STATUS_OK)
        st = wait_and_release(completion, &waited, err);
    if (st == STATUS_OK && !(check->hosts = calloc((size_t)group_size(world), sizeof *check->hosts)))
        st = error_set(err, STATUS_NOMEM, "%d hosts", group_size(world));
    if (st == STATUS_OK)
        memcpy(check->hosts, recv->data, recv->bytes);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

/* Times and cases, each from the target's first member, to all by a sum to which nobody else adds. */
static enum status gather_times(struct check *check, struct group *world, struct error *err)
{
    struct shape shape = {2, {check->count, 2}};
    struct completion *completion = NULL;
    struct mirror sum = {0};
    uint64_t waited = 0;
    uint64_t *pair;
    enum status st = mirror_init(check->shuttle, NULL, DTYPE_U64, &shape, &sum, err);

    if (st != STATUS_OK)
        return st;
    pair = (uint64_t *)(void *)sum.here->data;
    for (size_t i = 0; i < check->count; i++) {
        const struct check_target *target = &check->targets[i];
        int first = target->group ? target->group->members[0] : target->route->from;
        bool own = first == check->view->rank->rank;

        pair[2 * i] = own ? target->ns : 0;
        pair[2 * i + 1] = own ? target->cases : 0;
    }
    st = mirror_promote(&sum, world, err);
    if (st == STATUS_OK)
        st = group_all_reduce_sum(world, sum.there, sum.there, &completion, err);
    if (st == STATUS_OK)
        st = wait_and_release(completion, &waited, err);
    if (st == STATUS_OK)
        st = mirror_demote(&sum, &waited, err);
    for (size_t i = 0; i < check->count && st == STATUS_OK; i++) {
        check->targets[i].ns = pair[2 * i];
        check->targets[i].cases = pair[2 * i + 1];
    }
    mirror_done(&sum);
    return st;
}

/* ---- the check ---- */

static enum status list_targets(struct check *check, struct error *err)
{
    const struct plan *plan = check->view->plan;

    check->targets = calloc(plan->group_count + plan->route_count, sizeof *check->targets);
    if (!check->targets)
        return error_set(err, STATUS_NOMEM, "%zu groups, %zu routes", plan->group_count, plan->route_count);
    for (size_t i = 0; i < plan->group_count; i++)
        check->targets[check->count++] = (struct check_target){.group = &plan->groups[i], .ns = CHECK_UNKNOWN};
    for (size_t i = 0; i < plan->route_count; i++)
        check->targets[check->count++] = (struct check_target){.route = &plan->routes[i], .ns = CHECK_UNKNOWN};
    return STATUS_OK;
}

/* If this rank has a part in it. */
static enum status exercise(const struct check *check, struct check_target *target, struct error *err)
{
    struct session *session = check->view->session;
    int rank = check->view->rank->rank;
    uint64_t start = clock_ns();
    enum status st = STATUS_OK;
    char phase[64];

    (void)snprintf(phase, sizeof phase, "check of %s", target->group ? target->group->name : target->route->name);
    session_phase(session, phase);
    if (target->group) {
        struct group *group = session_group(session, target->group->id);

        if (group_rank(group) >= 0)
            st = probe_group(group, check->shuttle, check->view->shared, &target->cases, err);
    } else if (rank == target->route->from || rank == target->route->to) {
        st = probe_route(session_route(session, target->route->id), check->shuttle, rank == target->route->from,
                         &target->cases, err);
    }
    target->ns = clock_ns() - start;
    return st;
}

static enum status meet(struct group *world, struct error *err)
{
    struct completion *completion = NULL;
    uint64_t waited = 0;
    enum status st = group_barrier(world, &completion, err);

    return st == STATUS_OK ? wait_and_release(completion, &waited, err) : st;
}

static enum status exercise_all(struct check *check, struct group *world, struct error *err)
{
    size_t together = 1 + check->count / MEETINGS;
    enum status st = STATUS_OK;

    while (check->end < check->count && st == STATUS_OK) {
        check->first = check->end;
        check->end = check->first + together < check->count ? check->first + together : check->count;
        for (size_t i = check->first; i < check->end && st == STATUS_OK; i++)
            st = exercise(check, &check->targets[i], err);
        if (st == STATUS_OK)
            st = meet(world, err);
        for (size_t i = check->first; i < check->end && st == STATUS_OK; i++)
            check->targets[i].result = CHECK_PASSED;
    }
    if (st == STATUS_OK)
        check->first = check->end; /* what fails from here on is no target's fault */
    return st;
}

static enum status print(struct check *check, const struct cause *cause, struct error *err)
{
    const struct check_report report = {.view = check->view,
                                        .compute = &cpu_compute,
                                        .hosts = check->hosts,
                                        .targets = check->targets,
                                        .count = check->count,
                                        .cause = cause};
    struct text out = {0};
    enum status st;

    check->printed = true;
    if (check->options.json)
        check_report_json(&report, &out);
    else
        check_report_table(&report, &out);
    st = output_write(&out, err);
    text_done(&out);
    return st;
}

/* Without a workload the routes are a program's: where there are devices their bundles are tried there. */
static enum status build_routes(const struct job_view *view, struct error *err)
{
    const struct plan *plan = view->plan;
    bool moves = view->device && !view->topology->workload.at.line;
    struct route_spec *routes = calloc(plan->route_count + 1, sizeof *routes);
    enum status st;

    if (!routes)
        return error_set(err, STATUS_NOMEM, "%zu routes", plan->route_count);
    for (size_t i = 0; i < plan->route_count; i++) {
        routes[i] = plan->routes[i];
        if (moves)
            routes[i].memory_tensors = UINT32_MAX;
    }
    st = session_build(view->session, plan->groups, plan->group_count, routes, plan->route_count, err);
    free(routes);
    return st;
}

static enum status build(struct check *check, struct error *err)
{
    const struct job_view *view = check->view;
    enum status st = build_routes(view, err);

    if (st == STATUS_OK && view->device)
        st = shuttle_create(view->session, view->devices, view->device, &check->shuttle, err);
    return st;
}

static enum status run_check(void *context, const struct job_view *view, struct error *err)
{
    struct check *check = context;
    struct group *world = NULL;
    enum status st;

    check->own = *view;
    check->view = &check->own;
    st = list_targets(check, err);
    if (st == STATUS_OK)
        st = build(check, err);
    if (st == STATUS_OK) {
        world = session_group(view->session, view->rank->world_group);
        session_phase(view->session, "gathering what hosts can do");
        st = gather_hosts(check, world, err);
    }
    if (st == STATUS_OK)
        st = exercise_all(check, world, err);
    if (st == STATUS_OK) {
        session_phase(view->session, "gathering times");
        st = gather_times(check, world, err);
    }
    if (st == STATUS_OK) {
        shuttle_destroy(check->shuttle);
        check->shuttle = NULL;
    }
    return st == STATUS_OK && view->rank->rank == 0 ? print(check, NULL, err) : st;
}

/* Does the text speak of this name, and not of a longer one? */
static bool mentions(const char *text, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
        char before = at == text ? ' ' : at[-1];

        if (!isalnum((unsigned char)before) && !strchr("-_./", before) && !isalnum((unsigned char)at[length]) &&
            !strchr("-_/", at[length] ? at[length] : ' '))
            return true;
    }
    return false;
}

/* What was under way has failed: the one that the cause names, where it names one. */
static void blame(struct check *check, const struct cause *cause)
{
    bool named = false;

    for (size_t i = check->first; i < check->end; i++) {
        struct check_target *target = &check->targets[i];

        if (!mentions(cause->text, target->group ? target->group->name : target->route->name))
            continue;
        target->result = CHECK_FAILED;
        named = true;
    }
    for (size_t i = check->first; i < check->end && !named && check->end - check->first == 1; i++)
        check->targets[i].result = CHECK_FAILED;
}

static void told(void *context, const struct cause *cause)
{
    struct check *check = context;
    struct error err = {0};

    if (!check->count || check->printed)
        return;
    blame(check, cause);
    if (print(check, cause, &err) != STATUS_OK)
        log_error("%s: %s", status_name(err.status), err.text);
}

static int worker(void *context, struct keeper *keeper)
{
    struct check *check = context;
    const struct job_task task = {.name = "check", .run = run_check, .told = told, .context = check};
    int code = job_live(&check->options, &task, keeper);

    free(check->targets);
    free(check->hosts);
    return code;
}

int check_command(int argc, char **argv)
{
    struct check check = {0};
    int code = parse_options(argc, argv, &check.options);

    return code >= 0 ? code : keeper_run(worker, &check);
}
