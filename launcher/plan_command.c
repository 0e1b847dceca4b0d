/* Topology, model's metadata, plan, text; nothing here needs MPI or more than the model's description. */
#include "launcher/plan_command.h"

#include <sched.h>
#include <stdio.h>

#include "base/fit.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "launcher/command_line.h"
#include "launcher/model.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/starter.h"
#include "runtime/plan.h"
#include "topology/topology.h"

struct planning {
    struct topology *topology;
    struct checkpoint *checkpoint;
    struct plan *plan;
    struct text messages; /* errors of the file, each with its line */
};

/* The topology's own model may be absent here (this may be a laptop); one that is asked for by name may not. */
static enum status open_model(const struct plan_options *options, struct planning *planning, struct error *err)
{
    const struct topology_generate *generate = &planning->topology->workload.generate;

    if (!generate->at.line && options->model)
        return error_set(err, STATUS_USAGE, "--model %s: the topology has no workload that uses a model",
                         options->model);
    if (options->model)
        return checkpoint_open(options->model, &planning->checkpoint, err);
    if (!generate->at.line || !model_is_here(planning->topology))
        return STATUS_OK;
    return model_open(planning->topology, &planning->checkpoint, err);
}

static enum status make_plan(const struct plan_options *options, struct planning *planning, struct error *err)
{
    enum status st = topology_load(options->topology, options->set, options->set_count, &planning->topology,
                                   &planning->messages, err);

    if (st == STATUS_OK)
        st = open_model(options, planning, err);
    if (st != STATUS_OK)
        return st;
    st = plan_create(planning->topology, planning->checkpoint, &planning->plan, err);
    if (st == STATUS_TOPOLOGY)
        (void)topology_report(planning->topology, &planning->messages, NULL);
    if (st == STATUS_OK)
        st = plan_check_prompts(planning->plan, planning->checkpoint, err);
    if (st == STATUS_OK && options->rank >= planning->plan->mesh.world)
        st = error_set(err, STATUS_USAGE, "--rank %d: the world has %d ranks, 0 to %d", options->rank,
                       planning->plan->mesh.world, planning->plan->mesh.world - 1);
    return st;
}

/* Whether all ranks would fit on this machine; pages of a mapped file that ranks share are counted for each. */
static void add_memory(const struct planning *planning, struct text *out)
{
    const struct plan *plan = planning->plan;
    struct memory_space here = memory_here();
    uint64_t sum = 0;

    if (!plan->model || planning->topology->launch.hosts.count)
        return;
    for (int r = 0; r < plan->mesh.world; r++) {
        struct rank_plan rank;

        plan_rank(plan, r, &rank);
        if (__builtin_add_overflow(sum, rank.weight_bytes, &sum) || __builtin_add_overflow(sum, rank.state_bytes, &sum))
            sum = UINT64_MAX;
    }
    text_add(out, "\nmemory     all ranks on this machine: at most ");
    text_add_size(out, sum);
    if (here.available != MEMORY_UNKNOWN) {
        text_add(out, ", available ");
        text_add_size(out, here.available);
    }
    text_add(out, ": %s\n", fit_name(would_fit(sum, here)));
}

/* What starts this job by hand. */
static void add_launch(const struct plan_options *options, const struct planning *planning, struct text *out)
{
    const struct topology *topology = planning->topology;
    const struct topology_strings *program = &topology->launch.program;
    int world = planning->plan->mesh.world;
    int cores = starter_cores(sched_getaffinity);

    text_add(out, "\nlaunch     ");
    if (topology->workload.at.line && !program->count) {
        command_line_add(out, world, "run", options->topology, options->set, options->set_count);
    } else if (program->count) {
        text_add(out, "mpirun -n %d ", world);
        for (size_t i = 0; i < program->count; i++) {
            text_add(out, "%s", i ? " " : "");
            output_add_word(out, program->item[i].value);
        }
    } else {
        text_add(out, "mpirun -n %d PROGRAM, one that links libferry and opens %s", world, options->topology);
    }
    text_add(out, "\n");
    if (world > cores && !topology->launch.hosts.count)
        text_add(out, "           here, with %d core%s, mpirun --oversubscribe\n", cores, cores == 1 ? "" : "s");
}

static enum status show(const struct plan_options *options, const struct planning *planning, struct error *err)
{
    struct text out = {0};
    enum status st;

    if (options->json) {
        plan_json(planning->plan, &out);
    } else if (options->rank >= 0) {
        plan_rank_tree(planning->plan, options->rank, &out);
    } else {
        plan_tree(planning->plan, &out);
        add_memory(planning, &out);
        add_launch(options, planning, &out);
    }
    st = output_write(&out, err);
    text_done(&out);
    return st;
}

int plan_command(int argc, char **argv)
{
    struct plan_options options = {0};
    struct planning planning = {0};
    struct error err = {0};
    int code = plan_options_parse(argc, argv, &options);
    enum status st;

    if (code >= 0)
        return code;
    st = make_plan(&options, &planning, &err);
    if (st == STATUS_OK)
        st = show(&options, &planning, &err);
    if (planning.messages.length)
        (void)fputs(text_string(&planning.messages), stderr);
    else if (st != STATUS_OK)
        log_error("%s: %s", status_name(st), err.text);
    plan_destroy(planning.plan);
    checkpoint_close(planning.checkpoint);
    topology_destroy(planning.topology);
    text_done(&planning.messages);
    return status_exit_code(st);
}
