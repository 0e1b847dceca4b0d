/* Past the cache.  A plain store first fetches the line from the core that read it last, and that core then fetches it
 * back: where the two do not share a cache this takes two to five times as long as the way over memory, where they do
 * two thirds of it. */
#include "base/stream.h"

#include <emmintrin.h>
#include <string.h>

#include "base/runs.h"

static void stream_whole(__m128i *out, const unsigned char *in, size_t whole)
{
    for (size_t i = 0; i < whole; i++)
        _mm_stream_si128(out + i, _mm_loadu_si128((const void *)(in + i * sizeof *out)));
}

void stream_copy(void *to, const void *from, size_t bytes)
{
    __m128i *out = to;
    const unsigned char *in = from;
    size_t whole = bytes / sizeof *out;

    stream_whole(out, in, whole);
    if (bytes % sizeof *out)
        memcpy(out + whole, in + whole * sizeof *out, bytes % sizeof *out);
    _mm_sfence();
}

void stream_runs(void *to, const void *from, size_t from_stride, size_t run, size_t rows)
{
    __m128i *out = to;
    const unsigned char *in = from;
    size_t whole = run / sizeof *out;

    /* Side by side, such runs do not begin where a store past the cache may. */
    if (run % sizeof *out) {
        runs_copy(to, run, from, from_stride, run, rows);
        return;
    }
    for (size_t i = 0; i < rows; i++)
        stream_whole(out + i * whole, in + i * from_stride, whole);
    _mm_sfence();
}
