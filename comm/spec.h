/* What comm is told to build: groups and routes, filled in by the plan or by a program that links libferry. */
#ifndef COMM_SPEC_H
#define COMM_SPEC_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/tensor.h"

enum operation {
    OPERATION_NONE = 0,
    OPERATION_ALL_REDUCE_SUM = 1,
    OPERATION_ALL_GATHER_EVEN = 2,
    OPERATION_ALL_GATHER_UNEVEN = 3,
    OPERATION_VARIABLE_ALL_TO_ALL = 4,
    OPERATION_BROADCAST = 5,
    OPERATION_BARRIER = 6,
    OPERATION_FAILURE_AGREEMENT = 7,
    OPERATION_SEND_RECEIVE = 8,
    OPERATION_COMPUTE = 9, /* of an executor: never on the wire, never in a topology file */
    OPERATION_COUNT
};

/* "all_reduce_sum", ...; the words of the topology file. */
const char *operation_name(enum operation operation);
enum operation operation_from_name(const char *name); /* OPERATION_NONE: no such word */

#define OPERATION_BIT(operation) (1u << (operation))
#define DTYPE_BIT(dtype) (1u << (dtype))
#define OPERATIONS_ALL 0x1feu
#define DTYPES_ALL 0xffeu

/* An ordered set of world ranks.  Member order, never rank order, defines gather order, counts and roots. */
struct group_spec {
    uint32_t id;      /* rising over groups, then routes; the message tag.  Below the transport's largest, which is
                       * the session's own */
    const char *name; /* "tensor/0"; borrowed until session_close */
    int size;
    const int *members;  /* [size] world ranks; borrowed until session_close */
    uint32_t operations; /* OPERATION_BIT mask of what may be used */
    uint32_t dtypes;     /* DTYPE_BIT mask */
    uint64_t max_bytes;  /* of one operation's largest buffer */
    uint32_t first_line; /* id of the first of several groups, this one among them, that hold every rank once, may do
                          * the same and have ids in a row, as the lines of an axis and the stages.  0: none such */
};

enum { ROUTE_MAX_TENSORS = 16, ROUTE_ROLE_BYTES = 63, ROUTE_MAX_EXTENTS = 16 };

/* One dimension: fixed (low == high), a range, or tied to a named extent of the bundle. */
struct dim_spec {
    uint64_t low;
    uint64_t high;
    int extent; /* index into route_spec.extents, -1: none */
};

struct tensor_spec {
    const char *role; /* "hidden"; at most ROUTE_ROLE_BYTES bytes */
    enum dtype dtype;
    int ndim;
    struct dim_spec dim[TENSOR_MAX_NDIM];
};

/* The sentence (of STATUS_INVALID) for who uses what was not selected: it tells what was. */
void group_spec_lacks_operation(const struct group_spec *spec, enum operation operation, struct error *err);
void group_spec_lacks_dtype(const struct group_spec *spec, enum dtype dtype, struct error *err);

struct extent_spec {
    const char *name;
    uint64_t low;
    uint64_t high;
};

/* A directed pair of ranks with the exact ordered bundle that it carries. */
struct route_spec {
    uint32_t id;
    const char *name; /* "forward/0-2" */
    int from;         /* world ranks, different */
    int to;
    int tensor_count;
    const struct tensor_spec *tensors; /* [tensor_count]; borrowed until session_close */
    int extent_count;
    const struct extent_spec *extents;
    int depth; /* bundles in the pool of each end, 1..64 */

    /* Where this rank's bundles lie; the other end may have other places.  What a describe function reads lies on the
     * host. */
    uint32_t memory_tensors; /* bit t: tensor t lies in memory; the others in the session's shared memory, or the
                                process's own */
    struct memory *memory;   /* borrowed until session_close; NULL: the session's */
};

/* Digest (XXH3-64) of the bundle's schema, as carried in every frame of the route. */
uint64_t route_spec_digest(const struct route_spec *spec);

#endif
