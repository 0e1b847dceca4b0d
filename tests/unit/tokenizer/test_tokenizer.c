/* The tokenizer by itself: damaged files, long words, beginning tokens, streaming, threads, chats of a folder. */
#include <check.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file.h"
#include "runtime/byte_alphabet.h"
#include "runtime/tokenizer_private.h"
#include "runtime/utf8.h"
#include "tests/suite.h"

/* Ids 0..255: the bytes themselves.  256 "he", 257 "ll", 258 "hell"; then the doubled a's; <s> is 270. */
enum { ID_HE = 256, ID_LL, ID_HELL, ID_AA, ID_A4, ID_A8, ID_BEGIN = 270 };

static json_t *base_file(void)
{
    json_t *root = json_loads(
        "{\"added_tokens\": [{\"id\": 270, \"content\": \"<s>\", \"special\": true, \"normalized\": false}],"
        " \"normalizer\": null,"
        " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true},"
        " \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"},"
        " \"model\": {\"type\": \"BPE\", \"vocab\": {\"he\": 256, \"ll\": 257, \"hell\": 258, \"aa\": 259, \"aaaa\": "
        "260,"
        " \"aaaaaaaa\": 261}, \"merges\": [\"h e\", \"l l\", [\"he\", \"ll\"], \"a a\", \"aa aa\", \"aaaa aaaa\"]}}",
        0, NULL);
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    struct byte_alphabet alphabet;

    byte_alphabet_init(&alphabet);
    for (int byte = 0; byte < 256; byte++) {
        char name[5] = "";
        char value = (char)byte;

        byte_alphabet_encode(&alphabet, &value, 1, name);
        json_object_set_new(vocab, name, json_integer(byte));
    }
    return root;
}

/* Set "a.b.c" to a value written as JSON. */
static void set_value(json_t *root, const char *path, const char *value)
{
    char copy[128];
    char *rest = copy;
    json_t *at = root;

    snprintf(copy, sizeof copy, "%s", path);
    for (char *dot; (dot = strchr(rest, '.')); rest = dot + 1) {
        *dot = 0;
        at = json_object_get(at, rest);
    }
    ck_assert_int_eq(json_object_set_new(at, rest, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
}

static enum status create(json_t *root, struct tokenizer **ret, struct error *err)
{
    char *bytes = json_dumps(root, JSON_COMPACT);
    enum status st = tokenizer_create_from_json(bytes, strlen(bytes), "x/tokenizer.json", ret, err);

    free(bytes);
    json_decref(root);
    return st;
}

static struct tokenizer *create_base(const char *path, const char *value)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    json_t *root = base_file();

    if (path)
        set_value(root, path, value);
    ck_assert_msg(create(root, &tokenizer, &err) == STATUS_OK, "%s", err.text);
    return tokenizer;
}

static void expect(const struct tokenizer *tokenizer, const char *text, bool special, const uint32_t *ids, size_t count)
{
    struct token_list list = {0};
    struct error err = {0};

    ck_assert_msg(tokenizer_encode(tokenizer, text, strlen(text), special, &list, &err) == STATUS_OK, "%s", err.text);
    ck_assert_msg(list.count == count, "'%s': %zu ids, expected %zu", text, list.count, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(list.ids[i] == ids[i], "'%s': id %zu is %u, expected %u", text, i, list.ids[i], ids[i]);
    token_list_done(&list);
}

#define EXPECT(tokenizer, text, special, ...)                                                                          \
    expect(tokenizer, text, special, (const uint32_t[]){__VA_ARGS__},                                                  \
           sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

START_TEST(what_a_file_asks_for_and_cannot_have_is_refused_by_name)
{
    static const struct {
        const char *path;
        const char *value;
        enum status status;
        const char *message;
    } rows[] = {
        {"model", "null", STATUS_MODEL, "model: expected an object, found null"},
        {"model.type", "\"Unigram\"", STATUS_UNSUPPORTED, "model.type 'Unigram' is not supported"},
        {"model.type", "\"WordPiece\"", STATUS_UNSUPPORTED, "model.type 'WordPiece' is not supported"},
        {"model.dropout", "0.1", STATUS_UNSUPPORTED, "model.dropout 0.1 is not supported"},
        {"model.end_of_word_suffix", "\"</w>\"", STATUS_UNSUPPORTED, "model.end_of_word_suffix '</w>'"},
        {"model.continuing_subword_prefix", "\"##\"", STATUS_UNSUPPORTED, "model.continuing_subword_prefix '##'"},
        {"model.ignore_merges", "3", STATUS_MODEL, "model.ignore_merges"},
        {"model.vocab", "null", STATUS_MODEL, "model.vocab: expected an object, found null"},
        {"model.vocab", "{}", STATUS_MODEL, "merge 0: 'h' is not in the vocabulary"},
        {"model.vocab.zz", "-1", STATUS_MODEL, "model.vocab: the id of 'zz' is -1, expected 0 to 16777215"},
        {"model.vocab.zz", "16777216", STATUS_MODEL, "model.vocab: the id of 'zz' is 16777216"},
        {"model.vocab.zz", "1.5", STATUS_MODEL, "model.vocab: the id of 'zz' is 1.5"},
        {"model.vocab.zz", "\"7\"", STATUS_MODEL, "model.vocab: the id of 'zz' is the string"},
        {"model.vocab.zz", "104", STATUS_MODEL, "have the same id 104"},
        {"model.merges", "{}", STATUS_MODEL, "model.merges: expected a list, found an object"},
        {"model.merges", "[3]", STATUS_MODEL, "model.merges: merge 0: expected two strings"},
        {"model.merges", "[[\"a\"]]", STATUS_MODEL, "model.merges: merge 0: expected two strings"},
        {"model.merges", "[\"ab\"]", STATUS_MODEL, "model.merges: merge 0: 'ab' is not two tokens"},
        {"model.merges", "[\"a  b\"]", STATUS_MODEL, "model.merges: merge 0: 'a  b' is not two tokens"},
        {"model.merges", "[\" b\"]", STATUS_MODEL, "model.merges: merge 0: ' b' is not two tokens"},
        {"model.merges", "[\"a b\"]", STATUS_MODEL, "merge 0: 'ab' is not in the vocabulary"},
        {"model.merges", "[\"hello a\"]", STATUS_MODEL, "merge 0: 'hello' is not in the vocabulary"},
        {"model.merges", "[\"a hello\"]", STATUS_MODEL, "merge 0: 'hello' is not in the vocabulary"},
        {"normalizer", "{\"type\": \"Lowercase\"}", STATUS_UNSUPPORTED, "normalizer 'Lowercase' is not supported"},
        {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Prepend\"}]}",
         STATUS_UNSUPPORTED, "normalizer 'Prepend' is not supported"},
        {"normalizer", "{\"type\": \"Sequence\"}", STATUS_MODEL, "normalizer: expected a list of members"},
        {"normalizer", "3", STATUS_MODEL, "normalizer: expected an object, found a number"},
        {"pre_tokenizer", "null", STATUS_UNSUPPORTED, "pre_tokenizer 'without ByteLevel' is not supported"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\"}", STATUS_UNSUPPORTED, "pre_tokenizer 'Metaspace'"},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}]}",
         STATUS_UNSUPPORTED, "'Digits' behind ByteLevel is not supported"},
        {"pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Sometimes\"}",
         STATUS_UNSUPPORTED, "pre_tokenizer.behavior 'Sometimes'"},
        {"pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {}, \"behavior\": \"Isolated\"}", STATUS_MODEL,
         "pre_tokenizer.pattern: expected a Regex or a String"},
        {"pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"*a\"}, \"behavior\": \"Isolated\"}",
         STATUS_MODEL, "pre_tokenizer: pattern '*a' does not compile"},
        {"decoder", "null", STATUS_UNSUPPORTED, "decoder 'null' is not supported"},
        {"decoder", "{\"type\": \"Metaspace\"}", STATUS_UNSUPPORTED, "decoder 'Metaspace' is not supported"},
        {"post_processor", "{\"type\": \"RobertaProcessing\"}", STATUS_UNSUPPORTED,
         "post_processor 'RobertaProcessing' is not supported"},
        {"post_processor",
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {}}],"
         " \"special_tokens\": {}}",
         STATUS_MODEL, "post_processor.special_tokens: expected ids of each token"},
        {"post_processor",
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}, {\"Sequence\": {}}],"
         " \"special_tokens\": {\"x\": {\"ids\": [5000]}}}",
         STATUS_MODEL, "token id 5000 that is put around a text is not below 271"},
        {"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": []}", STATUS_UNSUPPORTED,
         "repeats or drops the text"},
        {"added_tokens", "[{\"id\": 5, \"content\": \"<x>\"}]", STATUS_MODEL, "'<x>' has id 5, which is"},
        {"added_tokens", "[{\"id\": 300, \"content\": \"he\"}]", STATUS_MODEL,
         "'he' has id 300 here and 256 elsewhere"},
        {"added_tokens", "[{\"id\": 300, \"content\": \"<x>\"}, {\"id\": 301, \"content\": \"<x>\"}]", STATUS_MODEL,
         "'<x>' has id 301 here and 300 elsewhere"},
        {"added_tokens", "[{\"id\": 16777216, \"content\": \"<x>\"}]", STATUS_MODEL, "a token id below 2^24"},
        {"added_tokens", "[{\"id\": 300}]", STATUS_MODEL, "added_tokens.content: expected a string, found absent"},
        {"added_tokens", "[7]", STATUS_MODEL, "added_tokens: expected objects"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *tokenizer = NULL;
        struct error err = {0};
        json_t *root = base_file();

        set_value(root, rows[i].path, rows[i].value);
        ck_assert_msg(create(root, &tokenizer, &err) == rows[i].status, "%s = %s: %s", rows[i].path, rows[i].value,
                      err.text);
        ck_assert_msg(strstr(err.text, rows[i].message), "%s = %s: %s", rows[i].path, rows[i].value, err.text);
        ck_assert_msg(strncmp(err.text, "x/tokenizer.json: ", 18) == 0, "%s", err.text);
        ck_assert_ptr_null(tokenizer);
    }
}
END_TEST

START_TEST(a_file_that_is_no_json_says_where)
{
    static const char *const rows[] = {"", "{", "[]", "{\"model\": \"\xff\"}", "{\"a\": 1, \"a\": 2}"};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *tokenizer = NULL;
        struct error err = {0};

        ck_assert_int_eq(tokenizer_create_from_json(rows[i], strlen(rows[i]), "x/tokenizer.json", &tokenizer, &err),
                         STATUS_MODEL);
        ck_assert_msg(strncmp(err.text, "x/tokenizer.json", 16) == 0, "%s", err.text);
    }
}
END_TEST

START_TEST(options_that_change_nothing_are_accepted)
{
    static const struct {
        const char *path;
        const char *value;
    } rows[] = {
        {"model.dropout", "null"},
        {"model.dropout", "0.0"},
        {"model.unk_token", "\"<s>\""},
        {"model.byte_fallback", "true"},
        {"model.continuing_subword_prefix", "\"\""},
        {"model.fuse_unk", "true"},
        {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": []}"},
        {"decoder", "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Fuse\"}]}"},
        {"added_tokens", "[{\"id\": 256, \"content\": \"he\"}, {\"id\": 256, \"content\": \"he\"}]"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tokenizer_close(create_base(rows[i].path, rows[i].value));
}
END_TEST

START_TEST(an_unknown_token_is_refused_when_a_byte_could_need_it)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    json_t *root = base_file();

    json_object_del(json_object_get(json_object_get(root, "model"), "vocab"), "z");
    set_value(root, "model.unk_token", "\"<s>\"");
    ck_assert_int_eq(create(root, &tokenizer, &err), STATUS_UNSUPPORTED);
    ck_assert_msg(strstr(err.text, "no token for byte 0x7a"), "%s", err.text);
}
END_TEST

START_TEST(a_byte_without_a_token_leaves_nothing)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    json_t *root = base_file();

    json_object_del(json_object_get(json_object_get(root, "model"), "vocab"), "z");
    ck_assert_int_eq(create(root, &tokenizer, &err), STATUS_OK);
    EXPECT(tokenizer, "hi zoo", false, 'h', 'i', ' ', 'o', 'o');
    EXPECT(tokenizer, "zhzez", false, ID_HE);
    expect(tokenizer, "zzz", false, NULL, 0);
    tokenizer_close(tokenizer);
}
END_TEST

START_TEST(merges_go_by_rank_then_from_the_left)
{
    struct tokenizer *tokenizer = create_base(NULL, NULL);

    EXPECT(tokenizer, "hell", false, ID_HELL);
    EXPECT(tokenizer, "hhell", false, 'h', ID_HELL);
    EXPECT(tokenizer, "lll", false, ID_LL, 'l');
    EXPECT(tokenizer, "aaaaa", false, ID_A4, 'a');
    EXPECT(tokenizer, "aaaaaaaaaaa", false, ID_A8, ID_AA, 'a');
    EXPECT(tokenizer, "<s>he<s>", false, ID_BEGIN, ID_HE, ID_BEGIN);
    expect(tokenizer, "", false, NULL, 0);
    tokenizer_close(tokenizer);
}
END_TEST

/* The definition, in n * n steps. */
static size_t merge_slowly(uint32_t *ids, size_t count)
{
    static const uint32_t merges[][3] = {{'h', 'e', ID_HE}, {'l', 'l', ID_LL},     {ID_HE, ID_LL, ID_HELL},
                                         {'a', 'a', ID_AA}, {ID_AA, ID_AA, ID_A4}, {ID_A4, ID_A4, ID_A8}};

    for (;;) {
        size_t best_rank = 6;
        size_t best = 0;

        for (size_t i = 0; i + 1 < count; i++) {
            for (size_t rank = 0; rank < best_rank; rank++) {
                if (ids[i] == merges[rank][0] && ids[i + 1] == merges[rank][1]) {
                    best_rank = rank;
                    best = i;
                }
            }
        }
        if (best_rank == 6)
            return count;
        ids[best] = merges[best_rank][2];
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        count--;
    }
}

START_TEST(merges_equal_the_definition_on_random_words)
{
    struct tokenizer *tokenizer = create_base(NULL, NULL);
    unsigned state = 7;

    for (int round = 0; round < 2000; round++) {
        char word[65] = "";
        uint32_t ids[64];
        size_t count = 1 + (size_t)(round % 64);

        for (size_t i = 0; i < count; i++) {
            state = state * 1103515245u + 12345u;
            word[i] = "heaalla"[(state >> 16) % 7];
            ids[i] = (unsigned char)word[i];
        }
        expect(tokenizer, word, false, ids, merge_slowly(ids, count));
    }
    tokenizer_close(tokenizer);
}
END_TEST

START_TEST(a_long_word_is_not_quadratic)
{
    struct tokenizer *tokenizer = create_base(NULL, NULL);
    struct token_list list = {0};
    struct error err = {0};
    size_t length = 2 * 1000 * 1000;
    char *word = malloc(length);
    uint64_t begin = clock_ns();

    memset(word, 'a', length);
    ck_assert_int_eq(tokenizer_encode(tokenizer, word, length, false, &list, &err), STATUS_OK);
    ck_assert_uint_eq(list.count, length / 8);
    ck_assert_uint_lt(clock_ns() - begin, 40 * NS_PER_S);
    free(word);
    token_list_done(&list);
    tokenizer_close(tokenizer);
}
END_TEST

START_TEST(text_that_is_not_utf8_is_refused_with_its_offset)
{
    struct tokenizer *tokenizer = create_base(NULL, NULL);
    struct token_list list = {0};
    struct error err = {0};

    ck_assert_int_eq(token_list_add(&list, 9, &err), STATUS_OK);
    ck_assert_int_eq(tokenizer_encode(tokenizer, "abcdefghij\xed\xa0\x80", 13, false, &list, &err), STATUS_MODEL);
    ck_assert_str_eq(err.text, "the text is not UTF-8: byte 0xed at offset 10");
    ck_assert_uint_eq(list.count, 1);
    token_list_done(&list);
    tokenizer_close(tokenizer);
}
END_TEST

#define AROUND                                                                                                         \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": "  \
    "\"A\"}}, {\"SpecialToken\": {\"id\": \"he\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [270]}, \"he\": "         \
    "{\"ids\": "                                                                                                       \
    "[256]}}}"

START_TEST(a_beginning_token_is_there_once_or_not_at_all) /* B149 */
{
    struct tokenizer *tokenizer = create_base("post_processor", AROUND);

    EXPECT(tokenizer, "", true, ID_BEGIN, ID_HE);
    EXPECT(tokenizer, "a", true, ID_BEGIN, 'a', ID_HE);
    EXPECT(tokenizer, "a", false, 'a');
    EXPECT(tokenizer, "<s>a", true, ID_BEGIN, 'a', ID_HE);
    EXPECT(tokenizer, "<s>a", false, ID_BEGIN, 'a');
    EXPECT(tokenizer, "<s><s>a", true, ID_BEGIN, ID_BEGIN, 'a', ID_HE);
    tokenizer_close(tokenizer);
    tokenizer = create_base(NULL, NULL);
    EXPECT(tokenizer, "a", true, 'a');
    EXPECT(tokenizer, "<s>a", true, ID_BEGIN, 'a');
    tokenizer_close(tokenizer);
}
END_TEST

START_TEST(encoding_appends_behind_what_the_list_holds)
{
    struct tokenizer *tokenizer = create_base("post_processor", AROUND);
    struct token_list list = {0};
    struct error err = {0};

    ck_assert_int_eq(tokenizer_encode(tokenizer, "a", 1, true, &list, &err), STATUS_OK);
    ck_assert_int_eq(tokenizer_encode(tokenizer, "<s>b", 4, true, &list, &err), STATUS_OK);
    ck_assert_uint_eq(list.count, 6);
    ck_assert_uint_eq(list.ids[0], ID_BEGIN);
    ck_assert_uint_eq(list.ids[3], ID_BEGIN);
    ck_assert_uint_eq(list.ids[4], 'b');
    token_list_done(&list);
    tokenizer_close(tokenizer);
}
END_TEST

START_TEST(pieces_are_exact_and_special_ones_can_be_skipped)
{
    struct tokenizer *tokenizer = create_base(NULL, NULL);
    size_t length;

    ck_assert_uint_eq(tokenizer_size(tokenizer), 271);
    for (uint32_t byte = 0; byte < 256; byte++) {
        const char *piece = tokenizer_piece(tokenizer, byte, true, &length);

        ck_assert_uint_eq(length, 1);
        ck_assert_uint_eq((unsigned char)piece[0], byte);
    }
    ck_assert_int_eq(memcmp(tokenizer_piece(tokenizer, ID_BEGIN, false, &length), "<s>", 3), 0);
    ck_assert_uint_eq(length, 3);
    tokenizer_piece(tokenizer, ID_BEGIN, true, &length);
    ck_assert_uint_eq(length, 0);
    /* A hole, the first id that is not there, and the last of all. */
    tokenizer_piece(tokenizer, 265, false, &length);
    ck_assert_uint_eq(length, 0);
    tokenizer_piece(tokenizer, 271, false, &length);
    ck_assert_uint_eq(length, 0);
    tokenizer_piece(tokenizer, UINT32_MAX, false, &length);
    ck_assert_uint_eq(length, 0);
    tokenizer_close(tokenizer);
}
END_TEST

START_TEST(streamed_bytes_join_to_the_whole_decode) /* B151 */
{
    /* Right: Python's bytes.decode("utf-8", errors="replace"). */
    static const struct {
        const char *bytes;
        const char *text;
    } rows[] = {{"a\xf0\x9f\x98\x80z", "a\xf0\x9f\x98\x80z"},
                {"\xc3\xa4\xe2\x82\xac", "\xc3\xa4\xe2\x82\xac"},
                {"\xf0\x9f\x98", "\xef\xbf\xbd"},
                {"\xf0\x9f\x98"
                 "a",
                 "\xef\xbf\xbd"
                 "a"},
                {"\xe2\x28\xa1", "\xef\xbf\xbd(\xef\xbf\xbd"},
                {"\xf0\x80\x80"
                 "A",
                 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                 "A"},
                {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd"},
                {"\xe2\x82\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac"},
                {"\xf1\x80\x80\xc3\xa4", "\xef\xbf\xbd\xc3\xa4"},
                {"\xc3", "\xef\xbf\xbd"},
                {"", ""}};
    struct tokenizer *tokenizer = create_base(NULL, NULL);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct text_stream stream = {0};
        struct text out = {0};

        for (const char *at = rows[i].bytes; *at; at++) {
            text_stream_push(&stream, tokenizer, (unsigned char)*at, &out);
            /* A special token between two bytes of a character is no text, so it parts nothing. */
            text_stream_push(&stream, tokenizer, ID_BEGIN, &out);
            ck_assert_uint_eq(utf8_check(text_string(&out), out.length), out.length);
        }
        text_stream_finish(&stream, &out);
        ck_assert_str_eq(text_string(&out), rows[i].text);
        text_done(&out);
    }
    tokenizer_close(tokenizer);
}
END_TEST

START_TEST(utf8_is_judged_as_unicode_defines_it)
{
    unsigned count = 0;
    uint32_t code;
    char text[4];

    for (uint32_t wanted = 0; wanted < 0x110000; wanted++) {
        unsigned length = utf8_write(wanted, text);
        bool surrogate = wanted >= 0xd800 && wanted < 0xe000;
        bool right = utf8_read(text, length, &code) == (surrogate ? 0 : length) && (surrogate || code == wanted) &&
                     utf8_read(text, length - 1, &code) == 0;

        /* An assertion each would take most of the test's time. */
        if (!right)
            ck_abort_msg("U+%04X", wanted);
    }
    /* Every pair of first bytes, completed as well as it can be: 1,112,064 code points in all. */
    for (unsigned first = 0; first < 256; first++) {
        for (unsigned second = 0; second < 256; second++) {
            const unsigned char bytes[4] = {(unsigned char)first, (unsigned char)second, 0x80, 0x80};
            unsigned length = utf8_read((const char *)bytes, 4, &code);

            count += length < 2 ? 0 : length == 2 ? 1 : length == 3 ? 64 : 64 * 64;
        }
    }
    ck_assert_uint_eq(count, 0x110000 - 0x800 - 128);
}
END_TEST

struct worker {
    const struct tokenizer *tokenizer;
    bool good;
};

static void *encode_often(void *argument)
{
    struct worker *worker = argument;

    worker->good = true;
    for (int i = 0; i < 200 && worker->good; i++) {
        struct token_list list = {0};
        struct error err = {0};

        worker->good = tokenizer_encode(worker->tokenizer, "<s>hello aaaaa", 14, true, &list, &err) == STATUS_OK &&
                       list.count == 7 && list.ids[1] == ID_HELL && list.ids[4] == ID_A4;
        token_list_done(&list);
    }
    return NULL;
}

START_TEST(several_threads_may_encode_at_once)
{
    struct tokenizer *tokenizer = create_base("post_processor", AROUND);
    struct worker workers[4];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){tokenizer, false};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, encode_often, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        ck_assert(workers[i].good);
    }
    tokenizer_close(tokenizer);
}
END_TEST

static void add_tests(TCase *group)
{
    tcase_add_test(group, what_a_file_asks_for_and_cannot_have_is_refused_by_name);
    tcase_add_test(group, a_file_that_is_no_json_says_where);
    tcase_add_test(group, options_that_change_nothing_are_accepted);
    tcase_add_test(group, an_unknown_token_is_refused_when_a_byte_could_need_it);
    tcase_add_test(group, a_byte_without_a_token_leaves_nothing);
    tcase_add_test(group, merges_go_by_rank_then_from_the_left);
    tcase_add_test(group, merges_equal_the_definition_on_random_words);
    tcase_add_test(group, a_long_word_is_not_quadratic);
    tcase_add_test(group, text_that_is_not_utf8_is_refused_with_its_offset);
    tcase_add_test(group, a_beginning_token_is_there_once_or_not_at_all);
    tcase_add_test(group, encoding_appends_behind_what_the_list_holds);
    tcase_add_test(group, pieces_are_exact_and_special_ones_can_be_skipped);
    tcase_add_test(group, streamed_bytes_join_to_the_whole_decode);
    tcase_add_test(group, utf8_is_judged_as_unicode_defines_it);
    tcase_add_test(group, several_threads_may_encode_at_once);
}

int main(void)
{
    Suite *suite = suite_create("tokenizer");
    TCase *group = tcase_create("tokenizer");

    tcase_set_timeout(group, 60);
    add_tests(group);
    suite_add_tcase(suite, group);
    return suite_run(suite);
}
