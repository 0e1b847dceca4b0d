/* Faults that a user rehearses: rank=R,op=N,kind=kill|stop|delay:2s|skip|flip:BYTE[:resealed]|short|oom|
 * disk-full.
 *
 * op counts this rank's posted collectives and route transfers from 0, consensus and votes included; flip and short
 * wait for the next frame that is sent (and is long enough).  flip: bit 0 of that byte; resealed: the header checksum
 * is made right again over the damage.  skip: reported done without being posted.  disk-full: the recorder's file, the
 * one that every rank of a run with a run_dir writes, answers as on a full disk. */
#ifndef COMM_FAULT_H
#define COMM_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum fault_kind {
    FAULT_KILL,
    FAULT_STOP,
    FAULT_DELAY,
    FAULT_SKIP,
    FAULT_FLIP,
    FAULT_SHORT,
    FAULT_OOM,
    FAULT_DISK_FULL
};

struct fault {
    int rank;
    uint64_t operation;
    enum fault_kind kind;
    uint64_t delay_ns;
    uint64_t byte; /* of the frame, header first */
    bool resealed; /* recompute the header checksum over the damage */
};

/* Parse one option's text.  STATUS_USAGE says which part and what is allowed. */
enum status fault_parse(const char *text, struct fault *ret, struct error *err);

/* What its rank did, for fault_missed. */
struct fault_run {
    uint64_t operations; /* posted in the whole run */
    bool armed;          /* a flip or short still waits for its frame */
    bool has_recorder;
};

/* A run that ended well: true when this fault of its rank never happened; the sentence goes to line [line_bytes]. */
bool fault_missed(const struct fault *fault, const struct fault_run *run, char *line, size_t line_bytes);

#endif
