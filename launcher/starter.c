/* mpirun, mpiexec and srun each say rank and size in variables of their own.  When these say more than one process and
 * MPI says one, MPI did not recognise its starter: every process is a world of its own, and N copies of the job would
 * run side by side and overwrite each other's results. */
#include "launcher/starter.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

static const struct {
    enum starter_kind kind;
    const char *name;
    const char *rank;
    const char *size;
    const char *local_rank;
    const char *local_size;
} known[] = {
    {STARTER_OPENMPI, "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {STARTER_HYDRA, "mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {STARTER_SLURM, "srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

enum { MAX_CPUS = 1 << 20 };

#define YIELD_NS (1500 * NS_PER_MS) /* what a starter needs to end the other ranks */

/* The variable as a number, or -1. */
static int number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long value;

    if (!text || *text < '0' || *text > '9')
        return -1;
    value = strtol(text, &end, 10);
    return *end || value > INT_MAX ? -1 : (int)value;
}

/* A batch script itself also has SLURM_PROCID: only a step of srun (not the batch step) is one of several tasks. */
static bool present(int i)
{
    const char *step = getenv("SLURM_STEP_ID");

    if (number(known[i].rank) < 0)
        return false;
    return known[i].kind != STARTER_SLURM || (step && number("SLURM_STEP_NUM_TASKS") > 0);
}

void starter_read(struct starter *ret)
{
    *ret = (struct starter){.kind = STARTER_NONE, .rank = -1, .size = -1, .local_rank = -1, .local_size = -1};
    ret->pmix = getenv("PMIX_NAMESPACE") != NULL && getenv("PMIX_RANK") != NULL;
    (void)gethostname(ret->host, sizeof ret->host - 1);
    for (size_t i = 0; i < sizeof known / sizeof known[0] && ret->kind == STARTER_NONE; i++) {
        if (!present((int)i))
            continue;
        ret->kind = known[i].kind;
        ret->rank = number(known[i].rank);
        ret->size = number(ret->kind == STARTER_SLURM ? "SLURM_STEP_NUM_TASKS" : known[i].size);
        ret->local_rank = number(known[i].local_rank);
        ret->local_size = number(known[i].local_size);
    }
    if (ret->rank < 0)
        ret->rank = number("PMIX_RANK");
}

bool starter_speaks(void)
{
    struct starter starter;

    starter_read(&starter);
    return starter.rank <= 0;
}

void starter_yield(void)
{
    if (!starter_speaks())
        clock_sleep_ns(YIELD_NS);
}

/* The kernel refuses a set that is smaller than its own, and does not say how large that is. */
int starter_cores(affinity_get *get)
{
    int count = 1;
    bool larger = true;

    for (int cpus = CPU_SETSIZE; larger && cpus <= MAX_CPUS; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);

        if (!set)
            break;
        CPU_ZERO_S(bytes, set);
        larger = get(0, bytes, set) != 0;
        if (!larger)
            count = CPU_COUNT_S(bytes, set);
        else if (errno != EINVAL)
            larger = false;
        CPU_FREE(set);
    }
    return count > 1 ? count : 1;
}

static const char *starter_word(enum starter_kind kind)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].kind == kind)
            return known[i].name;
    }
    return "nobody";
}

static enum status singletons(const struct starter *starter, const char *command, struct error *err)
{
    if (starter->kind == STARTER_SLURM && !starter->pmix)
        return error_set(err, STATUS_ENVIRONMENT,
                         "srun started %d tasks without PMIx, so each of them is an MPI world of its own: use srun "
                         "--mpi=pmix (srun --mpi=list shows what is there), or %s",
                         starter->size, command);
    return error_set(err, STATUS_ENVIRONMENT,
                     "%s started %d processes, but each of them is an MPI world of its own: it belongs to another MPI "
                     "than the plugin; start with that MPI's mpirun: %s",
                     starter_word(starter->kind), starter->size, command);
}

enum status starter_check(const struct starter *starter, int mpi_size, int world, const char *command,
                          struct error *err)
{
    if (mpi_size == 1 && starter->size > 1)
        return singletons(starter, command, err);
    if (world > 0 && world != mpi_size)
        return error_set(err, STATUS_TOPOLOGY, "the topology has %d rank%s, but %d process%s started: %s", world,
                         world == 1 ? "" : "s", mpi_size, mpi_size == 1 ? " was" : "es were", command);
    return STATUS_OK;
}
