/* Past the cache.  A plain store first fetches the line from the core that read it last, and that core then fetches it
 * back: where the two do not share a cache this takes two to five times as long as the way over memory, where they do
 * two thirds of it. */
#include "base/stream.h"

#include <emmintrin.h>
#include <string.h>

#include "base/runs.h"

enum { BLOCK_BYTES = 16384 }; /* a cache of the first level holds them beside what they are read from */

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

/* So many such runs have together whole blocks of 16 bytes. */
static size_t rows_of_blocks(size_t run)
{
    size_t rows = 1;

    while (run * rows % sizeof(__m128i))
        rows *= 2;
    return rows;
}

/* Runs that do not begin where a store past the cache may, once they lie side by side: laid so in the cache first, some
 * at a time. */
static void stream_gathered(unsigned char *to, const unsigned char *from, size_t from_stride, size_t run, size_t rows)
{
    _Alignas(64) unsigned char block[BLOCK_BYTES];
    size_t least = rows_of_blocks(run);
    size_t most = BLOCK_BYTES / (least * run) * least;

    while (rows) {
        size_t count = rows < most ? rows : most;

        runs_copy(block, run, from, from_stride, run, count);
        stream_copy(to, block, count * run);
        to += count * run;
        from += count * from_stride;
        rows -= count;
    }
}

void stream_runs(void *to, const void *from, size_t from_stride, size_t run, size_t rows)
{
    __m128i *out = to;
    const unsigned char *in = from;
    size_t whole = run / sizeof *out;

    if (run % sizeof *out) {
        if (run <= BLOCK_BYTES && run * rows_of_blocks(run) <= BLOCK_BYTES)
            stream_gathered(to, from, from_stride, run, rows);
        else
            runs_copy(to, run, from, from_stride, run, rows);
        return;
    }
    for (size_t i = 0; i < rows; i++)
        stream_whole(out + i * whole, in + i * from_stride, whole);
    _mm_sfence();
}
