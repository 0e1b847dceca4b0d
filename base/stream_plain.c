/* Where C knows no stores past the cache. */
#include "base/stream.h"

#include <string.h>

#include "base/runs.h"

void stream_copy(void *to, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
}

void stream_runs(void *to, const void *from, size_t from_stride, size_t run, size_t rows)
{
    runs_copy(to, run, from, from_stride, run, rows);
}
