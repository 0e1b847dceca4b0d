/* A line is formatted whole, then written with one write(2), so that lines of several ranks do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum log_level max_level = LOG_INFO;
static _Thread_local char rank_tag[96];

void log_set_level(enum log_level level)
{
    max_level = level;
}

void log_set_tag(const char *tag)
{
    (void)snprintf(rank_tag, sizeof rank_tag, "%s", tag);
}

const char *log_tag(void)
{
    return rank_tag;
}

void log_line(enum log_level level, const char *format, ...)
{
    static const char *const word[] = {"error: ", "warning: ", "", "debug: "};
    char line[4096];
    int used;
    va_list args;

    if (level > max_level)
        return;
    used = snprintf(line, sizeof line, "ferry: %s%s%s", rank_tag, rank_tag[0] ? ": " : "", word[level]);
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    if (more < 0)
        return;
    used += more;
    if ((size_t)used > sizeof line - 2)
        used = (int)sizeof line - 2;
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)used);
    (void)written;
}
