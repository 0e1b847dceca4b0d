/* One thread asleep on a condition with a deadline.  It ends the process with _exit: MPI's and the C library's exit
 * functions may be what hangs. */
#include "launcher/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

struct watchdog {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    uint64_t armed_ns;    /* when the phase began */
    uint64_t deadline_ns; /* UINT64_MAX: not armed */
    uint64_t leave_ns;    /* UINT64_MAX: not leaving */
    int leave_code;
    char phase[64];
    char limit[64];
    char tag[96];
    watchdog_explain *explain;
    void *explain_context;
    watchdog_words *words;
    void *words_context;
};

/* How long one that says nothing outlives its phase, so that the one that speaks is not ended by the starter before. */
#define SILENT_NS (600 * NS_PER_MS)

static void say(const struct watchdog *watchdog, const struct text *why)
{
    double seconds = (double)(clock_ns() - watchdog->armed_ns) / (double)NS_PER_S;
    bool limited = watchdog->limit[0];
    char line[2048];

    (void)snprintf(line, sizeof line, "%s has not ended within %.1f s%s%s%s: %s%sthis process ends", watchdog->phase,
                   seconds, limited ? " (" : "", watchdog->limit, limited ? ")" : "", text_string(why),
                   why->length ? "; " : "");
    if (watchdog->words)
        watchdog->words(watchdog->words_context, line);
    else
        log_error("%s", line);
}

static void bark(struct watchdog *watchdog)
{
    struct text why = {0};

    log_set_tag(watchdog->tag);
    if (!watchdog->explain || watchdog->explain(watchdog->explain_context, &why))
        say(watchdog, &why);
    else
        clock_sleep_ns(SILENT_NS);
    _exit(status_exit_code(STATUS_TIMEOUT));
}

static void *watch(void *context)
{
    struct watchdog *watchdog = context;

    (void)pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->stop) {
        uint64_t next = watchdog->deadline_ns < watchdog->leave_ns ? watchdog->deadline_ns : watchdog->leave_ns;
        uint64_t now = clock_ns();

        if (watchdog->leave_ns <= now)
            _exit(watchdog->leave_code);
        if (watchdog->deadline_ns <= now)
            bark(watchdog);
        if (next == UINT64_MAX) {
            (void)pthread_cond_wait(&watchdog->changed, &watchdog->lock);
        } else {
            struct timespec until = {.tv_sec = (time_t)(next / NS_PER_S), .tv_nsec = (long)(next % NS_PER_S)};

            (void)pthread_cond_timedwait(&watchdog->changed, &watchdog->lock, &until);
        }
    }
    (void)pthread_mutex_unlock(&watchdog->lock);
    return NULL;
}

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

enum status watchdog_create(struct watchdog **ret, struct error *err)
{
    struct watchdog *watchdog = calloc(1, sizeof *watchdog);
    int code;

    if (!watchdog)
        return error_set(err, STATUS_NOMEM, "watchdog");
    watchdog->deadline_ns = UINT64_MAX;
    watchdog->leave_ns = UINT64_MAX;
    (void)pthread_mutex_init(&watchdog->lock, NULL);
    init_condition(&watchdog->changed);
    code = pthread_create(&watchdog->thread, NULL, watch, watchdog);
    if (code) {
        free(watchdog);
        return error_set(err, STATUS_ENVIRONMENT, "cannot start the watchdog's thread: %s", strerror(code));
    }
    *ret = watchdog;
    return STATUS_OK;
}

void watchdog_destroy(struct watchdog *watchdog)
{
    if (!watchdog)
        return;
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->stop = true;
    (void)pthread_cond_signal(&watchdog->changed);
    (void)pthread_mutex_unlock(&watchdog->lock);
    (void)pthread_join(watchdog->thread, NULL);
    (void)pthread_cond_destroy(&watchdog->changed);
    (void)pthread_mutex_destroy(&watchdog->lock);
    free(watchdog);
}

void watchdog_arm(struct watchdog *watchdog, uint64_t deadline_ns, const char *phase, const char *limit)
{
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->armed_ns = clock_ns();
    watchdog->deadline_ns = deadline_ns;
    watchdog->explain = NULL;
    (void)snprintf(watchdog->phase, sizeof watchdog->phase, "%s", phase);
    (void)snprintf(watchdog->limit, sizeof watchdog->limit, "%s", limit ? limit : "");
    (void)snprintf(watchdog->tag, sizeof watchdog->tag, "%s", log_tag());
    (void)pthread_cond_signal(&watchdog->changed);
    (void)pthread_mutex_unlock(&watchdog->lock);
}

void watchdog_speak(struct watchdog *watchdog, watchdog_words *words, void *context)
{
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->words = words;
    watchdog->words_context = context;
    (void)pthread_mutex_unlock(&watchdog->lock);
}

void watchdog_ask(struct watchdog *watchdog, watchdog_explain *explain, void *context)
{
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->explain = explain;
    watchdog->explain_context = context;
    (void)pthread_mutex_unlock(&watchdog->lock);
}

void watchdog_disarm(struct watchdog *watchdog)
{
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->deadline_ns = UINT64_MAX;
    (void)pthread_mutex_unlock(&watchdog->lock);
}

void watchdog_leave(struct watchdog *watchdog, uint64_t within_ns, int exit_code)
{
    (void)signal(SIGTERM, SIG_IGN);
    (void)pthread_mutex_lock(&watchdog->lock);
    if (watchdog->leave_ns == UINT64_MAX) {
        watchdog->leave_ns = clock_ns() + within_ns;
        watchdog->leave_code = exit_code;
        watchdog->deadline_ns = UINT64_MAX;
    }
    (void)pthread_cond_signal(&watchdog->changed);
    (void)pthread_mutex_unlock(&watchdog->lock);
}
