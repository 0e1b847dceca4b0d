/* Copies into memory that another core reads next. */
#ifndef BASE_STREAM_H
#define BASE_STREAM_H

#include <stddef.h>

/* to is aligned to 16 bytes; the memories do not overlap.  What is stored after it, by any means, is seen after it. */
void stream_copy(void *to, const void *from, size_t bytes);

/* The same of rows runs of run bytes, from_stride bytes from start to start, which come to lie side by side. */
void stream_runs(void *to, const void *from, size_t from_stride, size_t run, size_t rows);

#endif
