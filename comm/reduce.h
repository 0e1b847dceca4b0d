/* Elementwise sums in one order: the balanced tree over members, whose left half gets the first half rounded up.
 *
 * f16 and bf16 are added in f32 and rounded once at the end; integers wrap. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"

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

#endif
