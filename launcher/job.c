/* The order of everything: topology, plan, consensus, groups and routes, weights, generation, close.
 *
 * Everything local is done before the consensus and its failure carried into it, so that no rank ever leaves alone
 * while others wait for it.  After the consensus a failure poisons the session and is settled there. */
#include "launcher/job.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/cpu/cpu.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "comm/control.h"
#include "launcher/command_line.h"
#include "launcher/interfaces.h"
#include "launcher/job_private.h"
#include "launcher/keeper.h"
#include "launcher/model.h"
#include "launcher/printer.h"
#include "launcher/watchdog.h"
#include "runtime/compute.h"
#include "runtime/facts.h"
#include "runtime/generate.h"
#include "runtime/tokenizer.h"
#include "runtime/weights.h"
#include "runtime/wishes.h"
#include "topology/topology.h"

#define LEAVE_NS (5 * NS_PER_S)

#define CLOSE_GRACE_NS (2 * NS_PER_S) /* who waits at the end names a silent rank first */
#define DEFAULT_STARTUP_NS (600 * NS_PER_S)

static uint64_t startup_timeout(const struct job *job)
{
    return job->topology ? job->topology->communication.startup_timeout_ns.value : DEFAULT_STARTUP_NS;
}

/* A rank alone keeps nobody waiting while it is stopped. */
static void limit_stop(struct job *job, uint64_t limit_ns, uint64_t grace_ns)
{
    if (job->starter.size > 1)
        keeper_set_limit(job->keeper, limit_ns, grace_ns);
}

void job_enter(struct job *job, const char *phase)
{
    limit_stop(job, startup_timeout(job), KEEPER_GRACE_NS);
    watchdog_arm(job->watchdog, clock_ns() + startup_timeout(job) + LEAVE_NS, phase, "communication.startup_timeout");
    if (job->session)
        session_phase(job->session, phase);
}

static enum status load_topology(struct job *job, struct error *err)
{
    struct text messages = {0};
    enum status st = topology_load(job->options->topology, job->options->set, job->options->set_count, &job->topology,
                                   &messages, err);

    if (st == STATUS_TOPOLOGY && messages.length)
        error_set(err, st, "%s", text_string(&messages));
    text_done(&messages);
    return st;
}

/* What the command can work on. */
static enum status accept(const struct topology *topology, const struct job_task *task, struct error *err)
{
    if (!task && !topology->workload.generate.at.line)
        return error_set(err, STATUS_TOPOLOGY,
                         "this topology has no workload.generate: nothing to run.  Its groups and routes are for a "
                         "program; look at them with `ferry plan`, try them with `ferry check`");
    return wishes_check(topology, err);
}

static enum status open_model(struct job *job, struct error *err)
{
    enum status st;

    if (!job->topology->workload.generate.at.line)
        return STATUS_OK;
    st = model_open(job->topology, &job->checkpoint, err);
    if (st == STATUS_OK && !job->task && checkpoint_is_saved(job->checkpoint))
        st = error_set(err, STATUS_MODEL, "%s is the saved description of a model: it can be planned with, not run",
                       checkpoint_path(job->checkpoint));
    if (st == STATUS_OK && !job->task && !checkpoint_has_weights(job->checkpoint))
        st = error_set(err, STATUS_MODEL, "%s holds no weights: only its configuration is there",
                       checkpoint_path(job->checkpoint));
    return st;
}

static enum status prepare(struct job *job, struct error *err)
{
    enum status st = load_topology(job, err);

    if (st == STATUS_OK)
        st = accept(job->topology, job->task, err);
    if (st == STATUS_OK)
        st = open_model(job, err);
    if (st == STATUS_OK && job->topology->communication.interface.value)
        st = interfaces_check(job->topology->communication.interface.value, err);
    if (st == STATUS_OK)
        st = plan_create(job->topology, job->checkpoint, &job->plan, err);
    return st;
}

static void set_tag(struct job *job, int rank, int size)
{
    if (job->plan && size == job->plan->mesh.world)
        (void)snprintf(job->tag, sizeof job->tag, "rank %d/%d stage %d", rank, size, job->rank.at.at[AXIS_PIPELINE]);
    else
        (void)snprintf(job->tag, sizeof job->tag, "rank %d/%d", rank, size);
    log_set_tag(job->tag);
}

static void overstayed(void *keeper, const char *text)
{
    keeper_last_words(keeper, STATUS_TIMEOUT, text);
}

/* In a signal's handler. */
static void file_was_cut(void *keeper, const char *line)
{
    keeper_last_words(keeper, STATUS_STORAGE, line);
}

/* Never fails for what is wrong with the job: that goes into the consensus. */
static enum status create(const struct run_options *options, const struct job_task *task, struct keeper *keeper,
                          struct job **ret, struct error *err)
{
    struct job *job = calloc(1, sizeof *job);
    enum status st;

    if (!job)
        return error_set(err, STATUS_NOMEM, "a job");
    job->options = options;
    job->task = task;
    job->keeper = keeper;
    starter_read(&job->starter);
    if (job->starter.rank >= 0 && job->starter.size > 1)
        set_tag(job, job->starter.rank, job->starter.size);
    st = watchdog_create(&job->watchdog, err);
    if (st != STATUS_OK) {
        free(job);
        return st;
    }
    watchdog_speak(job->watchdog, overstayed, keeper);
    checkpoint_catch_sigbus(file_was_cut, keeper);
    job->prepared = prepare(job, &job->why);
    *ret = job;
    return STATUS_OK;
}

static void note(struct job *job, enum status st, const struct error *err)
{
    if (st == STATUS_OK || job->prepared != STATUS_OK)
        return;
    job->prepared = st;
    job->why = *err;
}

/* The folder of this run; a second call with the same id changes nothing.  Rank 0 makes it this job's alone. */
static enum status make_run_dir(struct job *job, const char *id, int rank, int size, struct error *err)
{
    struct text below = {0};
    struct text path = {0};
    enum status st;

    if (!job->topology || !job->topology->run_dir.value || !strcmp(job->run_id, id))
        return STATUS_OK;
    (void)snprintf(job->run_id, sizeof job->run_id, "%s", id);
    topology_path(job->topology, job->topology->run_dir.value, &below);
    st = run_folder_make(text_string(&below), job->topology->name.value, id, &path, err);
    if (st == STATUS_OK && rank == 0)
        st = run_folder_claim(text_string(&path), run_job_name(), err);
    text_done(&below);
    text_done(&job->run_dir);
    if (st != STATUS_OK)
        text_done(&path);
    job->run_dir = path;
    if (st == STATUS_OK)
        keeper_set_run(job->keeper, text_string(&job->run_dir), rank, size);
    return st;
}

static bool explain_start(void *context, struct text *out)
{
    const struct job *job = context;
    bool speaks = roll_call_missing(&job->roll_call, out);

    if (job->prepared != STATUS_OK)
        text_add(out, "; and this rank could not run: %s", job->why.text);
    return speaks;
}

/* Then rank 0 will be refused; nothing of this job may be written there meanwhile. */
static bool is_others(const struct job *job, const char *id, int rank)
{
    struct text below = {0};
    struct text path = {0};
    bool others = false;

    if (rank == 0 || !job->topology || !job->topology->run_dir.value)
        return false;
    topology_path(job->topology, job->topology->run_dir.value, &below);
    if (run_folder_make(text_string(&below), job->topology->name.value, id, &path, NULL) == STATUS_OK)
        others = run_folder_is_others(text_string(&path), run_job_name());
    text_done(&below);
    text_done(&path);
    return others;
}

/* Before MPI: where all ranks already share a folder, say that this one has come. */
static void answer_roll_call(struct job *job)
{
    const struct starter *starter = &job->starter;
    struct error problem = {0};
    char id[RUN_ID_BYTES];
    enum status st;

    if (starter->rank < 0 || starter->size < 2)
        return;
    st = run_id_given(id, &problem);
    if (st == STATUS_OK && *id && !is_others(job, id, starter->rank))
        st = make_run_dir(job, id, starter->rank, starter->size, &problem);
    note(job, st, &problem);
    if (st != STATUS_OK || !job->run_dir.length)
        return;
    roll_call_answer(&job->roll_call, text_string(&job->run_dir), starter);
    watchdog_ask(job->watchdog, explain_start, job);
}

static struct transport_options transport_options(const struct job *job)
{
    struct transport_options options = {.startup_timeout_ns = startup_timeout(job)};

    if (!job->topology)
        return options;
    if (job->prepared == STATUS_OK) /* with a wrong one MPI would not even start to tell of it */
        options.interface = job->topology->communication.interface.value;
    options.timeout_ns = job->topology->communication.timeout_ns.value;
    return options;
}

/* MPI that cannot start ends the process by itself, with a code of its own.  Of several ranks those that wait for one
 * that has died end so, too, and know nothing of the cause: there the starter tells. */
static void foresee_end(struct job *job)
{
    static const char said[] = "MPI ended this process while it started: its own lines above say why";
    struct text text = {0};

    if (job->starter.rank >= 0)
        return;
    if (job->prepared == STATUS_OK)
        text_add(&text, "%s", said);
    else
        text_add(&text, "%s; besides, %s", job->why.text, said);
    keeper_foresee(job->keeper, job->prepared == STATUS_OK ? STATUS_ENVIRONMENT : job->prepared, text_string(&text));
    text_done(&text);
}

static enum status start_transport(struct job *job, struct error *err)
{
    const struct transport_options options = transport_options(job);
    enum status st;

    job_enter(job, "MPI start");
    limit_stop(job, startup_timeout(job), 0); /* inside MPI_Init nobody can name a stopped rank: its keeper does */
    answer_roll_call(job);
    foresee_end(job);
    st = wire_start(&job->wire, &options, err);
    keeper_foresee(job->keeper, STATUS_OK, "");
    watchdog_ask(job->watchdog, NULL, NULL);
    roll_call_end(&job->roll_call);
    return st;
}

/* The world that MPI built against the one that the topology needs. */
static void check_world(struct job *job, int size)
{
    struct error err = {0};
    struct text command = {0};
    int world = job->topology ? (int)job->topology->world_size : 0;

    command_line_add(&command, world, job->task ? job->task->name : "run", job->options->topology, job->options->set,
                     job->options->set_count);
    note(job, starter_check(&job->starter, size, world, text_string(&command), &err), &err);
    text_done(&command);
}

/* A rehearsal that cannot happen would pass for one that was survived. */
static enum status check_faults(const struct run_options *options, int size, struct error *err)
{
    for (int i = 0; i < options->fault_count; i++) {
        if (options->fault[i].rank >= size)
            return error_set(err, STATUS_USAGE, "--fault rank=%d: the job's ranks are 0 to %d", options->fault[i].rank,
                             size - 1);
    }
    return STATUS_OK;
}

/* MPI alone, or NCCL over it.  Ranks that could not be prepared take part, so that nobody waits for them. */
static enum status choose_transport(struct job *job, struct error *err)
{
    const struct transport_options options = transport_options(job);
    enum status st;

    job_enter(job, "choosing the transport");
    st = wire_choose(&job->wire, job->prepared == STATUS_OK ? job->topology : NULL, &options, err);
    if (st == STATUS_OK)
        note(job, job->wire.problem, &job->wire.complaint);
    return st;
}

/* Rank 0 reads and encodes the prompts. */
static enum status read_prompts(struct job *job, struct error *err)
{
    enum status st;

    job_enter(job, "reading the prompts"); /* standard input may never end */
    st = tokenizer_open(job->checkpoint, &job->tokenizer, err);
    if (st == STATUS_OK)
        st = prompts_read(job->topology, job->checkpoint, job->tokenizer, job->plan->context, &job->prompts, err);
    return st;
}

/* Rank 0 chooses the folder before the others hear of it: "" is none, since it cannot be had. */
static void open_run_dir(struct job *job, char *id, int rank, int size)
{
    struct error problem = {0};
    enum status st;

    memset(id, 0, RUN_ID_BYTES);
    if (rank)
        return;
    st = run_id_choose(id, &problem);
    if (st == STATUS_OK)
        st = make_run_dir(job, id, rank, size, &problem);
    note(job, st, &problem);
    if (st != STATUS_OK || (job->run_id[0] && !job->run_dir.length))
        memset(id, 0, RUN_ID_BYTES);
}

static enum status agree(struct job *job, struct error *err)
{
    const struct wire *wire = &job->wire;
    int rank = wire->ops->rank(wire->transport);
    int size = wire->ops->size(wire->transport);
    char id[RUN_ID_BYTES];
    struct error problem = {0};
    enum status st;

    check_world(job, size);
    note(job, check_faults(job->options, size, &problem), &problem);
    open_run_dir(job, id, rank, size);
    st = run_id_agree(wire->ops, wire->transport, clock_ns() + startup_timeout(job), id, err);
    if (st != STATUS_OK)
        return st;
    if (job->prepared == STATUS_OK)
        plan_rank(job->plan, rank, &job->rank);
    set_tag(job, rank, size);
    if (job->prepared == STATUS_OK && rank == 0 && !job->task)
        note(job, read_prompts(job, &problem), &problem);
    if (rank && *id)
        note(job, make_run_dir(job, id, rank, size, &problem), &problem);
    st = choose_transport(job, err);
    if (st == STATUS_OK)
        st = job_open_session(job, err);
    if (st != STATUS_OK)
        return st;
    job_enter(job, "consensus");
    return job_consensus(job, err);
}

static bool begins(const char *line, const char *word)
{
    return !strncmp(line, word, strlen(word));
}

static const char named[] = "transport ";

/* Why this one: what was weighed names it by itself. */
static void print_transport(const struct job *job)
{
    if (begins(job->wire.why, named))
        log_info("%s", job->wire.why);
    else
        log_info("%s%s: %s", named, job->wire.ops->name, job->wire.why);
}

/* What a person should know about this run, warnings among it; what only `ferry plan` leaves unchecked is left out, and
 * its word on the transport, which is said. */
static void print_notes(const struct job *job)
{
    static const char warning[] = "warning: ";
    static const char unchecked[] = "not checked: ";
    const char *line = text_string(&job->plan->verdict);

    if (job->topology->communication.transport.value == TOPOLOGY_TRANSPORT_AUTO ||
        job->topology->communication.memory.value == TOPOLOGY_MEMORY_DEVICE)
        print_transport(job);
    while (*line) {
        int length = (int)strcspn(line, "\n");

        if (begins(line, warning))
            log_warning("%.*s", length - (int)strlen(warning), line + strlen(warning));
        else if (length && !begins(line, unchecked) && !begins(line, named))
            log_info("%.*s", length, line);
        line += length + (line[length] == '\n');
    }
}

/* From here on the session's timeout rule holds. */
void job_begin(struct job *job)
{
    watchdog_disarm(job->watchdog);
    limit_stop(job, job->topology->communication.timeout_ns.value, KEEPER_GRACE_NS);
}

/* The calls of comm are ours here: an argument that breaks their contract is no usage of the user's. */
static enum status own_mistake(enum status st, struct error *err)
{
    return st == STATUS_INVALID ? error_wrap(err, STATUS_INTERNAL, "a mistake of Ferry itself, please report") : st;
}

/* What the job is there for, between the consensus and the close. */
static enum status work(struct job *job, struct error *err)
{
    const struct job_view view = {.topology = job->topology,
                                  .plan = job->plan,
                                  .rank = &job->rank,
                                  .session = job->session,
                                  .ops = job->wire.ops,
                                  .checkpoint = job->checkpoint,
                                  .transport = job->wire.about,
                                  .chosen = job->wire.why,
                                  .memory = wire_memory(&job->wire),
                                  .shared = wire_shared(&job->wire),
                                  .plugin = job->wire.plugin,
                                  .devices = job->wire.devices,
                                  .device = job->wire.device,
                                  .threads = job_threads(job),
                                  .watchdog = job->watchdog};

    job_enter(job, "building");
    if (!job->task)
        return job_generate(job, err);
    job_begin(job);
    return job->task->run(job->task->context, &view, err);
}

static void release(struct job *job)
{
    generation_destroy(job->generation);
    printer_destroy(job->printer);
    weights_unload(job->weights);
    if (job->compute)
        cpu_compute.close(job->compute);
    wire_end(&job->wire);
    prompts_done(&job->prompts);
    tokenizer_close(job->tokenizer);
    plan_destroy(job->plan);
    checkpoint_close(job->checkpoint);
    topology_destroy(job->topology);
    text_done(&job->run_dir);
}

/* Rank 0, before any rank may leave: the first to end with a code other than 0 makes mpirun end the others. */
static void tell_failures(const struct job *job)
{
    struct error why = {0};
    enum status st = job->printer ? printer_failures(job->printer, &why) : STATUS_OK;

    if (st != STATUS_OK)
        log_error("%s: %s", status_name(st), why.text);
}

/* All ranks have closed.  Where prompts failed each ends with the same code. */
static enum status end_well(struct job *job, struct error *err)
{
    job->session = NULL;
    job->closed = true;
    return job->incomplete ? error_set(err, STATUS_MODEL, "prompts failed") : STATUS_OK;
}

static void enter_close(struct job *job)
{
    job_enter(job, "closing");
    limit_stop(job, job->topology->communication.timeout_ns.value, CLOSE_GRACE_NS);
}

static enum status run(struct job *job, struct error *err)
{
    bool speaker = false;
    enum status st = start_transport(job, err);

    if (st == STATUS_OK)
        st = agree(job, err);
    if (st == STATUS_OK && job->rank.rank == 0 && !job->options->quiet && !job->task)
        print_notes(job);
    if (st == STATUS_OK)
        job_check_shared(job);
    if (st == STATUS_OK)
        st = work(job, err);
    if (st == STATUS_OK) {
        tell_failures(job);
        enter_close(job);
        st = session_close(job->session, true, err);
    }
    if (st == STATUS_OK)
        return end_well(job, err);
    st = own_mistake(st, err);
    if (!job->session) {
        keeper_last_words(job->keeper, st, err->text);
    } else {
        watchdog_leave(job->watchdog, LEAVE_NS + LEAVE_NS, status_exit_code(st));
        session_fail(job->session, st, err->text);
        st = session_settle(job->session, err, &speaker);
    }
    return st;
}

/* The exit code; after a failure the process leaves within a few seconds whatever hangs. */
static int leave(struct job *job, enum status st)
{
    struct error ignored = {0};

    if (job->closed) {
        release(job);
        watchdog_destroy(job->watchdog);
        free(job);
        return status_exit_code(st);
    }
    watchdog_leave(job->watchdog, LEAVE_NS, status_exit_code(st));
    if (job->session)
        (void)session_close(job->session, false, &ignored);
    return status_exit_code(st);
}

int job_live(const struct run_options *options, const struct job_task *task, struct keeper *keeper)
{
    struct error err = {0};
    struct job *job = NULL;
    enum status st;

    st = create(options, task, keeper, &job, &err);
    if (st != STATUS_OK) {
        keeper_last_words(keeper, st, err.text);
        return status_exit_code(st);
    }
    return leave(job, run(job, &err));
}
