/* Copies into memory that another core reads next. */
#ifndef BASE_STREAM_H
#define BASE_STREAM_H

#include <stddef.h>

/* to is aligned to 16 bytes; the memories do not overlap.  What is stored after it, by any means, is seen after it. */
void stream_copy(void *to, const void *from, size_t bytes);

#endif
