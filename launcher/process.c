/* /proc/PID/stat: "PID (NAME) STATE PARENT ...", where NAME may hold anything, brackets too. */
#include "launcher/process.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { LINE_BYTES = 1024 };

/* Field 22: ticks since the boot. */
static uint64_t started_unix_ns(uint64_t ticks)
{
    struct timespec boot;
    long per_s = sysconf(_SC_CLK_TCK);
    uint64_t since_boot_ns;
    uint64_t started_ns = per_s > 0 ? ticks * (NS_PER_S / (uint64_t)per_s) : 0;

    if (clock_gettime(CLOCK_BOOTTIME, &boot))
        return 0;
    since_boot_ns = (uint64_t)boot.tv_sec * NS_PER_S + (uint64_t)boot.tv_nsec;
    return clock_unix_ns() - since_boot_ns + started_ns;
}

static bool parse(char *line, struct process *ret)
{
    char *open = strchr(line, '(');
    char *close = strrchr(line, ')');
    unsigned long long ticks;

    if (!open || !close || close < open)
        return false;
    *close = '\0';
    (void)snprintf(ret->name, sizeof ret->name, "%s", open + 1);
    /* NOLINTNEXTLINE(cert-err34-c): numbers of the kernel's */
    if (sscanf(close + 1, " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &ret->state, &ret->parent, &ticks) != 3)
        return false;
    ret->started_unix_ns = started_unix_ns(ticks);
    return true;
}

bool process_read(int pid, struct process *ret)
{
    char path[64];
    char line[LINE_BYTES];
    FILE *file;
    bool good;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    file = fopen(path, "re");
    good = file && fgets(line, sizeof line, file) && parse(line, ret);
    if (file)
        fclose(file);
    return good;
}
