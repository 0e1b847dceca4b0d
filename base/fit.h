/* Would something fit into a memory?  What is not known is never taken for zero. */
#ifndef BASE_FIT_H
#define BASE_FIT_H

#include <stdint.h>

#include "base/memory.h"

enum fit { FIT_UNKNOWN, FIT_COMFORTABLE, FIT_TIGHT, FIT_NOT };

/* More than what is available: FIT_NOT, even where the total is unknown.  Else FIT_TIGHT when more than 85 % of the
 * total would be in use afterwards.  A total of 0 says nothing, and with it an available of 0 neither. */
enum fit would_fit(uint64_t bytes, struct memory_space space);

/* "comfortable"; never NULL. */
const char *fit_name(enum fit fit);

/* This machine's main memory, as the kernel states it. */
struct memory_space memory_here(void);

#endif
