/* Chunks of 64 KiB, larger ones for larger requests; nothing is freed before the end. */
#include "topology/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

struct arena_chunk {
    struct arena_chunk *next;
    size_t used;
    size_t capacity;
    _Alignas(max_align_t) char bytes[];
};

enum { CHUNK_BYTES = 65536 };

static char *take(struct arena *arena, size_t bytes, size_t align)
{
    struct arena_chunk *chunk = arena->chunk;
    size_t start = chunk ? (chunk->used + align - 1) & ~(align - 1) : 0;
    size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;

    if (!chunk || start > chunk->capacity || bytes > chunk->capacity - start) {
        size_t total;

        if (size_add(capacity, sizeof *chunk, &total) != STATUS_OK || !(chunk = malloc(total))) {
            arena->failed = true;
            return NULL;
        }
        *chunk = (struct arena_chunk){.next = arena->chunk, .capacity = capacity};
        arena->chunk = chunk;
        start = 0;
    }
    chunk->used = start + bytes;
    return chunk->bytes + start;
}

void *arena_take(struct arena *arena, size_t count, size_t item_bytes)
{
    size_t bytes;
    void *ret;

    if (size_mul(count, item_bytes, &bytes) != STATUS_OK) {
        arena->failed = true;
        return NULL;
    }
    ret = bytes ? take(arena, bytes, _Alignof(max_align_t)) : NULL;
    if (ret)
        memset(ret, 0, bytes);
    return ret;
}

char *arena_text(struct arena *arena, const char *bytes, size_t length)
{
    size_t total;
    char *ret;

    if (size_add(length, 1, &total) != STATUS_OK) {
        arena->failed = true;
        return NULL;
    }
    ret = take(arena, total, 1);
    if (!ret)
        return NULL;
    if (length)
        memcpy(ret, bytes, length);
    ret[length] = '\0';
    return ret;
}

void arena_done(struct arena *arena)
{
    while (arena->chunk) {
        struct arena_chunk *next = arena->chunk->next;

        free(arena->chunk);
        arena->chunk = next;
    }
    *arena = (struct arena){0};
}
