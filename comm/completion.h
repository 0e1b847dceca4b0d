/* The object that says exactly when one submitted piece of work is done.
 *
 * It leaves pending exactly once, to done or failed.  Done means local completion: buffers are back and the moved bytes
 * equal the planned bytes.  It observes its own work alone and retains every tensor, group, route and executor that it
 * needs: the caller may release his, but must not write what is sent nor read what is received before the end.  Only
 * completion_wait blocks. */
#ifndef COMM_COMPLETION_H
#define COMM_COMPLETION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct completion;

enum completion_state { COMPLETION_PENDING, COMPLETION_DONE, COMPLETION_FAILED };

/* No deadline of the caller's own: the session's timeout rule alone ends the wait. */
#define DEADLINE_NONE UINT64_MAX

/* Move it if it can move; never blocks.  Whoever asks again and again waits: the session's timeout rule holds. */
enum completion_state completion_test(struct completion *completion);

/* Is it pending, and has the timeout rule given it up (on_timeout: quarantine), or the work before it?  It may still
 * end: completion_test goes on to move it.  Local. */
bool completion_quarantined(const struct completion *completion);

/* Wait until done or failed, or until deadline_ns on the monotonic clock.  Spins up to 50 us, then sleeps in growing
 * steps up to 1 ms.
 * STATUS_OK       done
 * STATUS_TIMEOUT  deadline_ns passed, or on_timeout: quarantine: still pending, its buffers still retained, nothing is
 *                 torn down
 * STATUS_LOST     failed: torn down by on_timeout: abort (or a peer died); its buffers are back
 * otherwise       the work or the session has failed with this status.  Where the transport cannot give memory back
 *                 alone (teardown: job), and while an executor runs the work, the completion may still be pending and
 *                 keep its tensors (the status is then the session's, STATUS_TIMEOUT by the timeout rule included):
 *                 completion_abandon takes it either way */
enum status completion_wait(struct completion *completion, uint64_t deadline_ns, struct error *err);

/* Done or failed: free.  Releasing a pending one is a programming error (CHECK).  NULL is allowed. */
void completion_release(struct completion *completion);

/* Give a pending (or ended) completion and its buffers to the session, which frees it when it ends.  NULL is allowed.
 */
void completion_abandon(struct completion *completion);

/* Gives a value back. Called once, under the session's lock, by whichever thread sees the end: it must not call comm.
 */
typedef void completion_retained(void *value);

/* Keep value (takes) until the completion is done or failed, then call release(value); at once when it has ended.  What
 * the transport cannot give back is kept to the end of the process.  Local, does not block.  STATUS_NOMEM. */
enum status completion_retain(struct completion *completion, void *value, completion_retained *release,
                              struct error *err);

/* Of a done failure agreement: the AND of every member's flags. */
uint32_t completion_flags(const struct completion *completion);

#endif
