/* mpirun sends SIGTERM, and SIGKILL a second later, or at once when one of the processes has ended meanwhile.  So all
 * keepers look, and none leaves before one has said what they see.  Cost: a read of 1 KiB for each of at most 256 ranks
 * and each of at most six looks; one look where nobody has gone. */
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
/* Clocks of two hosts may differ by this; an older file is of an earlier run under the same id. */
#define SKEW_NS (60 * NS_PER_S)

static bool cause_is_known(const char *run_dir)
{
    char path[PATH_MAX + 16];
    int length = snprintf(path, sizeof path, "%s/cause.json", run_dir);

    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

/* Does the rank's file say that it runs, though it should have been marked by now? */
static bool unmarked(const struct keeper *keeper, int rank, const char *host, struct gone *ret)
{
    struct recorder_sign sign;
    struct process process;

    if (!recorder_sign(keeper->run_dir, rank, &sign) || sign.end != RECORDER_RUNNING || sign.size != keeper->size)
        return false;
    ret->rank = rank;
    (void)snprintf(ret->host, sizeof ret->host, "%s", sign.host);
    if (strncmp(sign.host, host, sizeof sign.host - 1) != 0) {
        ret->certain = false;
        return sign.started_unix_ns + SKEW_NS > keeper->begun_unix_ns;
    }
    ret->certain = !process_read(sign.pid, &process) || process.state == 'Z';
    return ret->certain && sign.started_unix_ns > keeper->begun_unix_ns;
}

/* The lowest; in a large job the first behind this rank, so that each rank is looked at by many. */
static bool find(const struct keeper *keeper, const char *host, struct gone *ret)
{
    int first = keeper->size > LOOKED_AT ? keeper->rank : 0;
    int count = keeper->size > LOOKED_AT ? LOOKED_AT : keeper->size;

    for (int i = 0; i < count; i++) {
        int rank = (int)(((int64_t)first + i) % keeper->size);

        if (rank != keeper->rank && unmarked(keeper, rank, host, ret))
            return true;
    }
    return false;
}

/* Whoever saved the cause is about to print it. */
static bool let_it_speak(void)
{
    clock_sleep_ns(LOOK_NS);
    return false;
}

bool gone_find(const struct keeper *keeper, const char *host, struct gone *ret)
{
    if (!keeper->run_dir[0])
        return false;
    for (int look = 0; look < LOOKS; look++) {
        if (cause_is_known(keeper->run_dir))
            return let_it_speak();
        if (!find(keeper, host, ret))
            return false;
        if (ret->certain && look) /* a keeper that lives has marked it since the last look */
            return true;
        clock_sleep_ns(LOOK_NS);
    }
    return cause_is_known(keeper->run_dir) ? let_it_speak() : true;
}
