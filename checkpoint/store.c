/* One descriptor and at most one mapping a file, both from the first use until the file gives way to another one.
 *
 * A mapping is laid over anonymous memory that is one page longer than the file, so that a vector load behind the last
 * weight finds zeros instead of a fault. */
#include "checkpoint/store.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/size.h"
#include "checkpoint/file.h"
#include "checkpoint/mappings.h"

struct store_file {
    char *path;
    uint64_t bytes;
    int descriptor; /* -1 until the first use */
    unsigned char *mapping;
    size_t mapping_bytes; /* with the spare page */
    uint64_t leases;      /* lent ranges, and reads under way */
    uint64_t used;        /* the store's clock at the last use */
};

struct store {
    struct store_file *files;
    int count;
    int capacity;
    int limit;
    int open; /* files with a descriptor */
    uint64_t clock;
    pthread_mutex_t lock; /* over all of this but the paths and sizes */
    atomic_uint_least64_t bytes_read;
};

enum status store_create(struct store **ret, struct error *err)
{
    struct store *store = calloc(1, sizeof *store);

    if (!store)
        return error_set(err, STATUS_NOMEM, "the table of files");
    (void)pthread_mutex_init(&store->lock, NULL);
    store->limit = STORE_MAX_FILES;
    *ret = store;
    return STATUS_OK;
}

static void close_file(struct store *store, struct store_file *file)
{
    if (file->mapping) {
        mappings_remove(file->mapping);
        munmap(file->mapping, file->mapping_bytes);
    }
    if (file->descriptor >= 0) {
        close(file->descriptor);
        store->open--;
    }
    file->mapping = NULL;
    file->descriptor = -1;
}

void store_destroy(struct store *store)
{
    if (!store)
        return;
    for (int i = 0; i < store->count; i++) {
        close_file(store, &store->files[i]);
        free(store->files[i].path);
    }
    free(store->files);
    (void)pthread_mutex_destroy(&store->lock);
    free(store);
}

enum status store_add(struct store *store, const char *path, uint64_t bytes, int *ret_shard, struct error *err)
{
    char *copy;

    if (store->count == STORE_MAX_FILES)
        return error_set(err, STATUS_OVERFLOW, "%s: more than %d files of weights", path, STORE_MAX_FILES);
    if (store->count == store->capacity) {
        int capacity = store->capacity ? 2 * store->capacity : 4;
        struct store_file *files = reallocarray(store->files, (size_t)capacity, sizeof *files);

        if (!files)
            return error_set(err, STATUS_NOMEM, "the table of files");
        store->files = files;
        store->capacity = capacity;
    }
    copy = strdup(path);
    if (!copy)
        return error_set(err, STATUS_NOMEM, "the table of files");
    store->files[store->count] = (struct store_file){.path = copy, .bytes = bytes, .descriptor = -1};
    *ret_shard = store->count++;
    return STATUS_OK;
}

int store_count(const struct store *store)
{
    return store->count;
}

const char *store_path(const struct store *store, int shard)
{
    CHECK(shard >= 0 && shard < store->count);
    return store->files[shard].path;
}

void store_limit(struct store *store, int limit)
{
    CHECK(limit >= 1 && limit <= STORE_MAX_FILES);
    store->limit = limit;
}

int store_open_count(struct store *store)
{
    int open;

    (void)pthread_mutex_lock(&store->lock);
    open = store->open;
    (void)pthread_mutex_unlock(&store->lock);
    return open;
}

/* Under the lock: close the file that was longest not used, among those that nobody holds. */
static enum status make_room(struct store *store, const char *path, struct error *err)
{
    struct store_file *oldest = NULL;

    if (store->open < store->limit)
        return STATUS_OK;
    for (int i = 0; i < store->count; i++) {
        struct store_file *file = &store->files[i];

        if (file->descriptor >= 0 && !file->leases && (!oldest || file->used < oldest->used))
            oldest = file;
    }
    if (!oldest)
        return error_set(err, STATUS_OVERFLOW, "%s: %d files of weights are in use, and no more may be open", path,
                         store->limit);
    close_file(store, oldest);
    return STATUS_OK;
}

/* Under the lock. */
static enum status open_file(struct store *store, struct store_file *file, struct error *err)
{
    uint64_t bytes;
    int descriptor;
    enum status st;

    if (file->descriptor >= 0)
        return STATUS_OK;
    st = make_room(store, file->path, err);
    if (st != STATUS_OK)
        return st;
    st = file_open(file->path, &descriptor, &bytes, err);
    if (st != STATUS_OK)
        return st;
    if (bytes != file->bytes) {
        close(descriptor);
        return error_set(err, STATUS_STORAGE,
                         "%s: the file had %" PRIu64 " bytes when its metadata was read, now it has %" PRIu64,
                         file->path, file->bytes, bytes);
    }
    file->descriptor = descriptor;
    store->open++;
    return STATUS_OK;
}

/* Under the lock, the file being open. */
static enum status map_file(struct store_file *file, struct error *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes;
    unsigned char *memory;
    enum status st;

    if (file->mapping)
        return STATUS_OK;
    if (size_round_up(file->bytes, page, &bytes) || size_add(bytes, page, &bytes))
        return error_set(err, STATUS_OVERFLOW, "%s: %" PRIu64 " bytes cannot be mapped", file->path, file->bytes);
    memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return error_set(err, STATUS_STORAGE, "%s: cannot map %zu bytes: %s", file->path, bytes, strerror(errno));
    if (file->bytes &&
        mmap(memory, file->bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file->descriptor, 0) == MAP_FAILED) {
        st = error_set(err, STATUS_STORAGE, "%s: cannot map %zu bytes: %s", file->path, bytes, strerror(errno));
        goto fail;
    }
    st = mappings_add(memory, bytes, file->path, err);
    if (st != STATUS_OK)
        goto fail;
    file->mapping = memory;
    file->mapping_bytes = bytes;
    return STATUS_OK;
fail:
    munmap(memory, bytes);
    return st;
}

/* The file, open, and mapped when map, with a lease on it: its fields do not change until store_release. */
static enum status use_file(struct store *store, int shard, bool map, const struct store_file **ret, struct error *err)
{
    struct store_file *file;
    enum status st;

    CHECK(shard >= 0 && shard < store->count);
    file = &store->files[shard];
    (void)pthread_mutex_lock(&store->lock);
    st = open_file(store, file, err);
    if (st == STATUS_OK && map)
        st = map_file(file, err);
    file->leases += st == STATUS_OK;
    file->used = ++store->clock;
    (void)pthread_mutex_unlock(&store->lock);
    *ret = file;
    return st;
}

void store_release(struct store *store, int shard)
{
    CHECK(shard >= 0 && shard < store->count);
    (void)pthread_mutex_lock(&store->lock);
    CHECK(store->files[shard].leases);
    store->files[shard].leases--;
    (void)pthread_mutex_unlock(&store->lock);
}

static void count_bytes(struct store *store, uint64_t bytes)
{
    atomic_fetch_add_explicit(&store->bytes_read, bytes, memory_order_relaxed);
}

enum status store_map(struct store *store, int shard, uint64_t offset, uint64_t bytes, const unsigned char **ret,
                      struct error *err)
{
    const struct store_file *file;
    enum status st = use_file(store, shard, true, &file, err);

    if (st != STATUS_OK)
        return st;
    CHECK(offset <= file->bytes && bytes <= file->bytes - offset);
    count_bytes(store, bytes);
    *ret = file->mapping + offset;
    return STATUS_OK;
}

enum status store_read(struct store *store, int shard, uint64_t offset, uint64_t bytes, void *memory, struct error *err)
{
    const struct store_file *file;
    enum status st = use_file(store, shard, false, &file, err);

    if (st != STATUS_OK)
        return st;
    CHECK(offset <= file->bytes && bytes <= file->bytes - offset);
    st = file_read(file->descriptor, file->path, offset, bytes, memory, err);
    store_release(store, shard);
    if (st == STATUS_OK)
        count_bytes(store, bytes);
    return st;
}

/* Narrow pieces: rows that fit into one bounded read come together, and the pieces are picked out in memory. */
static enum status read_picking(const struct store_file *file, uint64_t offset, uint64_t row_count, size_t stride,
                                size_t piece, unsigned char *memory, struct error *err)
{
    uint64_t batch = FILE_PIECE_BYTES / stride;
    unsigned char *buffer = malloc(FILE_PIECE_BYTES);
    enum status st = STATUS_OK;

    if (!buffer)
        return error_set(err, STATUS_NOMEM, "%s: a buffer of %zu bytes", file->path, FILE_PIECE_BYTES);
    while (row_count && st == STATUS_OK) {
        size_t rows = (size_t)(row_count < batch ? row_count : batch);

        st = file_read(file->descriptor, file->path, offset, (rows - 1) * stride + piece, buffer, err);
        for (size_t row = 0; row < rows && st == STATUS_OK; row++)
            memcpy(memory + row * piece, buffer + row * stride, piece);
        memory += rows * piece;
        offset += rows * stride;
        row_count -= rows;
    }
    free(buffer);
    return st;
}

enum status store_read_strided(struct store *store, int shard, uint64_t offset, uint64_t row_count,
                               uint64_t stride_bytes, uint64_t piece_bytes, void *memory, struct error *err)
{
    const struct store_file *file;
    unsigned char *next = memory;
    enum status st = use_file(store, shard, false, &file, err);

    if (st != STATUS_OK)
        return st;
    CHECK(piece_bytes <= stride_bytes);
    /* One call a row is cheaper once a row fills a good part of a piece. */
    if (!row_count || !piece_bytes) {
        st = STATUS_OK;
    } else if (stride_bytes <= FILE_PIECE_BYTES / 8) {
        st = read_picking(file, offset, row_count, stride_bytes, piece_bytes, next, err);
    } else {
        for (uint64_t row = 0; row < row_count && st == STATUS_OK; row++, next += piece_bytes)
            st = file_read(file->descriptor, file->path, offset + row * stride_bytes, piece_bytes, next, err);
    }
    store_release(store, shard);
    if (st == STATUS_OK)
        count_bytes(store, row_count * piece_bytes);
    return st;
}

uint64_t store_bytes_read(const struct store *store)
{
    return atomic_load_explicit(&store->bytes_read, memory_order_relaxed);
}

static uint64_t resident_bytes(const struct store_file *file, size_t page)
{
    unsigned char pages[4096];
    uint64_t resident = 0;

    for (size_t at = 0; at < file->bytes; at += sizeof pages * page) {
        size_t bytes = file->bytes - at < sizeof pages * page ? file->bytes - at : sizeof pages * page;
        size_t count = (bytes + page - 1) / page;

        if (mincore(file->mapping + at, bytes, pages))
            return resident;
        for (size_t i = 0; i < count; i++)
            resident += pages[i] & 1u ? page : 0;
    }
    return resident;
}

uint64_t store_bytes_resident(struct store *store)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t resident = 0;

    (void)pthread_mutex_lock(&store->lock);
    for (int i = 0; i < store->count; i++)
        if (store->files[i].mapping)
            resident += resident_bytes(&store->files[i], page);
    (void)pthread_mutex_unlock(&store->lock);
    return resident;
}
