/* Cut text into words, in which the merges of byte-level BPE then work: an ordered list of steps, each of which cuts
 * every piece that the steps before it left. */
#ifndef RUNTIME_PRETOKENIZE_H
#define RUNTIME_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct pretokenizer;

/* What becomes of a match, and of what lies between matches. */
enum split_behavior {
    SPLIT_ISOLATED,             /* each match and each gap is a piece */
    SPLIT_REMOVED,              /* gaps are pieces, matches are dropped */
    SPLIT_MERGED_WITH_PREVIOUS, /* a match joins the piece before it */
    SPLIT_MERGED_WITH_NEXT,     /* a match joins the piece after it */
    SPLIT_CONTIGUOUS            /* neighbouring matches are one piece */
};

enum status pretokenizer_create(struct pretokenizer **ret, struct error *err);
void pretokenizer_destroy(struct pretokenizer *pretokenizer);

/* Add a step: cut at the matches of a pattern (a literal string when literal); invert: at the gaps instead.
 * STATUS_UNSUPPORTED, STATUS_MODEL, STATUS_NOMEM as pattern_create. */
enum status pretokenizer_add_split(struct pretokenizer *pretokenizer, const char *pattern, size_t length, bool literal,
                                   enum split_behavior behavior, bool invert, struct error *err);

/* Add a step: a blank in front of each piece that does not begin with one. */
enum status pretokenizer_add_prefix_space(struct pretokenizer *pretokenizer, struct error *err);

/* Add the steps that a GGUF file's tokenizer.ggml.pre names.  STATUS_UNSUPPORTED: unknown name.  ret_traits: what else
 * the name implies for its family of models. */
struct pretokenizer_traits {
    bool ignore_merges; /* a word that is a token as a whole is not merged */
    bool add_bos;       /* when the file does not say */
    bool nfc;           /* the family's text is normalised to NFC first */
};
enum status pretokenizer_add_named(struct pretokenizer *pretokenizer, const char *name, size_t length,
                                   struct pretokenizer_traits *ret_traits, struct error *err);

/* The pattern of GPT-2, which ByteLevel with use_regex cuts by. */
const char *pretokenizer_gpt2_pattern(void);

/* Words of one text.  Word i is bytes[start[i], end[i]). */
struct piece {
    size_t start;
    size_t end;
};
struct piece_list {
    struct piece *pieces;
    size_t count;
    size_t capacity;
    const char *bytes; /* the text itself, or own when a step changed it */
    char *own;
};
void piece_list_done(struct piece_list *list);

/* Cut length bytes of valid UTF-8.  ret borrows text while ret is in use; zero-initialise it, and call
 * piece_list_done on failure too.  deadline_ns: on the clock of base/clock.h; a split that ends later fails.
 * STATUS_MODEL, STATUS_NOMEM as pattern_find. */
enum status pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t length,
                               uint64_t deadline_ns, struct piece_list *ret, struct error *err);

#endif
