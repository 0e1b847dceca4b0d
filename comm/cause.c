/* cause.json is written under a temporary name and published by link(2), which refuses to replace: the first cause of
 * a run stays, whichever rank or keeper comes later. */
#include "comm/cause.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

enum { HOSTS_TOLD = 4 };

/* Bytes of the UTF-8 sequence at s; 0 when it is none (a name may have been cut inside a character). */
static int utf8_length(const unsigned char *s)
{
    int length = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : 4;

    if ((s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4)
        return 0;
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return length;
}

static void add_string(struct text *json, const char *key, const char *value)
{
    const unsigned char *s = (const unsigned char *)value;

    text_add(json, "  \"%s\": \"", key);
    while (*s) {
        int length = utf8_length(s);

        if (*s == '"' || *s == '\\')
            text_add(json, "\\%c", *s);
        else if (*s < 0x20)
            text_add(json, "\\u%04x", *s);
        else if (length)
            text_add_bytes(json, s, (size_t)length);
        else
            text_add(json, "\\ufffd");
        s += length ? length : 1;
    }
    text_add(json, "\",\n");
}

static void compose(struct text *json, const struct cause *cause, const char *last)
{
    char host[64] = "";

    (void)gethostname(host, sizeof host - 1);
    text_add(json, "{\n");
    add_string(json, "status", status_name(cause->status));
    text_add(json, "  \"exit_code\": %d,\n  \"rank\": %d,\n  \"reporter\": %d,\n", status_exit_code(cause->status),
             cause->rank, cause->reporter);
    add_string(json, "written_on", host);
    add_string(json, "text", cause->text);
    if (last)
        add_string(json, "last_operation", last);
    text_add(json, "  \"epoch\": %" PRIu64 ",\n  \"seconds\": %.3f\n}\n", cause->epoch, (double)cause->time_ns / 1e9);
}

static bool write_all(int file, const char *bytes, size_t count)
{
    while (count) {
        ssize_t wrote = write(file, bytes, count);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        bytes += wrote;
        count -= (size_t)wrote;
    }
    return fsync(file) == 0;
}

enum { ABSENT = -2 };

static long number_behind(const char *json, const char *key)
{
    const char *at = strstr(json, key);

    return at ? strtol(at + strlen(key), NULL, 10) : ABSENT;
}

/* Has the cause that is there been told to whoever would read ours?  So it is when a rank found it in what it does or
 * what it got, when its culprit itself, or its keeper, wrote it, when it blames the same rank or none in particular, or
 * when it is empty: the mark of one that a full disk did not take.  A rank of another part of a job whose network is
 * cut writes that it lost one, or waits for it, as well, but nobody who sees this part reads what it prints. */
static bool is_told(const char *path, int rank)
{
    char json[512];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count;
    long blamed;
    long code;

    if (file < 0)
        return false;
    count = read(file, json, sizeof json - 1);
    close(file);
    json[count > 0 ? count : 0] = '\0';
    code = number_behind(json, "\"exit_code\": ");
    blamed = number_behind(json, "\"rank\": ");
    if (count == 0 || blamed == ABSENT)
        return count == 0;
    if (code != status_exit_code(STATUS_TIMEOUT) && code != status_exit_code(STATUS_LOST))
        return true;
    return blamed == -1 || blamed == rank || blamed == number_behind(json, "\"reporter\": ");
}

static enum status publish(const char *temporary, const char *path, const struct text *json, int rank, bool *ret_first,
                           struct error *err)
{
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int why = 0;

    if (file < 0)
        return error_set(err, STATUS_STORAGE, "%s: %s", temporary, strerror(errno));
    if (json->failed || !write_all(file, json->bytes, json->length)) {
        why = json->failed ? ENOMEM : errno;
        if (ftruncate(file, 0) != 0)
            why = errno;
    }
    close(file);
    if (link(temporary, path) != 0) {
        int link_why = errno;

        *ret_first = link_why != EEXIST || !is_told(path, rank);
        why = why || link_why == EEXIST ? why : link_why;
    }
    unlink(temporary);
    return why ? error_set(err, STATUS_STORAGE, "%s: %s", path, strerror(why)) : STATUS_OK;
}

enum status cause_save(const char *run_dir, const struct cause *cause, const char *last, bool *ret_first,
                       struct error *err)
{
    struct text json = {0};
    struct text path = {0};
    struct text temporary = {0};
    char host[64] = "";
    bool first = true;
    enum status st;

    (void)gethostname(host, sizeof host - 1);
    text_add(&path, "%s/cause.json", run_dir);
    text_add(&temporary, "%s/.cause.%s.%d", run_dir, host, (int)getpid());
    compose(&json, cause, last);
    if (path.failed || temporary.failed)
        st = error_set(err, STATUS_NOMEM, "cause.json");
    else
        st = publish(temporary.bytes, path.bytes, &json, cause->rank, &first, err);
    if (ret_first)
        *ret_first = first;
    text_done(&json);
    text_done(&path);
    text_done(&temporary);
    return st;
}

/* The next "rank N" at *at or behind it; *at moves behind it.  -1: there is none. */
static long next_rank(const char **at, const char *text)
{
    static const char word[] = "rank ";

    while ((*at = strstr(*at, word)) != NULL) {
        const char *number = *at + strlen(word);
        bool whole = *at == text || !isalnum((unsigned char)(*at)[-1]);

        *at = number;
        if (whole && isdigit((unsigned char)*number)) {
            char *end;
            long rank = strtol(number, &end, 10);

            *at = end;
            return rank;
        }
    }
    return -1;
}

void cause_add_hosts(struct cause *cause, const struct transport_ops *ops, const struct transport *transport)
{
    long told[HOSTS_TOLD];
    int count = 0;
    char text[sizeof cause->text];
    const char *at = text;
    long rank;

    memcpy(text, cause->text, sizeof text);
    while (ops->host && count < HOSTS_TOLD && (rank = next_rank(&at, text)) >= 0) {
        const char *host = rank < ops->size(transport) ? ops->host(transport, (int)rank) : NULL;
        size_t used = strlen(cause->text);
        bool known = !host || strstr(text, host) || used + strlen(host) + 32 > sizeof cause->text;

        for (int i = 0; i < count && !known; i++)
            known = told[i] == rank;
        if (known)
            continue;
        (void)snprintf(cause->text + used, sizeof cause->text - used, "%s rank %ld runs on %s", count ? "," : ";", rank,
                       host);
        told[count++] = rank;
    }
}

void cause_forget(const char *run_dir)
{
    struct text path = {0};

    text_add(&path, "%s/cause.json", run_dir);
    if (!path.failed)
        (void)unlink(path.bytes);
    text_done(&path);
}

/* A lost rank and a timeout are what others see of a failure; anything else is what somebody found itself. */
static int cause_class(const struct cause *cause)
{
    if (cause->status == STATUS_TIMEOUT)
        return 2;
    return cause->status == STATUS_LOST ? 1 : 0;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

int cause_compare(const struct cause *a, const struct cause *b)
{
    int order = cause_class(a) - cause_class(b);

    if (!order)
        order = compare_u64(a->time_ns, b->time_ns);
    if (!order)
        order = (a->reporter > b->reporter) - (a->reporter < b->reporter);
    return order;
}
