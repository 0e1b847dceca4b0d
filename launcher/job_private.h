/* The inside of a job, for job.c, job_session.c and job_generation.c. */
#ifndef LAUNCHER_JOB_PRIVATE_H
#define LAUNCHER_JOB_PRIVATE_H

#include <stdbool.h>

#include "base/text.h"
#include "comm/session.h"
#include "launcher/job.h"
#include "launcher/roll_call.h"
#include "launcher/run_folder.h"
#include "launcher/run_options.h"
#include "launcher/starter.h"
#include "runtime/plan.h"
#include "runtime/prompts.h"
#include "runtime/wire.h"

struct checkpoint;
struct compute;
struct generation;
struct printer;
struct shuttle;
struct tokenizer;
struct topology;
struct watchdog;
struct weights;

struct job {
    const struct run_options *options;
    const struct job_task *task; /* NULL: generate */
    struct keeper *keeper;
    struct watchdog *watchdog;
    char tag[64]; /* "rank 3/8 stage 1" */
    struct starter starter;
    struct roll_call roll_call;

    enum status prepared; /* of everything local; its sentence is in why */
    struct error why;
    struct topology *topology;
    struct checkpoint *checkpoint;
    struct tokenizer *tokenizer; /* rank 0 */
    struct prompts prompts;
    struct plan *plan;
    struct rank_plan rank;
    struct text run_dir; /* of this run; empty: none */
    char run_id[RUN_ID_BYTES];

    struct wire wire; /* its transport until the session takes it */
    struct session *session;
    bool closed;     /* the session ended well, on every rank */
    bool incomplete; /* prompts failed, which ended none of the ranks: known to all of them */

    struct compute *compute;
    int threads;
    struct weights *weights;
    uint64_t load_ns;
    struct shuttle *shuttle; /* to the device of the wire; NULL: none */
    struct generation *generation;
    struct printer *printer;
};

/* A phase begins, by this name in causes and for the doctor.  Local. */
void job_enter(struct job *job, const char *phase);

/* From here on the session's timeout rule holds, startup_timeout no more.  Local. */
void job_begin(struct job *job);

/* The session over the wire's transport, which it takes.  Collective over the world; statuses of session_create. */
enum status job_open_session(struct job *job, struct error *err);

/* The consensus over what this rank was told, its own failure included.  Collective over the world; blocks.  Statuses
 * of facts_agree: the same on every rank. */
enum status job_consensus(struct job *job, struct error *err);

/* What the doctor and the keepers need is one folder for all hosts; a host that has its own is told of once.  Local. */
void job_check_shared(const struct job *job);

/* Threads of this rank: what the topology says, else its share of the cores that it may run on; at least 1. */
int job_threads(const struct job *job);

/* Build groups and routes, load, generate, gather the summary, which rank 0 prints.  Collective over the world; blocks
 * by the session's timeout rule.  Every status of session_build, weights_load and generation_run. */
enum status job_generate(struct job *job, struct error *err);

#endif
