/* The process's own memory as a table: nothing is queued, so every mark is reached, and none is more than NULL. */
#include "base/memory_host.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/elements.h"
#include "base/size.h"

enum { FIRST_REST_US = 5, LAST_REST_US = 1000 };

static const char *host_name(const struct memory *memory)
{
    (void)memory;
    return "host";
}

/* Bytes of pages that the system counts under this name; MEMORY_UNKNOWN where it does not. */
static uint64_t pages(int name)
{
    long count = sysconf(name);
    long bytes = sysconf(_SC_PAGESIZE);

    return count < 0 || bytes < 0 ? MEMORY_UNKNOWN : (uint64_t)count * (uint64_t)bytes;
}

static enum status host_space(struct memory *memory, struct memory_space *ret, struct error *err)
{
    (void)memory;
    (void)err;
    *ret = (struct memory_space){.available = pages(_SC_AVPHYS_PAGES), .total = pages(_SC_PHYS_PAGES)};
    return STATUS_OK;
}

static enum status host_allocate(struct memory *memory, size_t bytes, void **ret, struct error *err)
{
    size_t all = 0;
    void *block = NULL;

    (void)memory;
    if (size_add(bytes, MEMORY_ALIGN, &all) != STATUS_OK)
        return error_set(err, STATUS_NOMEM, "%zu bytes of host memory", bytes);
    block = aligned_alloc(MEMORY_ALIGN, all & ~(size_t)(MEMORY_ALIGN - 1));
    if (!block)
        return error_set(err, STATUS_NOMEM, "%zu bytes of host memory; %" PRIu64 " are free", bytes,
                         pages(_SC_AVPHYS_PAGES));
    *ret = block;
    return STATUS_OK;
}

static void host_release(struct memory *memory, void *block)
{
    (void)memory;
    free(block);
}

static enum status host_copy(struct memory *memory, void *to, const void *from, size_t bytes, struct error *err)
{
    (void)memory;
    return memory_copy(NULL, to, from, bytes, err);
}

static enum status host_copy_rows(struct memory *memory, void *to, size_t to_stride, const void *from,
                                  size_t from_stride, size_t run_bytes, size_t rows, struct error *err)
{
    (void)memory;
    return memory_copy_rows(NULL, to, to_stride, from, from_stride, run_bytes, rows, err);
}

static enum status host_add(struct memory *memory, enum dtype dtype, void *left, const void *right, size_t count,
                            struct error *err)
{
    (void)memory;
    (void)err;
    elements_add(dtype, left, right, count);
    return STATUS_OK;
}

static enum status host_convert(struct memory *memory, enum dtype from, const void *in, enum dtype to, void *out,
                                size_t count, struct error *err)
{
    (void)memory;
    (void)err;
    if (to == DTYPE_F32)
        elements_widen(from, in, count, out);
    else
        elements_narrow(to, in, count, out);
    return STATUS_OK;
}

static enum status host_mark(struct memory *memory, struct memory_mark **ret, struct error *err)
{
    (void)memory;
    (void)err;
    *ret = NULL;
    return STATUS_OK;
}

static enum status host_reached(struct memory *memory, struct memory_mark *mark, bool *ret, struct error *err)
{
    (void)memory;
    (void)mark;
    (void)err;
    *ret = true;
    return STATUS_OK;
}

static void host_forget(struct memory *memory, struct memory_mark *mark)
{
    (void)memory;
    (void)mark;
}

const struct memory_ops memory_host_ops = {.name = host_name,
                                           .allocate = host_allocate,
                                           .release = host_release,
                                           .copy = host_copy,
                                           .copy_rows = host_copy_rows,
                                           .add = host_add,
                                           .convert = host_convert,
                                           .mark = host_mark,
                                           .reached = host_reached,
                                           .forget = host_forget,
                                           .space = host_space};

/* It has no state, so nobody ever writes to it. */
struct memory *memory_host(void)
{
    static const struct memory host = {.ops = &memory_host_ops, .kind = MEMORY_OWNED};

    return (struct memory *)(uintptr_t)&host;
}

enum status memory_wait(struct memory *memory, uint64_t deadline_ns, struct error *err)
{
    struct memory_mark *mark = NULL;
    uint64_t rest_ns = FIRST_REST_US * NS_PER_US;
    enum status st = STATUS_OK;

    if (memory_host_view(memory))
        return STATUS_OK;
    st = memory->ops->mark(memory, &mark, err);
    while (st == STATUS_OK) {
        bool reached = false;

        st = memory->ops->reached(memory, mark, &reached, err);
        if (st != STATUS_OK || reached)
            return st;
        if (clock_ns() >= deadline_ns) {
            memory->ops->forget(memory, mark);
            return error_set(err, STATUS_TIMEOUT, "%s: what was queued has not happened", memory->ops->name(memory));
        }
        clock_sleep_ns(rest_ns);
        rest_ns = 2 * rest_ns < LAST_REST_US * NS_PER_US ? 2 * rest_ns : LAST_REST_US * NS_PER_US;
    }
    return st;
}
