/* One thread, one list of operations, one list of blocks. */
#include "tests/loop/late_memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/elements.h"

enum { POISON = 0xdb, PAGE = 4096 };

enum kind { COPY, ADD, CONVERT, MARK, RELEASE };

struct memory_mark {
    bool reached;
    bool forgotten;
};

struct operation {
    struct operation *next;
    enum kind kind;
    unsigned char *to;
    const unsigned char *from;
    size_t to_stride;
    size_t from_stride;
    size_t run_bytes;
    size_t rows;
    size_t count;
    enum dtype dtype;
    enum dtype out;
    struct memory_mark *mark;
};

struct block {
    struct block *next;
    unsigned char *address; /* what callers know */
    unsigned char *bytes;   /* where they are */
    size_t count;
};

struct late {
    struct memory memory; /* first */
    char name[24];
    unsigned late_us;
    uint64_t random;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    struct operation *first;
    struct operation **end;
    struct block *blocks;
    int block_count;
    bool held;
    bool broken;
    bool full;
    bool stop;
};

static _Noreturn void caught(const struct late *late, const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", late->name, what);
    abort();
}

static size_t pages(size_t bytes)
{
    return (bytes / PAGE + 1) * PAGE;
}

/* The bytes behind an address: a block's, which must hold all of them, or the host's own. */
static unsigned char *resolve(const struct late *late, const void *address, size_t bytes)
{
    const unsigned char *at = address;

    for (const struct block *block = late->blocks; block; block = block->next) {
        if (at < block->address || at >= block->address + pages(block->count))
            continue;
        if (bytes > block->count || (size_t)(at - block->address) > block->count - bytes)
            caught(late, "an operation reaches beyond its block");
        return block->bytes + (at - block->address);
    }
    return (unsigned char *)(uintptr_t)at;
}

static size_t span(size_t stride, size_t run_bytes, size_t rows)
{
    return stride * (rows - 1) + run_bytes;
}

static void apart(const struct late *late, const unsigned char *to, size_t to_bytes, const unsigned char *from,
                  size_t from_bytes)
{
    if (to < from + from_bytes && from < to + to_bytes)
        caught(late, "the sides of an operation overlap");
}

static void run_copy(const struct late *late, const struct operation *o)
{
    unsigned char *to = resolve(late, o->to, span(o->to_stride, o->run_bytes, o->rows));
    const unsigned char *from = resolve(late, o->from, span(o->from_stride, o->run_bytes, o->rows));

    for (size_t i = 0; i < o->rows; i++) {
        apart(late, to + i * o->to_stride, o->run_bytes, from + i * o->from_stride, o->run_bytes);
        memcpy(to + i * o->to_stride, from + i * o->from_stride, o->run_bytes);
    }
}

static void run_add(const struct late *late, const struct operation *o)
{
    size_t bytes = o->count * dtype_bytes(o->dtype);

    if (!o->count)
        return;
    apart(late, o->to, bytes, o->from, bytes);
    elements_add(o->dtype, resolve(late, o->to, bytes), resolve(late, o->from, bytes), o->count);
}

static void run_convert(const struct late *late, const struct operation *o)
{
    size_t in = o->count * dtype_bytes(o->dtype);
    size_t out = o->count * dtype_bytes(o->out);

    if (!o->count)
        return;
    apart(late, o->to, out, o->from, in);
    if (o->out == DTYPE_F32)
        elements_widen(o->dtype, resolve(late, o->from, in), o->count, (void *)resolve(late, o->to, out));
    else
        elements_narrow(o->out, (void *)resolve(late, o->from, in), o->count, resolve(late, o->to, out));
}

static void run_release(struct late *late, const unsigned char *address)
{
    struct block **link = &late->blocks;
    struct block *block = NULL;

    while (*link && (*link)->address != address)
        link = &(*link)->next;
    block = *link;
    if (!block)
        caught(late, "a block is released that is none");
    *link = block->next;
    (void)munmap(block->address, pages(block->count));
    free(block->bytes);
    free(block);
}

/* A lost device does nothing any more. */
static void run(struct late *late, struct operation *o)
{
    switch (o->kind) {
    case COPY:
        if (!late->broken)
            run_copy(late, o);
        break;
    case ADD:
        if (!late->broken)
            run_add(late, o);
        break;
    case CONVERT:
        if (!late->broken)
            run_convert(late, o);
        break;
    case MARK:
        o->mark->reached = true;
        if (o->mark->forgotten)
            free(o->mark);
        break;
    case RELEASE:
        run_release(late, o->to);
        break;
    }
    free(o);
}

/* The shortest sleep lasts longer than a microsecond. */
static void hold_back(const struct late *late)
{
    if (late->late_us > 1)
        clock_sleep_ns((late->random >> 33) % (late->late_us * NS_PER_US + 1));
    else
        (void)sched_yield();
}

/* A few operations at a time, each few after a while. */
static void *late_main(void *context)
{
    struct late *late = context;

    (void)pthread_mutex_lock(&late->lock);
    for (;;) {
        while ((!late->first || late->held) && !late->stop)
            (void)pthread_cond_wait(&late->wake, &late->lock);
        if (!late->first)
            break;
        late->random = late->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        (void)pthread_mutex_unlock(&late->lock);
        hold_back(late);
        (void)pthread_mutex_lock(&late->lock);
        for (unsigned few = 1 + (unsigned)(late->random >> 60); few && late->first && (!late->held || late->stop);
             few--) {
            struct operation *o = late->first;

            late->first = o->next;
            if (!late->first)
                late->end = &late->first;
            run(late, o);
        }
    }
    (void)pthread_mutex_unlock(&late->lock);
    return NULL;
}

static struct late *of(struct memory *memory)
{
    return (struct late *)memory;
}

static enum status queue(struct memory *memory, const struct operation *operation, struct error *err)
{
    struct late *late = of(memory);
    struct operation *o = malloc(sizeof *o);

    if (!o)
        return error_set(err, STATUS_NOMEM, "an operation of %s", late->name);
    *o = *operation;
    (void)pthread_mutex_lock(&late->lock);
    *late->end = o;
    late->end = &o->next;
    (void)pthread_cond_signal(&late->wake);
    (void)pthread_mutex_unlock(&late->lock);
    return STATUS_OK;
}

static const char *late_name(const struct memory *memory)
{
    return ((const struct late *)memory)->name;
}

static bool is_full(struct late *late)
{
    bool full;

    (void)pthread_mutex_lock(&late->lock);
    full = late->full;
    (void)pthread_mutex_unlock(&late->lock);
    return full;
}

static enum status late_allocate(struct memory *memory, size_t bytes, void **ret, struct error *err)
{
    struct late *late = of(memory);
    struct block *block = NULL;

    if (is_full(late))
        return error_set(err, STATUS_NOMEM, "%s: %zu bytes, and it is full", late->name, bytes);
    block = calloc(1, sizeof *block);
    if (block) {
        block->count = bytes;
        block->bytes = malloc(bytes + 1);
        block->address = mmap(NULL, pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (!block || !block->bytes || block->address == MAP_FAILED) {
        if (block)
            free(block->bytes);
        free(block);
        return error_set(err, STATUS_NOMEM, "%s: %zu bytes", late->name, bytes);
    }
    memset(block->bytes, POISON, bytes);
    *ret = block->address;
    (void)pthread_mutex_lock(&late->lock);
    block->next = late->blocks;
    late->blocks = block;
    late->block_count++;
    (void)pthread_mutex_unlock(&late->lock);
    return STATUS_OK;
}

static void late_release(struct memory *memory, void *block)
{
    struct late *late = of(memory);
    struct operation operation = {.kind = RELEASE, .to = block};

    if (!block)
        return;
    (void)pthread_mutex_lock(&late->lock);
    late->block_count--;
    (void)pthread_mutex_unlock(&late->lock);
    CHECK(queue(memory, &operation, NULL) == STATUS_OK);
}

static enum status late_copy_rows(struct memory *memory, void *to, size_t to_stride, const void *from,
                                  size_t from_stride, size_t run_bytes, size_t rows, struct error *err)
{
    struct operation operation = {.kind = COPY,
                                  .to = to,
                                  .to_stride = to_stride,
                                  .from = from,
                                  .from_stride = from_stride,
                                  .run_bytes = run_bytes,
                                  .rows = rows};

    return queue(memory, &operation, err);
}

static enum status late_copy(struct memory *memory, void *to, const void *from, size_t bytes, struct error *err)
{
    return late_copy_rows(memory, to, 0, from, 0, bytes, 1, err);
}

static enum status late_add(struct memory *memory, enum dtype dtype, void *left, const void *right, size_t count,
                            struct error *err)
{
    struct operation operation = {.kind = ADD, .dtype = dtype, .to = left, .from = right, .count = count};

    CHECK(dtype != DTYPE_BOOL && dtype != DTYPE_F16 && dtype != DTYPE_BF16);
    return queue(memory, &operation, err);
}

static enum status late_convert(struct memory *memory, enum dtype from, const void *in, enum dtype to, void *out,
                                size_t count, struct error *err)
{
    struct operation operation = {.kind = CONVERT, .dtype = from, .from = in, .out = to, .to = out, .count = count};

    CHECK((from == DTYPE_F32) != (to == DTYPE_F32));
    return queue(memory, &operation, err);
}

static enum status late_mark(struct memory *memory, struct memory_mark **ret, struct error *err)
{
    struct memory_mark *mark = calloc(1, sizeof *mark);
    struct operation operation = {.kind = MARK, .mark = mark};

    if (!mark)
        return error_set(err, STATUS_NOMEM, "a mark of %s", of(memory)->name);
    *ret = mark;
    return queue(memory, &operation, err);
}

static void let_go(struct memory_mark *mark)
{
    if (mark->reached)
        free(mark);
    else
        mark->forgotten = true;
}

static enum status late_reached(struct memory *memory, struct memory_mark *mark, bool *ret, struct error *err)
{
    struct late *late = of(memory);
    bool broken;

    (void)pthread_mutex_lock(&late->lock);
    broken = late->broken;
    *ret = mark->reached;
    if (broken || *ret)
        let_go(mark);
    (void)pthread_mutex_unlock(&late->lock);
    return broken ? error_set(err, STATUS_ENVIRONMENT, "%s: the device is lost", late->name) : STATUS_OK;
}

static void late_forget(struct memory *memory, struct memory_mark *mark)
{
    struct late *late = of(memory);

    if (!mark)
        return;
    (void)pthread_mutex_lock(&late->lock);
    let_go(mark);
    (void)pthread_mutex_unlock(&late->lock);
}

static enum status late_space(struct memory *memory, struct memory_space *ret, struct error *err)
{
    (void)memory;
    (void)err;
    *ret = (struct memory_space){MEMORY_UNKNOWN, MEMORY_UNKNOWN};
    return STATUS_OK;
}

static const struct memory_ops late_ops = {.name = late_name,
                                           .allocate = late_allocate,
                                           .release = late_release,
                                           .copy = late_copy,
                                           .copy_rows = late_copy_rows,
                                           .add = late_add,
                                           .convert = late_convert,
                                           .mark = late_mark,
                                           .reached = late_reached,
                                           .forget = late_forget,
                                           .space = late_space};

struct memory *late_memory_create(int number, unsigned late_us)
{
    struct late *late = calloc(1, sizeof *late);

    CHECK(late);
    late->memory = (struct memory){.ops = &late_ops, .kind = MEMORY_DEVICE};
    (void)snprintf(late->name, sizeof late->name, "late:%d", number);
    late->late_us = late_us;
    late->random = (uint64_t)number;
    late->end = &late->first;
    (void)pthread_mutex_init(&late->lock, NULL);
    (void)pthread_cond_init(&late->wake, NULL);
    int failed = pthread_create(&late->thread, NULL, late_main, late);

    CHECK(!failed);
    return &late->memory;
}

static void tell(struct late *late, bool *what, bool value)
{
    (void)pthread_mutex_lock(&late->lock);
    *what = value;
    (void)pthread_cond_signal(&late->wake);
    (void)pthread_mutex_unlock(&late->lock);
}

void late_memory_destroy(struct memory *memory)
{
    struct late *late = of(memory);

    if (!late)
        return;
    tell(late, &late->stop, true);
    (void)pthread_join(late->thread, NULL);
    CHECK(!late->blocks);
    (void)pthread_mutex_destroy(&late->lock);
    (void)pthread_cond_destroy(&late->wake);
    free(late);
}

void late_memory_hold(struct memory *memory, bool hold)
{
    tell(of(memory), &of(memory)->held, hold);
}

void late_memory_fill(struct memory *memory)
{
    tell(of(memory), &of(memory)->full, true);
}

void late_memory_break(struct memory *memory)
{
    tell(of(memory), &of(memory)->broken, true);
}

bool late_memory_idle(struct memory *memory)
{
    struct late *late = of(memory);
    bool idle;

    (void)pthread_mutex_lock(&late->lock);
    idle = !late->first;
    (void)pthread_mutex_unlock(&late->lock);
    return idle;
}

int late_memory_blocks(struct memory *memory)
{
    struct late *late = of(memory);
    int count;

    (void)pthread_mutex_lock(&late->lock);
    count = late->block_count;
    (void)pthread_mutex_unlock(&late->lock);
    return count;
}

static enum status fork_queue(struct device *device, struct memory **ret, struct error *err)
{
    (void)err;
    *ret = device->memory;
    return STATUS_OK;
}

static void join_queue(struct device *device, struct memory *memory)
{
    (void)device;
    (void)memory;
}

const struct device_ops late_device_ops = {.name = "late", .fork = fork_queue, .join = join_queue};

static void move(struct memory *memory, void *to, const void *from, size_t bytes)
{
    enum status st = memory_copy(memory, to, from, bytes, NULL);

    if (st == STATUS_OK)
        st = memory_wait(memory, UINT64_MAX, NULL);
    CHECK(st == STATUS_OK);
}

void tensor_put(struct tensor *tensor, const void *bytes)
{
    move(tensor->memory, tensor->data, bytes, tensor->capacity_bytes);
}

void tensor_get(struct tensor *tensor, void *bytes)
{
    move(tensor->memory, bytes, tensor->data, tensor->capacity_bytes);
}
