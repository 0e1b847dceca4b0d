/* The worker's side of the keeper's life: a thread that counts the keeper's signs of life.
 *
 * A stopped keeper forwards no signal, and nobody reads what it has to say.  SIGCONT is all that it needs, so it gets
 * that when it has been stopped for as long as a rank may be silent (the kernel sends one more at the worker's end).
 * Where SIGCONT does not help (a debugger holds it, a frozen control group) SIGKILL does: that the worker goes with it
 * is better than a job without an end. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/cause.h"
#include "launcher/keeper_private.h"
#include "launcher/starter.h"

#define TICK_NS (500 * NS_PER_MS)
/* Between SIGCONT and SIGKILL. */
#define CONTINUE_NS (6 * NS_PER_S)

static void awaken(const struct keeper *keeper)
{
    if (getppid() == keeper->process) /* another number is another process by now */
        (void)kill(keeper->process, SIGCONT);
}

static void tag_as(const struct keeper *keeper)
{
    char tag[64];

    if (!atomic_load(&keeper->set))
        return;
    (void)snprintf(tag, sizeof tag, "rank %d/%d", keeper->rank, keeper->size);
    log_set_tag(tag);
}

static void tell_stopped(const struct keeper *keeper, uint64_t still_ns)
{
    tag_as(keeper);
    log_warning("the keeper of this rank, process %d, has been stopped for %.1f s: the rank continues it",
                (int)keeper->process, (double)still_ns / (double)NS_PER_S);
}

/* Nothing helps: say why, and take the keeper along, so that the starter sees an end. */
static _Noreturn void give_up(struct keeper *keeper, uint64_t still_ns)
{
    struct cause cause = {.status = STATUS_TIMEOUT};
    struct starter starter;
    bool first = true;

    starter_read(&starter);
    cause.rank = cause.reporter = atomic_load(&keeper->set) ? keeper->rank : starter.rank > 0 ? starter.rank : 0;
    (void)snprintf(cause.text, sizeof cause.text,
                   "rank %d on %s: its keeper, process %d, has been stopped for %.1f s and cannot be continued (a "
                   "debugger, or a frozen control group?): the rank ends",
                   cause.rank, starter.host, (int)keeper->process, (double)still_ns / (double)NS_PER_S);
    if (atomic_load(&keeper->set) && keeper->run_dir[0])
        (void)cause_save(keeper->run_dir, &cause, NULL, &first, NULL);
    tag_as(keeper);
    if (first)
        log_error("%s: %s", status_name(cause.status), cause.text);
    if (getppid() == keeper->process)
        (void)kill(keeper->process, SIGKILL);
    clock_sleep_ns(TICK_NS); /* its death is ours */
    _exit(status_exit_code(cause.status));
}

/* A tick counts as one however long it was: who stops the whole job stops this process too. */
static void *guard(void *context)
{
    struct keeper *keeper = context;
    uint64_t beats = 0;
    uint64_t still_ns = 0;
    bool told = false;

    for (;;) {
        uint64_t limit_ns = atomic_load(&keeper->limit_ns);
        uint64_t now = atomic_load(&keeper->beats);

        still_ns = now == beats ? still_ns + TICK_NS : 0;
        beats = now;
        told = told && still_ns;
        if (limit_ns && still_ns > limit_ns + CONTINUE_NS)
            give_up(keeper, still_ns);
        if (limit_ns && still_ns > limit_ns) {
            if (!told)
                tell_stopped(keeper, still_ns);
            told = true;
            awaken(keeper);
        }
        clock_sleep_ns(TICK_NS);
    }
    return NULL;
}

void keeper_guard_start(struct keeper *keeper)
{
    pthread_t thread;
    sigset_t all;
    sigset_t old;

    /* Signals are for the worker's own threads. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, NULL, guard, keeper) == 0)
        (void)pthread_detach(thread);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}
