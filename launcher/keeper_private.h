/* What keeper and worker share, for keeper.c, keeper_guard.c and gone.c. */
#ifndef LAUNCHER_KEEPER_PRIVATE_H
#define LAUNCHER_KEEPER_PRIVATE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcher/keeper.h"

struct keeper {
    atomic_bool set;
    atomic_bool speaking;     /* somebody writes words */
    _Atomic int words_status; /* 0: none, or not whole yet */
    char words[1024];
    _Atomic int foreseen_status; /* 0: nothing is foreseen */
    char foreseen[1024];
    char tag[96];              /* the worker's, in front of its words */
    _Atomic uint64_t limit_ns; /* how long one of the two may be stopped; 0: for ever */
    _Atomic uint64_t grace_ns; /* how much longer the worker may be */
    _Atomic uint64_t beats;    /* the keeper's signs of life, one in half a second */
    uint64_t begun_unix_ns;    /* when the keeper began */
    pid_t process;             /* the keeper's */
    int rank;
    int size;
    char run_dir[PATH_MAX];
};

/* In the worker: a thread that looks after the keeper, to the end of the process.  Best effort. */
void keeper_guard_start(struct keeper *keeper);

#endif
