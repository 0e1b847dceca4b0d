/* The verdict over a memory, and the size of this machine's. */
#include "base/fit.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

enum { TIGHT_PARTS = 17, TIGHT_OF = 20 }; /* 85 % */

/* used > 17/20 total.  The part of total that 20 divides goes through without a remainder, so that nothing wraps. */
static bool is_tight(uint64_t used, uint64_t total)
{
    return used > total / TIGHT_OF * TIGHT_PARTS + total % TIGHT_OF * TIGHT_PARTS / TIGHT_OF;
}

enum fit would_fit(uint64_t bytes, struct memory_space space)
{
    uint64_t used;

    if (!space.total && !space.available)
        return FIT_UNKNOWN;
    if (space.available != MEMORY_UNKNOWN && bytes > space.available)
        return FIT_NOT;
    if (!space.total || space.total == MEMORY_UNKNOWN || space.available == MEMORY_UNKNOWN)
        return FIT_UNKNOWN;
    used = space.total > space.available ? space.total - space.available : 0;
    if (__builtin_add_overflow(used, bytes, &used))
        return FIT_NOT;
    return is_tight(used, space.total) ? FIT_TIGHT : FIT_COMFORTABLE;
}

const char *fit_name(enum fit fit)
{
    static const char *const names[] = {"unknown", "comfortable", "tight", "will not fit"};

    return (unsigned)fit < sizeof names / sizeof *names ? names[fit] : names[0];
}

struct memory_space memory_here(void)
{
    struct memory_space space = {MEMORY_UNKNOWN, MEMORY_UNKNOWN};
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib;

    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemTotal: %" SCNu64, &kib) == 1)
            space.total = kib * 1024;
        else if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            space.available = kib * 1024;
    }
    if (file)
        (void)fclose(file);
    return space;
}
