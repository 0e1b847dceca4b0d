/* One rank's run of a topology, from the file to the last token. */
#ifndef LAUNCHER_JOB_H
#define LAUNCHER_JOB_H

#include <stdbool.h>

#include "base/status.h"

struct cause;
struct checkpoint;
struct device;
struct device_ops;
struct keeper;
struct plan;
struct rank_plan;
struct run_options;
struct session;
struct topology;
struct transport_ops;
struct watchdog;

/* What a task is lent while it runs. */
struct job_view {
    const struct topology *topology;
    const struct plan *plan;
    const struct rank_plan *rank;
    struct session *session;
    const struct transport_ops *ops;
    const struct checkpoint *checkpoint; /* the workload's model, perhaps without weights; NULL: no workload */
    const char *transport;               /* how it describes itself */
    const char *chosen;                  /* why this one */
    const char *memory;                  /* where tensors lie: wire_memory */
    const char *plugin;                  /* the file that it comes from */
    const struct device_ops *devices;
    struct device *device;     /* that this rank works on; NULL: none */
    struct memory *shared;     /* where host tensors lie: wire_shared */
    int threads;               /* that this rank may use */
    struct watchdog *watchdog; /* disarmed */
};

/* Another purpose of a job than generating: the topology needs no workload, and a model no weights. */
struct job_task {
    const char *name; /* the command: "check" */
    /* On every rank, after the consensus and before the close.  It builds the session's groups and routes itself, the
     * plan's or its own.  Collective; blocks.  On failure the job settles the cause. */
    enum status (*run)(void *context, const struct job_view *view, struct error *err);
    /* The session has failed, this rank speaks for all and has printed the cause: what there is to add.  Called while
     * the others still wait, after run has returned: the view has ended, what it points to has not.  NULL: nothing. */
    void (*told)(void *context, const struct cause *cause);
    void *context;
};

/* A worker's whole life: read the topology, plan, open the model; start MPI, agree, build, load, generate, print, or
 * run the task (NULL: generate); leave.  A bad file on one rank strands nobody: what fails before MPI is this rank's
 * part of the consensus.  Collective over the world; blocks.  Borrows options and task.  Returns the exit code; a
 * failure has been told by one rank, or its keeper will. */
int job_live(const struct run_options *options, const struct job_task *task, struct keeper *keeper);

#endif
