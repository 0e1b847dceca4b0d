/* Who started this process, read from the variables of mpirun, mpiexec and srun before MPI is up. */
#ifndef LAUNCHER_STARTER_H
#define LAUNCHER_STARTER_H

#include <sched.h>
#include <stdbool.h>

#include "base/status.h"

enum starter_kind { STARTER_NONE, STARTER_OPENMPI, STARTER_HYDRA, STARTER_SLURM };

struct starter {
    enum starter_kind kind;
    int rank;       /* -1: unknown */
    int size;       /* of the world as the starter sees it; -1: unknown */
    int local_rank; /* on this host; -1: unknown */
    int local_size;
    bool pmix; /* a PMIx server is there for this process */
    char host[64];
};

/* Read the environment.  Local, never fails. */
void starter_read(struct starter *ret);

/* Is this the process that speaks where all ranks would say the same (--help)?  Rank 0, or one that has
 * no rank. */
bool starter_speaks(void);

/* Let rank 0 say first what all ranks may have to say: its end ends the job, this process too.  Comes back after a
 * moment on a rank that is still wanted, at once where starter_speaks. */
void starter_yield(void);

/* sched_getaffinity, or a test's stand-in. */
typedef int affinity_get(pid_t pid, size_t bytes, cpu_set_t *set);

/* Cores that this process may run on, on machines of any size; at least 1. */
int starter_cores(affinity_get *get);

/* Does the world that MPI built agree with the starter and with the topology?
 * mpi_size   from the transport
 * world      of the topology; 0: not known
 * command    the command that would be right ("mpirun -n 4 ferry run x.yaml"), put in the message
 * STATUS_ENVIRONMENT  started as N singletons (srun without PMIx, the mpirun of another MPI): said by name
 * STATUS_TOPOLOGY     both numbers differ */
enum status starter_check(const struct starter *starter, int mpi_size, int world, const char *command,
                          struct error *err);

#endif
