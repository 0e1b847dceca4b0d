/* A process of this machine, as the kernel shows it. */
#ifndef LAUNCHER_PROCESS_H
#define LAUNCHER_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct process {
    char name[32]; /* of its program, cut */
    char state;    /* R S D, T stopped, t held by a debugger, Z ended but not reaped */
    int parent;
    uint64_t started_unix_ns; /* to a hundredth of a second */
};

/* False: there is no such process, or it cannot be seen from here.  Local. */
bool process_read(int pid, struct process *ret);

#endif
