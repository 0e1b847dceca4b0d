/* Sums by the transport's library itself, in its own order: NCCL's all-reduce.
 *
 * Optional part of a transport's table (transport.h).  Every slot is called with the session's lock held; none waits.
 * Calls of different groups that share ranks go out in the same order on every rank: the transport sees to that. */
#ifndef COMM_NATIVE_H
#define COMM_NATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

struct native; /* some ranks with a communicator of their own */
struct transport;
struct work;

struct native_ops {
    /* Can it add this dtype in this memory? */
    bool (*adds)(const struct transport *transport, const struct memory *memory, enum dtype dtype);

    /* Begin to build the communicator of members [size] (world ranks, this one among them).  id: the group's, equal on
     * all members.  Collective over them, returns at once; all_reduce may be called at once and begins when it is
     * built.
     * first_line: 0, or as in comm/spec.h.  Then it is collective over all ranks, who open the lines of several axes in
     * the order of their ids, have come to it together, and move no message in device memory before missing says 0. */
    enum status (*open)(struct transport *transport, uint32_t id, uint32_t first_line, const int *members, int size,
                        struct native **ret, struct error *err);
    void (*close)(struct transport *transport, struct native *native);

    /* recv[k] = sum over members of send[k], k < count, behind everything queued on the memory so far; send may be
     * recv; both borrowed until the work is done (the table's test).  Collective over the members. */
    enum status (*all_reduce)(struct transport *transport, struct native *native, struct memory *memory,
                              enum dtype dtype, const void *send, void *recv, size_t count, struct work **ret,
                              struct error *err);

    /* Ranks that have not built the communicator yet, as far as this one knows, itself perhaps among them: ranks
     * [capacity], returns their number; 0: it is built. */
    int (*missing)(const struct transport *transport, const struct native *native, int *ranks, int capacity);
    /* Optional.  Why the library builds and adds nothing any more; STATUS_OK: it does. */
    enum status (*failed)(const struct transport *transport, struct error *err);
    /* The rank that this one waits for until the communicator is built; itself: the library, which does not end here;
     * -1: it is built. */
    int (*awaits)(const struct transport *transport, const struct native *native);
    /* Optional.  Of a sum that does not end, behind the sentence that says so: who has not come, or what is on the
     * device. */
    void (*tell)(const struct transport *transport, const struct work *work, struct text *out);
};

#endif
