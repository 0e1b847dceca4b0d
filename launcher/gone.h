/* Ranks that have gone without a word: their keepers were killed and took them along.  Only the files of the run's
 * folder can tell. */
#ifndef LAUNCHER_GONE_H
#define LAUNCHER_GONE_H

#include <stdbool.h>

struct keeper;

struct gone {
    int rank;
    char host[64];
    bool certain; /* it ran on this host, and its process is not there any more */
};

/* To be called by a keeper whose worker was ended by the starter, when nobody has written a cause: the starter ends all
 * ranks at once, and every keeper marks its rank's file; a rank whose file still says that it runs half a second later
 * has none; of several the one that fell silent first.  host is this one.  False: there is no such rank, or its cause
 * has come meanwhile.  Blocks for at most 0.7 s: so long that whoever says it can, and that those of this host are
 * marked. */
bool gone_find(const struct keeper *keeper, const char *host, struct gone *ret);

/* To be called by a keeper, with a run's folder, whose worker has failed, before it ends and the starter hears of that:
 * the other ranks of this host end by themselves now, and are marked.  Blocks for at most 0.5 s, and not for a rank
 * that is stopped. */
void gone_let_mark(const struct keeper *keeper, const char *host);

#endif
