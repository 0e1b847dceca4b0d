/* One counted object a range of bytes; how it is given back is decided where it was made. */
#include "base/storage.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"

struct storage {
    atomic_int references;
    enum memory_kind kind;
    unsigned char *data;
    size_t bytes;
    size_t mine;           /* bytes that were allocated here; 0: it is another's */
    struct memory *memory; /* it was allocated in; NULL: none */
    tensor_give_back *give_back;
    void *context;
};

static enum status make(enum memory_kind kind, size_t bytes, struct storage **ret, struct error *err)
{
    struct storage *storage = calloc(1, sizeof *storage);

    if (!storage)
        return error_set(err, STATUS_NOMEM, "storage of %zu bytes", bytes);
    atomic_init(&storage->references, 1);
    storage->kind = kind;
    storage->bytes = bytes;
    *ret = storage;
    return STATUS_OK;
}

/* Never of length zero: every storage has an address. */
static enum status allocate(struct storage *storage, struct error *err)
{
    size_t all = 0;

    if (size_round_up(storage->bytes ? storage->bytes : 1, MEMORY_ALIGN, &all) != STATUS_OK)
        return error_set(err, STATUS_OVERFLOW, "storage of %zu bytes", storage->bytes);
    storage->mine = all;
    if (storage->kind == MEMORY_OWNED) {
        storage->data = aligned_alloc(MEMORY_ALIGN, all);
        if (storage->data)
            memset(storage->data, 0, all);
        return storage->data ? STATUS_OK : error_set(err, STATUS_NOMEM, "storage of %zu bytes", storage->bytes);
    }
    storage->data = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (storage->data != MAP_FAILED)
        return STATUS_OK;
    return error_set(err, STATUS_NOMEM, "%zu bytes between processes: %s", storage->bytes, strerror(errno));
}

enum status storage_create(enum memory_kind kind, size_t bytes, struct storage **ret, struct error *err)
{
    struct storage *storage = NULL;
    enum status st;

    if (kind != MEMORY_OWNED && kind != MEMORY_SHARED)
        return error_set(err, STATUS_INVALID, "storage that is %s cannot be made from nothing", memory_kind_name(kind));
    st = make(kind, bytes, &storage, err);
    if (st == STATUS_OK)
        st = allocate(storage, err);
    if (st != STATUS_OK) {
        free(storage);
        return st;
    }
    *ret = storage;
    return STATUS_OK;
}

enum status storage_create_in(struct memory *memory, size_t bytes, struct storage **ret, struct error *err)
{
    struct storage *storage = NULL;
    void *block = NULL;
    enum status st;

    if (!memory_host_view(memory))
        return error_set(err, STATUS_INVALID, "%s cannot be read by the host: it holds tensors, no storage of the host",
                         memory->ops->name(memory));
    st = make(memory->kind, bytes, &storage, err);
    if (st != STATUS_OK)
        return st;
    st = memory->ops->allocate(memory, bytes, &block, err);
    if (st != STATUS_OK) {
        free(storage);
        return st;
    }
    storage->data = block;
    storage->memory = memory;
    *ret = storage;
    return STATUS_OK;
}

enum status storage_lend(enum memory_kind kind, const void *bytes, size_t count, tensor_give_back *give_back,
                         void *context, struct storage **ret, struct error *err)
{
    struct storage *storage = NULL;
    enum status st;

    if (kind == MEMORY_DEVICE)
        return error_set(err, STATUS_INVALID, "a device's memory cannot be lent to the host");
    st = make(kind, count, &storage, err);
    if (st != STATUS_OK)
        return st;
    storage->data = (unsigned char *)(uintptr_t)bytes;
    storage->give_back = give_back;
    storage->context = context;
    *ret = storage;
    return STATUS_OK;
}

struct storage *storage_retain(struct storage *storage)
{
    atomic_fetch_add_explicit(&storage->references, 1, memory_order_relaxed);
    return storage;
}

/* What was allocated goes back where it came from; what was borrowed, to its owner. */
static void give_back(struct storage *storage)
{
    if (storage->memory)
        storage->memory->ops->release(storage->memory, storage->data);
    else if (storage->mine && storage->kind == MEMORY_SHARED)
        (void)munmap(storage->data, storage->mine);
    else if (storage->mine)
        free(storage->data);
    else if (storage->give_back)
        storage->give_back(storage->context);
}

void storage_release(struct storage *storage)
{
    if (!storage || atomic_fetch_sub_explicit(&storage->references, 1, memory_order_acq_rel) != 1)
        return;
    give_back(storage);
    free(storage);
}

enum memory_kind storage_kind(const struct storage *storage)
{
    return storage->kind;
}

size_t storage_bytes(const struct storage *storage)
{
    return storage->bytes;
}

const void *storage_data(const struct storage *storage)
{
    return storage->data;
}

void *storage_edit(struct storage *storage)
{
    return storage->kind == MEMORY_MAPPED ? NULL : storage->data;
}

static void end_borrow(void *storage)
{
    storage_release(storage);
}

enum status storage_borrow(struct storage *storage, size_t offset, enum dtype dtype, const struct shape *shape,
                           struct tensor **ret, struct error *err)
{
    size_t bytes = 0;
    enum status st = shape_bytes(shape, dtype, &bytes, err);

    if (st == STATUS_OK && (offset > storage->bytes || bytes > storage->bytes - offset))
        st = error_set(err, STATUS_INVALID, "%zu bytes at %zu of a storage of %zu", bytes, offset, storage->bytes);
    if (st == STATUS_OK)
        st = tensor_view(dtype, shape, storage->data + offset, end_borrow, storage, ret, err);
    if (st == STATUS_OK)
        storage_retain(storage);
    return st;
}

enum status storage_copy(const struct storage *storage, struct storage **ret, struct error *err)
{
    struct storage *copy = NULL;
    enum status st = storage_create(MEMORY_OWNED, storage->bytes, &copy, err);

    if (st != STATUS_OK)
        return st;
    if (storage->bytes)
        memcpy(copy->data, storage->data, storage->bytes);
    *ret = copy;
    return STATUS_OK;
}

const char *memory_kind_name(enum memory_kind kind)
{
    static const char *const names[] = {"owned", "mapped", "pinned", "shared", "device"};

    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}
