/* How a test program ends. */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include <check.h>

static inline int suite_run_as(Suite *suite, enum fork_status forks)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_set_fork_status(runner, forks);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}

/* Runs the tests of a suite, each in a process of its own unless CK_FORK=no, and frees it: 0 or, where one failed, 1,
 * the status for main to return. */
static inline int suite_run(Suite *suite)
{
    return suite_run_as(suite, CK_FORK_GETENV);
}

/* The same within this process, for ranks of MPI, which must not fork. */
static inline int suite_run_here(Suite *suite)
{
    return suite_run_as(suite, CK_NOFORK);
}

#endif
