/* `ferry bench TOPOLOGY`: on every rank, under mpirun or srun. */
#ifndef LAUNCHER_BENCH_COMMAND_H
#define LAUNCHER_BENCH_COMMAND_H

/* Returns the process's exit code. */
int bench_command(int argc, char **argv);

#endif
