/* The same operations without Ferry, in the transport's own blocking calls: what `ferry bench` measures beside ours.
 *
 * Optional part of a transport's table (transport.h).  No headers, no deadlines: a peer that does not come hangs the
 * call, so that the caller must own a way to end the process. */
#ifndef COMM_RAW_H
#define COMM_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/spec.h"

struct raw; /* some ranks, and the call that is being repeated */
struct transport;

/* One call: tensors are [outer, extent along the axis, inner_bytes].  All borrowed until the next prepare, or close. */
struct raw_call {
    enum operation operation; /* send_receive: there and back between two members, one iteration */
    enum dtype dtype;
    const void *send;
    void *recv; /* of a broadcast: the only tensor */
    size_t outer;
    size_t inner_bytes;
    const uint64_t *send_counts; /* [members] extents: all-to-all; of a gather its receive counts */
    const uint64_t *recv_counts; /* [members] extents: gathers, all-to-all */
    size_t bytes;                /* of the whole tensor: sums, broadcast, send_receive */
    int root;
    void *sent; /* what this member sends, host memory that is written anew before each iteration; NULL: is not */
    size_t sent_bytes;
    bool meet; /* the members wait for each other before each iteration, when that is written */
};

struct raw_ops {
    /* Collective over members [size] (world ranks, this one among them); blocks. */
    enum status (*open)(struct transport *transport, const int *members, int size, struct raw **ret, struct error *err);
    void (*close)(struct raw *raw);
    /* Local.  Ready for run; *ret_ways: how many of the library's calls give this result; 0: none. */
    enum status (*prepare)(struct raw *raw, const struct raw_call *call, int *ret_ways, struct error *err);
    /* "MPI_Allgather".  Lends until the next prepare. */
    const char *(*way)(const struct raw *raw, int way);
    /* Collective over the members; blocks.  *ret_ns: what the iterations took, without the writing of what is sent and the
     * meeting. */
    enum status (*run)(struct raw *raw, int way, int iterations, uint64_t *ret_ns, struct error *err);
};

#endif
