/* The text of a rehearsed fault: comma-separated key=value, each key once. */
#include "comm/fault.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static const char usage[] = "rank=R,op=N,kind=kill|stop|delay:2s|skip|flip:BYTE[:resealed]|short|oom|disk-full";

/* A decimal number at *at, which moves behind it. */
static bool number(const char **at, uint64_t *ret)
{
    char *end = NULL;

    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    *ret = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0;
}

static bool duration(const char **at, uint64_t *ret)
{
    uint64_t value = 0;
    uint64_t unit = NS_PER_S;

    if (!number(at, &value))
        return false;
    if (!strncmp(*at, "ms", 2)) {
        unit = NS_PER_MS;
        *at += 1;
    } else if (**at != 's') {
        return false;
    }
    *at += 1;
    return !__builtin_mul_overflow(value, unit, ret);
}

static bool word(const char **at, const char *name)
{
    size_t bytes = strlen(name);

    if (strncmp(*at, name, bytes) != 0)
        return false;
    *at += bytes;
    return true;
}

static bool kind(const char **at, struct fault *ret)
{
    static const struct {
        const char *name;
        enum fault_kind kind;
    } plain[] = {{"kill", FAULT_KILL},   {"stop", FAULT_STOP}, {"skip", FAULT_SKIP},
                 {"short", FAULT_SHORT}, {"oom", FAULT_OOM},   {"disk-full", FAULT_DISK_FULL}};

    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (word(at, plain[i].name)) {
            ret->kind = plain[i].kind;
            return true;
        }
    }
    if (word(at, "delay:")) {
        ret->kind = FAULT_DELAY;
        return duration(at, &ret->delay_ns);
    }
    if (!word(at, "flip:") || !number(at, &ret->byte))
        return false;
    ret->kind = FAULT_FLIP;
    ret->resealed = word(at, ":resealed");
    return true;
}

enum status fault_parse(const char *text, struct fault *ret, struct error *err)
{
    struct fault fault = {0};
    const char *at = text;
    bool rank = false;
    bool op = false;
    bool what = false;

    for (;;) {
        const char *part = at;
        uint64_t value = 0;
        bool good = false;

        if (!rank && word(&at, "rank=")) {
            good = rank = number(&at, &value) && value <= INT_MAX;
            fault.rank = (int)value;
        } else if (!op && word(&at, "op=")) {
            good = op = number(&at, &fault.operation);
        } else if (!what && word(&at, "kind=")) {
            good = what = kind(&at, &fault);
        }
        if (!good || (*at && *at != ','))
            return error_set(err, STATUS_USAGE, "fault \"%.100s\": at \"%.40s\"; expected %s", text, part, usage);
        if (!*at++)
            break;
    }
    if (!rank || !op || !what)
        return error_set(err, STATUS_USAGE, "fault \"%.100s\": %s is missing; expected %s", text,
                         !rank ? "rank"
                         : !op ? "op"
                               : "kind",
                         usage);
    *ret = fault;
    return STATUS_OK;
}

bool fault_missed(const struct fault *fault, const struct fault_run *run, char *line, size_t line_bytes)
{
    if (fault->operation >= run->operations)
        (void)snprintf(line, line_bytes,
                       "fault rank=%d,op=%" PRIu64 " was never reached: the rank posted %" PRIu64 " operations",
                       fault->rank, fault->operation, run->operations);
    else if (fault->kind == FAULT_DISK_FULL && !run->has_recorder)
        (void)snprintf(line, line_bytes,
                       "fault rank=%d,op=%" PRIu64 ",kind=disk-full did nothing: without a run_dir the rank writes no "
                       "file",
                       fault->rank, fault->operation);
    else if (fault->kind == FAULT_FLIP && run->armed)
        (void)snprintf(line, line_bytes,
                       "fault rank=%d,op=%" PRIu64 ",kind=flip:%" PRIu64 " never happened: the rank sent no frame of "
                       "more than %" PRIu64 " bytes from then on",
                       fault->rank, fault->operation, fault->byte, fault->byte);
    else if (fault->kind == FAULT_SHORT && run->armed)
        (void)snprintf(line, line_bytes,
                       "fault rank=%d,op=%" PRIu64 ",kind=short never happened: the rank sent no frame from then on",
                       fault->rank, fault->operation);
    else
        return false;
    return true;
}
