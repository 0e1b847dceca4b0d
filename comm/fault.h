/* Faults that a user rehearses: rank=R,op=N,kind=kill|stop|delay:2s|skip|flip:BYTE[:resealed]|short|oom.
 *
 * op counts this rank's posted collectives and route transfers from 0, consensus and votes included; flip and short
 * wait for the next frame that is sent (and is long enough).  flip: bit 0 of that byte; resealed: the header checksum
 * is made right again over the damage.  skip: reported done without being posted. */
#ifndef COMM_FAULT_H
#define COMM_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum fault_kind { FAULT_KILL, FAULT_STOP, FAULT_DELAY, FAULT_SKIP, FAULT_FLIP, FAULT_SHORT, FAULT_OOM };

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

#endif
