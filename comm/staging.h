/* Memory for frames under way, kept between operations so that large messages do not fault fresh pages each time. */
#ifndef COMM_STAGING_H
#define COMM_STAGING_H

#include <stddef.h>

struct staging;

struct staging *staging_create(void); /* NULL: no memory */
void staging_destroy(struct staging *staging);

/* bytes of payload, aligned to TENSOR_ALIGN, with TENSOR_HEADROOM in front; NULL: no memory.  Returned by
 * staging_give. */
unsigned char *staging_take(struct staging *staging, size_t bytes);
void staging_give(struct staging *staging, unsigned char *payload);

#endif
