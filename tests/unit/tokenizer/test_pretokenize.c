/* Cutting text into words.  pretokenize-cases.json: what Hugging Face's tokenizers made (make-cases.py). */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "runtime/pretokenize.h"
#include "tests/suite.h"

#define FOLDER SOURCE_ROOT "/tests/unit/tokenizer/"

static uint64_t soon(void)
{
    return clock_ns() + 20 * NS_PER_S;
}

static enum split_behavior behavior_of(const char *word)
{
    static const char *const words[] = {"isolated", "removed", "merged_with_previous", "merged_with_next",
                                        "contiguous"};

    for (size_t i = 0; i < 5; i++) {
        if (strcmp(words[i], word) == 0)
            return (enum split_behavior)i;
    }
    ck_abort_msg("%s", word);
}

static void add_step(struct pretokenizer *pretokenizer, const json_t *step)
{
    const json_t *pattern = json_object_get(step, "pattern");
    struct error err = {0};
    enum status st = pretokenizer_add_split(pretokenizer, json_string_value(pattern), json_string_length(pattern),
                                            json_is_true(json_object_get(step, "literal")),
                                            behavior_of(json_string_value(json_object_get(step, "behavior"))),
                                            json_is_true(json_object_get(step, "invert")), &err);

    ck_assert_msg(st == STATUS_OK, "%s", err.text);
}

static void check_text(const struct pretokenizer *pretokenizer, const json_t *steps, const json_t *pair)
{
    const json_t *text = json_array_get(pair, 0);
    const json_t *pieces = json_array_get(pair, 1);
    struct piece_list words = {0};
    struct error err = {0};
    char *shown = json_dumps(steps, JSON_COMPACT);

    ck_assert_msg(pretokenizer_split(pretokenizer, json_string_value(text), json_string_length(text), soon(), &words,
                                     &err) == STATUS_OK,
                  "%s", err.text);
    ck_assert_msg(words.count == json_array_size(pieces), "%s: '%s': expected %zu pieces, got %zu", shown,
                  json_string_value(text), json_array_size(pieces), words.count);
    for (size_t i = 0; i < words.count; i++) {
        const json_t *piece = json_array_get(pieces, i);
        size_t count = words.pieces[i].end - words.pieces[i].start;
        const char *bytes = words.bytes + words.pieces[i].start;

        ck_assert_msg(count == json_string_length(piece) && memcmp(bytes, json_string_value(piece), count) == 0,
                      "%s: '%s': expected piece '%s', got '%.*s'", shown, json_string_value(text),
                      json_string_value(piece), (int)count, bytes);
    }
    free(shown);
    piece_list_done(&words);
}

START_TEST(pieces_equal_those_of_hugging_face)
{
    json_t *cases = json_load_file(FOLDER "pretokenize-cases.json", JSON_ALLOW_NUL, NULL);
    size_t i, j;
    json_t *one, *step, *pair;

    ck_assert_uint_gt(json_array_size(cases), 80);
    json_array_foreach(cases, i, one)
    {
        const json_t *steps = json_object_get(one, "steps");
        struct pretokenizer *pretokenizer = NULL;

        ck_assert_int_eq(pretokenizer_create(&pretokenizer, NULL), STATUS_OK);
        json_array_foreach(steps, j, step) add_step(pretokenizer, step);
        json_array_foreach(json_object_get(one, "texts"), j, pair) check_text(pretokenizer, steps, pair);
        pretokenizer_destroy(pretokenizer);
    }
    json_decref(cases);
}
END_TEST

START_TEST(constructs_with_another_meaning_are_refused_by_name)
{
    static const struct {
        const char *pattern;
        enum status status;
        const char *message;
    } rows[] = {
        {"[[ab]c]", STATUS_UNSUPPORTED, "a set within a set at offset 1"},
        {"[a-c&&b]", STATUS_UNSUPPORTED, "an intersection of sets at offset 4"},
        {"(?<n>a)", STATUS_UNSUPPORTED, "this kind of group at offset 0"},
        {"a(?i)b", STATUS_UNSUPPORTED, "this kind of group at offset 1"},
        {"(*COMMIT)a", STATUS_UNSUPPORTED, "this kind of group at offset 0"},
        {"a\\b", STATUS_UNSUPPORTED, "\\b at offset 1"},
        {"(a)\\1", STATUS_UNSUPPORTED, "\\1 at offset 3"},
        {"a\\K", STATUS_UNSUPPORTED, "\\K at offset 1"},
        {"\\pL", STATUS_UNSUPPORTED, "a property without braces"},
        {"a)", STATUS_UNSUPPORTED, "a parenthesis that closes nothing"},
        {"\\p{Nonsense}", STATUS_MODEL, "does not compile"},
        {"(a", STATUS_MODEL, "ends too early"},
        {"[a", STATUS_MODEL, "ends too early"},
        {"a\\", STATUS_MODEL, "ends too early"},
        {"*a", STATUS_MODEL, "does not compile"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pretokenizer *pretokenizer = NULL;
        struct error err = {0};

        ck_assert_int_eq(pretokenizer_create(&pretokenizer, NULL), STATUS_OK);
        ck_assert_msg(pretokenizer_add_split(pretokenizer, rows[i].pattern, strlen(rows[i].pattern), false,
                                             SPLIT_ISOLATED, false, &err) == rows[i].status,
                      "%s: %s", rows[i].pattern, err.text);
        ck_assert_msg(strstr(err.text, rows[i].message) && strstr(err.text, rows[i].pattern), "%s", err.text);
        pretokenizer_destroy(pretokenizer);
    }
}
END_TEST

static enum status split_repeated(const char *pattern, const char *part, size_t times, const char *end,
                                  uint64_t deadline_ns, struct error *err)
{
    struct pretokenizer *pretokenizer = NULL;
    struct piece_list words = {0};
    struct text text = {0};
    enum status st;

    for (size_t i = 0; i < times; i++)
        text_add_bytes(&text, part, strlen(part));
    text_add_bytes(&text, end, strlen(end));
    ck_assert_int_eq(pretokenizer_create(&pretokenizer, NULL), STATUS_OK);
    ck_assert_int_eq(pretokenizer_add_split(pretokenizer, pattern, strlen(pattern), false, SPLIT_ISOLATED, false, err),
                     STATUS_OK);
    st = pretokenizer_split(pretokenizer, text_string(&text), text.length, deadline_ns, &words, err);
    piece_list_done(&words);
    pretokenizer_destroy(pretokenizer);
    text_done(&text);
    return st;
}

START_TEST(a_pattern_that_backtracks_without_end_is_an_error)
{
    struct error err = {0};
    uint64_t begin = clock_ns();

    /* Exponential in the number of letters. */
    ck_assert_int_eq(split_repeated("(a+)+[bd]", "a", 40, "c", soon(), &err), STATUS_MODEL);
    ck_assert_msg(strstr(err.text, "pattern '(a+)+[bd]' at byte 0"), "%s", err.text);
    /* Quadratic: harmless to the limit of each match, so the clock must end it. */
    ck_assert_int_eq(split_repeated("a(?=a*[bd])", "a", 2 * 1000 * 1000, "c", clock_ns() + NS_PER_S / 2, &err),
                     STATUS_MODEL);
    ck_assert_msg(strstr(err.text, "takes too long"), "%s", err.text);
    ck_assert_uint_lt(clock_ns() - begin, 30 * NS_PER_S);
}
END_TEST

START_TEST(the_well_known_patterns_are_linear_in_the_text)
{
    static const char *const parts[] = {"a", " ", "\n", "1", "!", " \n", "'", "\xf0\x9f\x98\x80", "\xcc\x81", "a1 "};
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o", "tekken", "default"};
    uint64_t begin = clock_ns();

    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            struct pretokenizer *pretokenizer = NULL;
            struct pretokenizer_traits traits;
            struct piece_list words = {0};
            struct text text = {0};
            struct error err = {0};

            for (int k = 0; k < 100000; k++)
                text_add_bytes(&text, parts[i], strlen(parts[i]));
            ck_assert_int_eq(pretokenizer_create(&pretokenizer, NULL), STATUS_OK);
            ck_assert_int_eq(pretokenizer_add_named(pretokenizer, names[n], strlen(names[n]), &traits, &err),
                             STATUS_OK);
            ck_assert_msg(pretokenizer_split(pretokenizer, text_string(&text), text.length, soon(), &words, &err) ==
                              STATUS_OK,
                          "%s: %s", names[n], err.text);
            piece_list_done(&words);
            pretokenizer_destroy(pretokenizer);
            text_done(&text);
        }
    }
    ck_assert_uint_lt(clock_ns() - begin, 40 * NS_PER_S);
}
END_TEST

START_TEST(an_unknown_name_is_refused)
{
    struct pretokenizer *pretokenizer = NULL;
    struct pretokenizer_traits traits;
    struct error err = {0};

    ck_assert_int_eq(pretokenizer_create(&pretokenizer, NULL), STATUS_OK);
    ck_assert_int_eq(pretokenizer_add_named(pretokenizer, "viking", 6, &traits, &err), STATUS_UNSUPPORTED);
    ck_assert_str_eq(err.text, "unknown pre-tokenizer 'viking'");
    pretokenizer_destroy(pretokenizer);
}
END_TEST

START_TEST(a_blank_goes_in_front_of_each_piece_that_has_none)
{
    struct pretokenizer *pretokenizer = NULL;
    struct piece_list words = {0};
    struct error err = {0};

    ck_assert_int_eq(pretokenizer_create(&pretokenizer, NULL), STATUS_OK);
    ck_assert_int_eq(pretokenizer_add_split(pretokenizer, "-", 1, true, SPLIT_REMOVED, false, &err), STATUS_OK);
    ck_assert_int_eq(pretokenizer_add_prefix_space(pretokenizer, &err), STATUS_OK);
    ck_assert_int_eq(pretokenizer_split(pretokenizer, "a- b-c", 6, soon(), &words, &err), STATUS_OK);
    ck_assert_uint_eq(words.count, 3);
    ck_assert(memcmp(words.bytes + words.pieces[0].start, " a", 2) == 0);
    ck_assert(memcmp(words.bytes + words.pieces[1].start, " b", 2) == 0);
    ck_assert(memcmp(words.bytes + words.pieces[2].start, " c", 2) == 0);
    piece_list_done(&words);
    pretokenizer_destroy(pretokenizer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pretokenize");
    TCase *group = tcase_create("pretokenize");

    tcase_set_timeout(group, 60);
    tcase_add_test(group, pieces_equal_those_of_hugging_face);
    tcase_add_test(group, constructs_with_another_meaning_are_refused_by_name);
    tcase_add_test(group, a_pattern_that_backtracks_without_end_is_an_error);
    tcase_add_test(group, the_well_known_patterns_are_linear_in_the_text);
    tcase_add_test(group, an_unknown_name_is_refused);
    tcase_add_test(group, a_blank_goes_in_front_of_each_piece_that_has_none);
    suite_add_tcase(suite, group);
    return suite_run(suite);
}
