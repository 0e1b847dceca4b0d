/* The flight recorder's file: a header of 1024 bytes, then RECORDER_RECORDS records of 192 bytes, little-endian.
 *
 * header   0 magic u64   8 version u32   12 records u32   16 bytes of a record u32   20 rank   24 size   28 pid (i32)
 *         32 host [64]   96 start, Unix ns u64   104 last sign of life, ns since the start u64   112 next number u64
 *        120 end u32   124 its status or signal u32   128 ended, ns since the start u64   248 writes of now u64
 *        256 now: waiting u32, operation u32, object u32, peer i32, sequence u64, since u64, counter u64,
 *            object name [64], phase [64]
 * record   0 head u64   8 operation u32   12 object u32   16 peer i32   20 state u16   22 status u16   24 sequence u64
 *         32 epoch u64   40 bytes u64   48 posted u64   56 ended u64   64 object name [64]   184 tail u64
 *
 * head and tail hold the record's number + 1.  head is cleared first and set last, so that a reader that meets a
 * writer in the middle sees them differ and leaves the record out.  The count of writes of "now" is odd during one; a
 * reader looks at it before and after.  Cost of a record: 192 bytes of stores. */
#include "comm/recorder.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"

enum {
    HEADER_BYTES = 1024,
    RECORD_BYTES = 192,
    FILE_BYTES = HEADER_BYTES + RECORDER_RECORDS * RECORD_BYTES,
    NAME_BYTES = 64,
    VERSION = 2,
    MAX_RANKS = 1 << 20, /* of a topology */
    READ_TRIES = 20,     /* while its writer is in the middle of "now" */
    AT_RANK = 20,
    AT_SIZE = 24,
    AT_PID = 28,
    AT_HOST = 32,
    AT_STARTED = 96,
    AT_WRITTEN = 104,
    AT_NEXT = 112,
    AT_END = 120,
    AT_END_DETAIL = 124,
    AT_ENDED = 128,
    AT_NOW_WRITES = 248,
    AT_NOW = 256,
    AT_TAIL = 184
};

#define MAGIC UINT64_C(0x4345525952524546) /* "FERRYREC" */

struct recorder {
    unsigned char *file; /* [FILE_BYTES], mapped */
    uint64_t start_ns;
    uint64_t next;
    uint64_t now_writes;
    bool left;
};

enum status recorder_path(const char *run_dir, int rank, char *path, size_t path_bytes)
{
    int length = snprintf(path, path_bytes, "%s/rank-%06d.recorder", run_dir, rank);

    return length < 0 || (size_t)length >= path_bytes ? STATUS_OVERFLOW : STATUS_OK;
}

/* At most NAME_BYTES - 1 bytes, the rest zeros. */
static void put_name(unsigned char *at, const char *name)
{
    size_t length = strnlen(name, NAME_BYTES - 1);

    memcpy(at, name, length);
    memset(at + length, 0, NAME_BYTES - length);
}

/* For a terminal and for JSON: what cannot be printed becomes '?'. */
static void get_name(const unsigned char *at, char name[NAME_BYTES])
{
    memcpy(name, at, NAME_BYTES);
    name[NAME_BYTES - 1] = '\0';
    for (char *c = name; *c; c++) {
        if (!isascii((unsigned char)*c) || !isprint((unsigned char)*c))
            *c = '?';
    }
}

static void put_header(unsigned char *file, int rank, int size)
{
    char host[NAME_BYTES] = "";

    (void)gethostname(host, sizeof host - 1);
    put_u32(file + 8, VERSION);
    put_u32(file + 12, RECORDER_RECORDS);
    put_u32(file + 16, RECORD_BYTES);
    put_u32(file + AT_RANK, (uint32_t)rank);
    put_u32(file + AT_SIZE, (uint32_t)size);
    put_u32(file + AT_PID, (uint32_t)getpid());
    put_name(file + AT_HOST, host);
    put_u64(file + AT_STARTED, clock_unix_ns());
    put_u64(file, MAGIC);
}

/* Map a new file of reserved space.  A mapping of a hole would end in SIGBUS on a full disk. */
static enum status map_new(const char *path, unsigned char **ret, struct error *err)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    void *map = MAP_FAILED;
    int code;

    if (file < 0)
        return error_set(err, STATUS_STORAGE, "%s: %s", path, strerror(errno));
    code = posix_fallocate(file, 0, FILE_BYTES);
    if (code == 0) {
        map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        code = errno;
    }
    close(file);
    if (map == MAP_FAILED)
        return error_set(err, STATUS_STORAGE, "%s: cannot reserve %d bytes: %s", path, FILE_BYTES, strerror(code));
    *ret = map;
    return STATUS_OK;
}

enum status recorder_open(const char *run_dir, int rank, int size, struct recorder **ret, struct error *err)
{
    struct recorder *recorder;
    char path[4096];
    enum status st;

    if (recorder_path(run_dir, rank, path, sizeof path))
        return error_set(err, STATUS_STORAGE, "run_dir %.200s...: the path is too long", run_dir);
    recorder = calloc(1, sizeof *recorder);
    if (!recorder)
        return error_set(err, STATUS_NOMEM, "flight recorder");
    st = map_new(path, &recorder->file, err);
    if (st) {
        free(recorder);
        return st;
    }
    recorder->start_ns = clock_ns();
    put_header(recorder->file, rank, size);
    *ret = recorder;
    return STATUS_OK;
}

void recorder_close(struct recorder *recorder)
{
    if (!recorder)
        return;
    munmap(recorder->file, FILE_BYTES);
    free(recorder);
}

static unsigned char *record_at(unsigned char *file, uint64_t number)
{
    return file + HEADER_BYTES + number % RECORDER_RECORDS * RECORD_BYTES;
}

static uint64_t stamp(struct recorder *recorder)
{
    uint64_t now = clock_ns() - recorder->start_ns;

    put_u64(recorder->file + AT_WRITTEN, now);
    return now;
}

uint64_t recorder_post(struct recorder *recorder, const struct record *record)
{
    unsigned char *at;
    uint64_t number;

    if (!recorder)
        return 0;
    number = recorder->next++;
    at = record_at(recorder->file, number);
    put_u64(at, 0);
    atomic_thread_fence(memory_order_release);
    put_u32(at + 8, record->operation);
    put_u32(at + 12, record->object_id);
    put_u32(at + 16, (uint32_t)record->peer);
    put_u16(at + 20, RECORD_POSTED);
    put_u16(at + 22, STATUS_OK);
    put_u64(at + 24, record->sequence);
    put_u64(at + 32, record->epoch);
    put_u64(at + 40, record->bytes);
    put_u64(at + 48, stamp(recorder));
    put_u64(at + 56, 0);
    memcpy(at + 64, record->object_name, NAME_BYTES);
    at[64 + NAME_BYTES - 1] = 0;
    put_u64(at + AT_TAIL, number + 1);
    atomic_thread_fence(memory_order_release);
    put_u64(at, number + 1);
    put_u64(recorder->file + AT_NEXT, recorder->next);
    return number;
}

void recorder_end(struct recorder *recorder, uint64_t number, enum status st)
{
    unsigned char *at;

    if (!recorder)
        return;
    at = record_at(recorder->file, number);
    if (get_u64(at) != number + 1)
        return;
    put_u64(at + 56, stamp(recorder));
    put_u16(at + 22, (uint16_t)st);
    put_u16(at + 20, st == STATUS_OK ? RECORD_DONE : RECORD_FAILED);
}

void recorder_state(struct recorder *recorder, const struct wait_state *state)
{
    unsigned char *at;

    if (!recorder)
        return;
    at = recorder->file + AT_NOW;
    put_u64(recorder->file + AT_NOW_WRITES, ++recorder->now_writes);
    atomic_thread_fence(memory_order_release);
    put_u32(at, state->waiting);
    put_u32(at + 4, state->operation);
    put_u32(at + 8, state->object_id);
    put_u32(at + 12, (uint32_t)state->peer);
    put_u64(at + 16, state->sequence);
    put_u64(at + 24, state->since_ns > recorder->start_ns ? state->since_ns - recorder->start_ns : 0);
    put_u64(at + 32, state->counter);
    put_name(at + 40, state->object_name);
    put_name(at + 104, state->phase);
    atomic_thread_fence(memory_order_release);
    put_u64(recorder->file + AT_NOW_WRITES, ++recorder->now_writes);
    (void)stamp(recorder);
}

void recorder_phase(struct recorder *recorder, const char *phase)
{
    if (!recorder)
        return;
    put_u64(recorder->file + AT_NOW_WRITES, ++recorder->now_writes);
    atomic_thread_fence(memory_order_release);
    put_name(recorder->file + AT_NOW + 104, phase);
    atomic_thread_fence(memory_order_release);
    put_u64(recorder->file + AT_NOW_WRITES, ++recorder->now_writes);
    (void)stamp(recorder);
}

void recorder_alive(struct recorder *recorder)
{
    if (recorder)
        (void)stamp(recorder);
}

void recorder_leave(struct recorder *recorder, enum status st)
{
    if (!recorder || recorder->left)
        return;
    recorder->left = true;
    put_u64(recorder->file + AT_ENDED, stamp(recorder));
    put_u32(recorder->file + AT_END_DETAIL, st);
    put_u32(recorder->file + AT_END, st == STATUS_OK ? RECORDER_CLOSED : RECORDER_FAILED);
}

/* The end that another process writes. */
static void mark(const char *run_dir, int rank, enum recorder_end end, uint32_t detail, bool unless_ended)
{
    unsigned char header[HEADER_BYTES];
    char path[4096];
    uint64_t started = 0;
    uint64_t now = clock_unix_ns();
    int file = recorder_path(run_dir, rank, path, sizeof path) ? -1 : open(path, O_RDWR | O_CLOEXEC);

    if (file < 0)
        return;
    if (pread(file, header, sizeof header, 0) == HEADER_BYTES && get_u64(header) == MAGIC &&
        get_u32(header + 8) == VERSION && !(unless_ended && get_u32(header + AT_END) != RECORDER_RUNNING)) {
        started = get_u64(header + AT_STARTED);
        put_u32(header + AT_END, end);
        put_u32(header + AT_END_DETAIL, detail);
        put_u64(header + AT_ENDED, now > started ? now - started : 0);
        ssize_t wrote = pwrite(file, header + AT_END, AT_ENDED + 8 - AT_END, AT_END);
        (void)wrote; /* the cause is told anyway */
    }
    close(file);
}

void recorder_mark_killed(const char *run_dir, int rank, int signal)
{
    mark(run_dir, rank, RECORDER_KILLED, (uint32_t)signal, false);
}

void recorder_mark_ended(const char *run_dir, int rank)
{
    mark(run_dir, rank, RECORDER_FAILED, STATUS_LOST, true);
}

bool recorder_sign(const char *run_dir, int rank, struct recorder_sign *ret)
{
    unsigned char header[HEADER_BYTES];
    char path[4096];
    int file = recorder_path(run_dir, rank, path, sizeof path) ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool good = file >= 0 && pread(file, header, sizeof header, 0) == HEADER_BYTES && get_u64(header) == MAGIC &&
                get_u32(header + 8) == VERSION && get_u32(header + AT_RANK) == (uint32_t)rank &&
                get_u32(header + AT_SIZE) <= MAX_RANKS && get_u32(header + AT_END) < RECORDER_END_COUNT;

    if (file >= 0)
        close(file);
    if (!good)
        return false;
    ret->size = (int)get_u32(header + AT_SIZE);
    ret->pid = (int)get_u32(header + AT_PID);
    get_name(header + AT_HOST, ret->host);
    ret->started_unix_ns = get_u64(header + AT_STARTED);
    ret->written_ns = get_u64(header + AT_WRITTEN);
    ret->end = (enum recorder_end)get_u32(header + AT_END);
    return true;
}

/* A number from a file as an operation: one that we do not know is none. */
static enum operation operation_of(uint32_t value)
{
    return value < OPERATION_COUNT ? (enum operation)value : OPERATION_NONE;
}

/* A rank of the job, or -1. */
static int peer_of(uint32_t value, int size)
{
    return value < (uint32_t)size ? (int)value : -1;
}

static void load_state(const unsigned char *at, int size, struct wait_state *ret)
{
    ret->waiting = get_u32(at) != 0;
    ret->operation = operation_of(get_u32(at + 4));
    ret->object_id = get_u32(at + 8);
    ret->peer = peer_of(get_u32(at + 12), size);
    ret->sequence = get_u64(at + 16);
    ret->since_ns = get_u64(at + 24);
    ret->counter = get_u64(at + 32);
    get_name(at + 40, ret->object_name);
    get_name(at + 104, ret->phase);
}

static bool load_record(const unsigned char *at, uint64_t number, int size, struct record *ret)
{
    uint16_t state = get_u16(at + 20);
    uint16_t status = get_u16(at + 22);

    if (get_u64(at) != number + 1 || get_u64(at + AT_TAIL) != number + 1)
        return false;
    ret->number = number;
    ret->operation = operation_of(get_u32(at + 8));
    ret->object_id = get_u32(at + 12);
    ret->peer = peer_of(get_u32(at + 16), size);
    ret->state = state <= RECORD_FAILED ? (enum record_state)state : RECORD_NONE;
    ret->status = status < STATUS_COUNT ? (enum status)status : STATUS_INTERNAL;
    ret->sequence = get_u64(at + 24);
    ret->epoch = get_u64(at + 32);
    ret->bytes = get_u64(at + 40);
    ret->posted_ns = get_u64(at + 48);
    ret->ended_ns = get_u64(at + 56);
    get_name(at + 64, ret->object_name);
    return true;
}

static enum status check_file(const unsigned char *bytes, size_t count, struct error *err)
{
    uint32_t rank;
    uint32_t size;

    if (count < 12 || get_u64(bytes) != MAGIC)
        return error_set(err, STATUS_CORRUPT, "no flight recorder's file: it does not begin with FERRYREC");
    if (get_u32(bytes + 8) != VERSION)
        return error_set(err, STATUS_CORRUPT, "a flight recorder of version %u; this ferry reads version %d",
                         get_u32(bytes + 8), VERSION);
    if (count < FILE_BYTES)
        return error_set(err, STATUS_CORRUPT, "cut short: %zu bytes, a flight recorder has %d", count, FILE_BYTES);
    rank = get_u32(bytes + AT_RANK);
    size = get_u32(bytes + AT_SIZE);
    if (get_u32(bytes + 12) != RECORDER_RECORDS || get_u32(bytes + 16) != RECORD_BYTES || size < 1 ||
        size > MAX_RANKS || rank >= size || get_u32(bytes + AT_END) >= RECORDER_END_COUNT)
        return error_set(err, STATUS_CORRUPT,
                         "a flight recorder that contradicts itself: rank %u of %u, %u records of "
                         "%u bytes, end %u",
                         rank, size, get_u32(bytes + 12), get_u32(bytes + 16), get_u32(bytes + AT_END));
    return STATUS_OK;
}

static void load_end(const unsigned char *bytes, struct recorder_view *ret)
{
    uint32_t detail = get_u32(bytes + AT_END_DETAIL);

    ret->end = (enum recorder_end)get_u32(bytes + AT_END);
    ret->end_status = ret->end == RECORDER_FAILED && detail && detail < STATUS_COUNT ? (enum status)detail : STATUS_OK;
    ret->end_signal = ret->end == RECORDER_KILLED && detail <= 64 ? (int)detail : 0;
    ret->ended_ns = ret->end == RECORDER_RUNNING ? 0 : get_u64(bytes + AT_ENDED);
}

enum status recorder_parse(const unsigned char *bytes, size_t count, struct recorder_view *ret, struct error *err)
{
    enum status st = check_file(bytes, count, err);

    if (st)
        return st;
    ret->rank = (int)get_u32(bytes + AT_RANK);
    ret->size = (int)get_u32(bytes + AT_SIZE);
    ret->pid = (int)get_u32(bytes + AT_PID);
    get_name(bytes + AT_HOST, ret->host);
    ret->started_unix_ns = get_u64(bytes + AT_STARTED);
    ret->written_ns = get_u64(bytes + AT_WRITTEN);
    load_end(bytes, ret);
    load_state(bytes + AT_NOW, ret->size, &ret->state);
    ret->torn = get_u64(bytes + AT_NOW_WRITES) % 2 != 0;
    ret->operations = get_u64(bytes + AT_NEXT);
    ret->count = 0;
    for (uint64_t n = ret->operations > RECORDER_RECORDS ? ret->operations - RECORDER_RECORDS : 0; n < ret->operations;
         n++)
        ret->count += load_record(bytes + HEADER_BYTES + n % RECORDER_RECORDS * RECORD_BYTES, n, ret->size,
                                  &ret->records[ret->count]);
    return STATUS_OK;
}

/* Read up to FILE_BYTES.  *ret_whole: nobody wrote "now" meanwhile. */
static enum status read_once(int file, unsigned char *bytes, size_t *ret_count, bool *ret_whole)
{
    unsigned char again[8];
    size_t have = 0;
    ssize_t more = 1;

    while (have < FILE_BYTES && more > 0) {
        more = pread(file, bytes + have, FILE_BYTES - have, (off_t)have);
        have += more > 0 ? (size_t)more : 0;
    }
    *ret_count = have;
    *ret_whole = have < FILE_BYTES ||
                 (get_u64(bytes + AT_NOW_WRITES) % 2 == 0 && pread(file, again, sizeof again, AT_NOW_WRITES) == 8 &&
                  get_u64(again) == get_u64(bytes + AT_NOW_WRITES));
    return more < 0 ? STATUS_STORAGE : STATUS_OK;
}

static enum status read_whole(const char *path, unsigned char *bytes, size_t *ret_count, struct error *err)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool whole = false;
    enum status st = file < 0 ? STATUS_STORAGE : STATUS_OK;

    for (int i = 0; i < READ_TRIES && st == STATUS_OK && !whole; i++) {
        if (i)
            clock_sleep_ns(NS_PER_MS / 10);
        st = read_once(file, bytes, ret_count, &whole);
    }
    if (st)
        (void)error_set(err, st, "%s: %s", path, strerror(errno));
    if (file >= 0)
        close(file);
    return st;
}

enum status recorder_load(const char *path, struct recorder_view *ret, struct error *err)
{
    unsigned char *bytes = malloc(FILE_BYTES);
    size_t count = 0;
    enum status st;

    if (!bytes)
        return error_set(err, STATUS_NOMEM, "%s", path);
    st = read_whole(path, bytes, &count, err);
    if (st == STATUS_OK) {
        st = recorder_parse(bytes, count, ret, err);
        if (st)
            (void)error_wrap(err, st, "%s", path);
    }
    free(bytes);
    return st;
}

void record_text(const struct record *record, uint64_t now_ns, char *text, size_t text_bytes)
{
    static const char *const word[] = {"unknown", "posted", "done", "failed"};
    uint64_t at = record->ended_ns ? record->ended_ns : record->posted_ns;
    double before_s = now_ns > at ? (double)(now_ns - at) / (double)NS_PER_S : 0;
    char peer[32] = "";

    if (record->peer >= 0)
        (void)snprintf(peer, sizeof peer, " with rank %d", record->peer);
    (void)snprintf(text, text_bytes, "%s on %s%s, sequence %llu, %s %.1f s before%s%s",
                   operation_name(record->operation), record->object_name, peer, (unsigned long long)record->sequence,
                   word[record->state], before_s, record->state == RECORD_FAILED ? ": " : "",
                   record->state == RECORD_FAILED ? status_name(record->status) : "");
}

bool recorder_last(const char *run_dir, int rank, char *text, size_t text_bytes, uint64_t *ret_written_ns)
{
    struct recorder_view *view = malloc(sizeof *view);
    char path[4096];
    bool found = view && recorder_path(run_dir, rank, path, sizeof path) == STATUS_OK &&
                 recorder_load(path, view, NULL) == STATUS_OK;

    if (found) {
        char record[192] = "no operation";
        const char *phase = view->state.phase;

        if (view->count)
            record_text(&view->records[view->count - 1], view->written_ns, record, sizeof record);
        (void)snprintf(text, text_bytes, "%s%s%s%s", record, phase[0] ? " (" : "", phase, phase[0] ? ")" : "");
        *ret_written_ns = view->written_ns;
    }
    free(view);
    return found;
}
