/* Copies of many short runs: the columns of a matrix, the parts of a tensor along an inner axis. */
#ifndef BASE_RUNS_H
#define BASE_RUNS_H

#include <stddef.h>

/* Some that lie in one place, a stride apart. */
struct runs {
    const unsigned char *bytes; /* the first one's */
    size_t run;
    size_t stride; /* bytes between the starts of two */
    size_t rows;
};

/* rows runs of run bytes; strides are the bytes between the starts of two runs.  The memories do not overlap.  Nothing
 * is touched for zero bytes, so that pointers may then be NULL. */
void runs_copy(void *to, size_t to_stride, const void *from, size_t from_stride, size_t run, size_t rows);
/* The same, of one run and one byte at least, by the loops for any processor. */
void runs_copy_plain(void *to, size_t to_stride, const void *from, size_t from_stride, size_t run, size_t rows);

#endif
