/* A file that is cut while it is mapped answers a load behind its end with SIGBUS.  The handler finds the file by the
 * address, says so in one line and ends the process: nothing can be computed any more, and the reader of the line must
 * not have to guess.  Only async-signal-safe calls: atomics, write, _exit. */
#include "checkpoint/mappings.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"

/* begin 0: free, 1: being written by the thread that took it.  The handler trusts a slot only when begin is greater. */
static struct {
    atomic_uintptr_t begin;
    uintptr_t end;
    const char *path;
} table[MAPPINGS_LIMIT];

static void (*say_last_words)(void *context, const char *line);
static void *last_words_context;

enum status mappings_add(const void *begin, size_t bytes, const char *path, struct error *err)
{
    for (size_t i = 0; i < MAPPINGS_LIMIT; i++) {
        uintptr_t empty = 0;

        if (!atomic_compare_exchange_strong(&table[i].begin, &empty, 1))
            continue;
        table[i].end = (uintptr_t)begin + bytes;
        table[i].path = path;
        atomic_store(&table[i].begin, (uintptr_t)begin);
        return STATUS_OK;
    }
    return error_set(err, STATUS_OVERFLOW, "%s: more than %d files are mapped", path, MAPPINGS_LIMIT);
}

void mappings_remove(const void *begin)
{
    for (size_t i = 0; i < MAPPINGS_LIMIT; i++) {
        uintptr_t mine = (uintptr_t)begin;

        if (atomic_compare_exchange_strong(&table[i].begin, &mine, 0))
            return;
    }
}

struct line {
    char bytes[1024];
    size_t length;
};

static void line_add(struct line *line, const char *word)
{
    while (*word && line->length + 2 < sizeof line->bytes)
        line->bytes[line->length++] = *word++;
    line->bytes[line->length] = '\0';
}

static void line_add_number(struct line *line, uint64_t number)
{
    char digits[24];
    size_t at = sizeof digits - 1;

    digits[at] = '\0';
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    line_add(line, digits + at);
}

static void explain(const char *path, uint64_t offset)
{
    struct line line = {.length = 0};
    ssize_t written;

    if (!say_last_words)
        line_add(&line, "ferry: error: storage: ");
    line_add(&line, "file ");
    line_add(&line, path);
    line_add(&line, " was cut: no data at offset ");
    line_add_number(&line, offset);
    if (say_last_words) {
        say_last_words(last_words_context, line.bytes);
        return;
    }
    line_add(&line, "\n");
    written = write(STDERR_FILENO, line.bytes, line.length);
    (void)written;
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    uintptr_t address = (uintptr_t)info->si_addr;

    (void)context;
    for (size_t i = 0; i < MAPPINGS_LIMIT; i++) {
        uintptr_t begin = atomic_load(&table[i].begin);

        if (begin > 1 && address >= begin && address < table[i].end) {
            explain(table[i].path, address - begin);
            _exit(status_exit_code(STATUS_STORAGE));
        }
    }
    /* Not ours: die as if there were no handler. */
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

void checkpoint_catch_sigbus(void (*last_words)(void *context, const char *line), void *context)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    say_last_words = last_words;
    last_words_context = context;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, NULL);
}
