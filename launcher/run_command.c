/* The keeper forks here, before any thread and before MPI; the worker below is the rank's whole life. */
#include "launcher/run_command.h"

#include "launcher/job.h"
#include "launcher/keeper.h"
#include "launcher/run_options.h"

static int worker(void *context, struct keeper *keeper)
{
    return job_live(context, NULL, keeper);
}

int run_command(int argc, char **argv)
{
    struct run_options options = {0};
    int code = run_options_parse(argc, argv, &options);

    return code >= 0 ? code : keeper_run(worker, &options);
}
