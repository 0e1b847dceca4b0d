/* Two lists.  A program holds hundreds of tensors, allocated once and reused: walking them costs nothing beside a
 * call of CUDA. */
#include "backends/cuda/cuda_blocks.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/size.h"

struct block {
    struct block *next;
    void *address;
    size_t size;
    cudaEvent_t event; /* kept: may be used again behind it; NULL: now */
};

/* Eighths of the largest power of two that is not above bytes, at least MEMORY_ALIGN. */
enum status blocks_size(size_t bytes, size_t *ret)
{
    size_t unit = MEMORY_ALIGN;

    while (unit <= bytes / 16)
        unit *= 2;
    return size_round_up(bytes, unit, ret);
}

static bool ready(struct block *block)
{
    if (!block->event)
        return true;
    if (cudaEventQuery(block->event) != cudaSuccess)
        return false;
    (void)cudaEventDestroy(block->event);
    block->event = NULL;
    return true;
}

static void move(struct block **link, struct block **to)
{
    struct block *block = *link;

    *link = block->next;
    block->next = *to;
    *to = block;
}

void *blocks_take(struct blocks *blocks, size_t size)
{
    for (struct block **link = &blocks->kept; *link; link = &(*link)->next) {
        if ((*link)->size != size || !ready(*link))
            continue;
        blocks->kept_bytes -= size;
        move(link, &blocks->used);
        return blocks->used->address;
    }
    return NULL;
}

enum status blocks_add(struct blocks *blocks, void *address, size_t size)
{
    struct block *block = malloc(sizeof *block);

    if (!block)
        return STATUS_NOMEM;
    *block = (struct block){.next = blocks->used, .address = address, .size = size};
    blocks->used = block;
    return STATUS_OK;
}

void blocks_give(struct blocks *blocks, void *address, cudaEvent_t event)
{
    struct block **link = &blocks->used;

    while (*link && (*link)->address != address)
        link = &(*link)->next;
    CHECK(*link);
    (*link)->event = event;
    blocks->kept_bytes += (*link)->size;
    move(link, &blocks->kept);
}

bool blocks_hold(const struct blocks *blocks, const void *address, size_t bytes)
{
    for (const struct block *block = blocks->used; block; block = block->next) {
        uintptr_t offset = (uintptr_t)address - (uintptr_t)block->address;

        if ((uintptr_t)address >= (uintptr_t)block->address && offset <= block->size && bytes <= block->size - offset)
            return true;
    }
    return false;
}

static void drop(struct block *list, void (*free_block)(void *address))
{
    while (list) {
        struct block *next = list->next;

        if (list->event)
            (void)cudaEventDestroy(list->event);
        free_block(list->address);
        free(list);
        list = next;
    }
}

void blocks_done(struct blocks *blocks, void (*free_block)(void *address))
{
    drop(blocks->used, free_block);
    drop(blocks->kept, free_block);
    *blocks = (struct blocks){0};
}
