/* Tokenizers and chat templates as checkpoints hold them: folders made here, and GGUF files with one value changed. */
#include <check.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file.h"
#include "runtime/tokenizer.h"
#include "tests/suite.h"

#define MODELS SOURCE_ROOT "/tests/parity/models/"

static char folder[] = "/tmp/ferry-tokenizer-XXXXXX";

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    static const char *const names[] = {"config.json", "tokenizer_config.json",   "chat_template.jinja",
                                        "model.gguf",  "special_tokens_map.json", "tokenizer.model"};
    char path[128];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void write_file(const char *name, const char *bytes, size_t count)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    ck_assert_ptr_nonnull(file = fopen(path, "wb"));
    ck_assert_uint_eq(fwrite(bytes, 1, count, file), count);
    ck_assert_int_eq(fclose(file), 0);
}

static struct checkpoint *open_folder(void)
{
    struct checkpoint *checkpoint = NULL;
    struct error err = {0};
    char *bytes = NULL;
    size_t count;

    ck_assert_int_eq(file_read_all(MODELS "llama/config.json", 1 << 20, &bytes, &count, &err), STATUS_OK);
    write_file("config.json", bytes, count);
    free(bytes);
    ck_assert_msg(checkpoint_open(folder, &checkpoint, &err) == STATUS_OK, "%s", err.text);
    return checkpoint;
}

/* Render one message; the text, or the error's, is lent until the next call. */
static enum status render(struct checkpoint *checkpoint, char *ret, size_t bytes)
{
    struct chat_message message = {"user", "Hi"};
    struct text text = {0};
    struct error err = {0};
    enum status st = chat_render(checkpoint, &message, 1, &text, &err);

    snprintf(ret, bytes, "%s", st == STATUS_OK ? text_string(&text) : err.text);
    text_done(&text);
    return st;
}

START_TEST(a_folder_without_a_known_template_is_refused_by_name)
{
    static const char strange[] = "{\"chat_template\": \"<|user|>\\n{{ messages[0].content }} and so on, and on\"}";
    struct checkpoint *checkpoint = open_folder();
    char said[4096];

    ck_assert_int_eq(render(checkpoint, said, sizeof said), STATUS_MODEL);
    ck_assert_msg(strstr(said, "has no chat template"), "%s", said);
    write_file("tokenizer_config.json", strange, sizeof strange - 1);
    ck_assert_int_eq(render(checkpoint, said, sizeof said), STATUS_UNSUPPORTED);
    ck_assert_msg(strstr(said, "tokenizer_config.json: the chat template '<|user|> {{ messages[0].content }} and s' "
                               "is none of chatml, llama3, mistral and qwen"),
                  "%s", said);
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(the_template_comes_from_its_own_file_first)
{
    static const char config[] =
        "{\"bos_token\": {\"content\": \"<s>\"}, \"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"},"
        " {\"name\": \"default\", \"template\": \"{{ bos_token }}<|im_start|>{{ messages[0].content }}{{ eos_token "
        "}}\"}]}";
    static const char tokens[] = "{\"bos_token\": \"other\", \"eos_token\": \"</s>\"}";
    static const char own[] = "[INST]{{ messages[0].content }}[/INST]\n";
    static const char broken[] = "[INST]\n{{ messages[0].content | shout }}";
    struct checkpoint *checkpoint = open_folder();
    char said[4096];

    write_file("tokenizer_config.json", config, sizeof config - 1);
    write_file("special_tokens_map.json", tokens, sizeof tokens - 1);
    ck_assert_int_eq(render(checkpoint, said, sizeof said), STATUS_OK);
    ck_assert_str_eq(said, "<s><|im_start|>Hi</s>");
    write_file("chat_template.jinja", own, sizeof own - 1);
    ck_assert_int_eq(render(checkpoint, said, sizeof said), STATUS_OK);
    ck_assert_str_eq(said, "[INST]Hi[/INST]");
    write_file("chat_template.jinja", broken, sizeof broken - 1);
    ck_assert_int_eq(render(checkpoint, said, sizeof said), STATUS_UNSUPPORTED);
    ck_assert_msg(strstr(said, "chat_template.jinja: chat template: line 2: the filter 'shout' is not supported"), "%s",
                  said);
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(a_folder_without_tokenizer_json_says_what_it_has)
{
    struct checkpoint *checkpoint = open_folder();
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};

    ck_assert_int_eq(tokenizer_open(checkpoint, &tokenizer, &err), STATUS_MODEL);
    ck_assert_msg(strstr(err.text, "has no tokenizer.json"), "%s", err.text);
    write_file("tokenizer.model", "", 0);
    ck_assert_int_eq(tokenizer_open(checkpoint, &tokenizer, &err), STATUS_UNSUPPORTED);
    ck_assert_msg(strstr(err.text, "has tokenizer.model, but no tokenizer.json"), "%s", err.text);
    checkpoint_close(checkpoint);
}
END_TEST

/* The value of a key: behind its name and the four bytes of its type. */
static char *find_value(char *bytes, size_t count, const char *key)
{
    char *at = memmem(bytes, count, key, strlen(key));

    ck_assert_msg(at != NULL, "%s", key);
    return at + strlen(key) + 4;
}

/* Open a GGUF file of the tests whose value at key (plus offset) is replaced. */
static enum status open_changed(const char *model, const char *key, ptrdiff_t offset, const char *with, size_t count,
                                struct error *err)
{
    struct checkpoint *checkpoint = NULL;
    struct tokenizer *tokenizer = NULL;
    char path[128];
    char *bytes = NULL;
    size_t length;
    enum status st;

    ck_assert_int_eq(file_read_all(model, 1 << 24, &bytes, &length, err), STATUS_OK);
    memcpy(find_value(bytes, length, key) + offset, with, count);
    write_file("model.gguf", bytes, length);
    free(bytes);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    ck_assert_msg(checkpoint_open(path, &checkpoint, err) == STATUS_OK, "%s", err->text);
    st = tokenizer_open(checkpoint, &tokenizer, err);
    tokenizer_close(tokenizer);
    checkpoint_close(checkpoint);
    return st;
}

START_TEST(a_gguf_value_that_cannot_be_is_refused_with_its_key)
{
    /* Offsets: a string lies behind its 8 bytes of length; an array behind type (4) and count (8). */
    static const struct {
        const char *model;
        const char *key;
        ptrdiff_t offset;
        const char *with;
        size_t count;
        enum status status;
        const char *message;
    } rows[] = {
        {"llama-floats.gguf", "tokenizer.ggml.model", 8, "bert", 4, STATUS_UNSUPPORTED,
         "tokenizer.ggml.model 'bert' is not supported (gpt2 is)"},
        {"llama-floats.gguf", "tokenizer.ggml.pre", 8, "gpt-9", 5, STATUS_UNSUPPORTED,
         "tokenizer.ggml.pre: unknown pre-tokenizer 'gpt-9'"},
        {"llama-floats.gguf", "tokenizer.ggml.pre", -5, "x", 1, STATUS_MODEL,
         "tokenizer.ggml.pre: expected the name of a pre-tokenizer, found nothing"},
        {"llama-floats.gguf", "tokenizer.ggml.token_type", 12, "\6", 1, STATUS_UNSUPPORTED,
         "token 0 has type 6 (a byte), which belongs to SentencePiece"},
        {"llama-floats.gguf", "tokenizer.ggml.token_type", 12, "\11", 1, STATUS_MODEL, "token 0 has type 9"},
        {"llama-floats.gguf", "tokenizer.ggml.merges", 12 + 8 + 1, "x", 1, STATUS_MODEL,
         "tokenizer.ggml.merges: merge 0: "},
        {"llama-rope-freqs.gguf", "tokenizer.ggml.bos_token_id", 0, "\xff\xff\xff\xff", 4, STATUS_MODEL,
         "tokenizer.ggml.bos_token_id is 4294967295"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = {0};
        char path[256];

        snprintf(path, sizeof path, MODELS "%s", rows[i].model);
        ck_assert_msg(open_changed(path, rows[i].key, rows[i].offset, rows[i].with, rows[i].count, &err) ==
                          rows[i].status,
                      "%zu: %s", i, err.text);
        ck_assert_msg(strstr(err.text, rows[i].message) && strstr(err.text, "model.gguf"), "%zu: %s", i, err.text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer-files");
    TCase *group = tcase_create("tokenizer-files");

    tcase_add_checked_fixture(group, make_folder, remove_folder);
    tcase_set_timeout(group, 60);
    tcase_add_test(group, a_folder_without_a_known_template_is_refused_by_name);
    tcase_add_test(group, the_template_comes_from_its_own_file_first);
    tcase_add_test(group, a_folder_without_tokenizer_json_says_what_it_has);
    tcase_add_test(group, a_gguf_value_that_cannot_be_is_refused_with_its_key);
    suite_add_tcase(suite, group);
    return suite_run(suite);
}
