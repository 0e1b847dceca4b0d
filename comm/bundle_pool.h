/* A fixed number of bundles with memory for their largest extents, taken and given back. */
#ifndef COMM_BUNDLE_POOL_H
#define COMM_BUNDLE_POOL_H

#include "comm/route.h"

struct bundle_pool;

/* spec->depth bundles, whose memory_tensors lie in memory (borrowed; NULL: like the others) and the others in host
 * (borrowed; NULL: the process's own).  STATUS_NOMEM, STATUS_OVERFLOW. */
enum status bundle_pool_create(const struct route_spec *spec, struct memory *memory, struct memory *host,
                               struct bundle_pool **ret, struct error *err);
/* Every bundle must be back, unless the transport keeps their memory to the end of the process: then it is left. */
void bundle_pool_destroy(struct bundle_pool *pool);

/* Lend a bundle until bundle_pool_give; NULL: none is free. */
struct bundle *bundle_pool_take(struct bundle_pool *pool);
bool bundle_pool_any(const struct bundle_pool *pool);
/* A lent one is on its way until it is given back: pending in its tensors. */
void bundle_pool_send(struct bundle *bundle);

/* Is it lent, and not given back? */
bool bundle_pool_lent(const struct bundle *bundle);
/* NULL is allowed; giving back what is not lent is a programming error (CHECK). */
void bundle_pool_give(struct bundle_pool *pool, struct bundle *bundle);

#endif
