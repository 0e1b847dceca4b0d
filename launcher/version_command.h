/* `ferry version`: what this build and this machine can do. */
#ifndef LAUNCHER_VERSION_COMMAND_H
#define LAUNCHER_VERSION_COMMAND_H

/* Returns the process's exit code. */
int version_command(int argc, char **argv);

#endif
