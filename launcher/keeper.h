/* The keeper: the parent process of a rank, which uses no MPI and therefore can tell how the rank died.
 *
 * It forwards TERM, INT, HUP, USR1 and USR2 to the worker, reaps it and exits at once: with the worker's code, or with
 * code 8 and one line (rank, host, signal, last recorded operation) and cause.json when a signal killed it.  Of several
 * causes of a run the first in cause.json is told, the others are not.  A worker that dies of a stop signal which the
 * starter (mpirun, srun) sent is no cause: nothing is printed; one that anybody else sent to this rank alone is.  The
 * worker dies with its keeper, also when it is stopped, and is the first that the kernel kills when memory runs out.
 *
 * A stopped rank is named by the others.  Where there is none awake, its keeper ends it: code 7.  The keeper of a rank
 * is stopped or killed as easily.  A stopped one goes on when its worker ends, however that ends, and the worker
 * continues it when the rank's limit has run out; one that cannot be continued it kills 6 s later, after it has said
 * so. A killed one takes its worker with it: the starter ends the other ranks, and the keepers of these say who has
 * gone. */
#ifndef LAUNCHER_KEEPER_H
#define LAUNCHER_KEEPER_H

#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"

struct keeper; /* the worker's side: a page shared with its keeper */

/* The rank's whole life; its result is the exit code.  Runs in the child. */
typedef int keeper_worker(void *context, struct keeper *keeper);

/* Fork, run worker in the child, keep it.  To be called before any thread and before MPI_Init; standard output is
 * flushed first.  Returns in the parent only, with the exit code of the process (0..125; a worker's 126 and above
 * become 1).  Where fork is refused: prints a line, 5. */
int keeper_run(keeper_worker *worker, void *context);

/* Tell the keeper, from the worker, where the recorder's file lies and which rank of how many this is (copied).
 * Until then the rank is the one in the launcher's variables, and nothing is written on disk. */
void keeper_set_run(struct keeper *keeper, const char *run_dir, int rank, int size);

/* Why the worker is about to end with the exit code of status, when it cannot agree with the other ranks on it: the
 * keeper tells it once the worker has ended, unless another cause of the run is known.  Copied, cut at 1 KiB; the first
 * call counts.  Async-signal-safe. */
void keeper_last_words(struct keeper *keeper, enum status status, const char *text);

/* What to tell, and which status to end with, when the worker exits with a code and without last words: where a library
 * may end the process.  Copied, cut at 1 KiB; a later call replaces it, STATUS_OK takes it back.  One thread of the
 * worker. */
void keeper_foresee(struct keeper *keeper, enum status status, const char *text);

/* What the other ranks, if any is awake, need to name a stopped one first. */
#define KEEPER_GRACE_NS (6 * NS_PER_S)

/* How long the worker may be stopped from now on before its keeper ends it, grace_ns more (and up to 3 s by rank, so
 * that one keeper speaks) where the other ranks may do so first; and how long the keeper may be before the worker
 * continues it.  0, as at the start: for ever, and until the worker's end. */
void keeper_set_limit(struct keeper *keeper, uint64_t limit_ns, uint64_t grace_ns);

#endif
