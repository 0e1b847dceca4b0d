/* A call of memcpy for each run costs as much as copying a hundred bytes: runs of the usual short lengths are copied by
 * loops in which the compiler knows the length, and those that lie together at once.
 *
 * What is read was often written by another core, and such lines come slowly: those loops ask for them ahead.  And the
 * fewer instructions a line takes, the sooner the processor sees the next ones: where it has AVX2, the same loops are
 * there once more, compiled for it. */
#include "base/runs.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    BLOCK = 16,
    LANE = 32,
    LINE = 64,
    SHORT_BYTES = 4096,
    AHEAD_BYTES = 2048, /* enough lines are then under way where one takes 100 ns */
    AHEAD_LEAST = 32,   /* the runs of a line are not worth asking for one by one */
    LARGE_BYTES = 2 << 20
};

/* Inlined, so that what is a constant where it is called is one to the compiler, and that it is compiled for the
 * processor of its caller. */
#define INLINED static inline __attribute__((always_inline))

/* One register of AVX2, two of SSE2. */
typedef unsigned char lane __attribute__((vector_size(LANE), aligned(1), may_alias));

/* What is asked for while a run is copied. */
struct asking {
    size_t ahead; /* bytes from what is copied to it; 0: nothing */
    bool aside;   /* it is not to take the second cache's room */
};

/* AHEAD_BYTES later, or in the next run.  By the second cache, where more can be under way than to the first; but where
 * all that is copied has no room there, that is left to what this core reads or writes again. */
INLINED struct asking ask_for(size_t to_stride, size_t from_stride, size_t run, size_t rows)
{
    struct asking ret = {.aside = (to_stride + from_stride) * rows >= LARGE_BYTES};

    if (run >= AHEAD_LEAST && run <= SHORT_BYTES)
        ret.ahead = run < AHEAD_BYTES ? AHEAD_BYTES / run * from_stride : from_stride;
    return ret;
}

/* Nothing is touched where it lies, which may be behind the last run. */
INLINED void ask(const unsigned char *in, const struct asking *asking)
{
    const void *at = (const void *)((uintptr_t)in + asking->ahead);

    if (asking->ahead && asking->aside)
        __builtin_prefetch(at, 0, 0);
    else if (asking->ahead)
        __builtin_prefetch(at, 0, 2);
}

INLINED void copy_lanes(unsigned char *restrict out, const unsigned char *restrict in, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += LANE)
        *(lane *)(void *)(out + at) = *(const lane *)(const void *)(in + at);
}

/* run is a constant. */
INLINED void copy_fixed(unsigned char *restrict to, size_t to_stride, const unsigned char *restrict from,
                        size_t from_stride, size_t run, size_t rows)
{
    const struct asking asking = ask_for(to_stride, from_stride, run, rows);

    for (size_t i = 0; i < rows; i++) {
        unsigned char *out = to + i * to_stride;
        const unsigned char *in = from + i * from_stride;

        ask(in, &asking);
        if (run % LANE)
            memcpy(out, in, run);
        else
            copy_lanes(out, in, run);
    }
}

/* Runs of blocks [a constant, at least 1] whole ones and at most one more, which overlaps the last of them. */
INLINED void copy_some(unsigned char *restrict to, size_t to_stride, const unsigned char *restrict from,
                       size_t from_stride, size_t run, size_t rows, size_t blocks)
{
    const struct asking asking = ask_for(to_stride, from_stride, run, rows);

    for (size_t i = 0; i < rows; i++) {
        unsigned char *out = to + i * to_stride;
        const unsigned char *in = from + i * from_stride;

        ask(in, &asking);
        for (size_t k = 0; k < blocks; k++)
            memcpy(out + k * BLOCK, in + k * BLOCK, BLOCK);
        memcpy(out + run - BLOCK, in + run - BLOCK, BLOCK);
    }
}

/* run is at least a line: behind whole ones come blocks, of which the last overlaps what is before it. */
INLINED void copy_lines(unsigned char *restrict to, size_t to_stride, const unsigned char *restrict from,
                        size_t from_stride, size_t run, size_t rows)
{
    const struct asking asking = ask_for(to_stride, from_stride, run, rows);

    for (size_t i = 0; i < rows; i++) {
        unsigned char *out = to + i * to_stride;
        const unsigned char *in = from + i * from_stride;
        size_t at = 0;

        for (; at + LINE <= run; at += LINE) {
            ask(in + at, &asking);
            copy_lanes(out + at, in + at, LINE);
        }
        for (; at + BLOCK < run; at += BLOCK)
            memcpy(out + at, in + at, BLOCK);
        memcpy(out + run - BLOCK, in + run - BLOCK, BLOCK);
    }
}

INLINED void copy_each(unsigned char *to, size_t to_stride, const unsigned char *from, size_t from_stride, size_t run,
                       size_t rows)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * to_stride, from + i * from_stride, run);
}

INLINED void copy_runs(unsigned char *to, size_t to_stride, const unsigned char *from, size_t from_stride, size_t run,
                       size_t rows)
{
/* A copy of the loop for each. */
#define FIXED(bytes)                                                                                                   \
    case bytes:                                                                                                        \
        copy_fixed(to, to_stride, from, from_stride, bytes, rows);                                                     \
        return
#define SOME(blocks)                                                                                                   \
    case blocks:                                                                                                       \
        copy_some(to, to_stride, from, from_stride, run, rows, blocks);                                                \
        return
    switch (run) {
        FIXED(2);
        FIXED(4);
        FIXED(8);
        FIXED(16);
        FIXED(32);
        FIXED(64);
    default:
        break;
    }
    switch (run < BLOCK ? 0 : (run - 1) / BLOCK) {
        SOME(1);
        SOME(2);
        SOME(3);
        SOME(4);
        SOME(5);
        SOME(6);
        SOME(7);
    default:
        break;
    }
#undef FIXED
#undef SOME
    if (run >= LINE && run <= SHORT_BYTES)
        copy_lines(to, to_stride, from, from_stride, run, rows);
    else
        copy_each(to, to_stride, from, from_stride, run, rows);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void copy_by_avx2(unsigned char *to, size_t to_stride, const unsigned char *from,
                                                         size_t from_stride, size_t run, size_t rows)
{
    copy_runs(to, to_stride, from, from_stride, run, rows);
}
#endif

void runs_copy_plain(void *to, size_t to_stride, const void *from, size_t from_stride, size_t run, size_t rows)
{
    copy_runs(to, to_stride, from, from_stride, run, rows);
}

void runs_copy(void *to, size_t to_stride, const void *from, size_t from_stride, size_t run, size_t rows)
{
    if (!run || !rows)
        return;
    if ((run == to_stride && run == from_stride) || rows == 1) {
        memcpy(to, from, run * rows);
        return;
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        copy_by_avx2(to, to_stride, from, from_stride, run, rows);
        return;
    }
#endif
    runs_copy_plain(to, to_stride, from, from_stride, run, rows);
}
