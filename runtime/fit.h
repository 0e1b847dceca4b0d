/* Would something fit into a memory?  What is not known is never taken for zero. */
#ifndef RUNTIME_FIT_H
#define RUNTIME_FIT_H

#include <stdint.h>

enum fit { FIT_UNKNOWN, FIT_COMFORTABLE, FIT_TIGHT, FIT_NOT };

#define MEMORY_UNKNOWN UINT64_MAX

struct memory_size {
    uint64_t available; /* MEMORY_UNKNOWN: nobody says */
    uint64_t total;     /* MEMORY_UNKNOWN or 0: nobody says */
};

/* More than what is available: FIT_NOT, whatever the total.  Else FIT_TIGHT when more than 85 % of the total would be
 * in use afterwards. */
enum fit would_fit(uint64_t bytes, struct memory_size memory);

/* "comfortable"; never NULL. */
const char *fit_name(enum fit fit);

/* This machine's main memory, as the kernel states it. */
struct memory_size memory_here(void);

#endif
