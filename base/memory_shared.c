/* Held blocks lie in a list in the order of their places; a block is put into the first gap that is wide enough.  The
 * file's first page carries the number that proves whose it is.
 *
 * All pages but those of held blocks are without access, and those behind a block's end stay so: what uses a block
 * after its release, or writes beyond it, ends there.  That a page is without access here takes nothing from a peer,
 * which has a map of its own; pages that are given back read as zeros there.
 *
 * A dump of memory after a crash is told of held blocks alone: it fills every page of a file that it writes. */
#include "base/memory_shared.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory_host.h"
#include "base/size.h"

enum {
    PAGE_BYTES = 4096,
    MOST_BLOCKS = 4096 /* each splits the map in two more parts, whose number the system bounds */
};

struct held {
    size_t first; /* its pages, with the one behind it that is without access */
    size_t last;  /* behind them */
    unsigned char *block;
    struct held *next;
};

struct shared {
    struct memory memory;  /* first */
    struct memory_ops ops; /* those of the process's own memory, but for a few */
    pthread_mutex_t lock;
    struct shared_file file;
    unsigned char *at;
    struct held *held;
    int count;
};

static struct shared *shared_of(const struct memory *memory)
{
    return (struct shared *)(uintptr_t)memory;
}

static const char *shared_name(const struct memory *memory)
{
    (void)memory;
    return "shared";
}

/* Bytes to whole pages, and one more.  False: more than can be counted. */
static bool pages_for(size_t bytes, size_t *ret)
{
    size_t all = 0;

    if (size_add(bytes, 2 * (size_t)PAGE_BYTES - 1, &all) != STATUS_OK)
        return false;
    *ret = all / PAGE_BYTES;
    return true;
}

/* The first gap of so many pages: behind *ret, from *ret_first on.  False: there is none. */
static bool find_gap(struct shared *shared, size_t pages, struct held ***ret, size_t *ret_first)
{
    struct held **link = &shared->held;
    size_t first = 1;

    for (; *link; link = &(*link)->next) {
        if ((*link)->first - first >= pages)
            break;
        first = (*link)->last;
    }
    *ret = link;
    *ret_first = first;
    return *link || shared->file.bytes / PAGE_BYTES - first >= pages;
}

/* NULL: no room.  The block's end lies as near as its alignment allows to the page without access. */
static void *take(struct shared *shared, size_t bytes)
{
    struct held *held = NULL;
    struct held **link = NULL;
    size_t pages = 0;
    size_t first = 0;
    unsigned char *at = NULL;

    if (shared->count == MOST_BLOCKS || !pages_for(bytes, &pages) || !find_gap(shared, pages, &link, &first) ||
        !(held = malloc(sizeof *held)))
        return NULL;
    at = shared->at + first * PAGE_BYTES;
    if (mprotect(at, (pages - 1) * PAGE_BYTES, PROT_READ | PROT_WRITE)) {
        free(held);
        return NULL;
    }
    (void)madvise(at, (pages - 1) * PAGE_BYTES, MADV_DODUMP);
    at += (pages - 1) * PAGE_BYTES - ((bytes + MEMORY_ALIGN - 1) & ~(size_t)(MEMORY_ALIGN - 1));
    *held = (struct held){.first = first, .last = first + pages, .block = at, .next = *link};
    *link = held;
    shared->count++;
    return at;
}

static enum status shared_allocate(struct memory *memory, size_t bytes, void **ret, struct error *err)
{
    struct shared *shared = shared_of(memory);
    void *block = NULL;

    if (bytes >= SHARED_LEAST_BYTES) {
        (void)pthread_mutex_lock(&shared->lock);
        block = take(shared, bytes);
        (void)pthread_mutex_unlock(&shared->lock);
    }
    if (!block)
        return memory_host_ops.allocate(memory_host(), bytes, ret, err);
    *ret = block;
    return STATUS_OK;
}

static bool is_inside(const struct shared *shared, const void *block)
{
    uintptr_t from = (uintptr_t)shared->at;
    uintptr_t at = (uintptr_t)block;

    return at >= from && at - from < shared->file.bytes;
}

/* Its pages go back to the system. */
static void give_pages(struct shared *shared, const struct held *held)
{
    size_t at = held->first * PAGE_BYTES;
    size_t bytes = (held->last - held->first) * PAGE_BYTES;

    (void)fallocate(shared->file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes);
    (void)mprotect(shared->at + at, bytes, PROT_NONE);
    (void)madvise(shared->at + at, bytes, MADV_DONTDUMP);
}

static void shared_release(struct memory *memory, void *block)
{
    struct shared *shared = shared_of(memory);
    struct held **link = &shared->held;
    struct held *held = NULL;

    if (!is_inside(shared, block)) {
        memory_host_ops.release(memory_host(), block);
        return;
    }
    (void)pthread_mutex_lock(&shared->lock);
    while (*link && (*link)->block != block)
        link = &(*link)->next;
    held = *link;
    CHECK(held);
    *link = held->next;
    shared->count--;
    give_pages(shared, held);
    (void)pthread_mutex_unlock(&shared->lock);
    free(held);
}

/* Of a block that its caller holds: nobody else can release it meanwhile. */
static bool find(struct shared *shared, const void *bytes, size_t count)
{
    size_t from = 0;
    const struct held *held = NULL;

    if (!is_inside(shared, bytes))
        return false;
    from = (size_t)((const unsigned char *)bytes - shared->at);
    (void)pthread_mutex_lock(&shared->lock);
    held = shared->held;
    while (held && held->last * PAGE_BYTES <= from)
        held = held->next;
    (void)pthread_mutex_unlock(&shared->lock);
    return held && held->first * PAGE_BYTES <= from && count <= (held->last - 1) * PAGE_BYTES - from;
}

static bool shared_holds(const struct memory *memory, const void *bytes, size_t count)
{
    return find(shared_of(memory), bytes, count);
}

/* The addresses of its file, without access.  A child would share them, and write there. */
static bool map_addresses(struct shared *shared)
{
    void *at = mmap(NULL, shared->file.bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, shared->file.fd, 0);

    if (at == MAP_FAILED)
        return false;
    shared->at = at;
    return !madvise(at, shared->file.bytes, MADV_DONTFORK) && !madvise(at, shared->file.bytes, MADV_DONTDUMP);
}

struct memory *memory_shared_create(size_t most_bytes)
{
    struct shared *shared = calloc(1, sizeof *shared);
    size_t pages = 0;

    if (!shared || !pages_for(most_bytes, &pages) || sysconf(_SC_PAGESIZE) != PAGE_BYTES) {
        free(shared);
        return NULL;
    }
    shared->ops = memory_host_ops;
    shared->ops.name = shared_name;
    shared->ops.allocate = shared_allocate;
    shared->ops.release = shared_release;
    shared->ops.holds = shared_holds;
    shared->memory = (struct memory){.ops = &shared->ops, .kind = MEMORY_SHARED};
    if (shared_file_create("ferry-shared", pages * PAGE_BYTES, &shared->file) && map_addresses(shared) &&
        !pthread_mutex_init(&shared->lock, NULL))
        return &shared->memory;
    shared_file_unmap(shared->at, &shared->file);
    shared_file_close(&shared->file);
    free(shared);
    return NULL;
}

void memory_shared_destroy(struct memory *memory)
{
    struct shared *shared = shared_of(memory);

    if (!memory)
        return;
    if (shared->held)
        return;
    shared_file_unmap(shared->at, &shared->file);
    shared_file_close(&shared->file);
    (void)pthread_mutex_destroy(&shared->lock);
    free(shared);
}

struct shared_file memory_shared_file(const struct memory *memory)
{
    return shared_of(memory)->file;
}

bool memory_shared_find(const struct memory *memory, const void *bytes, size_t count, uint64_t *ret)
{
    struct shared *shared = shared_of(memory);

    if (!memory || memory->kind != MEMORY_SHARED || !find(shared, bytes, count))
        return false;
    *ret = (uint64_t)((const unsigned char *)bytes - shared->at);
    return true;
}
