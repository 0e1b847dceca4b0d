#include "tests/nccl/device_world.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/tensor.h"

enum status device_world_open(uint64_t startup_timeout_ns, uint64_t timeout_ns, struct device_world *ret,
                              struct error *err)
{
    struct transport_options carrier_options = {.startup_timeout_ns = startup_timeout_ns, .timeout_ns = timeout_ns};
    struct transport_options options = carrier_options;
    const struct plugin *mpi = NULL;
    const struct plugin *cuda = NULL;
    uint64_t delay_ns = ret->delay_ns;
    int count = 0;
    enum status st = plugin_open("mpi", &mpi, NULL, 0, err);

    memset(ret, 0, sizeof *ret);
    if (st == STATUS_OK)
        st = plugin_open("cuda", &cuda, NULL, 0, err);
    if (st == STATUS_OK)
        st = mpi->transport->open(&carrier_options, &options.carrier, err);
    if (st != STATUS_OK)
        return st;
    options.carrier_ops = mpi->transport;
    ret->devices = cuda->devices;
    ret->ops = cuda->transport;
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
    if (delay_ns)
        clock_sleep_ns(delay_ns);
    return ret->ops->open(&options, &ret->transport, err);
}

void device_world_close(struct device_world *world, bool clean)
{
    world->ops->close(world->transport, clean);
    device_world_end(world);
}

void device_world_end(struct device_world *world)
{
    world->devices->join(world->device, world->own);
    world->devices->close(world->device);
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
