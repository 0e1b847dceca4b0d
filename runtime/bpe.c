/* A word starts as one symbol a byte, in a doubly linked list.  A heap holds every neighbouring pair that some merge
 * joins, lowest rank first, leftmost first among equals; a popped pair whose symbols have changed meanwhile is stale
 * and skipped.  Each merge removes a symbol and adds at most two pairs: at most 3n heap entries, n log n steps. */
#include "runtime/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "runtime/byte_alphabet.h"

enum { WORD_LIMIT = 1 << 30 };

struct merge {
    uint64_t pair; /* left id, right id */
    uint32_t rank;
    uint32_t id; /* NO_TOKEN: a free slot */
};

struct bpe {
    const struct vocabulary *vocabulary;
    struct byte_alphabet alphabet;
    uint32_t byte_id[256];
    struct merge *merges; /* open-addressed, at most half full */
    size_t mask;
    size_t longest; /* bytes of the longest token, as the file writes it */
    bool ignore_merges;
};

struct symbol {
    uint32_t id; /* NO_TOKEN: merged away */
    uint32_t previous;
    uint32_t next;
};

struct candidate {
    uint32_t rank;
    uint32_t at; /* the left symbol */
    uint32_t id; /* what the pair becomes */
};

struct heap {
    struct candidate *entries;
    size_t count;
};

static uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

static struct merge *find_merge(const struct bpe *bpe, uint64_t pair)
{
    uint64_t hash = pair * UINT64_C(0x9e3779b97f4a7c15);

    for (size_t i = hash ^ hash >> 32;; i++) {
        struct merge *merge = &bpe->merges[i & bpe->mask];

        if (merge->id == (uint32_t)NO_TOKEN || merge->pair == pair)
            return merge;
    }
}

/* The id of left and right joined; both lie anywhere, so they are joined in *memory. */
static enum status find_joined(const struct bpe *bpe, const struct token_pair *pair, struct text *memory, uint32_t *ret,
                               struct error *err)
{
    text_clear(memory);
    text_add_bytes(memory, pair->left.bytes, pair->left.length);
    text_add_bytes(memory, pair->right.bytes, pair->right.length);
    if (memory->failed)
        return error_set(err, STATUS_NOMEM, "the merges");
    *ret = vocabulary_find(bpe->vocabulary, text_string(memory), memory->length);
    return STATUS_OK;
}

static enum status missing_token(size_t index, const char *bytes, size_t length, struct error *err)
{
    return error_set(err, STATUS_MODEL, "merge %zu: '%.*s' is not in the vocabulary", index,
                     (int)(length < 64 ? length : 64), bytes ? bytes : "");
}

static enum status add_merge(struct bpe *bpe, size_t index, const struct token_pair *pair, struct text *memory,
                             struct error *err)
{
    uint32_t left = vocabulary_find(bpe->vocabulary, pair->left.bytes, pair->left.length);
    uint32_t right = vocabulary_find(bpe->vocabulary, pair->right.bytes, pair->right.length);
    uint32_t joined = (uint32_t)NO_TOKEN;
    enum status st;

    if (left == (uint32_t)NO_TOKEN)
        return missing_token(index, pair->left.bytes, pair->left.length, err);
    if (right == (uint32_t)NO_TOKEN)
        return missing_token(index, pair->right.bytes, pair->right.length, err);
    if ((st = find_joined(bpe, pair, memory, &joined, err)) != STATUS_OK)
        return st;
    if (joined == (uint32_t)NO_TOKEN)
        return missing_token(index, text_string(memory), memory->length, err);
    *find_merge(bpe, pair_of(left, right)) = (struct merge){pair_of(left, right), (uint32_t)index, joined};
    return STATUS_OK;
}

static enum status add_merges(struct bpe *bpe, const struct token_pair *merges, size_t count, struct error *err)
{
    struct text memory = {0};
    size_t slots = 16;
    enum status st = STATUS_OK;

    if (count > TOKEN_ID_LIMIT)
        return error_set(err, STATUS_OVERFLOW, "%zu merges, more than the limit of %d", count, TOKEN_ID_LIMIT);
    while (slots < 2 * count)
        slots *= 2;
    if (!(bpe->merges = malloc(slots * sizeof *bpe->merges)))
        return error_set(err, STATUS_NOMEM, "%zu merges", count);
    for (size_t i = 0; i < slots; i++)
        bpe->merges[i].id = (uint32_t)NO_TOKEN;
    bpe->mask = slots - 1;
    for (size_t i = 0; st == STATUS_OK && i < count; i++)
        st = add_merge(bpe, i, &merges[i], &memory, err);
    text_done(&memory);
    return st;
}

enum status bpe_create(const struct vocabulary *vocabulary, const struct token_pair *merges, size_t count,
                       bool ignore_merges, struct bpe **ret, struct error *err)
{
    struct bpe *bpe = calloc(1, sizeof *bpe);
    enum status st;

    if (!bpe)
        return error_set(err, STATUS_NOMEM, "the merges");
    bpe->vocabulary = vocabulary;
    bpe->ignore_merges = ignore_merges;
    byte_alphabet_init(&bpe->alphabet);
    for (unsigned i = 0; i < 256; i++) {
        char byte = (char)i;
        char mapped[2];

        bpe->byte_id[i] = vocabulary_find(vocabulary, mapped, byte_alphabet_encode(&bpe->alphabet, &byte, 1, mapped));
    }
    for (uint32_t id = 0; id < vocabulary_size(vocabulary); id++) {
        size_t length = vocabulary_string(vocabulary, id).length;

        bpe->longest = length > bpe->longest ? length : bpe->longest;
    }
    if ((st = add_merges(bpe, merges, count, err)) != STATUS_OK) {
        bpe_destroy(bpe);
        return st;
    }
    *ret = bpe;
    return STATUS_OK;
}

void bpe_destroy(struct bpe *bpe)
{
    if (!bpe)
        return;
    free(bpe->merges);
    free(bpe);
}

int bpe_missing_byte(const struct bpe *bpe)
{
    for (int byte = 0; byte < 0xf5; byte++) {
        if (byte != 0xc0 && byte != 0xc1 && bpe->byte_id[byte] == (uint32_t)NO_TOKEN)
            return byte;
    }
    return -1;
}

void bpe_work_done(struct bpe_work *work)
{
    free(work->symbols);
    free(work->queue);
    free(work->mapped);
    *work = (struct bpe_work){0};
}

/* Make *memory hold count elements of bytes each; what it held is dropped. */
static enum status reserve(void **memory, size_t *capacity, size_t count, size_t bytes, struct error *err)
{
    size_t total;

    if (count <= *capacity)
        return STATUS_OK;
    free(*memory);
    *capacity = 0;
    if (size_mul(count, bytes, &total) != STATUS_OK || !(*memory = malloc(total))) {
        *memory = NULL;
        return error_set(err, STATUS_NOMEM, "a word of %zu symbols", count);
    }
    *capacity = count;
    return STATUS_OK;
}

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct heap *heap, struct candidate entry)
{
    size_t at = heap->count++;

    for (; at && before(&entry, &heap->entries[(at - 1) / 2]); at = (at - 1) / 2)
        heap->entries[at] = heap->entries[(at - 1) / 2];
    heap->entries[at] = entry;
}

static struct candidate heap_pop(struct heap *heap)
{
    struct candidate top = heap->entries[0];
    struct candidate last = heap->entries[--heap->count];
    size_t at = 0;

    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && before(&heap->entries[child + 1], &heap->entries[child]))
            child++;
        if (!before(&heap->entries[child], &last))
            break;
        heap->entries[at] = heap->entries[child];
    }
    heap->entries[at] = last;
    return top;
}

static void push_pair(const struct bpe *bpe, const struct symbol *symbols, uint32_t at, struct heap *heap)
{
    uint32_t next = symbols[at].next;

    if (next == (uint32_t)NO_TOKEN)
        return;

    const struct merge *merge = find_merge(bpe, pair_of(symbols[at].id, symbols[next].id));

    if (merge->id != (uint32_t)NO_TOKEN)
        heap_push(heap, (struct candidate){merge->rank, at, merge->id});
}

static void merge_symbols(const struct bpe *bpe, struct symbol *symbols, struct heap *heap)
{
    while (heap->count) {
        struct candidate top = heap_pop(heap);
        struct symbol *left = &symbols[top.at];

        if (left->id == (uint32_t)NO_TOKEN || left->next == (uint32_t)NO_TOKEN)
            continue;

        struct symbol *right = &symbols[left->next];

        if (find_merge(bpe, pair_of(left->id, right->id))->id != top.id)
            continue; /* stale: one of the two has grown */
        left->id = top.id;
        right->id = (uint32_t)NO_TOKEN;
        left->next = right->next;
        if (left->next != (uint32_t)NO_TOKEN)
            symbols[left->next].previous = top.at;
        if (left->previous != (uint32_t)NO_TOKEN)
            push_pair(bpe, symbols, left->previous, heap);
        push_pair(bpe, symbols, top.at, heap);
    }
}

/* The token that the whole word is, or NO_TOKEN. */
static enum status find_whole(const struct bpe *bpe, struct bpe_work *work, const char *word, size_t length,
                              uint32_t *ret, struct error *err)
{
    void *memory = work->mapped;
    enum status st;

    *ret = (uint32_t)NO_TOKEN;
    if (length > bpe->longest)
        return STATUS_OK;
    st = reserve(&memory, &work->mapped_capacity, 2 * length, 1, err);
    work->mapped = memory;
    if (st == STATUS_OK)
        *ret = vocabulary_find(bpe->vocabulary, work->mapped,
                               byte_alphabet_encode(&bpe->alphabet, word, length, work->mapped));
    return st;
}

/* A byte without a token leaves no symbol, and its neighbours become neighbours. */
static size_t fill_symbols(const struct bpe *bpe, const char *word, size_t length, struct symbol *symbols)
{
    uint32_t count = 0;

    for (size_t i = 0; i < length; i++) {
        uint32_t id = bpe->byte_id[(unsigned char)word[i]];

        if (id == (uint32_t)NO_TOKEN)
            continue;
        symbols[count] = (struct symbol){id, count - 1, count + 1};
        count++;
    }
    if (count)
        symbols[count - 1].next = (uint32_t)NO_TOKEN;
    return count;
}

enum status bpe_encode(const struct bpe *bpe, struct bpe_work *work, const char *word, size_t length,
                       struct token_list *ret, struct error *err)
{
    struct heap heap = {0};
    uint32_t whole = (uint32_t)NO_TOKEN;
    enum status st = STATUS_OK;

    if (!length)
        return STATUS_OK;
    if (length >= WORD_LIMIT)
        return error_set(err, STATUS_OVERFLOW, "a word of %zu bytes", length);
    if (bpe->ignore_merges && (st = find_whole(bpe, work, word, length, &whole, err)) != STATUS_OK)
        return st;
    if (whole != (uint32_t)NO_TOKEN)
        return token_list_add(ret, whole, err);
    if ((st = reserve(&work->symbols, &work->symbol_capacity, length, sizeof(struct symbol), err)) != STATUS_OK ||
        (st = reserve(&work->queue, &work->queue_capacity, 3 * length, sizeof(struct candidate), err)) != STATUS_OK)
        return st;

    struct symbol *symbols = work->symbols;
    size_t count = fill_symbols(bpe, word, length, symbols);

    heap.entries = work->queue;
    for (uint32_t i = 0; i < count; i++)
        push_pair(bpe, symbols, i, &heap);
    merge_symbols(bpe, symbols, &heap);
    for (uint32_t i = 0; st == STATUS_OK && count && i != (uint32_t)NO_TOKEN; i = symbols[i].next)
        st = token_list_add(ret, symbols[i].id, err);
    return st;
}
