/* One free list for each power of two.  What is kept is bounded; the rest goes back to the C library.
 *
 * In front of the headroom a small record remembers the class. */
#include "comm/staging.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/tensor.h"

enum { CLASSES = 48, SMALLEST = 512, KEEP_BYTES = 64 << 20 };

struct block {
    struct block *next;
    int class;
};

enum { BLOCK_BYTES = TENSOR_ALIGN };

_Static_assert(sizeof(struct block) <= BLOCK_BYTES, "a block's record fits in front of the headroom");

struct staging {
    struct block *free[CLASSES];
    size_t kept_bytes;
};

static size_t class_bytes(int class)
{
    return (size_t)SMALLEST << class;
}

struct staging *staging_create(void)
{
    return calloc(1, sizeof(struct staging));
}

void staging_destroy(struct staging *staging)
{
    if (!staging)
        return;
    for (int i = 0; i < CLASSES; i++) {
        while (staging->free[i]) {
            struct block *block = staging->free[i];

            staging->free[i] = block->next;
            free(block);
        }
    }
    free(staging);
}

unsigned char *staging_take(struct staging *staging, size_t bytes)
{
    int class = 0;
    struct block *block = NULL;

    while (class < CLASSES && class_bytes(class) < bytes)
        class ++;
    if (class == CLASSES)
        return NULL;
    block = staging->free[class];
    if (block) {
        staging->free[class] = block->next;
        staging->kept_bytes -= class_bytes(class);
    } else {
        block = aligned_alloc(TENSOR_ALIGN, BLOCK_BYTES + TENSOR_HEADROOM + class_bytes(class));
    }
    if (!block)
        return NULL;
    block->class = class;
    return (unsigned char *)block + BLOCK_BYTES + TENSOR_HEADROOM;
}

void staging_give(struct staging *staging, unsigned char *payload)
{
    struct block *block = NULL;

    if (!payload)
        return;
    block = (struct block *)(void *)(payload - TENSOR_HEADROOM - BLOCK_BYTES);
    if (class_bytes(block->class) > KEEP_BYTES - staging->kept_bytes) {
        free(block);
        return;
    }
    staging->kept_bytes += class_bytes(block->class);
    block->next = staging->free[block->class];
    staging->free[block->class] = block;
}
