/* Wait for a completion, count the time, and let go of it in the right way. */
#ifndef RUNTIME_WAIT_H
#define RUNTIME_WAIT_H

#include <stdint.h>

#include "base/clock.h"
#include "comm/completion.h"

/* Blocks under the session's timeout rule; adds the time to *wait_ns.  The completion is released, or, when it is still
 * pending after a failure, given to the session with its buffers.  Statuses of completion_wait. */
static inline enum status wait_and_release(struct completion *completion, uint64_t *wait_ns, struct error *err)
{
    uint64_t start = clock_ns();
    enum status st = completion_wait(completion, DEADLINE_NONE, err);

    *wait_ns += clock_ns() - start;
    if (st != STATUS_OK && completion_test(completion) == COMPLETION_PENDING)
        completion_abandon(completion);
    else
        completion_release(completion);
    return st;
}

#endif
