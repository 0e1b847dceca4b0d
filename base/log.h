/* One line an event on stderr, one write a line, tagged with the rank.  Only the launcher speaks; libraries return. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* Set once in main (level) and once the rank is known (tag, e.g. "rank 3/8 stage 1"; copied; thread-local). */
void log_set_level(enum log_level level);
void log_set_tag(const char *tag);
const char *log_tag(void);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
