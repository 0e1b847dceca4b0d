/* libferry's session: the same way from a topology to built groups as the program `ferry` goes, without a model.
 *
 * What this rank could not do alone is carried into the consensus, so that every rank returns from ferry_open with one
 * cause.  A failure is settled by the first call that meets it, whichever that is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/fault.h"
#include "comm/plugin.h"
#include "runtime/facts.h"
#include "runtime/ferry_private.h"
#include "runtime/wishes.h"
#include "topology/topology.h"

#define SAME(theirs, ours) _Static_assert((int)(theirs) == (int)(ours), #theirs " is " #ours)
SAME(FERRY_OK, STATUS_OK);
SAME(FERRY_INTERNAL, STATUS_INTERNAL);
SAME(FERRY_USAGE, STATUS_USAGE);
SAME(FERRY_TOPOLOGY, STATUS_TOPOLOGY);
SAME(FERRY_MODEL, STATUS_MODEL);
SAME(FERRY_ENVIRONMENT, STATUS_ENVIRONMENT);
SAME(FERRY_NOMEM, STATUS_NOMEM);
SAME(FERRY_OVERFLOW, STATUS_OVERFLOW);
SAME(FERRY_INVALID, STATUS_INVALID);
SAME(FERRY_UNSUPPORTED, STATUS_UNSUPPORTED);
SAME(FERRY_MISMATCH, STATUS_MISMATCH);
SAME(FERRY_CORRUPT, STATUS_CORRUPT);
SAME(FERRY_TIMEOUT, STATUS_TIMEOUT);
SAME(FERRY_LOST, STATUS_LOST);
SAME(FERRY_STORAGE, STATUS_STORAGE);
SAME(FERRY_TRANSPORT, STATUS_TRANSPORT);
SAME(FERRY_STOPPED, STATUS_STOPPED);
_Static_assert(FERRY_STOPPED + 1 == (int)STATUS_COUNT, "every status has a name in ferry.h");
_Static_assert(FERRY_STUCK == (int)STATUS_COUNT, "a status of libferry's own comes after them");

/* A caller's deadline tears nothing down, the session's does: in this interface they are two. */
enum status ferry_status_own(enum ferry_status status)
{
    if (status == FERRY_STUCK)
        return STATUS_TIMEOUT;
    return status >= FERRY_OK && status <= FERRY_STOPPED ? (enum status)status : STATUS_INTERNAL;
}

const char *ferry_status_name(enum ferry_status status)
{
    return status_name(ferry_status_own(status));
}

int ferry_exit_code(enum ferry_status status)
{
    return status_exit_code(ferry_status_own(status));
}

const char *ferry_version(void)
{
    return FERRY_VERSION;
}

enum ferry_status ferry_result(struct ferry_session *session, enum status st, const struct error *err,
                               struct ferry_error *error)
{
    struct error cause;
    enum ferry_status status = (enum ferry_status)st;
    bool speak = true;

    if (st == STATUS_OK)
        return FERRY_OK;
    cause = *err;
    if (session && session->session && session_check(session->session, NULL) != STATUS_OK) {
        st = session_settle(session->session, &cause, &speak);
        status = st == STATUS_TIMEOUT ? FERRY_STUCK : (enum ferry_status)st;
    }
    if (error) {
        error->status = status;
        error->speak = speak;
        (void)snprintf(error->text, sizeof error->text, "%s", cause.text);
    }
    return status;
}

/* What every operation passes does not clear a sentence that nobody reads. */
static enum ferry_status refuse_null(const char *name, struct ferry_error *error)
{
    struct error err = {0};

    return ferry_result(NULL, error_set(&err, STATUS_INVALID, "%s is NULL", name), &err, error);
}

enum ferry_status ferry_given(const struct named *named, struct ferry_error *error)
{
    while (named->name && named->value)
        named++;
    return named->name ? refuse_null(named->name, error) : FERRY_OK;
}

/* A page that is empty in a forked process; without one the process is asked for its number every time. */
static void mark_process(struct ferry_session *session)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    session->process = getpid();
    if (page == MAP_FAILED)
        return;
    if (madvise(page, bytes, MADV_WIPEONFORK)) {
        (void)munmap(page, bytes);
        return;
    }
    *page = 1;
    session->mark = page;
}

static void unmark_process(struct ferry_session *session)
{
    if (session->mark)
        (void)munmap(session->mark, (size_t)sysconf(_SC_PAGESIZE));
}

static bool is_here(const struct ferry_session *session)
{
    return session->mark ? *session->mark : session->process == getpid();
}

enum status ferry_here_own(const struct ferry_session *session, struct error *err)
{
    if (is_here(session))
        return STATUS_OK;
    return error_set(
        err, STATUS_INVALID,
        "this session is process %d's, and process %d was forked from it: only the process that has opened a "
        "session may use it",
        (int)session->process, (int)getpid());
}

static enum ferry_status refuse_process(const struct ferry_session *session, struct ferry_error *error)
{
    struct error err = {0};

    return ferry_result(NULL, ferry_here_own(session, &err), &err, error);
}

enum ferry_status ferry_here(const struct ferry_session *session, struct ferry_error *error)
{
    return is_here(session) ? FERRY_OK : refuse_process(session, error);
}

void ferry_line(char *line, size_t line_bytes, const char *text)
{
    (void)snprintf(line, line_bytes, "%s", text && *text ? text : "no reason is given");
    for (char *at = line; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = ' ';
    }
}

enum status ferry_called(enum ferry_status status, const struct ferry_error *error, struct error *err)
{
    enum status st = ferry_status_own(status);
    char line[FERRY_ERROR_BYTES];

    if (status == FERRY_OK)
        return STATUS_OK;
    ferry_line(line, sizeof line, error->text);
    if (st == STATUS_INTERNAL && status != FERRY_INTERNAL)
        return error_set(err, st, "it returned %d, which is no status of ferry.h: %s", (int)status, line);
    return error_set(err, st, "%s", line);
}

static enum status read_faults(struct ferry_session *session, const struct ferry_options *options, struct error *err)
{
    enum status st = STATUS_OK;

    session->faults = calloc(options->fault_count + 1, sizeof *session->faults);
    if (!session->faults)
        return error_set(err, STATUS_NOMEM, "%zu faults", options->fault_count);
    for (size_t i = 0; i < options->fault_count && st == STATUS_OK; i++) {
        st = fault_parse(options->fault[i], &session->faults[i], err);
        if (st != STATUS_OK)
            return error_wrap(err, st, "fault %s", options->fault[i]);
        session->fault_count++;
    }
    return st;
}

static enum status load_topology(struct ferry_session *session, const char *path, const struct ferry_options *options,
                                 struct error *err)
{
    struct text messages = {0};
    enum status st = topology_load(path, options->set, options->set_count, &session->topology, &messages, err);

    if (st == STATUS_TOPOLOGY && messages.length)
        error_set(err, st, "%s", text_string(&messages));
    text_done(&messages);
    if (st == STATUS_OK && session->topology->workload.at.line)
        st = error_set(err, STATUS_TOPOLOGY,
                       "%s: it has a workload, which `ferry run` works on; the topology of a program has none", path);
    return st;
}

/* All that can be done before MPI. */
static enum status prepare(struct ferry_session *session, const char *path, const struct ferry_options *options,
                           struct error *err)
{
    enum status st = STATUS_OK;

    if (options->size != sizeof *options)
        return error_set(err, STATUS_INVALID, "options of %zu bytes, this libferry (%s) has %zu: set size to sizeof",
                         options->size, FERRY_VERSION, sizeof *options);
    if (!path || (options->set_count && !options->set) || (options->fault_count && !options->fault))
        return error_set(err, STATUS_INVALID, "%s is NULL",
                         !path                                 ? "topology"
                         : options->set_count && !options->set ? "options' set"
                                                               : "options' fault");
    st = read_faults(session, options, err);
    if (st == STATUS_OK)
        st = load_topology(session, path, options, err);
    if (st == STATUS_OK)
        st = wishes_check_program(session->topology, err);
    return st == STATUS_OK ? plan_create(session->topology, NULL, &session->plan, err) : st;
}

/* MPI, and the session over it, which takes the transport. */
static enum status start(struct ferry_session *session, const struct ferry_options *options,
                         const struct transport_ops **ret_ops, struct error *err)
{
    struct session_options session_options = {.faults = session->faults, .fault_count = (int)session->fault_count};
    struct transport_options transport_options = {0};
    struct transport *transport = NULL;
    enum status st = plugin_transport("mpi", ret_ops, NULL, 0, err);

    if (st != STATUS_OK)
        return st;
    wishes_session(session->topology, &session_options);
    session_options.run_dir = options->run_dir;
    transport_options.startup_timeout_ns = session_options.startup_timeout_ns;
    transport_options.timeout_ns = session_options.timeout_ns;
    if (session->topology)
        transport_options.interface = session->topology->communication.interface.value;
    st = (*ret_ops)->open(&transport_options, &transport, err);
    if (st != STATUS_OK)
        return st;
    (void)snprintf(session->transport, sizeof session->transport, "%s", (*ret_ops)->describe(transport));
    st = session_create(*ret_ops, transport, &session_options, &session->session, err);
    if (st != STATUS_OK)
        (void)(*ret_ops)->close(transport, false, NULL);
    return st;
}

static enum status check_world(const struct ferry_session *session, const char *path, struct error *err)
{
    int size = session_size(session->session);
    int world = session->plan->mesh.world;

    for (size_t i = 0; i < session->fault_count; i++) {
        if (session->faults[i].rank >= size)
            return error_set(err, STATUS_USAGE, "a fault of rank %d: the job's ranks are 0 to %d",
                             session->faults[i].rank, size - 1);
    }
    if (size != world)
        return error_set(err, STATUS_TOPOLOGY, "%s is for %d rank%s, this job has %d: mpirun -n %d PROGRAM", path,
                         world, world == 1 ? "" : "s", size, world);
    return STATUS_OK;
}

static enum status agree(const struct ferry_session *session, const struct transport_ops *ops, const char *path,
                         enum status prepared, struct error *why, struct error *err)
{
    struct facts facts = {.topology = session->topology, .plan = session->plan, .transport = ops->name};

    if (prepared == STATUS_OK)
        prepared = check_world(session, path, why);
    facts.prepared = prepared;
    facts.why = why->text;
    return facts_agree(&facts, session->session, err);
}

static enum status build(struct ferry_session *session, struct error *err)
{
    const struct plan *plan = session->plan;
    enum status st;

    plan_rank(plan, session_rank(session->session), &session->rank);
    session->groups = calloc(plan->group_count + 1, sizeof *session->groups);
    session->routes = calloc(plan->route_count + 1, sizeof *session->routes);
    if (!session->groups || !session->routes)
        return error_set(err, STATUS_NOMEM, "%zu groups, %zu routes", plan->group_count, plan->route_count);
    st = session_build(session->session, plan->groups, plan->group_count, plan->routes, plan->route_count, err);
    for (size_t i = 0; i < plan->group_count && st == STATUS_OK; i++)
        session->groups[i] = (struct ferry_group){session, session_group(session->session, plan->groups[i].id)};
    for (size_t i = 0; i < plan->route_count && st == STATUS_OK; i++)
        session->routes[i] = (struct ferry_route){session, session_route(session->session, plan->routes[i].id), 0};
    return st;
}

/* Everything but the session of comm, which is closed. */
static void destroy(struct ferry_session *session)
{
    plan_destroy(session->plan);
    topology_destroy(session->topology);
    free(session->faults);
    free(session->groups);
    free(session->routes);
    unmark_process(session);
    free(session);
}

/* Without waiting for anybody. */
static void discard(struct ferry_session *session)
{
    if (session->session)
        (void)session_close(session->session, false, NULL);
    destroy(session);
}

enum ferry_status ferry_open(const char *topology, const struct ferry_options *options, struct ferry_session **ret,
                             struct ferry_error *error)
{
    static const struct ferry_options none = {.size = sizeof none};
    struct ferry_session *session = calloc(1, sizeof *session);
    const struct transport_ops *ops = NULL;
    struct error why = {0};
    struct error err = {0};
    enum status prepared;
    enum status st;

    if (!session)
        return ferry_result(NULL, error_set(&err, STATUS_NOMEM, "a session"), &err, error);
    mark_process(session);
    options = options ? options : &none;
    prepared = ret ? prepare(session, topology, options, &why) : error_set(&why, STATUS_INVALID, "ret is NULL");
    st = start(session, options, &ops, &err);
    if (st == STATUS_OK)
        st = agree(session, ops, topology, prepared, &why, &err);
    if (st == STATUS_OK) {
        st = build(session, &err);
        if (st == STATUS_OK)
            session_started(session->session);
        else
            session_fail(session->session, st, err.text);
    }
    if (st != STATUS_OK || !ret) { /* without ret the ranks have not agreed */
        enum ferry_status status = ferry_result(session, st, &err, error);

        discard(session);
        return status;
    }
    *ret = session;
    return FERRY_OK;
}

enum ferry_status ferry_close(struct ferry_session *session, struct ferry_error *error)
{
    struct error err = {0};
    enum ferry_status status;
    enum status st;

    status = session ? ferry_here(session, error) : FERRY_OK;
    if (!session || status != FERRY_OK)
        return status;
    st = session_check(session->session, &err);
    if (st == STATUS_OK)
        st = session_close(session->session, true, &err);
    if (st == STATUS_OK) {
        destroy(session);
        return FERRY_OK;
    }
    /* Quarantined work at the end is nobody's alone: the others wait for this rank. */
    session_fail(session->session, st, err.text);
    status = ferry_result(session, st, &err, error);
    discard(session);
    return status;
}

int ferry_rank(const struct ferry_session *session)
{
    return session ? session_rank(session->session) : -1;
}

int ferry_size(const struct ferry_session *session)
{
    return session ? session_size(session->session) : 0;
}

const char *ferry_transport(const struct ferry_session *session)
{
    return session ? session->transport : "";
}

/* AXIS_COUNT: no such axis. */
static int find_axis(const char *name)
{
    int axis = 0;

    while (axis < AXIS_COUNT && strcmp(axis_name((enum axis)axis), name) != 0)
        axis++;
    return axis;
}

int ferry_coordinate(const struct ferry_session *session, const char *axis)
{
    int found = axis ? find_axis(axis) : AXIS_COUNT;

    if (found == AXIS_COUNT || !session)
        return -1;
    /* Without a mesh the world is no axis. */
    return session->topology->mesh.at.line ? session->rank.at.at[found] : 0;
}

enum ferry_status ferry_progress(struct ferry_session *session, struct ferry_error *error)
{
    struct error err = {0};
    enum ferry_status given = GIVEN(error, NAMED(session));

    if (given == FERRY_OK)
        given = ferry_here(session, error);
    if (given != FERRY_OK)
        return given;
    session_progress(session->session);
    return ferry_result(session, session_check(session->session, &err), &err, error);
}

void ferry_phase(struct ferry_session *session, const char *phase)
{
    if (session && phase && ferry_here(session, NULL) == FERRY_OK)
        session_phase(session->session, phase);
}

void ferry_fail(struct ferry_session *session, enum ferry_status status, const char *why)
{
    enum status st = ferry_status_own(status);
    char line[FERRY_ERROR_BYTES];
    char text[FERRY_ERROR_BYTES + 64];

    if (!session || ferry_here(session, NULL) != FERRY_OK)
        return;
    ferry_line(line, sizeof line, why);
    if (st == STATUS_OK || (st == STATUS_INTERNAL && status != FERRY_INTERNAL)) {
        (void)snprintf(text, sizeof text, "ferry_fail with status %d, which is no failure: %s", (int)status, line);
        session_fail(session->session, STATUS_INTERNAL, text);
    } else {
        session_fail(session->session, st, line);
    }
}

typedef const char *name_at(const struct plan *plan, size_t index);

static const char *group_name_at(const struct plan *plan, size_t index)
{
    return plan->groups[index].name;
}

static const char *route_name_at(const struct plan *plan, size_t index)
{
    return plan->routes[index].name;
}

/* The index of the group or route of this name; for a name that is none the nearest of those that are. */
static enum status find(const struct plan *plan, const char *what, name_at *name_of, size_t count, const char *name,
                        size_t *ret, struct error *err)
{
    const char **names = NULL;
    const char *nearest = NULL;

    if (!*name)
        return error_set(err, STATUS_INVALID, "an empty name is no %s's; `ferry plan` lists those that there are",
                         what);
    for (*ret = 0; *ret < count; ++*ret) {
        if (!strcmp(name_of(plan, *ret), name))
            return STATUS_OK;
    }
    names = calloc(count + 1, sizeof *names);
    for (size_t i = 0; names && i < count; i++)
        names[i] = name_of(plan, i);
    nearest = names ? topology_nearest(name, names, count) : NULL;
    free(names);
    if (nearest)
        return error_set(err, STATUS_INVALID, "no %s is named %s; did you mean %s?", what, name, nearest);
    return error_set(err, STATUS_INVALID, "no %s is named %s; `ferry plan` lists those that there are", what, name);
}

enum ferry_status ferry_find_group(struct ferry_session *session, const char *name, struct ferry_group **ret,
                                   struct ferry_error *error)
{
    struct error err = {0};
    size_t found = 0;
    enum status st;
    enum ferry_status given = GIVEN(error, NAMED(session), NAMED(name), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    st = find(session->plan, "group", group_name_at, session->plan->group_count, name, &found, &err);
    if (st == STATUS_OK)
        *ret = &session->groups[found];
    return ferry_result(session, st, &err, error);
}

enum ferry_status ferry_find_route(struct ferry_session *session, const char *name, struct ferry_route **ret,
                                   struct ferry_error *error)
{
    struct error err = {0};
    size_t found = 0;
    enum status st;
    enum ferry_status given = GIVEN(error, NAMED(session), NAMED(name), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    st = find(session->plan, "route", route_name_at, session->plan->route_count, name, &found, &err);
    if (st == STATUS_OK)
        *ret = &session->routes[found];
    return ferry_result(session, st, &err, error);
}

enum ferry_status ferry_find_line(struct ferry_session *session, const char *axis, struct ferry_group **ret,
                                  struct ferry_error *error)
{
    uint32_t lines[AXIS_COUNT] = {0};
    struct error err = {0};
    enum status st = STATUS_OK;
    int found;
    enum ferry_status given = GIVEN(error, NAMED(session), NAMED(axis), NAMED(ret));

    if (given != FERRY_OK)
        return given;
    lines[AXIS_DATA] = session->rank.data_group;
    lines[AXIS_PIPELINE] = session->rank.pipeline_group;
    lines[AXIS_TENSOR] = session->rank.tensor_group;
    lines[AXIS_EXPERT] = session->rank.expert_group;
    found = find_axis(axis);
    if (found == AXIS_COUNT)
        st = error_set(&err, STATUS_INVALID, "%s is no axis: data, pipeline, tensor or expert", axis);
    else if (!lines[found])
        st = error_set(&err, STATUS_INVALID, "the mesh has no groups along %s: its size is 1", axis);
    else
        *ret = &session->groups[lines[found] - 1]; /* ids are dense from 1 over the groups */
    return ferry_result(session, st, &err, error);
}
