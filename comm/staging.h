/* Memory for frames under way, kept between operations so that large messages do not fault fresh pages each time. */
#ifndef COMM_STAGING_H
#define COMM_STAGING_H

#include <stddef.h>

#include "base/memory.h"

struct staging;

/* Of the process's own memory, and of every other that it is asked for.  NULL: no memory. */
struct staging *staging_create(void);
void staging_destroy(struct staging *staging); /* with those of other memories; their blocks have been given back */

/* That of another memory, made when it is asked for first (lends until staging_destroy of the process's own); memory
 * NULL: the process's own itself.  NULL: no memory. */
struct staging *staging_in(struct staging *staging, struct memory *memory);

/* bytes of payload, aligned to TENSOR_ALIGN, with TENSOR_HEADROOM in front; NULL: no memory, err says of which
 * and, where the memory knows, how much is left.  Returned by staging_give; what was queued on a device's block before
 * happens before what its next taker queues. */
unsigned char *staging_take(struct staging *staging, size_t bytes, struct error *err);
/* The same without waiting for the memory's owner.  NULL: there is none now. */
unsigned char *staging_take_at_hand(struct staging *staging, size_t bytes);
void staging_give(struct staging *staging, unsigned char *payload);

#endif
