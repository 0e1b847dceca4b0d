/* A rank of a real world with a device: MPI as the carrier, NCCL between the devices, both by their plugins. */
#ifndef TESTS_NCCL_DEVICE_WORLD_H
#define TESTS_NCCL_DEVICE_WORLD_H

#include "comm/plugin.h"
#include "comm/transport.h"

struct device_world {
    const struct device_ops *devices;
    struct device *device;
    struct memory *memory; /* the device's */
    struct memory *own;    /* a queue of the test's own: the other is the session's, from its threads, too */
    const struct transport_ops *ops;
    struct transport *transport;
    int rank;
    int size;
    uint64_t delay_ns; /* set before open: this rank comes so late to NCCL */
    bool staged;       /* set before open: MPI's transport alone, which does not reach the device */
    /* Set before open: changes the carrier's table as NCCL's transport sees it. */
    void (*watch)(struct transport_ops *carrier);
    struct transport_ops carrier_ops; /* that table */
};

/* Each rank takes the device of its number.  Collective, blocks. */
enum status device_world_open(uint64_t startup_timeout_ns, uint64_t timeout_ns, struct device_world *ret,
                              struct error *err);
/* The status of the transport's close. */
enum status device_world_close(struct device_world *world, bool clean, struct error *err);
/* The device alone: the session has closed the transport. */
void device_world_end(struct device_world *world);

/* Messages in host memory, without a deadline: until the work is over; until one is there, its size (SIZE_MAX: the
 * transport failed); until all ranks have come. */
enum status device_world_finish(const struct device_world *world, struct work *work);
size_t device_world_await(const struct device_world *world, int peer, uint32_t tag, struct message **ret);
void device_world_barrier(const struct device_world *world);

/* Device memory with TENSOR_HEADROOM bytes in front of what is returned; NULL: there is none.  Aborts on an error of
 * the memory, like the functions below: they belong to a test, not to what is tested. */
unsigned char *device_room(const struct device_world *world, size_t bytes);
void device_free(const struct device_world *world, unsigned char *room);
/* Whole, and happened when they return. */
void device_put(const struct device_world *world, unsigned char *to, const void *from, size_t bytes);
void device_get(const struct device_world *world, void *to, const unsigned char *from, size_t bytes);

#endif
