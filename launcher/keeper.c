/* The keeper waits for signals only, so it needs no handler and no state outside its frame: SIGCHLD and those that it
 * forwards are blocked and taken one by one.
 *
 * What mpirun does when a process dies by a signal is not ours to choose (status 137, or 0 with recovery); a process
 * that exits with a code is treated in one documented way.  So the keeper turns the death into a code. */
#include "launcher/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/storage.h"
#include "comm/cause.h"
#include "comm/recorder.h"
#include "launcher/gone.h"
#include "launcher/keeper_private.h"
#include "launcher/process.h"
#include "launcher/starter.h"

/* The keeper's own side. */
struct watch {
    struct keeper *shared;
    pid_t worker;
    bool own_group; /* the worker has a process group of its own */
    pid_t starter;
    bool stop_forwarded; /* the starter's, or a terminal's, TERM, INT, HUP or QUIT went to the worker */
    pid_t stranger;      /* another process that sent one of these, or whoever sent another; 0: none */
    int stranger_signal;
    char stranger_name[32];
    long long oom_before; /* the control group's count of OOM kills; -1: unknown */
    bool stopped;         /* the worker, by STOP or TSTP */
    uint64_t stopped_ns;  /* for how long, as far as this process ran meanwhile */
};

/* Of several keepers the lowest rank's comes first. */
#define STOPPED_STEP_NS (1500 * NS_PER_MS) /* what mpirun needs to end the others */
#define STOPPED_TICK_NS (200 * NS_PER_MS)
#define BEAT_NS (500 * NS_PER_MS)
#define ORPHAN_GRACE_NS (2 * NS_PER_S)
enum { STOPPED_STEPS = 2 };

/* Without a folder that all ranks share nobody knows who speaks: the lowest does, and when it ends the starter ends the
 * others, which wait for that as long. */
#define SHARED_WORDS_NS (1500 * NS_PER_MS)

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};
enum { FORWARDED_COUNT = sizeof forwarded / sizeof forwarded[0] };

static void write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);

    if (file < 0)
        return;
    ssize_t wrote = write(file, text, strlen(text));
    (void)wrote; /* without /proc the kernel chooses by itself */
    close(file);
}

/* Processes of this control group that the kernel has killed for want of memory; -1: unknown. */
static long long oom_kills(void)
{
    FILE *file = fopen("/sys/fs/cgroup/memory.events", "re");
    char line[128];
    long long count = -1;

    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "oom_kill ", 9) == 0)
            count = strtoll(line + 9, NULL, 10);
    }
    if (file)
        fclose(file);
    return count;
}

/* In the child.  A keeper that died before prctl would never be noticed: look again after it. */
static _Noreturn void work(keeper_worker *worker, void *context, struct watch *watch, pid_t parent, const sigset_t *old)
{
    int code;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (watch->own_group)
        (void)setpgid(0, 0);
    write_file("/proc/self/oom_score_adj", "1000");
    (void)sigprocmask(SIG_SETMASK, old, NULL);
    watch->shared->process = parent;
    keeper_guard_start(watch->shared);
    code = worker(context, watch->shared);
    exit(code);
}

/* mpirun signals the keeper's whole process group.  The worker leaves it, so that it gets each signal once, through us;
 * at a terminal it stays, or it could not read from it, and gets the terminal's signals by itself. */
static bool needs_own_group(void)
{
    return !isatty(STDIN_FILENO);
}

/* Did the starter send it?  Processes between it and us (a shell script around us) are in our process group; the first
 * ancestor outside it is the starter.  A sender that cannot be seen from here (0) counts as one. */
static bool sent_by_starter(pid_t sender)
{
    pid_t ancestor = getppid();
    struct process process;

    while (ancestor > 1 && ancestor != sender && getpgid(ancestor) == getpgrp() && process_read(ancestor, &process))
        ancestor = process.parent;
    return sender == 0 || sender == ancestor;
}

static void remember_stranger(struct watch *watch, pid_t sender, int number)
{
    struct process process;

    watch->stranger = sender;
    watch->stranger_signal = number;
    (void)snprintf(watch->stranger_name, sizeof watch->stranger_name, "%s",
                   process_read(sender, &process) ? process.name : "gone by now");
}

static bool asks_to_end(int number)
{
    return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
}

static void forward(struct watch *watch, const siginfo_t *info)
{
    bool from_terminal = info->si_code == SI_KERNEL;

    if (asks_to_end(info->si_signo) && (from_terminal || sent_by_starter(info->si_pid)))
        watch->stop_forwarded = true;
    else
        remember_stranger(watch, info->si_pid, info->si_signo);
    if (watch->own_group || !from_terminal)
        (void)kill(watch->worker, info->si_signo);
    if (asks_to_end(info->si_signo))
        (void)kill(watch->worker, SIGCONT); /* a stopped one would not hear of it */
}

static const char *signal_name(int number)
{
    const char *name = sigabbrev_np(number);

    return name ? name : "unknown";
}

static int own_rank(const struct keeper *shared, const struct starter *starter)
{
    return atomic_load(&shared->set) ? shared->rank : starter->rank >= 0 ? starter->rank : 0;
}

/* Save the cause and print its line, unless another cause of this run was saved before. */
static void tell(const struct watch *watch, const struct cause *cause, const char *last, const char *line)
{
    const struct keeper *shared = watch->shared;
    bool first = true;

    if (atomic_load(&shared->set) && shared->run_dir[0])
        (void)cause_save(shared->run_dir, cause, last, &first, NULL);
    if (first)
        log_error("%s%s%s", line, last ? "; its last operation: " : "", last ? last : "");
}

/* Print and save what the worker ended of: "died: killed by SIGSEGV". */
static void report(const struct watch *watch, enum status status, const char *end)
{
    const struct keeper *shared = watch->shared;
    struct starter starter;
    struct cause cause = {.status = status};
    char last[256] = "";
    bool known;

    starter_read(&starter);
    cause.rank = own_rank(shared, &starter);
    cause.reporter = cause.rank;
    known = atomic_load(&shared->set) && shared->run_dir[0] &&
            recorder_last(shared->run_dir, shared->rank, last, sizeof last, &cause.time_ns);
    (void)snprintf(cause.text, sizeof cause.text, "rank %d on %s %s", cause.rank, starter.host, end);
    tell(watch, &cause, known ? last : NULL, cause.text);
}

static void report_death(const struct watch *watch, int number)
{
    bool memory = number == SIGKILL && watch->oom_before >= 0 && oom_kills() > watch->oom_before;
    char sender[96] = "";
    char end[256];

    if (watch->stranger && number == watch->stranger_signal)
        (void)snprintf(sender, sizeof sender, ", which process %d (%s) sent", (int)watch->stranger,
                       watch->stranger_name);
    (void)snprintf(end, sizeof end, "died: killed by SIG%s%s%s", signal_name(number),
                   memory ? " (the kernel was out of memory)" : "", sender);
    report(watch, STATUS_LOST, end);
}

static bool quiet(const struct watch *watch, int number)
{
    return watch->stop_forwarded && (asks_to_end(number) || number == SIGKILL);
}

/* Does the starter end this process before the deadline?  It says SIGCONT first, which breaks a wait off. */
static bool is_ended_by_starter(uint64_t deadline_ns)
{
    sigset_t stops;
    siginfo_t info;

    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    for (;;) { /* once more behind the deadline: who was stopped across it finds the signal waiting */
        uint64_t now_ns = clock_ns();
        uint64_t left_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;
        const struct timespec left = {.tv_sec = (time_t)(left_ns / NS_PER_S), .tv_nsec = (long)(left_ns % NS_PER_S)};
        int number = sigtimedwait(&stops, &info, &left);

        if (number == SIGTERM)
            return sent_by_starter(info.si_pid);
        if (number < 0 && errno != EINTR)
            return false;
    }
}

/* Does another rank say why?  Where no cause.json can tell, the lowest rank speaks, and the starter ends us. */
static bool another_speaks(const struct watch *watch, const struct starter *starter)
{
    const struct keeper *shared = watch->shared;

    if (watch->stop_forwarded)
        return true;
    if ((atomic_load(&shared->set) && shared->run_dir[0]) || starter->rank <= 0)
        return false;
    return is_ended_by_starter(clock_ns() + SHARED_WORDS_NS);
}

/* What the worker could not agree on with the others, or could not even print. */
static void report_words(const struct watch *watch)
{
    const struct keeper *shared = watch->shared;
    struct cause cause = {.status = (enum status)atomic_load(&shared->words_status)};
    struct starter starter;
    char line[1200];
    char tag[96];

    if (cause.status == STATUS_OK)
        return;
    starter_read(&starter);
    if (another_speaks(watch, &starter))
        return;
    cause.rank = own_rank(shared, &starter);
    cause.reporter = cause.rank;
    (void)snprintf(cause.text, sizeof cause.text, "rank %d on %s: %s", cause.rank, starter.host, shared->words);
    (void)snprintf(line, sizeof line, "%s: %s", status_name(cause.status), shared->words);
    (void)snprintf(tag, sizeof tag, "%s", shared->tag);
    if (!tag[0] && atomic_load(&shared->set)) /* said by a thread without one */
        (void)snprintf(tag, sizeof tag, "rank %d/%d", shared->rank, shared->size);
    log_set_tag(tag);
    tell(watch, &cause, NULL, line);
}

/* The starter ends this rank and nobody has said why: has another gone with its keeper, which could not say it? */
static void report_gone(const struct watch *watch)
{
    const struct keeper *shared = watch->shared;
    struct cause cause = {.status = STATUS_LOST};
    struct starter starter;
    char last[256] = "";
    struct gone gone;
    bool known;

    starter_read(&starter);
    if (!atomic_load(&shared->set) || !gone_find(shared, starter.host, &gone))
        return;
    cause.rank = gone.rank;
    cause.reporter = shared->rank;
    known = recorder_last(shared->run_dir, gone.rank, last, sizeof last, &cause.time_ns);
    (void)snprintf(cause.text, sizeof cause.text, "rank %d on %s died: its keeper was killed%s", gone.rank, gone.host,
                   gone.certain ? "" : ", or its host was lost");
    tell(watch, &cause, known ? last : NULL, cause.text);
}

/* The worker's own code, but where something else than we ended it and that was foreseen. */
static int worker_code(struct keeper *shared, int status)
{
    enum status foreseen = (enum status)atomic_load(&shared->foreseen_status);
    int code = WEXITSTATUS(status) <= 125 ? WEXITSTATUS(status) : 1;

    if (!code || foreseen == STATUS_OK || atomic_load(&shared->words_status) != STATUS_OK)
        return code;
    keeper_last_words(shared, foreseen, shared->foreseen);
    return status_exit_code(foreseen);
}

static int exit_code(const struct watch *watch, int status)
{
    struct keeper *shared = watch->shared;
    bool recorded = atomic_load(&shared->set) && shared->run_dir[0];
    struct starter starter;

    if (WIFEXITED(status)) {
        int code = worker_code(shared, status);

        if (recorded)
            recorder_mark_ended(shared->run_dir, shared->rank);
        if (WEXITSTATUS(status))
            report_words(watch);
        if (WEXITSTATUS(status) && recorded) {
            starter_read(&starter);
            gone_let_mark(shared, starter.host);
        }
        return code;
    }
    if (recorded) /* first of all: other keepers look whether this one did it */
        recorder_mark_killed(shared->run_dir, shared->rank, WTERMSIG(status));
    if (!quiet(watch, WTERMSIG(status)))
        report_death(watch, WTERMSIG(status));
    else
        report_gone(watch);
    return status_exit_code(STATUS_LOST);
}

/* A stopped worker does not see that the starter has gone; one that runs does. */
static bool orphaned(const struct watch *watch)
{
    return watch->stopped && watch->stopped_ns >= ORPHAN_GRACE_NS && getppid() != watch->starter;
}

/* May the worker stay stopped for as long as it is by now? */
static bool patient(const struct watch *watch)
{
    uint64_t limit = atomic_load(&watch->shared->limit_ns);
    uint64_t grace = atomic_load(&watch->shared->grace_ns);
    struct starter starter;
    int rank;

    if (orphaned(watch))
        return false;
    if (!watch->stopped || !limit || watch->stopped_ns < limit + grace)
        return true;
    starter_read(&starter);
    rank = own_rank(watch->shared, &starter);
    return watch->stopped_ns - limit <
           grace + STOPPED_STEP_NS * (unsigned)(rank < STOPPED_STEPS ? rank : STOPPED_STEPS);
}

/* Nobody else has ended this rank: all ranks of the job are stopped, or there is no job any more.  The exit code. */
static int end_stopped(const struct watch *watch)
{
    char end[128];
    int status;

    if (orphaned(watch))
        (void)snprintf(end, sizeof end, "is stopped, and who started it has gone: its keeper ends it");
    else
        (void)snprintf(end, sizeof end, "has been stopped for %.1f s (timeout %.1f s): its keeper ends it",
                       (double)watch->stopped_ns / (double)NS_PER_S,
                       (double)atomic_load(&watch->shared->limit_ns) / (double)NS_PER_S);
    if (!watch->stop_forwarded)
        report(watch, STATUS_TIMEOUT, end);
    (void)kill(watch->worker, SIGKILL);
    while (waitpid(watch->worker, &status, 0) < 0 && errno == EINTR)
        continue;
    return status_exit_code(STATUS_TIMEOUT);
}

/* The next signal, or 0 after a tick, each of which the worker takes for a sign of life.  While the worker is stopped a
 * tick counts as one however long it was: who stops the whole job stops this process too, and that time is not the
 * worker's. */
static int next_signal(struct watch *watch, const sigset_t *signals, siginfo_t *info)
{
    const struct timespec tick = {.tv_nsec = watch->stopped ? STOPPED_TICK_NS : BEAT_NS};
    int number = sigtimedwait(signals, info, &tick);

    atomic_fetch_add(&watch->shared->beats, 1);
    if (watch->stopped && number < 0 && errno == EAGAIN)
        watch->stopped_ns += STOPPED_TICK_NS;
    return number > 0 ? number : 0;
}

/* Until the worker has ended, or has been stopped for too long. */
static int watch_worker(struct watch *watch, const sigset_t *signals)
{
    while (patient(watch)) {
        siginfo_t info;
        int status;
        int number = next_signal(watch, signals, &info);
        pid_t reaped;

        if (number && number != SIGCHLD)
            forward(watch, &info);
        while ((reaped = waitpid(watch->worker, &status, WNOHANG | WUNTRACED | WCONTINUED)) == watch->worker) {
            if (WIFEXITED(status) || WIFSIGNALED(status))
                return exit_code(watch, status);
            watch->stopped = WIFSTOPPED(status);
            watch->stopped_ns = 0;
        }
        if (reaped < 0 && errno != EINTR)
            return status_exit_code(STATUS_INTERNAL);
    }
    return end_stopped(watch);
}

/* The reading end of a pipe: when the last process that holds its writing end has gone the kernel sends SIGCONT, which
 * continues this process should it be stopped then.  Nobody else might: the worker of a job of one rank may be killed
 * like any other.  -1: errno says why. */
static int hang_bell(void)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return -1;
    close(ends[1]);
    if (!fcntl(ends[0], F_SETOWN, getpid()) && !fcntl(ends[0], F_SETSIG, SIGCONT) &&
        !fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK))
        return ends[0];
    close(ends[0]);
    return -1;
}

/* In the worker: hold the writing end, until this process has gone.  The keeper never holds one, so it may be stopped
 * at any time.  Best effort. */
static void hold_bell(int bell)
{
    char path[64];
    int held;

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", bell);
    held = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    (void)held;
    close(bell);
}

static int fork_worker(keeper_worker *worker, void *context, struct watch *watch)
{
    pid_t parent = getpid();
    int bell = hang_bell();
    sigset_t signals;
    sigset_t old;

    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (int i = 0; i < FORWARDED_COUNT; i++)
        sigaddset(&signals, forwarded[i]);
    /* Blocked before the fork: no signal is lost between fork and wait. */
    (void)sigprocmask(SIG_BLOCK, &signals, &old);
    watch->worker = bell >= 0 ? fork() : -1;
    if (watch->worker == 0) {
        hold_bell(bell);
        work(worker, context, watch, parent, &old);
    }
    if (watch->worker < 0) {
        log_error("cannot start the worker process: %s", strerror(errno));
        return status_exit_code(STATUS_ENVIRONMENT);
    }
    return watch_worker(watch, &signals);
}

int keeper_run(keeper_worker *worker, void *context)
{
    struct watch watch = {.own_group = needs_own_group(), .starter = getppid(), .oom_before = oom_kills()};
    struct storage *storage = NULL;
    struct error err = {0};
    int code;

    if (storage_create(MEMORY_SHARED, sizeof *watch.shared, &storage, &err) != STATUS_OK) {
        log_error("cannot start the worker process: %s", err.text);
        return status_exit_code(STATUS_ENVIRONMENT);
    }
    watch.shared = storage_edit(storage);
    watch.shared->begun_unix_ns = clock_unix_ns();
    (void)fflush(NULL);
    code = fork_worker(worker, context, &watch);
    storage_release(storage);
    return code;
}

void keeper_set_run(struct keeper *keeper, const char *run_dir, int rank, int size)
{
    keeper->rank = rank;
    keeper->size = size;
    (void)snprintf(keeper->run_dir, sizeof keeper->run_dir, "%s", run_dir ? run_dir : "");
    atomic_store(&keeper->set, true);
}

void keeper_last_words(struct keeper *keeper, enum status status, const char *text)
{
    size_t length = strnlen(text, sizeof keeper->words - 1);

    if (atomic_exchange(&keeper->speaking, true))
        return;
    memcpy(keeper->words, text, length);
    keeper->words[length] = '\0';
    memcpy(keeper->tag, log_tag(), strnlen(log_tag(), sizeof keeper->tag - 1));
    atomic_store(&keeper->words_status, (int)status);
}

void keeper_foresee(struct keeper *keeper, enum status status, const char *text)
{
    atomic_store(&keeper->foreseen_status, STATUS_OK);
    (void)snprintf(keeper->foreseen, sizeof keeper->foreseen, "%s", text);
    atomic_store(&keeper->foreseen_status, (int)status);
}

void keeper_set_limit(struct keeper *keeper, uint64_t limit_ns, uint64_t grace_ns)
{
    atomic_store(&keeper->grace_ns, grace_ns);
    atomic_store(&keeper->limit_ns, limit_ns);
}
