#include "tests/nccl/device_world.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/tensor.h"

enum { BARRIER_TAG = 1 };

enum status device_world_open(uint64_t startup_timeout_ns, uint64_t timeout_ns, struct device_world *ret,
                              struct error *err)
{
    struct transport_options carrier_options = {.startup_timeout_ns = startup_timeout_ns, .timeout_ns = timeout_ns};
    struct transport_options options = carrier_options;
    const struct plugin *mpi = NULL;
    const struct plugin *cuda = NULL;
    uint64_t delay_ns = ret->delay_ns;
    bool staged = ret->staged;
    void (*watch)(struct transport_ops * carrier) = ret->watch;
    int count = 0;
    enum status st = plugin_open("mpi", &mpi, NULL, 0, err);

    memset(ret, 0, sizeof *ret);
    if (st == STATUS_OK)
        st = plugin_open("cuda", &cuda, NULL, 0, err);
    if (st == STATUS_OK)
        st = mpi->transport->open(&carrier_options, &options.carrier, err);
    if (st != STATUS_OK)
        return st;
    ret->carrier_ops = *mpi->transport;
    if (watch)
        watch(&ret->carrier_ops);
    options.carrier_ops = &ret->carrier_ops;
    ret->devices = cuda->devices;
    ret->ops = staged ? mpi->transport : cuda->transport;
    ret->rank = mpi->transport->rank(options.carrier);
    ret->size = mpi->transport->size(options.carrier);
    st = ret->devices->count(&count, err);
    if (st == STATUS_OK)
        st = ret->devices->open(ret->rank % count, &ret->device, err);
    if (st == STATUS_OK)
        st = ret->devices->fork(ret->device, &ret->own, err);
    if (st != STATUS_OK)
        return st;
    options.memory = ret->memory = ret->device->memory;
    ret->delay_ns = delay_ns;
    ret->staged = staged;
    ret->transport = options.carrier;
    if (staged)
        return STATUS_OK;
    if (delay_ns)
        clock_sleep_ns(delay_ns);
    return ret->ops->open(&options, &ret->transport, err);
}

enum status device_world_close(struct device_world *world, bool clean, struct error *err)
{
    enum status st = world->ops->close(world->transport, clean, err);

    device_world_end(world);
    return st;
}

void device_world_end(struct device_world *world)
{
    world->devices->join(world->device, world->own);
    world->devices->close(world->device);
}

enum status device_world_finish(const struct device_world *world, struct work *work)
{
    bool over = false;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && !over)
        st = world->ops->test(world->transport, work, &over, NULL);
    return st;
}

size_t device_world_await(const struct device_world *world, int peer, uint32_t tag, struct message **ret)
{
    size_t bytes = 0;

    *ret = NULL;
    while (!*ret) {
        if (world->ops->probe(world->transport, peer, tag, ret, &bytes, NULL))
            return SIZE_MAX;
    }
    return bytes;
}

static void pass_on(const struct device_world *world, int right)
{
    struct work *work = NULL;
    char token = 0;

    if (world->ops->send(world->transport, right, BARRIER_TAG, &token, 1, &work, NULL) == STATUS_OK)
        (void)device_world_finish(world, work);
}

/* A token twice around the ring. */
void device_world_barrier(const struct device_world *world)
{
    int right = (world->rank + 1) % world->size;
    int left = (world->rank + world->size - 1) % world->size;

    for (int round = 0; round < 2; round++) {
        struct work *work = NULL;
        struct message *message;
        char token = 0;

        if (world->rank == 0)
            pass_on(world, right);
        if (device_world_await(world, left, BARRIER_TAG, &message) == 1 &&
            world->ops->receive(world->transport, message, &token, 1, &work, NULL) == STATUS_OK)
            (void)device_world_finish(world, work);
        if (world->rank != 0)
            pass_on(world, right);
    }
}

static void settle(struct memory *memory)
{
    struct memory_mark *mark = NULL;
    bool reached = false;

    CHECK(memory->ops->mark(memory, &mark, NULL) == STATUS_OK);
    while (!reached) {
        CHECK(memory->ops->reached(memory, mark, &reached, NULL) == STATUS_OK);
        clock_sleep_ns(1000);
    }
}

unsigned char *device_room(const struct device_world *world, size_t bytes)
{
    void *block = NULL;

    CHECK(world->memory->ops->allocate(world->memory, bytes + TENSOR_HEADROOM, &block, NULL) == STATUS_OK);
    return (unsigned char *)block + TENSOR_HEADROOM;
}

void device_free(const struct device_world *world, unsigned char *room)
{
    world->memory->ops->release(world->memory, room - TENSOR_HEADROOM);
}

void device_put(const struct device_world *world, unsigned char *to, const void *from, size_t bytes)
{
    CHECK(world->own->ops->copy(world->own, to, from, bytes, NULL) == STATUS_OK);
    settle(world->own);
}

void device_get(const struct device_world *world, void *to, const unsigned char *from, size_t bytes)
{
    CHECK(world->own->ops->copy(world->own, to, from, bytes, NULL) == STATUS_OK);
    settle(world->own);
}
