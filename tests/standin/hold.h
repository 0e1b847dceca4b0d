/* Work of a stream that goes on only when the test says so. */
#ifndef TESTS_STANDIN_HOLD_H
#define TESTS_STANDIN_HOLD_H

#include <stdatomic.h>

#include "base/clock.h"

/* What is queued behind it waits until the flag, an atomic_bool, is true. */
static inline void hold_here(void *flag)
{
    while (!atomic_load((atomic_bool *)flag))
        clock_sleep_ns(NS_PER_MS / 10);
}

#endif
