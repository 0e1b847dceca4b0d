/* Names, exit codes and the two ways to write an error's sentence. */
#define STATUS_DEFINES
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int exit_code;
} table[STATUS_COUNT] = {
    [STATUS_OK] = {"ok", 0},
    [STATUS_INTERNAL] = {"internal", 1},
    [STATUS_USAGE] = {"usage", 2},
    [STATUS_TOPOLOGY] = {"topology", 3},
    [STATUS_MODEL] = {"model", 4},
    [STATUS_ENVIRONMENT] = {"environment", 5},
    [STATUS_NOMEM] = {"out of memory", 5},
    [STATUS_OVERFLOW] = {"over a limit", 5},
    [STATUS_INVALID] = {"invalid argument", 2},
    [STATUS_UNSUPPORTED] = {"unsupported", 4},
    [STATUS_MISMATCH] = {"mismatch", 6},
    [STATUS_CORRUPT] = {"corrupt", 6},
    [STATUS_TIMEOUT] = {"timeout", 7},
    [STATUS_LOST] = {"rank lost", 8},
    [STATUS_STORAGE] = {"storage", 9},
    [STATUS_TRANSPORT] = {"transport", 5},
    [STATUS_STOPPED] = {"stopped", 10},
};

const char *status_name(enum status st)
{
    return st < STATUS_COUNT ? table[st].name : "unknown";
}

int status_exit_code(enum status st)
{
    return st < STATUS_COUNT ? table[st].exit_code : 1;
}

enum status error_set(struct error *err, enum status st, const char *format, ...)
{
    va_list args;

    if (!err)
        return st;
    err->status = st;
    err->blamed = 0;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return st;
}

enum status error_wrap(struct error *err, enum status st, const char *format, ...)
{
    char context[512];
    char old[sizeof err->text];
    va_list args;

    if (!err)
        return st;
    va_start(args, format);
    (void)vsnprintf(context, sizeof context, format, args);
    va_end(args);
    memcpy(old, err->text, sizeof old);
    err->status = st;
    (void)snprintf(err->text, sizeof err->text, "%s: %.1500s", context, old);
    return st;
}

_Noreturn void check_failed(const char *expression, const char *file, int line)
{
    (void)fprintf(stderr,
                  "ferry: error: internal: this is a mistake of Ferry itself, please report this line: at %s:%d it is "
                  "not so that %s\n",
                  file, line, expression);
    abort();
}

_Noreturn void rule_broken(const char *rule, const char *file, int line)
{
    (void)fprintf(stderr, "ferry: error: the program that calls Ferry broke a rule: %s (%s:%d)\n", rule, file, line);
    abort();
}
