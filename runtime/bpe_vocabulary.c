/* All strings in one block, found through an open-addressed table of ids that is at most half full. */
#include "runtime/bpe.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/size.h"

struct vocabulary {
    char *bytes;
    uint32_t *start; /* size + 1 offsets */
    uint32_t *slots; /* id, or NO_TOKEN */
    size_t mask;
    uint32_t size;
};

static enum status copy_strings(struct vocabulary *vocabulary, const struct token_string *tokens, size_t count,
                                struct error *err)
{
    size_t total = 0;

    for (size_t id = 0; id < count; id++) {
        if (size_add(total, tokens[id].length, &total) != STATUS_OK || total > INT32_MAX)
            return error_set(err, STATUS_OVERFLOW, "the vocabulary's strings have more than 2^31 bytes");
    }
    vocabulary->bytes = malloc(total + 1);
    vocabulary->start = malloc((count + 1) * sizeof *vocabulary->start);
    if (!vocabulary->bytes || !vocabulary->start)
        return error_set(err, STATUS_NOMEM, "a vocabulary of %zu bytes", total);
    total = 0;
    for (size_t id = 0; id < count; id++) {
        vocabulary->start[id] = (uint32_t)total;
        if (tokens[id].length)
            memcpy(vocabulary->bytes + total, tokens[id].bytes, tokens[id].length);
        total += tokens[id].length;
    }
    vocabulary->start[count] = (uint32_t)total;
    return STATUS_OK;
}

/* The slot that holds the string, or the free one where it belongs. */
static uint32_t *find_slot(const struct vocabulary *vocabulary, const char *bytes, size_t length)
{
    for (size_t i = XXH3_64bits(bytes, length);; i++) {
        uint32_t *slot = &vocabulary->slots[i & vocabulary->mask];

        if (*slot == (uint32_t)NO_TOKEN)
            return slot;

        struct token_string string = vocabulary_string(vocabulary, *slot);

        if (string.length == length && memcmp(string.bytes, bytes, length) == 0)
            return slot;
    }
}

enum status vocabulary_create(const struct token_string *tokens, size_t count, struct vocabulary **ret,
                              struct error *err)
{
    struct vocabulary *vocabulary = NULL;
    size_t slots = 16;
    enum status st;

    if (count > TOKEN_ID_LIMIT)
        return error_set(err, STATUS_OVERFLOW, "%zu token ids, more than the limit of %d", count, TOKEN_ID_LIMIT);
    while (slots < 2 * count)
        slots *= 2;
    if (!(vocabulary = calloc(1, sizeof *vocabulary)) || !(vocabulary->slots = malloc(slots * sizeof(uint32_t)))) {
        st = error_set(err, STATUS_NOMEM, "a vocabulary of %zu tokens", count);
        goto fail;
    }
    memset(vocabulary->slots, 0xff, slots * sizeof(uint32_t));
    vocabulary->mask = slots - 1;
    vocabulary->size = (uint32_t)count;
    if ((st = copy_strings(vocabulary, tokens, count, err)) != STATUS_OK)
        goto fail;
    for (uint32_t id = 0; id < count; id++) {
        if (tokens[id].length)
            *find_slot(vocabulary, tokens[id].bytes, tokens[id].length) = id;
    }
    *ret = vocabulary;
    return STATUS_OK;
fail:
    vocabulary_destroy(vocabulary);
    return st;
}

void vocabulary_destroy(struct vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    free(vocabulary->bytes);
    free(vocabulary->start);
    free(vocabulary->slots);
    free(vocabulary);
}

uint32_t vocabulary_size(const struct vocabulary *vocabulary)
{
    return vocabulary->size;
}

struct token_string vocabulary_string(const struct vocabulary *vocabulary, uint32_t id)
{
    size_t start = vocabulary->start[id];
    size_t length = vocabulary->start[id + 1] - start;

    return (struct token_string){length ? vocabulary->bytes + start : NULL, length};
}

uint32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t length)
{
    return length ? *find_slot(vocabulary, bytes, length) : (uint32_t)NO_TOKEN;
}
