/* Accelerators of this machine behind one table, which a plugin fills in (plugin.h).
 *
 * Everything that is queued on a device is queued on a struct memory (base/memory.h): that of the device, or one that
 * was forked from it.  All of one device name the same blocks, and each has a queue of its own; only marks order two
 * queues.  Slots may be called from any thread, one at a time for one device; none but count, describe, open and close
 * waits, and these only for the driver. */
#ifndef COMM_DEVICE_H
#define COMM_DEVICE_H

#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"

/* What can be told of a device before it is opened. */
struct device_facts {
    char name[80];         /* "NVIDIA H200" */
    char pci[20];          /* "0000:3b:00.0": domain, bus, device, function; lower case */
    char uuid[48];         /* "GPU-" and 32 digits in five groups */
    uint64_t memory_bytes; /* MEMORY_UNKNOWN */
    int capability[2];     /* major, minor */
    int numa_node;         /* nearest to it; -1: unknown */
};

/* What it can do, as far as is known without trying.  Unknown is never zero. */
#define DEVICE_UNKNOWN (-1.0)

struct device_capabilities {
    const char *substrate;  /* where tensors lie: "device memory" */
    const char *path_in;    /* how bytes of the host get there, and back */
    const char *path_out;   /* NULL: unknown, through host staging */
    size_t alignment;       /* bytes, of every allocation */
    size_t granularity;     /* bytes that one allocation is rounded up to; 1: unknown or none */
    uint32_t copy_types;    /* bit per enum dtype: what memory_ops.copy and copy_rows move */
    uint32_t add_types;     /* what memory_ops.add sums */
    uint32_t widen_types;   /* what memory_ops.convert makes f32 of */
    uint32_t narrow_types;  /* what memory_ops.convert makes of f32 */
    uint32_t product_types; /* what it multiplies; 0: it computes nothing */
    double flop_per_ns;     /* DEVICE_UNKNOWN: not measured */
    double bytes_per_ns;
};

/* First member of what a provider allocates. */
struct device {
    int index; /* among those that this process sees */
    struct device_facts facts;
    struct device_capabilities capabilities;
    struct memory *memory; /* the device's, with its first queue; lent until close */
    struct memory *pinned; /* host memory that it copies from and to without a detour; calls have happened when they
                            * return; lent until close */
};

struct device_ops {
    const char *name; /* "cuda": its devices are "cuda:0" and so on */

    /* How many this process sees, at least 1.
     * STATUS_ENVIRONMENT: none can be used, and exactly what is missing: driver, device, a newer driver. */
    enum status (*count)(int *ret, struct error *err);
    enum status (*describe)(int index, struct device_facts *ret, struct error *err);

    /* Open (returns).  STATUS_ENVIRONMENT in the library's own words, STATUS_NOMEM. */
    enum status (*open)(int index, struct device **ret, struct error *err);
    /* Release it with its memories.  All blocks were released and all queues joined; NULL is allowed.  What still runs
     * on it is waited for a second at most; after that it is left as it is. */
    void (*close)(struct device *device);

    /* One more queue on the device's memory, named "cuda:0.1" and so on (returns).  STATUS_ENVIRONMENT, STATUS_NOMEM.
     */
    enum status (*fork)(struct device *device, struct memory **ret, struct error *err);
    /* Give the queue up; what is queued on it still happens.  NULL is allowed. */
    void (*join)(struct device *device, struct memory *memory);
};

#endif
