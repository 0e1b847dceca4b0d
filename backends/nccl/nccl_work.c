/* Small things that every transfer needs, kept for the next one: CUDA calls that create or allocate may wait for the
 * device. */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda_stream.h"
#include "backends/nccl/nccl_private.h"

enum { SLOT_BYTES = ANNOUNCE_HEADER_BYTES, BLOCK_SLOTS = 64, FIRST_EVENTS = 64 };

enum status nccl_cuda_status(const struct transport *transport, cudaError_t code, const char *call, struct error *err)
{
    enum status st = cuda_status(code, call, err);

    return cuda_has_failed(code) ? error_wrap(err, st, "device %s failed", transport->device_name) : st;
}

enum status nccl_use_device(const struct transport *transport, struct error *err)
{
    return nccl_cuda_status(transport, cudaSetDevice(transport->device), "cudaSetDevice", err);
}

struct work *nccl_work_take(struct transport *transport, enum work_kind kind)
{
    struct work *work = transport->free_work;

    if (work)
        transport->free_work = work->next;
    else
        work = malloc(sizeof *work);
    if (work) {
        memset(work, 0, offsetof(struct work, announcement));
        work->native = NULL;
        work->reached = false;
        work->kind = kind;
    }
    return work;
}

void nccl_work_give(struct transport *transport, struct work *work)
{
    work->next = transport->free_work;
    transport->free_work = work;
}

void nccl_work_link(struct transport *transport, struct work *work)
{
    work->next = transport->works;
    transport->works = work;
}

void nccl_work_unlink(struct transport *transport, struct work *work)
{
    struct work **link = &transport->works;

    while (*link != work)
        link = &(*link)->next;
    *link = work->next;
}

static enum status make_event(const struct transport *transport, cudaEvent_t *ret, struct error *err)
{
    return nccl_cuda_status(transport, cudaEventCreateWithFlags(ret, cudaEventDisableTiming), "cudaEventCreate", err);
}

static enum status more_slots(struct transport *transport, struct error *err)
{
    void **blocks = realloc(transport->slot_blocks, (transport->slot_block_count + 1) * sizeof *blocks);
    unsigned char *block = NULL;
    enum status st = STATUS_OK;

    if (!blocks)
        return error_set(err, STATUS_NOMEM, "headers of device messages");
    transport->slot_blocks = blocks;
    st = nccl_cuda_status(transport, cudaMallocHost((void **)&block, (size_t)SLOT_BYTES * BLOCK_SLOTS),
                          "cudaMallocHost", err);
    if (st != STATUS_OK)
        return st;
    blocks[transport->slot_block_count++] = block;
    for (int i = 0; i < BLOCK_SLOTS; i++)
        nccl_slot_give(transport, block + (size_t)i * SLOT_BYTES);
    return STATUS_OK;
}

/* One event at a time: each lies among the free ones before the next is made. */
static enum status more_events(struct transport *transport, size_t count, struct error *err)
{
    enum status st = STATUS_OK;

    while (st == STATUS_OK && count--) {
        cudaEvent_t event = NULL;

        st = make_event(transport, &event, err);
        nccl_event_give(transport, event);
    }
    return st;
}

enum status nccl_works_reserve(struct transport *transport, struct error *err)
{
    enum status st = more_slots(transport, err);

    return st == STATUS_OK ? more_events(transport, FIRST_EVENTS, err) : st;
}

enum status nccl_slot_take(struct transport *transport, unsigned char **ret, struct error *err)
{
    enum status st = transport->free_slot ? STATUS_OK : more_slots(transport, err);

    if (st != STATUS_OK)
        return st;
    *ret = transport->free_slot;
    memcpy(&transport->free_slot, *ret, sizeof transport->free_slot);
    return STATUS_OK;
}

void nccl_slot_give(struct transport *transport, unsigned char *slot)
{
    memcpy(slot, &transport->free_slot, sizeof transport->free_slot);
    transport->free_slot = slot;
}

enum status nccl_event_take(struct transport *transport, cudaEvent_t *ret, struct error *err)
{
    if (transport->free_event_count) {
        *ret = transport->free_events[--transport->free_event_count];
        return STATUS_OK;
    }
    return make_event(transport, ret, err);
}

void nccl_event_give(struct transport *transport, cudaEvent_t event)
{
    size_t capacity = transport->free_event_capacity;

    if (!event)
        return;
    if (transport->free_event_count == capacity) {
        size_t more = capacity ? 2 * capacity : FIRST_EVENTS;
        cudaEvent_t *events = realloc(transport->free_events, more * sizeof *events);

        if (!events) {
            (void)cudaEventDestroy(event);
            return;
        }
        transport->free_events = events;
        transport->free_event_capacity = more;
    }
    transport->free_events[transport->free_event_count++] = event;
}

enum status nccl_event_behind(struct transport *transport, struct memory *memory, cudaEvent_t *ret, struct error *err)
{
    enum status st = nccl_event_take(transport, ret, err);

    if (st != STATUS_OK)
        return st;
    st = nccl_cuda_status(transport, cudaEventRecord(*ret, cuda_memory_stream(memory)), "cudaEventRecord", err);
    if (st == STATUS_OK)
        return STATUS_OK;
    nccl_event_give(transport, *ret);
    *ret = NULL;
    return st;
}

void nccl_work_release(struct transport *transport, struct work *work)
{
    nccl_event_give(transport, work->before);
    work->before = NULL;
    if (work->slot)
        nccl_slot_give(transport, work->slot);
    work->slot = NULL;
}

void nccl_works_done(struct transport *transport, bool quiet, bool carrier_open)
{
    struct work *lists[] = {quiet && !carrier_open ? transport->works : NULL, transport->free_work};

    for (int i = 0; i < 2; i++) {
        while (lists[i]) {
            struct work *work = lists[i];

            lists[i] = work->next;
            if (i == 0)
                nccl_work_release(transport, work);
            free(work);
        }
    }
    for (size_t i = 0; i < transport->free_event_count; i++)
        (void)cudaEventDestroy(transport->free_events[i]);
    free(transport->free_events);
    for (size_t i = 0; quiet && i < transport->slot_block_count; i++)
        (void)cudaFreeHost(transport->slot_blocks[i]);
    free(transport->slot_blocks);
}
