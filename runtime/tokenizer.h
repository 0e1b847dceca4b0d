/* Text to token ids and back: byte-level BPE from tokenizer.json or from a GGUF file's metadata.
 *
 * Whatever else a file asks for (SentencePiece, WordPiece, unknown normalizers) is refused by name. */
#ifndef RUNTIME_TOKENIZER_H
#define RUNTIME_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

struct checkpoint;
struct tokenizer;

struct token_list {
    uint32_t *ids;
    size_t count;
    size_t capacity;
};
/* STATUS_NOMEM leaves the list as it was. */
enum status token_list_add(struct token_list *list, uint32_t id, struct error *err);
void token_list_done(struct token_list *list);

/* From the folder's tokenizer.json or the GGUF's metadata.  STATUS_MODEL, STATUS_STORAGE, STATUS_UNSUPPORTED. */
enum status tokenizer_open(const struct checkpoint *checkpoint, struct tokenizer **ret, struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);

/* Is there anything that tokenizer_open would read?  A folder of config.json alone has nothing. */
bool tokenizer_is_here(const struct checkpoint *checkpoint);

/* Highest token id + 1, added tokens included. */
uint32_t tokenizer_size(const struct tokenizer *tokenizer);

/* Append the ids of text (length bytes, UTF-8; anything else is STATUS_MODEL with the byte's offset).  Special tokens
 * in the text are parsed.  add_special: what the file's post-processor (or GGUF's add_bos, add_eos) puts around it;
 * a beginning token that the text already starts with is not added twice. */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, bool add_special,
                             struct token_list *ret, struct error *err);

/* The bytes of one token: special tokens are nothing when skip_special.  Lent until tokenizer_close. */
const char *tokenizer_piece(const struct tokenizer *tokenizer, uint32_t id, bool skip_special, size_t *ret_length);

/* Streaming: feed tokens, get text that never ends inside a character.  Joined output equals the whole decode, with
 * U+FFFD for bytes that never become a character.  Zero-initialise. */
struct text_stream {
    unsigned char held[8];
    int held_count;
};
void text_stream_push(struct text_stream *stream, const struct tokenizer *tokenizer, uint32_t id, struct text *out);
void text_stream_finish(struct text_stream *stream, struct text *out);

/* Chat: the model's own template, recognised as chatml, llama3, mistral or qwen; others are refused by name. */
struct chat_message {
    const char *role;
    const char *content;
};
/* Append the rendered prompt, with the generation prompt at its end.  The result is encoded with add_special false
 * (it carries its own).  STATUS_UNSUPPORTED names the template; STATUS_MODEL: there is none. */
enum status chat_render(const struct checkpoint *checkpoint, const struct chat_message *messages, size_t count,
                        struct text *ret, struct error *err);

#endif
