/* A call of memcpy for each run costs as much as copying a hundred bytes: runs of the usual short lengths are copied by
 * loops in which the compiler knows the length, and those that lie together at once.
 *
 * What is read was often written by another core, and such lines come slowly: those loops ask for them ahead. */
#include "base/runs.h"

#include <stdint.h>
#include <string.h>

enum {
    BLOCK = 16,
    SHORT_BYTES = 512,
    AHEAD_BYTES = 1024, /* enough lines are then under way where one takes 100 ns */
    AHEAD_LEAST = 32    /* the runs of a line are not worth asking for one by one */
};

/* Bytes from a run to the one that is read AHEAD_BYTES later; 0: nothing is asked for. */
static inline __attribute__((always_inline)) size_t bytes_ahead(size_t from_stride, size_t run)
{
    return run >= AHEAD_LEAST && run <= SHORT_BYTES ? AHEAD_BYTES / run * from_stride : 0;
}

/* Nothing is touched where it lies, which may be behind the last run. */
static inline __attribute__((always_inline)) void ask(const unsigned char *in, size_t ahead)
{
    if (ahead)
        __builtin_prefetch((const void *)((uintptr_t)in + ahead));
}

/* Inlined, so that a run that is a constant is one to the compiler. */
static inline __attribute__((always_inline)) void copy_fixed(unsigned char *restrict to, size_t to_stride,
                                                             const unsigned char *restrict from, size_t from_stride,
                                                             size_t run, size_t rows)
{
    size_t ahead = bytes_ahead(from_stride, run);

    for (size_t i = 0; i < rows; i++) {
        ask(from + i * from_stride, ahead);
        memcpy(to + i * to_stride, from + i * from_stride, run);
    }
}

/* The same of blocks [a constant, at least 1] whole ones and at most one more, which overlaps the last of them. */
static inline __attribute__((always_inline)) void copy_some(unsigned char *restrict to, size_t to_stride,
                                                            const unsigned char *restrict from, size_t from_stride,
                                                            size_t run, size_t rows, size_t blocks)
{
    size_t ahead = bytes_ahead(from_stride, run);

    for (size_t i = 0; i < rows; i++) {
        unsigned char *out = to + i * to_stride;
        const unsigned char *in = from + i * from_stride;

        ask(in, ahead);
        for (size_t k = 0; k < blocks; k++)
            memcpy(out + k * BLOCK, in + k * BLOCK, BLOCK);
        memcpy(out + run - BLOCK, in + run - BLOCK, BLOCK);
    }
}

/* run is at least a block: the last one overlaps the one before it. */
static void copy_blocks(unsigned char *restrict to, size_t to_stride, const unsigned char *restrict from,
                        size_t from_stride, size_t run, size_t rows)
{
    size_t ahead = bytes_ahead(from_stride, run);

    for (size_t i = 0; i < rows; i++) {
        unsigned char *out = to + i * to_stride;
        const unsigned char *in = from + i * from_stride;

        ask(in, ahead);
        for (size_t at = 0; at + BLOCK < run; at += BLOCK)
            memcpy(out + at, in + at, BLOCK);
        memcpy(out + run - BLOCK, in + run - BLOCK, BLOCK);
    }
}

/* Runs of a length that the compiler does not know. */
static void copy_other(unsigned char *to, size_t to_stride, const unsigned char *from, size_t from_stride, size_t run,
                       size_t rows)
{
/* A copy of copy_some for each. */
#define SOME(blocks)                                                                                                   \
    case blocks:                                                                                                       \
        copy_some(to, to_stride, from, from_stride, run, rows, blocks);                                                \
        break
    switch (run < BLOCK ? 0 : (run - 1) / BLOCK) {
        SOME(1);
        SOME(2);
        SOME(3);
        SOME(4);
        SOME(5);
        SOME(6);
        SOME(7);
    default:
        if (run >= BLOCK && run <= SHORT_BYTES)
            copy_blocks(to, to_stride, from, from_stride, run, rows);
        else
            copy_fixed(to, to_stride, from, from_stride, run, rows);
        break;
    }
#undef SOME
}

void runs_copy(void *to, size_t to_stride, const void *from, size_t from_stride, size_t run, size_t rows)
{
    if (!run || !rows)
        return;
    if ((run == to_stride && run == from_stride) || rows == 1) {
        memcpy(to, from, run * rows);
        return;
    }
/* A copy of copy_fixed for each. */
#define FIXED(bytes)                                                                                                   \
    case bytes:                                                                                                        \
        copy_fixed(to, to_stride, from, from_stride, bytes, rows);                                                     \
        break
    switch (run) {
        FIXED(2);
        FIXED(4);
        FIXED(8);
        FIXED(16);
        FIXED(32);
        FIXED(64);
    default:
        copy_other(to, to_stride, from, from_stride, run, rows);
        break;
    }
#undef FIXED
}
