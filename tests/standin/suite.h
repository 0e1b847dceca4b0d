/* The main of a test program: one case of so many tests, a process each. */
#ifndef TESTS_STANDIN_SUITE_H
#define TESTS_STANDIN_SUITE_H

#include <check.h>
#include <stddef.h>

#include "tests/suite.h"

static inline int suite_main(const char *name, const TTest *const *tests, size_t count)
{
    Suite *suite = suite_create(name);
    TCase *only = tcase_create(name);

    tcase_set_timeout(only, 60);
    for (size_t i = 0; i < count; i++)
        tcase_add_test(only, tests[i]);
    suite_add_tcase(suite, only);
    return suite_run(suite);
}

#endif
