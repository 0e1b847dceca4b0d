/* One rank's run of a topology, from the file to the last token. */
#ifndef LAUNCHER_JOB_H
#define LAUNCHER_JOB_H

#include <stdbool.h>

#include "base/status.h"

struct keeper;
struct run_options;
struct job;

/* Read the topology, plan, open the model; nothing is sent yet.  Never fails: what went wrong here is this rank's part
 * of the consensus, so that a bad file on one rank strands nobody. */
enum status job_create(const struct run_options *options, struct keeper *keeper, struct job **ret, struct error *err);

/* Start MPI, agree, build, load, generate, print.  Collective over the world; blocks.  On failure err is the cause that
 * every rank holds. */
enum status job_run(struct job *job, struct error *err);

/* After a failure: has the cause still to be printed?  Of a failure that all ranks have settled on, one has done it. */
bool job_speaks(const struct job *job);

/* The exit code; after a failure the process leaves within a few seconds whatever hangs. */
int job_leave(struct job *job, enum status st);

#endif
