/* The verdict over a memory, and the size of this machine's. */
#include "runtime/fit.h"

#include <inttypes.h>
#include <stdio.h>

enum fit would_fit(uint64_t bytes, struct memory_size memory)
{
    uint64_t used;

    if (!memory.total && !memory.available)
        return FIT_UNKNOWN;
    if (memory.available != MEMORY_UNKNOWN && bytes > memory.available)
        return FIT_NOT;
    if (!memory.total || memory.total == MEMORY_UNKNOWN || memory.available == MEMORY_UNKNOWN)
        return FIT_UNKNOWN;
    used = memory.total > memory.available ? memory.total - memory.available : 0;
    if (__builtin_add_overflow(used, bytes, &used))
        return FIT_NOT;
    return (double)used > 0.85 * (double)memory.total ? FIT_TIGHT : FIT_COMFORTABLE;
}

const char *fit_name(enum fit fit)
{
    static const char *const names[] = {"unknown", "comfortable", "tight", "will not fit"};

    return (unsigned)fit < sizeof names / sizeof *names ? names[fit] : names[0];
}

struct memory_size memory_here(void)
{
    struct memory_size memory = {MEMORY_UNKNOWN, MEMORY_UNKNOWN};
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib;

    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemTotal: %" SCNu64, &kib) == 1)
            memory.total = kib * 1024;
        else if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            memory.available = kib * 1024;
    }
    if (file)
        (void)fclose(file);
    return memory;
}
