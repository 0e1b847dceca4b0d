/* Who waits for whom in a job, and who stands at the end: pure, from what each rank's file says. */
#ifndef LAUNCHER_DIAGNOSIS_H
#define LAUNCHER_DIAGNOSIS_H

#include "base/text.h"
#include "comm/recorder.h"

/* A rank's life, as far as it can be told. */
enum life {
    LIFE_MISSING,    /* it has left no file */
    LIFE_UNREADABLE, /* its file cannot be used; why says how */
    LIFE_RUNNING,
    LIFE_SILENT, /* no sign of life for a while, while others gave some */
    LIFE_GONE,   /* nobody gives a sign any more, and nobody has said why */
    LIFE_CLOSED,
    LIFE_FAILED,
    LIFE_KILLED,
    LIFE_COUNT
};

/* "running", "silent"; never NULL. */
const char *life_word(enum life life);

struct patient {
    int rank;
    enum life life;
    char host[64];
    int pid;
    uint64_t started_unix_ns;
    uint64_t seen_unix_ns; /* its last sign of life */
    uint64_t ended_unix_ns;
    enum status end_status; /* LIFE_FAILED */
    int end_signal;         /* LIFE_KILLED */
    uint64_t operations;
    struct wait_state wait; /* since_ns counts from started_unix_ns */
    uint64_t waited_ns;     /* until its last sign of life */
    bool has_last;
    struct record last; /* its newest operation */
    char why[256];
};

enum verdict { VERDICT_UNKNOWN, VERDICT_WELL, VERDICT_RUNNING, VERDICT_WAITING, VERDICT_FAILED, VERDICT_GONE };

/* "failed", "waiting"; never NULL. */
const char *verdict_word(enum verdict verdict);

struct diagnosis {
    enum verdict verdict;
    int size;
    int *next;    /* [size]: whom this rank waits for; -1: nobody */
    int *end;     /* [size]: the rank at the end of its chain, itself when it does not wait; -1: a cycle */
    int *depth;   /* [size]: steps to that end */
    int *waiters; /* [size]: how many wait for it, over others or at once */
    int *cycle;   /* [size]: number of the cycle that this rank belongs to; -1: none */
    int cycle_count;
    int suspect; /* the end that most ranks wait for, the lowest of equals; -1: nobody waits */
    int outside; /* the signal of one who asks to stop, when it ended the job and no rank failed by itself; 0: none */
    int of_life[LIFE_COUNT];
};

/* patients [size], in rank order.  Waits of ranks that are silent, dead or unknown, or of the culprit that a cause
 * names
 * (-1: none), lead nowhere: a chain ends there.  moving: some rank gave a sign of life just now.  STATUS_NOMEM. */
enum status diagnosis_create(const struct patient *patients, int size, int culprit, bool moving, struct diagnosis **ret,
                             struct error *err);
void diagnosis_destroy(struct diagnosis *diagnosis);

/* The cycle from its lowest rank on, as "0 -> 3 -> 2 -> 0". */
void diagnosis_add_cycle(const struct diagnosis *diagnosis, int cycle, struct text *out);
/* The longest chain that leads to rank, as "0 -> 1 -> 2 -> 3"; its middle left out when it is long. */
void diagnosis_add_chain(const struct diagnosis *diagnosis, int rank, struct text *out);

#endif
