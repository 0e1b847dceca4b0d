/* Byte-level byte-pair encoding: a vocabulary of strings and an ordered list of merges.
 *
 * Tokens are kept as the file writes them, in the byte alphabet.  Immutable after creation. */
#ifndef RUNTIME_BPE_H
#define RUNTIME_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/tokenizer.h"

enum {
    TOKEN_ID_LIMIT = 1 << 24, /* ids are below it */
    NO_TOKEN = -1             /* as uint32_t: no id */
};

/* A string of a file, lent by whoever parsed it.  bytes NULL: none. */
struct token_string {
    const char *bytes;
    size_t length;
};

struct token_pair {
    struct token_string left;
    struct token_string right;
};

/* Strings by id, and ids by string. */
struct vocabulary;

/* tokens[0, count): by id; a hole has no bytes.  Copied.  Of two ids with the same string the higher is found.
 * STATUS_OVERFLOW (ids or bytes beyond the limit), STATUS_NOMEM. */
enum status vocabulary_create(const struct token_string *tokens, size_t count, struct vocabulary **ret,
                              struct error *err);
void vocabulary_destroy(struct vocabulary *vocabulary);
uint32_t vocabulary_size(const struct vocabulary *vocabulary);
/* Lent until vocabulary_destroy; of a hole: no bytes. */
struct token_string vocabulary_string(const struct vocabulary *vocabulary, uint32_t id);
/* (uint32_t)NO_TOKEN when there is none. */
uint32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t length);

struct bpe;

/* vocabulary is borrowed until bpe_destroy; merges only during the call.  Of two equal merges the later counts.
 * ignore_merges: a word that is a token is that token, whatever the merges make of it.
 * STATUS_MODEL: a merge names a token that the vocabulary lacks (which merge, which token).  STATUS_NOMEM. */
enum status bpe_create(const struct vocabulary *vocabulary, const struct token_pair *merges, size_t count,
                       bool ignore_merges, struct bpe **ret, struct error *err);
void bpe_destroy(struct bpe *bpe);

/* The first byte that UTF-8 can hold and that has no token of its own, or -1 when all have. */
int bpe_missing_byte(const struct bpe *bpe);

/* Memory that the words of one text share.  Zero-initialise. */
struct bpe_work {
    void *symbols;
    size_t symbol_capacity;
    void *queue;
    size_t queue_capacity;
    char *mapped;
    size_t mapped_capacity;
};
void bpe_work_done(struct bpe_work *work);

/* Append the ids of one word of length bytes.  n log n in its length.  A byte without a token leaves nothing, as in
 * Hugging Face tokenizers and in llama.cpp (real vocabularies lack some control characters).
 * STATUS_OVERFLOW: a word of 2^30 bytes.  STATUS_NOMEM. */
enum status bpe_encode(const struct bpe *bpe, struct bpe_work *work, const char *word, size_t length,
                       struct token_list *ret, struct error *err);

#endif
