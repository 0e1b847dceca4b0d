/* What a tokenizer is made of: the readers of tokenizer.json and of GGUF fill it in, tokenizer_create makes the object.
 */
#ifndef RUNTIME_TOKENIZER_PRIVATE_H
#define RUNTIME_TOKENIZER_PRIVATE_H

#include "runtime/bpe.h"
#include "runtime/pretokenize.h"
#include "runtime/tokenizer.h"
#include "runtime/tokenizer_added.h"

enum { TOKENIZER_MAX_AROUND = 16 };

/* All strings are borrowed during the call of tokenizer_create alone. */
struct tokenizer_parts {
    struct token_string *tokens; /* the model's vocabulary by id, in the byte alphabet */
    size_t token_count;
    struct token_pair *merges;
    size_t merge_count;
    struct added_token *added;
    size_t added_count;
    struct pretokenizer *pretokenizer; /* taken */
    bool nfc;
    bool ignore_merges;
    bool all_bytes; /* the file asks for something (unk_token, byte_fallback) that is harmless only if each byte has a
                       token; whoever lacks one is refused */
    uint32_t prefix[TOKENIZER_MAX_AROUND]; /* what add_special puts around the text */
    size_t prefix_count;
    uint32_t suffix[TOKENIZER_MAX_AROUND];
    size_t suffix_count;
};
/* Frees the arrays and the pre-tokenizer, if it was not taken. */
void tokenizer_parts_done(struct tokenizer_parts *parts);

/* Takes parts->pretokenizer (it is then NULL there), copies the rest.
 * STATUS_MODEL, STATUS_UNSUPPORTED, STATUS_OVERFLOW, STATUS_NOMEM. */
enum status tokenizer_create(struct tokenizer_parts *parts, struct tokenizer **ret, struct error *err);

/* "left right": one blank, between two tokens.  STATUS_MODEL. */
enum status token_pair_parse(const char *text, size_t length, size_t index, struct token_pair *ret, struct error *err);

/* From the bytes of a tokenizer.json; name is the file's, for messages. */
enum status tokenizer_create_from_json(const char *bytes, size_t length, const char *name, struct tokenizer **ret,
                                       struct error *err);

struct gguf;
enum status tokenizer_create_from_gguf(const struct gguf *gguf, const char *name, struct tokenizer **ret,
                                       struct error *err);

#endif
