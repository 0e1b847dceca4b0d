/* Memory that only copies may touch.
 *
 * An allocation on a device has two places: the address handed out, which nobody may touch, and an alias, where the
 * stand-in's own threads do the work.  Whoever touches the first gets SIGSEGV, and is told what he touched.  A freed
 * allocation keeps its address, so that a late use of it is seen, until so many others were freed that its slot is
 * needed. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/standin/inside.h"

enum { SLOTS = 4096, PAGE = 4096 };

/* Read by the handler of SIGSEGV without a lock: base is written last and is what makes a slot count. */
struct slot {
    char *base; /* NULL: free */
    char *alias;
    size_t bytes;
    int device;
    enum memory_place place;
    bool owned; /* pinned by cudaHostRegister: the caller's */
    uint64_t freed_at;
};

static struct slot slots[SLOTS];
static uint64_t frees;
static size_t used_bytes[DEVICES_MAX];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t handler_once = PTHREAD_ONCE_INIT;
static struct sigaction handler_before;

/* What queued work reads and writes. */
struct use {
    const char *start;
    size_t bytes;
};
static struct use *uses;
static size_t use_count;
static size_t use_room;

static struct slot *slot_of(const char *address)
{
    for (int i = 0; i < SLOTS; i++) {
        const char *base = __atomic_load_n(&slots[i].base, __ATOMIC_ACQUIRE);

        if (base && address >= base && (address < base + slots[i].bytes || address == base))
            return &slots[i];
    }
    return NULL;
}

static void on_touch(int signal_number, siginfo_t *info, void *context)
{
    const struct slot *slot = slot_of(info->si_addr);
    char text[200];

    (void)context;
    if (!slot || (slot->place != PLACE_DEVICE && slot->place != PLACE_FREED)) {
        sigaction(signal_number, &handler_before, NULL);
        return;
    }
    int length =
        snprintf(text, sizeof text,
                 "stand-in: host access to %sdevice memory at %p: byte %zu of an allocation of %zu on device %d\n",
                 slot->place == PLACE_FREED ? "freed " : "", info->si_addr,
                 (size_t)((char *)info->si_addr - slot->base), slot->bytes, slot->device);
    if (write(STDERR_FILENO, text, (size_t)length) < 0)
        _exit(STANDIN_TOUCHED);
    _exit(STANDIN_TOUCHED);
}

static void watch_touches(void)
{
    struct sigaction action = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &handler_before);
}

uint64_t standin_memory_total(void)
{
    const char *value = getenv("FERRY_STANDIN_MEMORY");

    return value && *value ? strtoull(value, NULL, 10) : UINT64_C(1) << 30;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static void *map_pages(size_t bytes, int protection)
{
    void *pages = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return pages == MAP_FAILED ? NULL : pages;
}

static void slot_clear(struct slot *slot)
{
    char *base = slot->base;

    __atomic_store_n(&slot->base, NULL, __ATOMIC_RELEASE);
    if (slot->place == PLACE_FREED)
        munmap(base, whole_pages(slot->bytes));
}

/* A slot that is free, or the one freed longest ago. */
static struct slot *slot_take(void)
{
    struct slot *oldest = NULL;

    for (int i = 0; i < SLOTS; i++) {
        if (!slots[i].base)
            return &slots[i];
        if (slots[i].place == PLACE_FREED && (!oldest || slots[i].freed_at < oldest->freed_at))
            oldest = &slots[i];
    }
    if (oldest)
        slot_clear(oldest);
    return oldest;
}

static void slot_fill(struct slot *slot, enum memory_place place, char *base, char *alias, size_t bytes, bool owned)
{
    slot->place = place;
    slot->alias = alias;
    slot->bytes = bytes;
    slot->device = standin_current();
    slot->owned = owned;
    __atomic_store_n(&slot->base, base, __ATOMIC_RELEASE);
}

struct memory_spot standin_spot(const void *address)
{
    struct memory_spot spot = {.place = PLACE_PAGEABLE, .device = -1, .alias = (char *)address, .left = SIZE_MAX};
    const struct slot *slot;

    pthread_mutex_lock(&slots_lock);
    slot = slot_of(address);
    if (slot) {
        size_t offset = (size_t)((const char *)address - slot->base);

        spot = (struct memory_spot){.place = slot->place,
                                    .device = slot->device,
                                    .base = slot->base,
                                    .bytes = slot->bytes,
                                    .alias = slot->place == PLACE_FREED ? NULL : slot->alias + offset,
                                    .left = slot->bytes - offset};
    }
    pthread_mutex_unlock(&slots_lock);
    if (spot.place == PLACE_FREED)
        fprintf(stderr, "stand-in: use of freed device memory at %p: an allocation of %zu bytes on device %d\n",
                address, spot.bytes, spot.device);
    return spot;
}

void *standin_reach(const void *address, size_t bytes, int device)
{
    struct memory_spot spot = standin_spot(address);

    if ((spot.place != PLACE_DEVICE && spot.place != PLACE_PINNED) || bytes > spot.left)
        return NULL;
    if (spot.place == PLACE_DEVICE && device >= 0 && spot.device != device)
        return NULL;
    return spot.alias;
}

static int host_calls;

void standin_host_calls(int more)
{
    pthread_mutex_lock(&standin_gate.lock);
    host_calls += more;
    pthread_mutex_unlock(&standin_gate.lock);
}

static bool use_overlaps(const char *start, size_t bytes)
{
    for (size_t i = 0; i < use_count; i++)
        if (start < uses[i].start + uses[i].bytes && uses[i].start < start + bytes)
            return true;
    return false;
}

static size_t extent(size_t pitch, size_t width, size_t rows)
{
    return width && rows ? pitch * (rows - 1) + width : 0;
}

void standin_use_rows(const void *alias, size_t pitch, size_t width, size_t rows, bool written)
{
    size_t bytes = extent(pitch, width, rows);
    bool pinned = standin_spot(alias).place == PLACE_PINNED;

    if (bytes == 0)
        return;
    pthread_mutex_lock(&standin_gate.lock);
    if (written && !(pinned && host_calls) && !use_overlaps(alias, bytes))
        for (size_t row = 0; row < rows; row++)
            memset((char *)alias + row * pitch, POISON_PENDING, width);
    if (use_count == use_room) {
        use_room = use_room ? 2 * use_room : 64;
        uses = realloc(uses, use_room * sizeof *uses);
        if (!uses)
            abort();
    }
    uses[use_count++] = (struct use){alias, bytes};
    pthread_mutex_unlock(&standin_gate.lock);
}

void standin_unuse_rows(const void *alias, size_t pitch, size_t width, size_t rows)
{
    size_t bytes = extent(pitch, width, rows);

    pthread_mutex_lock(&standin_gate.lock);
    for (size_t i = 0; i < use_count; i++) {
        if (uses[i].start == alias && uses[i].bytes == bytes) {
            uses[i] = uses[--use_count];
            break;
        }
    }
    pthread_mutex_unlock(&standin_gate.lock);
}

void standin_use(const void *alias, size_t bytes, bool written)
{
    standin_use_rows(alias, bytes, bytes, 1, written);
}

void standin_unuse(const void *alias, size_t bytes)
{
    standin_unuse_rows(alias, bytes, bytes, 1);
}

EXPORT cudaError_t cudaMalloc(void **ret, size_t bytes)
{
    cudaError_t error = standin_device_check(standin_current());
    int device = standin_current();
    struct slot *slot = NULL;
    char *alias = NULL;
    char *base = NULL;

    if (error != cudaSuccess)
        return standin_give(error);
    *ret = NULL;
    if (bytes == 0)
        return cudaSuccess;
    standin_use_context();
    standin_drain_when_told();
    pthread_once(&handler_once, watch_touches);
    pthread_mutex_lock(&slots_lock);
    if (bytes <= standin_memory_total() - used_bytes[device] && (slot = slot_take()) &&
        (base = map_pages(whole_pages(bytes), PROT_NONE)) &&
        (alias = map_pages(whole_pages(bytes), PROT_READ | PROT_WRITE))) {
        memset(alias, POISON_FRESH, bytes);
        used_bytes[device] += bytes;
        slot_fill(slot, PLACE_DEVICE, base, alias, bytes, true);
        *ret = base;
    } else {
        if (base)
            munmap(base, whole_pages(bytes));
        error = cudaErrorMemoryAllocation;
    }
    pthread_mutex_unlock(&slots_lock);
    return standin_give(error);
}

/* The live slot that begins at address. */
static struct slot *slot_beginning(const void *address, enum memory_place place, bool owned)
{
    struct slot *slot = slot_of(address);

    return slot && slot->base == address && slot->place == place && slot->owned == owned ? slot : NULL;
}

/* As CUDA's: waits for all work of the device. */
EXPORT cudaError_t cudaFree(void *address)
{
    cudaError_t error = standin_ready();
    struct slot *slot;

    if (!address || error != cudaSuccess)
        return standin_give(error);
    pthread_mutex_lock(&slots_lock);
    slot = slot_beginning(address, PLACE_DEVICE, true);
    pthread_mutex_unlock(&slots_lock);
    if (!slot) {
        fprintf(stderr, "stand-in: cudaFree(%p): no live allocation begins there\n", address);
        return standin_give(cudaErrorInvalidValue);
    }
    standin_drain(slot->device);
    pthread_mutex_lock(&slots_lock);
    munmap(slot->alias, whole_pages(slot->bytes));
    used_bytes[slot->device] -= slot->bytes;
    slot->freed_at = ++frees;
    slot->place = PLACE_FREED;
    pthread_mutex_unlock(&slots_lock);
    return cudaSuccess;
}

static void pin_slowly(void)
{
    static atomic_long pinned;
    struct standin_fault fault = standin_fault_at(FAULT_PIN, atomic_fetch_add(&pinned, 1));

    for (long ms = 0; fault.kind == FAULT_PIN && ms < fault.value; ms++)
        usleep(1000);
}

EXPORT cudaError_t cudaHostAlloc(void **ret, size_t bytes, unsigned int flags)
{
    cudaError_t error = standin_ready();
    struct slot *slot;
    void *block = NULL;

    (void)flags;
    if (error != cudaSuccess)
        return standin_give(error);
    *ret = NULL;
    if (bytes == 0)
        return cudaSuccess;
    standin_drain_when_told();
    pin_slowly();
    pthread_mutex_lock(&slots_lock);
    slot = slot_take();
    if (!slot || posix_memalign(&block, PAGE, bytes) != 0) {
        error = cudaErrorMemoryAllocation;
    } else {
        memset(block, POISON_FRESH, bytes);
        slot_fill(slot, PLACE_PINNED, block, block, bytes, true);
        *ret = block;
    }
    pthread_mutex_unlock(&slots_lock);
    return standin_give(error);
}

EXPORT cudaError_t cudaMallocHost(void **ret, size_t bytes)
{
    return cudaHostAlloc(ret, bytes, cudaHostAllocDefault);
}

/* Waits for all work of all devices, which may read or write it. */
EXPORT cudaError_t cudaFreeHost(void *address)
{
    cudaError_t error = standin_ready();
    struct slot *slot;

    if (!address || error != cudaSuccess)
        return standin_give(error);
    pthread_mutex_lock(&slots_lock);
    slot = slot_beginning(address, PLACE_PINNED, true);
    pthread_mutex_unlock(&slots_lock);
    if (!slot)
        return standin_give(cudaErrorInvalidValue);
    standin_drain_all();
    pthread_mutex_lock(&slots_lock);
    slot_clear(slot);
    pthread_mutex_unlock(&slots_lock);
    free(address);
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned int flags)
{
    cudaError_t error = standin_ready();
    struct slot *slot;

    (void)flags;
    if (error == cudaSuccess && (!address || bytes == 0))
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return standin_give(error);
    pthread_mutex_lock(&slots_lock);
    if (slot_of(address) || slot_of((char *)address + bytes - 1))
        error = cudaErrorHostMemoryAlreadyRegistered;
    else if (!(slot = slot_take()))
        error = cudaErrorMemoryAllocation;
    else
        slot_fill(slot, PLACE_PINNED, address, address, bytes, false);
    pthread_mutex_unlock(&slots_lock);
    return standin_give(error);
}

EXPORT cudaError_t cudaHostUnregister(void *address)
{
    struct slot *slot;

    pthread_mutex_lock(&slots_lock);
    slot = slot_beginning(address, PLACE_PINNED, false);
    if (slot)
        slot_clear(slot);
    pthread_mutex_unlock(&slots_lock);
    return standin_give(slot ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

EXPORT cudaError_t cudaHostGetDevicePointer(void **ret, void *address, unsigned int flags)
{
    if (flags != 0 || standin_spot(address).place != PLACE_PINNED)
        return standin_give(cudaErrorInvalidValue);
    *ret = address;
    return cudaSuccess;
}

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
    cudaError_t error = standin_ready();
    struct memory_spot spot;

    if (error != cudaSuccess)
        return standin_give(error);
    spot = standin_spot(address);
    *attributes = (struct cudaPointerAttributes){
        .type = cudaMemoryTypeUnregistered, .device = cudaInvalidDeviceId, .hostPointer = (void *)address};
    if (spot.place == PLACE_DEVICE)
        *attributes = (struct cudaPointerAttributes){
            .type = cudaMemoryTypeDevice, .device = spot.device, .devicePointer = (void *)address};
    else if (spot.place == PLACE_PINNED)
        *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeHost,
                                                     .device = spot.device,
                                                     .devicePointer = (void *)address,
                                                     .hostPointer = (void *)address};
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    cudaError_t error = standin_device_check(standin_current());

    if (error != cudaSuccess)
        return standin_give(error);
    *total = standin_memory_total();
    pthread_mutex_lock(&slots_lock);
    *available = *total - used_bytes[standin_current()];
    pthread_mutex_unlock(&slots_lock);
    return cudaSuccess;
}
