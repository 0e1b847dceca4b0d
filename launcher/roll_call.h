/* Who has come to MPI's start?  A rank that never comes leaves the others waiting inside MPI_Init, where nothing can be
 * asked.  So each rank leaves a file in the run's folder before, and when the start overstays those that have come can
 * say who has not. */
#ifndef LAUNCHER_ROLL_CALL_H
#define LAUNCHER_ROLL_CALL_H

#include <limits.h>
#include <stdbool.h>

#include "base/text.h"
#include "launcher/starter.h"

struct roll_call {
    char folder[PATH_MAX]; /* "": nobody is called */
    char host[64];
    int rank;
    int size;
    bool one_host; /* all ranks are on this host, as the starter says */
};

/* Leave this rank's file, with its host, in folder (copied), which all ranks share if they can.  Best effort: where it
 * fails nobody is called. */
void roll_call_answer(struct roll_call *call, const char *folder, const struct starter *starter);

/* MPI has started: take the file away. */
void roll_call_end(struct roll_call *call);

/* Add who has not come ("rank 3 has not come").  Where the job has several hosts and only ranks of this one have left
 * their files, the folder may not be shared: then that is said, and nobody accused.  Returns whether this rank is the
 * one to say it: the lowest that has come, or any where nobody is called. */
bool roll_call_missing(const struct roll_call *call, struct text *out);

#endif
