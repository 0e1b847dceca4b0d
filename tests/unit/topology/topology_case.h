/* Parse a text and compare what is said about it. */
#ifndef TESTS_TOPOLOGY_CASE_H
#define TESTS_TOPOLOGY_CASE_H

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "topology/topology.h"

#define HEAD "ferry: 1\nname: a\n"
#define PAIR HEAD "world: 2\n"

/* The topology of a text that must be accepted. */
static inline struct topology *accepted(const char *bytes, size_t count, const char *const *overrides,
                                        size_t override_count)
{
    struct topology *topology = NULL;
    struct text messages = {0};
    struct error err = {0};
    enum status st = topology_parse(bytes, count, "t.yaml", overrides, override_count, &topology, &messages, &err);

    ck_assert_msg(st == STATUS_OK, "%s\n%s", err.text, text_string(&messages));
    text_done(&messages);
    return topology;
}

static inline struct topology *accepted_text(const char *text)
{
    return accepted(text, strlen(text), NULL, 0);
}

/* Every needle must stand in the report, and the status be TOPOLOGY, within 2 s. */
static inline void refused_bytes(const char *bytes, size_t count, const char *const *overrides, size_t override_count,
                                 const char *const *needle)
{
    struct topology *topology = NULL;
    struct text messages = {0};
    struct error err = {0};
    clock_t start = clock();
    enum status st = topology_parse(bytes, count, "t.yaml", overrides, override_count, &topology, &messages, &err);

    ck_assert_int_eq(st, STATUS_TOPOLOGY);
    ck_assert_ptr_null(topology);
    ck_assert_int_lt((clock() - start) / CLOCKS_PER_SEC, 10); /* 2 s without sanitizers */
    for (; *needle; needle++)
        ck_assert_msg(strstr(text_string(&messages), *needle) || strstr(err.text, *needle),
                      "`%s` is not in:\n%.4000s%s", *needle, text_string(&messages), err.text);
    text_done(&messages);
}

#define REFUSED(text, ...) refused_bytes(text, strlen(text), NULL, 0, (const char *const[]){__VA_ARGS__, NULL})

#define REFUSED_SET(text, override, ...)                                                                               \
    refused_bytes(text, strlen(text), (const char *const[]){override}, 1, (const char *const[]){__VA_ARGS__, NULL})

/* The canonical text, for comparisons; the caller frees it with text_done. */
static inline struct text canonical(const struct topology *topology)
{
    struct text text = {0};

    topology_canonical(topology, &text);
    ck_assert(!text.failed);
    return text;
}

#endif
