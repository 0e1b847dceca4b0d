/* `ferry run TOPOLOGY`: on every rank, under mpirun or srun. */
#ifndef LAUNCHER_RUN_COMMAND_H
#define LAUNCHER_RUN_COMMAND_H

/* Returns the process's exit code. */
int run_command(int argc, char **argv);

#endif
