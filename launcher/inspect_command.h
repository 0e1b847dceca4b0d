/* `ferry inspect PATH`: what a checkpoint holds. */
#ifndef LAUNCHER_INSPECT_COMMAND_H
#define LAUNCHER_INSPECT_COMMAND_H

/* Returns the process's exit code. */
int inspect_command(int argc, char **argv);

#endif
