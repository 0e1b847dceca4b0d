/* The sum of a row-parallel product's pieces, in the balanced tree's order, over the pieces of all tensor ranks.
 *
 * A rank that owns a whole subtree adds it itself; sums between ranks gather the roots of the owned subtrees and add in
 * the tree's order, so that equal pieces give equal bits on any mesh (docs/numerics.md). */
#ifndef RUNTIME_PIECE_SUM_H
#define RUNTIME_PIECE_SUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/cut.h"

struct compute;
struct compute_ops;
struct group;
struct shuttle;
struct piece_sum;

/* pieces over parts ranks, this one being number part.  group: NULL when parts is 1 (borrowed).  Tensors hold
 * max_rows x cols of f32; between ranks they travel where the shuttle leads (borrowed; NULL: host memory).
 * STATUS_NOMEM, STATUS_OVERFLOW. */
enum status piece_sum_create(uint32_t pieces, uint32_t parts, uint32_t part, struct group *group,
                             struct shuttle *shuttle, size_t max_rows, size_t cols, struct piece_sum **ret,
                             struct error *err);
void piece_sum_destroy(struct piece_sum *sum);

/* Where the product of this rank's i-th piece goes: dense [rows, cols]. */
float *piece_sum_partial(struct piece_sum *sum, uint32_t i, size_t rows);

/* *ret = the whole sum [rows, cols], lent until the next call.  Collective over the group; blocks under the session's
 * timeout rule; adds the time spent waiting to *wait_ns. */
enum status piece_sum_run(struct piece_sum *sum, const struct compute_ops *ops, struct compute *compute, size_t rows,
                          float **ret, uint64_t *wait_ns, struct error *err);

#endif
