/* `ferry check TOPOLOGY`: every group and route exercised on the ranks of a job, before it is needed. */
#ifndef LAUNCHER_CHECK_COMMAND_H
#define LAUNCHER_CHECK_COMMAND_H

/* Returns the process's exit code. */
int check_command(int argc, char **argv);

#endif
