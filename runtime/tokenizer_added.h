/* Added tokens: strings that are found in the text as they stand, before it is cut into words. */
#ifndef RUNTIME_TOKENIZER_ADDED_H
#define RUNTIME_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/bpe.h"

enum { ADDED_TOKEN_MAX_BYTES = 4096 };

struct added_token {
    struct token_string content;
    uint32_t id;
    bool special;     /* not part of the decoded text */
    bool normalized;  /* looked for in the normalised text, itself normalised */
    bool single_word; /* only between characters that form no word with it */
    bool lstrip;      /* takes the blanks before it */
    bool rstrip;      /* takes the blanks after it */
};

struct added_set;

/* tokens[0, count), contents copied; equal contents: the first counts.  STATUS_UNSUPPORTED: a token longer than
 * ADDED_TOKEN_MAX_BYTES.  STATUS_NOMEM. */
enum status added_set_create(const struct added_token *tokens, size_t count, struct added_set **ret, struct error *err);
void added_set_destroy(struct added_set *set);

/* A walk through one text.  Zero-initialise. */
struct added_walk {
    size_t search_from; /* the end of the last string that matched */
    size_t plain_from;  /* the end of what the last token took: its string and the blanks that it strips */
};

struct added_match {
    uint32_t id;
    size_t start; /* text[plain_from before the call, start) holds no token; it is empty when start lies before */
};

/* Step to the next token: the leftmost, of those the longest.  False: no more, text[walk->plain_from, length) is left.
 * text is valid UTF-8, the same in each step of a walk. */
bool added_set_next(const struct added_set *set, struct added_walk *walk, const char *text, size_t length,
                    struct added_match *ret);

#endif
