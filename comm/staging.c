/* One free list for each power of two.  What is kept is bounded; the rest goes back to where it came from.
 *
 * In front of the headroom a small record remembers the class.  In another memory, which the host may not be able to
 * touch, blocks have their records elsewhere: those that are lent are looked for in a list, a few at a time. */
#include "comm/staging.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/tensor.h"

enum { CLASSES = 48, SMALLEST = 512, KEEP_BYTES = 64 << 20 };

struct block {
    struct block *next;
    int class;
    unsigned char *payload; /* of another memory's */
};

enum { BLOCK_BYTES = TENSOR_ALIGN };

_Static_assert(sizeof(struct block) <= BLOCK_BYTES, "a block's record fits in front of the headroom");

struct staging {
    struct block *free[CLASSES];
    size_t kept_bytes;
    struct memory *memory; /* NULL: the process's own */
    struct block *lent;    /* of another memory's */
    struct staging *next;  /* of other memories */
};

static size_t class_bytes(int class)
{
    return (size_t)SMALLEST << class;
}

struct staging *staging_create(void)
{
    return calloc(1, sizeof(struct staging));
}

static void free_block(struct staging *staging, struct block *block)
{
    if (staging->memory)
        staging->memory->ops->release(staging->memory, block->payload - TENSOR_HEADROOM);
    free(block);
}

void staging_destroy(struct staging *staging)
{
    while (staging) {
        struct staging *next = staging->next;

        for (int i = 0; i < CLASSES; i++) {
            while (staging->free[i]) {
                struct block *block = staging->free[i];

                staging->free[i] = block->next;
                free_block(staging, block);
            }
        }
        free(staging);
        staging = next;
    }
}

struct staging *staging_in(struct staging *staging, struct memory *memory)
{
    struct staging *other = staging->next;

    if (staging->memory == memory)
        return staging;
    while (other && other->memory != memory)
        other = other->next;
    if (other)
        return other;
    other = staging_create();
    if (!other)
        return NULL;
    other->memory = memory;
    other->next = staging->next;
    staging->next = other;
    return other;
}

/* NULL: none, or none at hand. */
static void *ask(struct memory *memory, size_t bytes, bool at_hand, struct error *err)
{
    void *block = NULL;

    if (at_hand && memory->ops->at_hand)
        return memory->ops->at_hand(memory, bytes);
    return memory->ops->allocate(memory, bytes, &block, err) == STATUS_OK ? block : NULL;
}

/* A block of another memory, with its record. */
static struct block *allocate(struct staging *staging, int class, bool at_hand, struct error *err)
{
    struct block *block = malloc(sizeof *block);
    unsigned char *bytes = NULL;

    if (!block) {
        (void)error_set(err, STATUS_NOMEM, "a block's record");
        return NULL;
    }
    bytes = ask(staging->memory, TENSOR_HEADROOM + class_bytes(class), at_hand, err);
    if (!bytes) {
        free(block);
        return NULL;
    }
    block->payload = bytes + TENSOR_HEADROOM;
    return block;
}

static unsigned char *lend(struct staging *staging, struct block *block)
{
    if (!staging->memory)
        return (unsigned char *)block + BLOCK_BYTES + TENSOR_HEADROOM;
    block->next = staging->lent;
    staging->lent = block;
    return block->payload;
}

static struct block *take_back(struct staging *staging, unsigned char *payload)
{
    struct block **link = &staging->lent;
    struct block *block = NULL;

    if (!staging->memory)
        return (struct block *)(void *)(payload - TENSOR_HEADROOM - BLOCK_BYTES);
    while (*link && (*link)->payload != payload)
        link = &(*link)->next;
    block = *link;
    CHECK(block);
    *link = block->next;
    return block;
}

static unsigned char *take(struct staging *staging, size_t bytes, bool at_hand, struct error *err)
{
    int class = 0;
    struct block *block = NULL;

    while (class < CLASSES && class_bytes(class) < bytes)
        class ++;
    if (class == CLASSES) {
        (void)error_set(err, STATUS_NOMEM, "%zu bytes in one block", bytes);
        return NULL;
    }
    block = staging->free[class];
    if (block) {
        staging->free[class] = block->next;
        staging->kept_bytes -= class_bytes(class);
    } else if (staging->memory) {
        block = allocate(staging, class, at_hand, err);
    } else {
        block = aligned_alloc(TENSOR_ALIGN, BLOCK_BYTES + TENSOR_HEADROOM + class_bytes(class));
        if (!block)
            (void)error_set(err, STATUS_NOMEM, "%zu bytes of this host's memory", class_bytes(class));
    }
    if (!block)
        return NULL;
    block->class = class;
    return lend(staging, block);
}

unsigned char *staging_take(struct staging *staging, size_t bytes, struct error *err)
{
    return take(staging, bytes, false, err);
}

unsigned char *staging_take_at_hand(struct staging *staging, size_t bytes)
{
    return take(staging, bytes, true, NULL);
}

void staging_give(struct staging *staging, unsigned char *payload)
{
    struct block *block = NULL;

    if (!payload)
        return;
    block = take_back(staging, payload);
    if (class_bytes(block->class) > KEEP_BYTES - staging->kept_bytes) {
        free_block(staging, block);
        return;
    }
    staging->kept_bytes += class_bytes(block->class);
    block->next = staging->free[block->class];
    staging->free[block->class] = block;
}
