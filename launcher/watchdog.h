/* The watchdog: a thread that ends the process where nothing else can, in a phase that overstays or on the way out
 * after a failure.  Start it in the worker before MPI_Init. */
#ifndef LAUNCHER_WATCHDOG_H
#define LAUNCHER_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

struct watchdog;

/* Say why the process ends, in its stead: it ends as soon as this returns. */
typedef void watchdog_words(void *context, const char *text);

/* Add why a phase overstays.  False: another process says it; this one ends without a word, and later. */
typedef bool watchdog_explain(void *context, struct text *out);

/* STATUS_NOMEM, STATUS_ENVIRONMENT (no thread could be started). */
enum status watchdog_create(struct watchdog **ret, struct error *err);
/* Join and free.  NULL is allowed. */
void watchdog_destroy(struct watchdog *watchdog);

/* Who says what a phase that overstays is; NULL, as at the start: one line to standard error.  context is borrowed. */
void watchdog_speak(struct watchdog *watchdog, watchdog_words *words, void *context);

/* The process must leave phase ("MPI_Init", "loading") by deadline_ns on the monotonic clock: else that is said,
 * tagged with the caller's log tag, and the process ends with code 7.  Replaces what was armed before.
 * limit names the key that set the deadline ("communication.startup_timeout"); NULL: none. */
void watchdog_arm(struct watchdog *watchdog, uint64_t deadline_ns, const char *phase, const char *limit);
/* Ask explain (context is borrowed) when the phase armed now overstays; until the next call, or the next
 * watchdog_arm.  explain NULL: nobody; whoever was asked before does not run any more. */
void watchdog_ask(struct watchdog *watchdog, watchdog_explain *explain, void *context);
void watchdog_disarm(struct watchdog *watchdog);

/* After a failure: the process ends with exit_code within this long, whatever hangs; nothing is printed.  It cannot be
 * disarmed or replaced.  SIGTERM, which mpirun sends once the first rank has ended, is ignored from now on: the rank
 * that speaks must still have its say. */
void watchdog_leave(struct watchdog *watchdog, uint64_t within_ns, int exit_code);

#endif
