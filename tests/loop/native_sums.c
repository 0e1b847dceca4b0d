/* What all members have given to the next sum of a group lies in one list; each copies its part out of its memory, and
 * the sum back once all parts are there. */
#include "tests/loop/native_sums.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/elements.h"
#include "comm/native.h"

enum { MEMBERS = 16 };

struct native {
    uint32_t id;
    int size;
    int rank;
    int members[MEMBERS];
    int calls;
};

/* One sum of one group. */
struct sum {
    struct sum *next;
    uint32_t id;
    int number;
    int size;
    int given;
    int left; /* members that have not taken it */
    size_t bytes;
    unsigned char *part[MEMBERS];
};

struct call {
    struct call *next;
    struct sum *sum;
    struct memory *memory;
    struct memory_mark *mark;
    int rank;
    enum dtype dtype;
    void *recv;
    size_t count;
    bool given;
    bool taking;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct transport_ops *plain;
static struct sum *sums;
static struct call *calls;
static int call_count;
static int open_count;
static uint32_t opened[1024]; /* by group id: a bit per world rank */
static int late_rank = -1;
static int late_ms;

static bool adds(const struct transport *transport, const struct memory *memory, enum dtype dtype)
{
    (void)transport;
    return !memory_host_view(memory) && dtype != DTYPE_I64; /* something that it cannot */
}

/* A line is built by this rank later than by the others, or never. */
static void be_late(void)
{
    if (late_ms > 0)
        clock_sleep_ns((uint64_t)late_ms * NS_PER_MS);
}

static enum status native_open(struct transport *transport, uint32_t id, uint32_t first_line, const int *members,
                               int size, struct native **ret, struct error *err)
{
    bool late = first_line && plain->rank(transport) == late_rank;
    struct native *native = size <= MEMBERS ? calloc(1, sizeof *native) : NULL;

    if (!native)
        return error_set(err, STATUS_NOMEM, "a communicator of %d", size);
    native->id = id;
    native->size = size;
    for (int i = 0; i < size; i++) {
        native->members[i] = members[i];
        if (members[i] == plain->rank(transport))
            native->rank = i;
    }
    if (late)
        be_late();
    (void)pthread_mutex_lock(&lock);
    open_count++;
    if (!late || late_ms >= 0)
        opened[id] |= 1u << plain->rank(transport);
    (void)pthread_mutex_unlock(&lock);
    *ret = native;
    return STATUS_OK;
}

static void native_close(struct transport *transport, struct native *native)
{
    (void)pthread_mutex_lock(&lock);
    open_count--;
    opened[native->id] &= ~(1u << plain->rank(transport));
    (void)pthread_mutex_unlock(&lock);
    free(native);
}

/* The sum of this number, made by whoever comes first. */
static struct sum *find(const struct native *native, int number, size_t bytes)
{
    struct sum *sum = sums;

    while (sum && (sum->id != native->id || sum->number != number))
        sum = sum->next;
    if (sum)
        return sum;
    sum = calloc(1, sizeof *sum);
    CHECK(sum);
    *sum = (struct sum){.next = sums, .id = native->id, .number = number, .size = native->size, .left = native->size};
    sum->bytes = bytes;
    sums = sum;
    return sum;
}

static enum status all_reduce(struct transport *transport, struct native *native, struct memory *memory,
                              enum dtype dtype, const void *send, void *recv, size_t count, struct work **ret,
                              struct error *err)
{
    struct call *call = calloc(1, sizeof *call);
    size_t bytes = count * dtype_bytes(dtype);
    enum status st = STATUS_OK;

    (void)transport;
    CHECK(call);
    (void)pthread_mutex_lock(&lock);
    *call = (struct call){.next = calls, .memory = memory, .rank = native->rank, .dtype = dtype, .recv = recv};
    call->count = count;
    call->sum = find(native, native->calls++, bytes);
    CHECK(call->sum->bytes == bytes); /* a real library would add nonsense */
    call->sum->part[call->rank] = malloc(bytes);
    calls = call;
    call_count++;
    (void)pthread_mutex_unlock(&lock);
    st = memory_copy(memory, call->sum->part[call->rank], send, bytes, err);
    *ret = (struct work *)call;
    return st == STATUS_OK ? memory->ops->mark(memory, &call->mark, err) : st;
}

static int missing(const struct transport *transport, const struct native *native, int *ranks, int capacity)
{
    int count = 0;

    (void)transport;
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < native->size; i++) {
        if (opened[native->id] >> native->members[i] & 1)
            continue;
        if (count < capacity)
            ranks[count] = native->members[i];
        count++;
    }
    (void)pthread_mutex_unlock(&lock);
    return count;
}

static int awaits(const struct transport *transport, const struct native *native)
{
    int rank = -1;

    return missing(transport, native, &rank, 1) ? rank : -1;
}

static bool is_call(const struct work *work)
{
    const struct call *call = calls;

    while (call && (const struct work *)call != work)
        call = call->next;
    return call != NULL;
}

static void unlink_call(struct call *call)
{
    struct call **link = &calls;
    struct sum **sum = &sums;

    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
    if (!--call->sum->left) {
        while (*sum != call->sum)
            sum = &(*sum)->next;
        *sum = call->sum->next;
        for (int i = 0; i < call->sum->size; i++)
            free(call->sum->part[i]);
        free(call->sum);
    }
    free(call);
}

/* All parts are there: the last member's gets the others', one after the other. */
static enum status take(struct call *call, struct error *err)
{
    struct sum *sum = call->sum;
    unsigned char *whole = sum->part[sum->size - 1];

    if (sum->given == sum->size) {
        for (int i = sum->size - 2; i >= 0; i--)
            elements_add(call->dtype, whole, sum->part[i], call->count);
        sum->given++;
    }
    call->taking = true;
    enum status st = memory_copy(call->memory, call->recv, whole, sum->bytes, err);

    return st == STATUS_OK ? call->memory->ops->mark(call->memory, &call->mark, err) : st;
}

static enum status test_call(struct call *call, bool *ret, struct error *err)
{
    bool reached = false;
    enum status st = STATUS_OK;

    *ret = false;
    if (!call->given || call->taking) {
        st = call->memory->ops->reached(call->memory, call->mark, &reached, err);
        if (st != STATUS_OK || !reached)
            return st;
        call->mark = NULL;
        *ret = call->taking;
        call->sum->given += !call->given;
        call->given = true;
    }
    if (!*ret && call->sum->given >= call->sum->size)
        return take(call, err);
    if (*ret)
        unlink_call(call);
    return st;
}

static enum status native_test(struct transport *transport, struct work *work, bool *ret, struct error *err)
{
    enum status st = STATUS_OK;
    bool own;

    (void)pthread_mutex_lock(&lock);
    own = is_call(work);
    if (own)
        st = test_call((struct call *)work, ret, err);
    (void)pthread_mutex_unlock(&lock);
    return own ? st : plain->test(transport, work, ret, err);
}

static bool native_cancel(struct transport *transport, struct work *work)
{
    bool own;

    (void)pthread_mutex_lock(&lock);
    own = is_call(work);
    if (own) {
        struct call *call = (struct call *)work;

        (void)memory_wait(call->memory, clock_ns() + 10 * NS_PER_S, NULL); /* the queue may use the parts */
        if (call->mark)
            call->memory->ops->forget(call->memory, call->mark);
        unlink_call(call);
    }
    (void)pthread_mutex_unlock(&lock);
    return own || plain->cancel(transport, work);
}

static const struct native_ops native_ops = {.adds = adds,
                                             .open = native_open,
                                             .close = native_close,
                                             .all_reduce = all_reduce,
                                             .missing = missing,
                                             .awaits = awaits};

/* Of an earlier run, that not all members came to. */
static void forget_sums(void)
{
    while (sums) {
        struct sum *sum = sums;

        sums = sum->next;
        for (int i = 0; i < sum->size; i++)
            free(sum->part[i]);
        free(sum);
    }
}

struct transport_ops native_sums_transport(const struct transport_ops *ops)
{
    struct transport_ops copy = *ops;

    forget_sums();
    plain = ops;
    copy.test = native_test;
    copy.cancel = native_cancel;
    copy.native = &native_ops;
    return copy;
}

int native_sums_calls(void)
{
    int count;

    (void)pthread_mutex_lock(&lock);
    count = call_count;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

int native_sums_pending(void)
{
    int count = 0;

    (void)pthread_mutex_lock(&lock);
    for (const struct call *call = calls; call; call = call->next)
        count++;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

int native_sums_open(void)
{
    int count;

    (void)pthread_mutex_lock(&lock);
    count = open_count;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

void native_sums_build_late(int rank, int ms)
{
    late_rank = rank;
    late_ms = ms;
}

uint32_t native_sums_opened(uint32_t id)
{
    uint32_t ranks;

    (void)pthread_mutex_lock(&lock);
    ranks = opened[id];
    (void)pthread_mutex_unlock(&lock);
    return ranks;
}
