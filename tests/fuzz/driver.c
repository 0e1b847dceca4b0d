/* Runs a fuzz target without a fuzzer: every file given, then a number of mutations of them, the same ones each time.
 * usage: fuzz_NAME [-n MUTATIONS] FILE... */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);

enum { MAX_SEEDS = 256, MAX_BYTES = 1 << 21, ROOM = 4096 };

struct seed {
    unsigned char *bytes;
    size_t count;
};

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t below(uint64_t *state, size_t limit)
{
    return limit ? (size_t)(next(state) % limit) : 0;
}

static bool read_seed(const char *path, struct seed *seed)
{
    FILE *file = fopen(path, "rb");

    if (!file)
        return false;
    seed->bytes = malloc(MAX_BYTES);
    if (seed->bytes)
        seed->count = fread(seed->bytes, 1, MAX_BYTES, file);
    (void)fclose(file);
    return seed->bytes != NULL;
}

/* One small damage: a bit, a byte, a number's edge, a piece dropped, doubled or taken from another seed. */
static size_t damage(unsigned char *bytes, size_t count, const struct seed *other, uint64_t *state)
{
    static const char edge[] = {0,   1,   -1,  127, -128, '\n', '\t', ' ', ':', '-', '[',  ']', '{', '}', '&',
                                '*', '"', '0', '9', '=',  '#',  '%',  '!', '|', '<', '\'', '~', ',', '.'};
    size_t at = below(state, count);
    size_t piece = 1 + below(state, 32);

    if (!count)
        return 0;
    switch (below(state, 6)) {
    case 0:
        bytes[at] ^= (unsigned char)(1u << below(state, 8));
        return count;
    case 1:
        bytes[at] = (unsigned char)edge[below(state, sizeof edge)];
        return count;
    case 2:
        piece = piece < count - at ? piece : count - at;
        memmove(bytes + at, bytes + at + piece, count - at - piece);
        return count - piece;
    case 3:
        piece = piece < count - at ? piece : count - at;
        memmove(bytes + at + piece, bytes + at, count - at);
        return count + piece;
    case 4:
        memmove(bytes + at + 1, bytes + at, count - at);
        bytes[at] = (unsigned char)edge[below(state, sizeof edge)];
        return count + 1;
    default:
        if (!other->count)
            return count;
        piece = piece < count - at ? piece : count - at;
        for (size_t i = 0, from = below(state, other->count); i < piece && from + i < other->count; i++)
            bytes[at + i] = other->bytes[from + i];
        return count;
    }
}

static void run(const unsigned char *bytes, size_t count)
{
    /* An exact copy, so that a sanitizer sees the first byte read past the end. */
    unsigned char *copy = malloc(count ? count : 1);

    if (!copy)
        abort();
    memcpy(copy, bytes, count);
    (void)LLVMFuzzerTestOneInput(copy, count);
    free(copy);
}

static void mutate(const struct seed *seed, size_t seed_count, unsigned long mutations)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    unsigned char *bytes = malloc(MAX_BYTES + ROOM);

    if (!bytes)
        abort();
    for (unsigned long i = 0; i < mutations; i++) {
        const struct seed *from = &seed[below(&state, seed_count)];
        size_t count = from->count;
        size_t damages = 1 + below(&state, 8);

        memcpy(bytes, from->bytes, count);
        for (size_t d = 0; d < damages; d++)
            count = damage(bytes, count, &seed[below(&state, seed_count)], &state);
        run(bytes, count);
    }
    free(bytes);
}

int main(int argc, char **argv)
{
    struct seed seed[MAX_SEEDS] = {0};
    size_t seed_count = 0;
    unsigned long mutations = 0;
    int code = 0;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-n") && i + 1 < argc) {
            mutations = strtoul(argv[++i], NULL, 10);
        } else if (seed_count < MAX_SEEDS && read_seed(argv[i], &seed[seed_count])) {
            run(seed[seed_count].bytes, seed[seed_count].count);
            seed_count++;
        } else {
            (void)fprintf(stderr, "%s: cannot read %s\n", argv[0], argv[i]);
            code = 1;
        }
    }
    if (seed_count)
        mutate(seed, seed_count, mutations);
    printf("%zu files, %lu mutations\n", seed_count, seed_count ? mutations : 0);
    for (size_t i = 0; i < seed_count; i++)
        free(seed[i].bytes);
    return code || !seed_count;
}
