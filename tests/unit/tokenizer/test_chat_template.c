/* Chat templates.  template-cases.json: what transformers made of the same templates (make-cases.py). */
#include <check.h>
#include <jansson.h>
#include <string.h>

#include "runtime/chat_template.h"
#include "tests/suite.h"

#define FOLDER SOURCE_ROOT "/tests/unit/tokenizer/"

static enum status render(const char *template, struct text *ret, struct error *err)
{
    struct chat_message message = {"user", "Hi"};
    struct chat_input input = {&message, 1, "<s>", "</s>", true};

    return chat_template_render(template, strlen(template), &input, ret, err);
}

static void check_case(const json_t *one)
{
    const json_t *template = json_object_get(one, "template");
    const json_t *list = json_object_get(one, "messages");
    const json_t *expected = json_object_get(one, "text");
    struct chat_message messages[8];
    struct chat_input input = {messages, json_array_size(list), "<s>", "</s>", true};
    struct text text = {0};
    struct error err = {0};
    enum status st;

    ck_assert_uint_le(input.count, 8);
    for (size_t i = 0; i < input.count; i++)
        messages[i] = (struct chat_message){json_string_value(json_object_get(json_array_get(list, i), "role")),
                                            json_string_value(json_object_get(json_array_get(list, i), "content"))};
    st = chat_template_render(json_string_value(template), json_string_length(template), &input, &text, &err);
    if (expected) {
        ck_assert_msg(st == STATUS_OK, "%s\n%s", json_string_value(template), err.text);
        ck_assert_msg(strcmp(text_string(&text), json_string_value(expected)) == 0, "%s\ngave     '%s'\nexpected '%s'",
                      json_string_value(template), text_string(&text), json_string_value(expected));
    } else {
        ck_assert_msg(st == STATUS_MODEL, "%s\n%s", json_string_value(template), err.text);
        ck_assert_uint_eq(text.length, 0);
    }
    text_done(&text);
}

START_TEST(templates_render_as_in_transformers)
{
    json_t *cases = json_load_file(FOLDER "template-cases.json", 0, NULL);
    size_t index;
    json_t *one;

    ck_assert_uint_gt(json_array_size(cases), 100);
    json_array_foreach(cases, index, one) check_case(one);
    json_decref(cases);
}
END_TEST

START_TEST(a_template_that_cannot_be_read_says_what_and_where)
{
    static const struct {
        const char *template;
        enum status status;
        const char *message;
    } rows[] = {
        {"a\nb{% macro f() %}{% endmacro %}", STATUS_UNSUPPORTED, "line 2: the statement 'macro' is not supported"},
        {"{{ messages | frobnicate }}", STATUS_UNSUPPORTED, "line 1: the filter 'frobnicate' is not supported"},
        {"{{ 'a' is odd }}", STATUS_UNSUPPORTED, "the test 'odd' is not supported"},
        {"{{ 'a'.zfill(3) }}", STATUS_UNSUPPORTED, "'zfill' is not supported"},
        {"{{ strftime_now('%d') }}", STATUS_UNSUPPORTED, "the function 'strftime_now' is not supported"},
        {"{{ messages }}", STATUS_UNSUPPORTED, "printing a list is not supported"},
        {"{{ raise_exception('no ' + 'way') }}", STATUS_MODEL, "the template refuses these messages: no way"},
        {"\n\n{{ nobody.x }}", STATUS_MODEL, "line 3: 'nobody' is undefined"},
        {"{% if true %}", STATUS_MODEL, "expected endif"},
        {"{% endif %}", STATUS_MODEL, "expected the end of the template"},
        {"{{ 'a }}", STATUS_MODEL, "a string does not end"},
        {"{{ 1", STATUS_MODEL, "a tag does not end"},
        {"{# x", STATUS_MODEL, "a comment does not end"},
        {"{{ 99999999999999999999 }}", STATUS_OVERFLOW, "a number is too large"},
        {"{{ 9223372036854775807 + 1 }}", STATUS_UNSUPPORTED, "this arithmetic"},
        {"{{ 1 // 0 }}", STATUS_UNSUPPORTED, "this arithmetic"},
        {"{{ \"\\ud800\" }}", STATUS_MODEL, "a bad escape"},
        {"\xff", STATUS_MODEL, "not UTF-8 at offset 0"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct text text = {0};
        struct error err = {0};

        ck_assert_msg(render(rows[i].template, &text, &err) == rows[i].status, "%s: %s", rows[i].template, err.text);
        ck_assert_msg(strstr(err.text, rows[i].message), "%s: %s", rows[i].template, err.text);
        ck_assert_uint_eq(text.length, 0);
        text_done(&text);
    }
}
END_TEST

static void repeat(struct text *to, const char *part, int times)
{
    for (int i = 0; i < times; i++)
        text_add_bytes(to, part, strlen(part));
}

START_TEST(no_template_takes_all_time_or_memory)
{
    struct text loops = {0};
    struct text nested = {0};
    struct text sum = {0};
    struct text doubling = {0};
    struct text out = {0};
    struct error err = {0};

    repeat(&loops, "{% for a in [1,2,3,4,5,6,7,8,9,10] %}", 20);
    repeat(&loops, "{% endfor %}", 20);
    ck_assert_int_eq(render(text_string(&loops), &out, &err), STATUS_OVERFLOW);
    repeat(&nested, "{{ ", 1);
    repeat(&nested, "(", 10000);
    repeat(&nested, ")", 10000);
    repeat(&nested, " }}", 1);
    ck_assert_int_eq(render(text_string(&nested), &out, &err), STATUS_UNSUPPORTED);
    repeat(&sum, "{{ 1", 1);
    repeat(&sum, " + 1", 100000);
    repeat(&sum, " }}", 1);
    ck_assert_int_eq(render(text_string(&sum), &out, &err), STATUS_UNSUPPORTED);
    repeat(&doubling, "{% set x = 'aaaaaaaa' %}", 1);
    repeat(&doubling, "{% set x = x + x %}", 60);
    ck_assert_int_eq(render(text_string(&doubling), &out, &err), STATUS_OVERFLOW);
    text_done(&loops);
    text_done(&nested);
    text_done(&sum);
    text_done(&doubling);
    text_done(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat-template");
    TCase *group = tcase_create("chat-template");

    tcase_set_timeout(group, 60);
    tcase_add_test(group, templates_render_as_in_transformers);
    tcase_add_test(group, a_template_that_cannot_be_read_says_what_and_where);
    tcase_add_test(group, no_template_takes_all_time_or_memory);
    suite_add_tcase(suite, group);
    return suite_run(suite);
}
