/* `ferry doctor DIR`: what a finished, failed, hung or running job is, or was, waiting for. */
#ifndef LAUNCHER_DOCTOR_COMMAND_H
#define LAUNCHER_DOCTOR_COMMAND_H

int doctor_command(int argc, char **argv);

#endif
