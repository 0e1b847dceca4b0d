/* Files made to hurt: each is refused by a limit's name, in time and memory that its size bounds. */
#include <sys/resource.h>

#include "topology_case.h"
#include "tests/suite.h"

static struct text repeat(const char *head, const char *piece, size_t count, const char *tail)
{
    struct text text = {0};

    text_add(&text, "%s", head);
    for (size_t i = 0; i < count; i++)
        text_add(&text, "%s", piece);
    text_add(&text, "%s", tail);
    return text;
}

#define HOSTILE(text_, ...)                                                                                            \
    do {                                                                                                               \
        struct text made = text_;                                                                                      \
        refused_bytes(text_string(&made), made.length, NULL, 0, (const char *const[]){__VA_ARGS__, NULL});             \
        text_done(&made);                                                                                              \
    } while (0)

/* The sanitizers' shadow memory is beyond any bound.  gcc defines a macro, clang answers a question. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

START_TEST(nested_aliases_are_refused_by_weight_B07)
{
    struct text text = {0};

    text_add(&text, PAIR "groups:\n - &a0 [x]\n");
    for (int i = 1; i < 41; i++)
        text_add(&text, " - &a%d [*a%d, *a%d]\n", i, i - 1, i - 1);
    HOSTILE(text, "the aliases of this file stand for more than 65536 values");
}
END_TEST

START_TEST(deep_nesting_is_refused_whatever_makes_it)
{
    HOSTILE(repeat("", "[", 1 << 20, ""), "nested deeper than 32 levels");
    HOSTILE(repeat("", "{a: ", 1 << 18, ""), "nested deeper than 32 levels");
    HOSTILE(repeat("", "- ", 1 << 19, ""), "nested deeper than 32 levels");
    HOSTILE(repeat("", "? ", 1 << 19, ""), "nested deeper than 32 levels");
    HOSTILE(repeat("", "[\n", 1 << 19, ""), "nested deeper than 32 levels");
}
END_TEST

START_TEST(depth_through_aliases_counts)
{
    HOSTILE(repeat(PAIR "x: &x ", "[", 20, "a]]]]]]]]]]]]]]]]]]]]\ny: [[[[[[[[[[[[[[[*x]]]]]]]]]]]]]]]\n"),
            "alias `*x`: nested deeper than 32 levels");
}
END_TEST

START_TEST(size_is_limited)
{
    HOSTILE(repeat(PAIR, "# x\n", 1 << 18, ""), "the file is larger than the limit of 1048576 bytes");
}
END_TEST

START_TEST(counts_are_limited_by_name)
{
    HOSTILE(repeat(PAIR "groups: [", "{},", 300000, "]\n"), "groups: 300000 items are more than the limit of 65536");
    HOSTILE(repeat(PAIR "routes: [", "{},", 300000, "]\n"), "routes: 300000 items are more than the limit of 65536");
    HOSTILE(repeat(PAIR "workload: {generate: {model: m, prompts: [", "a,", 500000, "]}}\n"),
            "prompts: 500000 items are more than the limit of 65536");
}
END_TEST

START_TEST(groups_and_routes_together_are_limited)
{
    struct text text = {0};

    text_add(&text, PAIR "groups: [&g {},");
    for (int i = 0; i < 40000; i++)
        text_add(&text, "*g,");
    text_add(&text, "]\nroutes: [&r {},");
    for (int i = 0; i < 25600; i++)
        text_add(&text, "*r,");
    text_add(&text, "]\n");
    HOSTILE(text, "more than 65536 values");
    text = repeat(PAIR "routes: [", "{},", 40000, "]\ngroups: [");
    for (int i = 0; i < 25600; i++)
        text_add(&text, "{},");
    text_add(&text, "]\n");
    HOSTILE(text, "t.yaml:4:9: error: 25600 groups and 40000 routes are more than the limit of 65536");
}
END_TEST

START_TEST(many_mistakes_cost_no_more_than_one)
{
    HOSTILE(repeat(PAIR "groups: [{name: g, operations: [", "barier,", 140000, "]}]\n"), "did you mean `barrier`?");
    HOSTILE(repeat(HEAD "world: 1000000\ngroups: [{name: g, members: [", "1,", 500000, "]}]\n"),
            "rank 1 is a member twice");
    HOSTILE(repeat(PAIR "launch: {env: {", "a: b,", 200000, "}}\n"), "`a` is given twice");
    HOSTILE(repeat("", "%TAG !a! x\n", 90000, ""), "directives are not used here");
    HOSTILE(repeat("", ": ", 500000, ""), "YAML: ");
    HOSTILE(repeat("", "! ", 500000, ""), "tags");
    HOSTILE(repeat("", "[,", 500000, ""), "YAML: ");
}
END_TEST

START_TEST(anchors_are_limited)
{
    struct text text = {0};

    for (int i = 0; i < 40000; i++)
        text_add(&text, "&a%d k%d: 1\n", i, i);
    HOSTILE(text, "more than 1024 anchors");
}
END_TEST

START_TEST(memory_stays_below_the_bound)
{
#if !SANITIZED
    struct rlimit limit = {100 << 20, 100 << 20};

    ck_assert_int_eq(setrlimit(RLIMIT_DATA, &limit), 0);
    HOSTILE(repeat(PAIR "workload: {generate: {model: m, prompts: [{messages: [", "{},", 340000, "]}]}}\n"),
            "the key `role` is missing");
#endif
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology-hostile");
    TCase *tcase = tcase_create("hostile");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, nested_aliases_are_refused_by_weight_B07);
    tcase_add_test(tcase, deep_nesting_is_refused_whatever_makes_it);
    tcase_add_test(tcase, depth_through_aliases_counts);
    tcase_add_test(tcase, size_is_limited);
    tcase_add_test(tcase, counts_are_limited_by_name);
    tcase_add_test(tcase, groups_and_routes_together_are_limited);
    tcase_add_test(tcase, many_mistakes_cost_no_more_than_one);
    tcase_add_test(tcase, anchors_are_limited);
    tcase_add_test(tcase, memory_stays_below_the_bound);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
