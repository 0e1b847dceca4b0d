/* The nearest word: equal but for case, hyphens and underscores; or at most a third of its letters inserted,
 * dropped, changed or swapped; a key may have other names that people write for it.  The own section is asked before
 * the whole table. */
#include "topology/suggestion.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 40 };

/* Letters in lower case without hyphens, underscores and spaces; false when the word is longer than any of ours. */
static bool normalise(const char *word, size_t length, char ret[LONGEST + 1])
{
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        char c = word[i];

        if (c == '-' || c == '_' || c == ' ')
            continue;
        if (used == LONGEST)
            return false;
        ret[used++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    ret[used] = '\0';
    return used > 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: three rows of the table of edits. */
static size_t edits(const char *a, const char *b)
{
    size_t row[3][LONGEST + 2];
    size_t width = strlen(b);

    for (size_t j = 0; j <= width; j++)
        row[0][j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t *now = row[i % 3];
        const size_t *above = row[(i + 2) % 3];
        const size_t *before = row[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= width; j++) {
            now[j] = least(least(above[j], now[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return row[strlen(a) % 3][width];
}

/* Edits between two words, or SIZE_MAX when they are too far apart to be the same. */
static size_t distance(const char *word, size_t length, const char *ours, size_t ours_length)
{
    char a[LONGEST + 1];
    char b[LONGEST + 1];
    size_t apart;

    if (!normalise(word, length, a) || !normalise(ours, ours_length, b))
        return SIZE_MAX;
    apart = edits(a, b);
    return apart <= strlen(a) / 3 && apart <= 3 ? apart : SIZE_MAX;
}

const char *topology_nearest(const char *word, const char *const *words, size_t count)
{
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;

    for (size_t i = 0; i < count; i++) {
        size_t apart = words[i] ? distance(word, strlen(word), words[i], strlen(words[i])) : SIZE_MAX;

        if (apart < best_distance) {
            best_distance = apart;
            best = words[i];
        }
    }
    return best;
}

/* Edits to the key's name or to one of its other names. */
static size_t key_distance(const struct key *key, const char *name, size_t length)
{
    size_t best = distance(name, length, key->name, strlen(key->name));

    for (const char *also = key->also; also && *also;) {
        size_t span = strcspn(also, " ");

        best = least(best, distance(name, length, also, span));
        also += span + (also[span] == ' ');
    }
    return best;
}

struct candidate {
    const struct key *key;
    size_t distance;
    char section[128]; /* where it was found, "" at the top level */
};

/* The nearest key of a section; deep: and of all sections below it. */
static void search(const struct key_section *section, const char *path, bool deep, const char *name, size_t length,
                   struct candidate *best)
{
    for (size_t i = 0; i < section->count; i++) {
        const struct key *key = &section->key[i];
        size_t apart = key_distance(key, name, length);
        char below[128];

        if (apart < best->distance) {
            best->distance = apart;
            best->key = key;
            (void)snprintf(best->section, sizeof best->section, "%s", path);
        }
        if (!deep || !key->section)
            continue;
        (void)snprintf(below, sizeof below, "%s%s%s%s", path, *path ? "." : "", key->name,
                       key->type == KEY_ITEMS ? "[]" : "");
        search(key->section, below, true, name, length, best);
    }
}

void suggestion_for_key(const struct key_section *section, const char *name, size_t length, struct text *text)
{
    struct candidate here = {.distance = SIZE_MAX};
    struct candidate anywhere = {.distance = SIZE_MAX};
    const char *where = anywhere.section;
    bool exact;

    search(section, "", false, name, length, &here);
    search(&keys_root, "", true, name, length, &anywhere);
    if (here.key && here.distance <= anywhere.distance) {
        text_add(text, "; did you mean `%s`?", here.key->name);
        return;
    }
    if (!anywhere.key)
        return;
    exact = strlen(anywhere.key->name) == length && !memcmp(anywhere.key->name, name, length);
    if (exact && *where)
        text_add(text, "; it belongs in `%s`", where);
    else if (exact)
        text_add(text, "; it belongs at the top level");
    else if (*where)
        text_add(text, "; did you mean `%s` in `%s`?", anywhere.key->name, where);
    else
        text_add(text, "; did you mean `%s` at the top level?", anywhere.key->name);
}
