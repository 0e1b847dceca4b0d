/* Elementwise sums in one order: the balanced tree over members, whose left half gets the first half rounded up.
 *
 * f16 and bf16 are added in f32 and rounded once at the end; integers wrap. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "base/memory.h"

struct staging;

/* Can this dtype be summed?  (Not bool.) */
bool reduce_supports(enum dtype dtype);

/* out[k] = tree over in[0..members) of in[m][k], k < count, in dtype.  out may be one of in; alignment is the
 * element's. */
void reduce_tree(enum dtype dtype, const void *const *in, int members, size_t count, void *out);

/* The type of partial sums that travel: f32 for f16 and bf16, else dtype itself. */
enum dtype reduce_partial(enum dtype dtype);

/* Between dtype and its partial type; a copy where they are the same. */
void reduce_widen(enum dtype dtype, const void *in, size_t count, void *out);
void reduce_narrow(enum dtype dtype, const void *in, size_t count, void *out);

/* The same tree, with the same bits, in a device's memory: queued there, partial sums in blocks of its staging memory.
 * out does not overlap any of in, but may be one of them.  STATUS_NOMEM, the statuses of the memory. */
enum status reduce_tree_on(struct memory *device, struct staging *staging, enum dtype dtype, const void *const *in,
                           int members, size_t count, void *out, struct error *err);

/* One step of it: out = in as a partial sum, or the other way; left += right.  device NULL: on the host. */
enum status reduce_widen_on(struct memory *device, enum dtype dtype, const void *in, size_t count, void *out,
                            struct error *err);
enum status reduce_narrow_on(struct memory *device, enum dtype dtype, const void *in, size_t count, void *out,
                             struct error *err);
enum status reduce_add_on(struct memory *device, enum dtype partial, void *left, const void *right, size_t count,
                          struct error *err);

#endif
