/* The lists of patterns behind the names in tokenizer.ggml.pre: a GGUF file keeps the name alone.  Each list is what
 * the model's own tokenizer.json says, so both files of a model cut alike. */
#include "runtime/pretokenize.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

enum { MAX_PATTERNS = 4 };

struct named {
    const char *name;
    const char *patterns[MAX_PATTERNS]; /* in order; each cuts off its matches */
    struct pretokenizer_traits traits;
};

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char llama3[] =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS;
static const char qwen2[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS;
static const char gpt4o[] = "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER
                            "+" LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS;
static const char tekken[] = "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
                             "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS;
static const char digit[] = "\\p{N}";

static const struct named names[] = {
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"}, {0}},
    {"gpt-2", {gpt2}, {0}},
    {"phi-2", {gpt2}, {0}},
    {"mpt", {gpt2}, {0}},
    {"olmo", {gpt2}, {0}},
    {"smollm", {digit, gpt2}, {0}},
    {"starcoder", {digit, gpt2}, {0}},
    {"refact", {digit, gpt2}, {0}},
    {"llama-bpe", {llama3}, {.ignore_merges = true, .add_bos = true}},
    {"llama3", {llama3}, {.ignore_merges = true, .add_bos = true}},
    {"llama-v3", {llama3}, {.ignore_merges = true, .add_bos = true}},
    {"dbrx", {llama3}, {0}},
    {"smaug-bpe", {llama3}, {0}},
    {"qwen2", {qwen2}, {.nfc = true}},
    {"deepseek-r1-qwen", {qwen2}, {.nfc = true}},
    {"gpt-4o", {gpt4o}, {0}},
    {"tekken", {tekken}, {.ignore_merges = true, .add_bos = true}},
};

const char *pretokenizer_gpt2_pattern(void)
{
    return gpt2;
}

enum status pretokenizer_add_named(struct pretokenizer *pretokenizer, const char *name, size_t length,
                                   struct pretokenizer_traits *ret_traits, struct error *err)
{
    const struct named *named = NULL;
    enum status st = STATUS_OK;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i].name) == length && memcmp(names[i].name, name, length) == 0)
            named = &names[i];
    }
    if (!named)
        return error_set(err, STATUS_UNSUPPORTED, "unknown pre-tokenizer '%.*s'", (int)(length < 64 ? length : 64),
                         name);
    *ret_traits = named->traits;
    for (int i = 0; st == STATUS_OK && i < MAX_PATTERNS && named->patterns[i]; i++)
        st = pretokenizer_add_split(pretokenizer, named->patterns[i], strlen(named->patterns[i]), false, SPLIT_ISOLATED,
                                    false, err);
    return st;
}
