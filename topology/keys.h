/* The one table of keys: parser, suggestions, --set, reference, schema and canonical text all walk it. */
#ifndef TOPOLOGY_KEYS_H
#define TOPOLOGY_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/topology.h"

enum key_type {
    KEY_NUMBER,   /* struct topology_number, low..high; KEY_AUTO: or the word auto */
    KEY_DURATION, /* struct topology_number in nanoseconds */
    KEY_SIZE,     /* struct topology_number in bytes */
    KEY_REAL,     /* struct topology_real, low..high */
    KEY_FLAG,     /* struct topology_flag */
    KEY_WORD,     /* struct topology_word, one of words */
    KEY_MASK,     /* struct topology_mask, some of words */
    KEY_TEXT,     /* struct topology_string of a style */
    KEY_TEXTS,    /* struct topology_strings of a style */
    KEY_NUMBERS,  /* struct topology_numbers, low..high each */
    KEY_RANK,     /* a bare uint32_t inside the world, UINT32_MAX when wrong */
    KEY_RANKS,    /* struct topology_ranks */
    KEY_AXES,     /* placement.order */
    KEY_PAIRS,    /* struct topology_pairs: any name of a style to any text */
    KEY_EXTENTS,  /* struct topology_extents: any name to a range */
    KEY_SHAPE,    /* struct topology_shape */
    KEY_SECTION,  /* a mapping with a section's keys */
    KEY_ITEMS,    /* a list of such mappings */
    KEY_OPEN      /* a mapping whose keys are not looked at */
};

enum {
    KEY_REQUIRED = 1,
    KEY_AUTO = 2,
    KEY_OPTIONAL = 4, /* a section whose defaults count only when it is there */
    KEY_DERIVED = 8   /* said by other keys too: the canonical text has its own line for it */
};

/* The form of a text: first and rest are sets of characters in the notation of a bracket of a regular expression;
 * NULL: any characters.  line: control characters are refused (the text goes into scripts and messages). */
enum key_style {
    STYLE_ANY,
    STYLE_LINE,
    STYLE_NAME,
    STYLE_LABEL,
    STYLE_ROLE,
    STYLE_HOST,
    STYLE_VARIABLE,
    STYLE_TIME,
    STYLE_COUNT
};

struct key_style_rule {
    const char *first;
    const char *rest;
    size_t max_characters;
    bool line;
    const char *says; /* "a name: lower-case letters ..." */
};

struct key_words {
    const char *const *word; /* by enumerator; NULL entries are not words */
    size_t count;
};

struct key_section;

struct key {
    const char *name;
    enum key_type type;
    size_t offset; /* in the struct of its section */
    const char *doc;
    uint64_t low; /* of numbers; of lists: the fewest items */
    uint64_t high;
    const char *initial; /* the default, as the file would spell it; NULL: absent */
    const struct key_words *words;
    const struct key_section *section;
    enum key_style style;
    unsigned flags;
    uint64_t max_items; /* of lists and open mappings; 0: only the file's size limits it */
    const char *also;   /* words that people write for it, separated by spaces */
};

struct key_section {
    const struct key *key;
    size_t count;
    size_t bytes;                /* of the struct */
    size_t at_offset;            /* of its position */
    const struct key *shorthand; /* what a scalar in its place means; NULL: a mapping is required */
    const char *says;            /* of a section with a shorthand: its forms */
};

extern const struct key_section keys_root;
extern const struct key_style_rule key_styles[STYLE_COUNT];
extern const struct key_words key_axes;
extern const struct key_words key_dtypes;
extern const struct key_words key_operations;

/* The key of this name in a section, or NULL. */
const struct key *keys_find(const struct key_section *section, const char *name, size_t length);

#endif
