/* The keeper forks here, before any thread and before MPI; the worker below is the rank's whole life. */
#include "launcher/run_command.h"

#include <signal.h>

#include "base/log.h"
#include "launcher/job.h"
#include "launcher/keeper.h"
#include "launcher/run_options.h"

static int worker(void *context, struct keeper *keeper)
{
    struct error err = {0};
    struct job *job = NULL;
    enum status st;

    (void)signal(SIGPIPE, SIG_IGN); /* who reads has gone: a failed write, which every writer answers, no dead rank */
    st = job_create(context, NULL, keeper, &job, &err);
    if (st != STATUS_OK) {
        log_error("%s: %s", status_name(st), err.text);
        return status_exit_code(st);
    }
    st = job_run(job, &err);
    if (st != STATUS_OK && job_speaks(job))
        log_error("%s: %s", status_name(st), err.text);
    return job_leave(job, st);
}

int run_command(int argc, char **argv)
{
    struct run_options options = {0};
    int code = run_options_parse(argc, argv, &options);

    return code >= 0 ? code : keeper_run(worker, &options);
}
