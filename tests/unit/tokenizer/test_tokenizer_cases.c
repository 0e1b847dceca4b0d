/* Every file of tests/tokenizer-cases: what Hugging Face's tokenizers (and chat templates) made of the same texts. */
#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utf8proc.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file.h"
#include "checkpoint/gguf.h"
#include "runtime/tokenizer_private.h"
#include "tests/suite.h"

#define CASES SOURCE_ROOT "/tests/tokenizer-cases/"

static char *in_root(const char *path)
{
    return file_join(SOURCE_ROOT, path);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);

    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

/* A file of the repository, without the rest of its model. */
static void open_tokenizer(const char *path, struct checkpoint **ret_checkpoint, struct tokenizer **ret)
{
    struct error err = {0};
    char *bytes = NULL;
    size_t length;

    *ret_checkpoint = NULL;
    if (ends_with(path, ".gguf")) {
        ck_assert_msg(checkpoint_open(path, ret_checkpoint, &err) == STATUS_OK, "%s", err.text);
        ck_assert_msg(tokenizer_open(*ret_checkpoint, ret, &err) == STATUS_OK, "%s", err.text);
        return;
    }
    ck_assert_msg(file_read_all(path, 1 << 28, &bytes, &length, &err) == STATUS_OK, "%s", err.text);
    ck_assert_msg(tokenizer_create_from_json(bytes, length, path, ret, &err) == STATUS_OK, "%s", err.text);
    free(bytes);
}

static void show_ids(const char *name, const struct token_list *list)
{
    fprintf(stderr, "%s:", name);
    for (size_t i = 0; i < list->count; i++)
        fprintf(stderr, " %u", list->ids[i]);
    fputc('\n', stderr);
}

static void expect_ids(const char *where, const char *text, const json_t *expected, const struct token_list *list)
{
    bool equal = json_array_size(expected) == list->count;

    for (size_t i = 0; equal && i < list->count; i++)
        equal = (uint32_t)json_integer_value(json_array_get(expected, i)) == list->ids[i];
    if (!equal) {
        char *dump = json_dumps(expected, JSON_COMPACT);

        show_ids("got", list);
        ck_abort_msg("%s: '%s': expected %s", where, text, dump);
    }
}

/* Hugging Face puts a beginning token in front of a text that has one already (B149); Ferry does not. */
static json_t *without_second_beginning(const json_t *one)
{
    json_t *ids = json_deep_copy(json_object_get(one, "ids"));
    const json_t *plain = json_object_get(one, "ids_no_special");

    if (json_array_size(ids) > json_array_size(plain) && json_array_size(plain) &&
        json_equal(json_array_get(ids, 0), json_array_get(plain, 0)))
        json_array_remove(ids, 0);
    return ids;
}

/* The caller frees.  Hugging Face decodes the letters of an added token as if they were the byte alphabet's, so that an
 * accented letter becomes a broken byte.  Ferry gives the token as it stands in the file: the text, normalised. */
static char *expected_text(const json_t *one)
{
    const char *text = json_string_value(json_object_get(one, "text"));
    const char *decoded = json_string_value(json_object_get(one, "decoded"));

    if (decoded && strstr(decoded, "\xef\xbf\xbd") && !strstr(text, "\xef\xbf\xbd"))
        return (char *)utf8proc_NFC((const utf8proc_uint8_t *)text);
    return strdup(decoded ? decoded : text);
}

static void check_case(const struct tokenizer *tokenizer, const char *file, const json_t *one)
{
    const json_t *text = json_object_get(one, "text");
    const char *bytes = json_string_value(text);
    size_t length = json_string_length(text);
    struct token_list list = {0};
    struct text joined = {0};
    char *expected = expected_text(one);
    json_t *ids = without_second_beginning(one);
    struct error err = {0};

    ck_assert_msg(tokenizer_encode(tokenizer, bytes, length, true, &list, &err) == STATUS_OK, "%s", err.text);
    expect_ids(file, bytes, ids, &list);
    list.count = 0;
    ck_assert_msg(tokenizer_encode(tokenizer, bytes, length, false, &list, &err) == STATUS_OK, "%s", err.text);
    expect_ids(file, bytes, json_object_get(one, "ids_no_special"), &list);
    for (size_t i = 0; i < list.count; i++) {
        size_t count;
        const char *piece = tokenizer_piece(tokenizer, list.ids[i], false, &count);

        text_add_bytes(&joined, piece, count);
    }
    ck_assert_str_eq(text_string(&joined), expected);
    free(expected);
    text_done(&joined);
    token_list_done(&list);
    json_decref(ids);
}

static void check_file(const char *name, int *skipped)
{
    char *path = file_join(CASES, name);
    json_t *root = json_load_file(path, 0, NULL);
    char *model = in_root(json_string_value(json_object_get(root, "tokenizer")));
    struct checkpoint *checkpoint = NULL;
    struct tokenizer *tokenizer = NULL;
    size_t index;
    json_t *one;

    if (access(model, R_OK) != 0) {
        fprintf(stderr, "SKIP %s: %s is not there (examples/smollm2/get-model gets it)\n", name, model);
        ++*skipped;
    } else {
        open_tokenizer(model, &checkpoint, &tokenizer);
        json_array_foreach(json_object_get(root, "cases"), index, one) check_case(tokenizer, name, one);
        fprintf(stderr, "%s: %zu texts\n", name, index);
    }
    tokenizer_close(tokenizer);
    checkpoint_close(checkpoint);
    json_decref(root);
    free(model);
    free(path);
}

START_TEST(ids_equal_those_of_hugging_face_in_every_case_file)
{
    DIR *folder = opendir(CASES);
    int skipped = 0;
    int files = 0;

    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!ends_with(entry->d_name, ".json") || strcmp(entry->d_name, "chat.json") == 0)
            continue;
        check_file(entry->d_name, &skipped);
        files++;
    }
    closedir(folder);
    ck_assert_int_gt(files - skipped, 10);
}
END_TEST

static void check_chat(const json_t *one, int *skipped)
{
    char *path = in_root(json_string_value(json_object_get(one, "model")));
    const json_t *list = json_object_get(one, "messages");
    struct chat_message messages[16];
    struct checkpoint *checkpoint = NULL;
    struct tokenizer *tokenizer = NULL;
    struct token_list ids = {0};
    struct text text = {0};
    struct error err = {0};
    size_t count = json_array_size(list);

    ck_assert_uint_le(count, 16);
    for (size_t i = 0; i < count; i++)
        messages[i] = (struct chat_message){json_string_value(json_object_get(json_array_get(list, i), "role")),
                                            json_string_value(json_object_get(json_array_get(list, i), "content"))};
    if (access(path, R_OK) != 0) {
        ++*skipped;
    } else {
        ck_assert_msg(checkpoint_open(path, &checkpoint, &err) == STATUS_OK, "%s", err.text);
        ck_assert_msg(tokenizer_open(checkpoint, &tokenizer, &err) == STATUS_OK, "%s", err.text);
        ck_assert_msg(chat_render(checkpoint, messages, count, &text, &err) == STATUS_OK, "%s", err.text);
        ck_assert_str_eq(text_string(&text), json_string_value(json_object_get(one, "text")));
        ck_assert_msg(tokenizer_encode(tokenizer, text_string(&text), text.length, false, &ids, &err) == STATUS_OK,
                      "%s", err.text);
        expect_ids(path, text_string(&text), json_object_get(one, "ids"), &ids);
    }
    tokenizer_close(tokenizer);
    checkpoint_close(checkpoint);
    token_list_done(&ids);
    text_done(&text);
    free(path);
}

START_TEST(chats_equal_those_of_transformers)
{
    json_t *root = json_load_file(CASES "chat.json", 0, NULL);
    int skipped = 0;
    size_t index;
    json_t *one;

    json_array_foreach(json_object_get(root, "chats"), index, one) check_chat(one, &skipped);
    if (skipped)
        fprintf(stderr, "SKIP %d chats: their model is not there (examples/smollm2/get-model gets it)\n", skipped);
    ck_assert_int_gt((int)index - skipped, 20);
    json_decref(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer-cases");
    TCase *group = tcase_create("tokenizer-cases");

    tcase_set_timeout(group, 60);
    tcase_add_test(group, ids_equal_those_of_hugging_face_in_every_case_file);
    tcase_add_test(group, chats_equal_those_of_transformers);
    suite_add_tcase(suite, group);
    return suite_run(suite);
}
