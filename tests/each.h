/* An assertion for tests that look at very many values.
 *
 * For each assertion that holds Check writes a note about where it was, which takes longer than to compute the value.
 * This one says nothing unless it fails, and then the same. */
#ifndef TESTS_EACH_H
#define TESTS_EACH_H

#include <check.h>

/* The condition must hold; else the test fails with the words behind it, as for printf. */
#define assert_each(condition, ...)                                                                                    \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            ck_abort_msg(__VA_ARGS__);                                                                                 \
    } while (0)

#endif
