/* What a run's folder holds, read for `ferry doctor`: one patient a rank, the cause, and what could not be used. */
#ifndef LAUNCHER_CASEFILE_H
#define LAUNCHER_CASEFILE_H

#include <limits.h>

#include "launcher/diagnosis.h"

/* cause.json */
struct known_cause {
    bool known;
    bool damaged; /* the file is there, but cannot be read */
    char status[32];
    int exit_code;
    int rank; /* -1: none in particular */
    int reporter;
    double seconds;
    char text[2048];
    char last_operation[256];
};

struct casefile {
    char folder[PATH_MAX];
    int size;                 /* ranks of the job; 0: no file tells */
    struct patient *patients; /* [size] */
    bool starting;            /* no recorder yet: ranks come to MPI's start, came says which */
    bool *came;               /* [size] */
    bool moving;              /* a rank gave a sign of life while we looked */
    uint64_t started_unix_ns; /* the first of them */
    uint64_t newest_unix_ns;  /* the last sign of life of any */
    struct known_cause cause;
    struct text notes;     /* files that were left out and why, one a line */
    struct text processes; /* of this machine that are stopped, or have ended unseen, one a line */
};

/* Find the run: folder itself, or the newest of the runs below it; ret [PATH_MAX].  *ret_others: how many more runs
 * there are beside it.  STATUS_STORAGE: cannot be read, or holds no run. */
enum status casefile_find(const char *folder, char *ret, int *ret_others, struct error *err);

/* Read the run in folder; looks twice, watch_ns apart, when ranks have not ended.  Damaged and foreign files are noted,
 * not refused.  STATUS_STORAGE, STATUS_NOMEM. */
enum status casefile_open(const char *folder, uint64_t watch_ns, struct casefile *ret, struct error *err);
void casefile_done(struct casefile *casefile);

/* One patient of a recorder's file. */
void patient_of(const struct recorder_view *view, struct patient *ret);

/* Settle what the times say: who is silent, who is gone.  moved [size]: gave a sign while we looked. */
void patients_settle(struct patient *patients, int size, const bool *moved);

/* Look at the processes of the ranks that ran on this host, and at their keepers; adds to processes.  Local. */
void casefile_look(struct casefile *casefile, const char *host);

/* What the others' files tell of a rank: its last transfers with them, and what they wait for from it; one a line.
 * Local; reads every file of the folder again.  STATUS_NOMEM. */
enum status casefile_witnesses(const struct casefile *casefile, int rank, struct text *out, struct error *err);

#endif
