/* mpirun sends SIGTERM, and SIGKILL a second later, or at once when one of the processes has ended meanwhile.  So all
 * keepers look, none leaves before one has said what they see, and none while a neighbour has yet to mark its rank:
 * that one would be killed before it could, and be taken for gone by another host.  Cost: a read of 1 KiB for each of
 * at most 256 ranks and each of at most six looks; one look where nobody has gone. */
#include "launcher/gone.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/recorder.h"
#include "launcher/keeper_private.h"
#include "launcher/process.h"

enum { LOOKS = 6, LOOKED_AT = 256 };

#define LOOK_NS (100 * NS_PER_MS)
/* The starter takes a second until it ends the others of a rank that has gone, so a rank of another host that was alive
 * shortly before this keeper was told to end has not begun that: it is ended too, by whoever ended this one. */
#define SILENT_NS (600 * NS_PER_MS)
/* Clocks of two hosts may differ by this; an older file is of an earlier run under the same id. */
#define SKEW_NS (60 * NS_PER_S)

static bool cause_is_known(const char *run_dir)
{
    char path[PATH_MAX + 16];
    int length = snprintf(path, sizeof path, "%s/cause.json", run_dir);

    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

/* A rank whose file says that it runs, though it should have been marked by now. */
struct candidate {
    struct gone gone;
    uint64_t seen_unix_ns; /* its last sign of life */
    bool alive;            /* it is still there, on this host */
    bool awake;            /* and is not stopped: its keeper will mark it soon */
};

static bool unmarked(const struct keeper *keeper, int rank, const char *host, uint64_t told_unix_ns,
                     struct candidate *ret)
{
    struct recorder_sign sign;
    struct process process;

    if (!recorder_sign(keeper->run_dir, rank, &sign) || sign.end != RECORDER_RUNNING || sign.size != keeper->size)
        return false;
    *ret = (struct candidate){.gone = {.rank = rank}, .seen_unix_ns = sign.started_unix_ns + sign.written_ns};
    (void)snprintf(ret->gone.host, sizeof ret->gone.host, "%s", sign.host);
    if (strncmp(sign.host, host, sizeof sign.host - 1) != 0)
        return sign.started_unix_ns + SKEW_NS > keeper->begun_unix_ns && ret->seen_unix_ns + SILENT_NS <= told_unix_ns;
    ret->alive = process_read(sign.pid, &process) && process.state != 'Z';
    ret->awake = ret->alive && process.state != 'T' && process.state != 't';
    ret->gone.certain = !ret->alive;
    return sign.started_unix_ns > keeper->begun_unix_ns;
}

/* The one that fell silent first: where one has gone its starter's daemon may have killed its neighbours, too fast for
 * their keepers.  In a large job only those behind this rank are looked at, so that each is by many.  *ret_awake: one
 * of this host is awake and not marked. */
static bool find(const struct keeper *keeper, const char *host, uint64_t told_unix_ns, struct gone *ret,
                 bool *ret_awake)
{
    int first = keeper->size > LOOKED_AT ? keeper->rank : 0;
    int count = keeper->size > LOOKED_AT ? LOOKED_AT : keeper->size;
    uint64_t earliest_ns = UINT64_MAX;

    *ret_awake = false;
    for (int i = 0; i < count; i++) {
        int rank = (int)(((int64_t)first + i) % keeper->size);
        struct candidate candidate;

        if (rank == keeper->rank || !unmarked(keeper, rank, host, told_unix_ns, &candidate))
            continue;
        *ret_awake = *ret_awake || candidate.awake;
        if (candidate.alive || candidate.seen_unix_ns >= earliest_ns)
            continue;
        earliest_ns = candidate.seen_unix_ns;
        *ret = candidate.gone;
    }
    return earliest_ns != UINT64_MAX;
}

/* Whoever saved the cause is about to print it. */
static bool let_it_speak(void)
{
    clock_sleep_ns(LOOK_NS);
    return false;
}

bool gone_find(const struct keeper *keeper, const char *host, struct gone *ret)
{
    uint64_t told_unix_ns = clock_unix_ns();
    bool found = false;
    bool awake = false;

    if (!keeper->run_dir[0])
        return false;
    for (int look = 0; look < LOOKS; look++) {
        if (cause_is_known(keeper->run_dir))
            return let_it_speak();
        found = find(keeper, host, told_unix_ns, ret, &awake);
        if (!found && !awake)
            return false;
        if (found && ret->certain && look) /* a keeper that lives has marked it since the last look */
            return true;
        clock_sleep_ns(LOOK_NS);
    }
    return cause_is_known(keeper->run_dir) ? let_it_speak() : found;
}

void gone_let_mark(const struct keeper *keeper, const char *host)
{
    struct gone gone;
    bool awake = true;

    for (int look = 0; look < LOOKS && awake; look++) {
        if (look)
            clock_sleep_ns(LOOK_NS);
        (void)find(keeper, host, 0, &gone, &awake);
    }
}
