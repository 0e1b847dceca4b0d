/* `ferry plan TOPOLOGY`: everything checked and shown offline. */
#ifndef LAUNCHER_PLAN_COMMAND_H
#define LAUNCHER_PLAN_COMMAND_H

/* Returns the process's exit code. */
int plan_command(int argc, char **argv);

#endif
