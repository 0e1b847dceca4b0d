/* Every function of ferry.h with NULL for every pointer: refused by name, or answered as ferry.h says.  The list here
 * is compared with the header's own. */
#include <check.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "include/ferry.h"
#include "tests/suite.h"

enum { MOST = 128 };

static const char *called[MOST];
static int called_count;

static void note(const char *name)
{
    ck_assert_int_lt(called_count, MOST);
    called[called_count++] = name;
}

/* A call that has a status: the argument that it names first. */
#define REFUSED(argument, function, ...)                                                                               \
    do {                                                                                                               \
        struct ferry_error error = {FERRY_OK, 0, ""};                                                                  \
                                                                                                                       \
        note(#function);                                                                                               \
        ck_assert_msg(function(__VA_ARGS__, &error) == FERRY_INVALID, #function);                                      \
        ck_assert_str_eq(error.text, argument " is NULL");                                                             \
        ck_assert_msg(function(__VA_ARGS__, NULL) == FERRY_INVALID, #function);                                        \
    } while (0)

/* Another: what it returns. */
#define ANSWERED(expected, function, ...)                                                                              \
    do {                                                                                                               \
        note(#function);                                                                                               \
        ck_assert_msg(function(__VA_ARGS__) == (expected), #function);                                                 \
    } while (0)

#define NAMED_NOTHING(function)                                                                                        \
    do {                                                                                                               \
        note(#function);                                                                                               \
        ck_assert_str_eq(function(NULL), "");                                                                          \
    } while (0)

#define HARMLESS(function, ...)                                                                                        \
    do {                                                                                                               \
        note(#function);                                                                                               \
        function(__VA_ARGS__);                                                                                         \
    } while (0)

static void sessions_and_tensors(void)
{
    ANSWERED(FERRY_OK, ferry_close, NULL, NULL);
    ANSWERED(-1, ferry_rank, NULL);
    ANSWERED(0, ferry_size, NULL);
    NAMED_NOTHING(ferry_transport);
    ANSWERED(-1, ferry_coordinate, NULL, "data");
    REFUSED("session", ferry_progress, NULL);
    HARMLESS(ferry_phase, NULL, NULL);
    HARMLESS(ferry_fail, NULL, FERRY_STORAGE, NULL);
    REFUSED("shape", ferry_tensor_create, FERRY_F32, NULL, NULL);
    REFUSED("shape", ferry_tensor_view, FERRY_F32, NULL, NULL, NULL, NULL, NULL);
    REFUSED("tensor", ferry_tensor_reshape, NULL, FERRY_F32, NULL);
    ANSWERED(NULL, ferry_tensor_data, NULL);
    ANSWERED(0, ferry_tensor_bytes, NULL);
    ANSWERED((enum ferry_dtype)0, ferry_tensor_dtype, NULL);
    ANSWERED(NULL, ferry_tensor_retain, NULL);
    HARMLESS(ferry_tensor_release, NULL);
    note("ferry_tensor_shape");
    ck_assert_int_eq(ferry_tensor_shape(NULL).ndim, 1);
    ck_assert_uint_eq(ferry_tensor_shape(NULL).dim[0], 0);
}

static void completions_and_executors(void)
{
    ANSWERED(FERRY_FAILED, ferry_test, NULL);
    REFUSED("completion", ferry_wait, NULL, 0);
    HARMLESS(ferry_release, NULL);
    HARMLESS(ferry_abandon, NULL);
    REFUSED("completion", ferry_finish, NULL);
    REFUSED("completion", ferry_retain, NULL, NULL, NULL);
    ANSWERED(0, ferry_flags, NULL);
    ANSWERED(NULL, ferry_take, NULL, NULL);
    REFUSED("session", ferry_executor_create, NULL, NULL, 0, NULL);
    REFUSED("executor", ferry_executor_fork, NULL, NULL);
    HARMLESS(ferry_executor_release, NULL);
    REFUSED("executor", ferry_executor_submit, NULL, NULL, NULL, NULL);
    REFUSED("executor", ferry_executor_flush, NULL, NULL);
    REFUSED("executor", ferry_executor_after, NULL, NULL);
    REFUSED("group", ferry_group_after, NULL, NULL);
    REFUSED("route", ferry_route_after, NULL, NULL);
    note("ferry_executor_load");
    ck_assert(ferry_executor_load(NULL).pending == FERRY_UNKNOWN &&
              ferry_executor_load(NULL).capacity == FERRY_UNKNOWN);
    note("ferry_load");
    ck_assert(ferry_load(NULL).pending == FERRY_UNKNOWN);
}

static void groups(void)
{
    REFUSED("session", ferry_find_group, NULL, NULL, NULL);
    REFUSED("session", ferry_find_line, NULL, NULL, NULL);
    NAMED_NOTHING(ferry_group_name);
    ANSWERED(0, ferry_group_size, NULL);
    ANSWERED(-1, ferry_group_rank, NULL);
    ANSWERED(-1, ferry_group_member, NULL, 0);
    REFUSED("group", ferry_all_reduce_sum, NULL, NULL, NULL, NULL);
    REFUSED("group", ferry_all_gather_even, NULL, NULL, NULL, 0, NULL);
    REFUSED("group", ferry_all_gather_uneven, NULL, NULL, NULL, 0, NULL, NULL);
    REFUSED("group", ferry_variable_all_to_all, NULL, NULL, NULL, 0, NULL, NULL, NULL);
    REFUSED("group", ferry_broadcast, NULL, NULL, 0, NULL);
    REFUSED("group", ferry_barrier, NULL, NULL);
    REFUSED("group", ferry_failure_agreement, NULL, 0, NULL);
}

static void routes(void)
{
    REFUSED("session", ferry_find_route, NULL, NULL, NULL);
    NAMED_NOTHING(ferry_route_name);
    ANSWERED(-1, ferry_route_from, NULL);
    ANSWERED(-1, ferry_route_to, NULL);
    ANSWERED(0, ferry_route_tensors, NULL);
    ANSWERED(NULL, ferry_bundle_tensor, NULL, 0);
    REFUSED("route", ferry_acquire, NULL, NULL);
    REFUSED("route", ferry_send, NULL, NULL, 0, NULL);
    REFUSED("route", ferry_receive, NULL, NULL, NULL, NULL, 0, NULL);
    HARMLESS(ferry_bundle_return, NULL, NULL);
}

static bool is_called(const char *name)
{
    /* No pointers; and the one that starts MPI, which tests of whole programs call. */
    static const char *const others[] = {"ferry_status_name", "ferry_exit_code",  "ferry_version",
                                         "ferry_dtype_bytes", "ferry_dtype_name", "ferry_open"};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!strcmp(name, others[i]))
            return true;
    }
    for (int i = 0; i < called_count; i++) {
        if (!strcmp(name, called[i]))
            return true;
    }
    return false;
}

/* The name in front of the next bracket behind FERRY_API; NULL: a macro's line. */
static const char *name_in(char *line)
{
    char *bracket = strchr(line, '(');
    char *name = bracket;

    if (strncmp(line, "FERRY_API ", 10) != 0 || !bracket)
        return NULL;
    while (name > line && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
        name--;
    *bracket = '\0';
    return name;
}

START_TEST(every_function_bears_null)
{
    FILE *header = fopen(HEADER, "re");
    char line[512];
    int found = 0;

    ck_assert_ptr_nonnull(header);
    sessions_and_tensors();
    completions_and_executors();
    groups();
    routes();
    while (fgets(line, sizeof line, header)) {
        const char *name = name_in(line);

        if (!name)
            continue;
        found++;
        ck_assert_msg(is_called(name), "%s is not tried with NULL", name);
    }
    fclose(header);
    ck_assert_int_eq(found, called_count + 6);
}
END_TEST

START_TEST(an_argument_that_breaks_a_contract_is_usage)
{
    ck_assert_int_eq(ferry_exit_code(FERRY_INVALID), 2);
    ck_assert_int_eq(ferry_exit_code(FERRY_INTERNAL), 1);
    ck_assert_int_eq(ferry_exit_code((enum ferry_status)99), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nulls");
    TCase *tests = tcase_create("nulls");

    tcase_add_test(tests, every_function_bears_null);
    tcase_add_test(tests, an_argument_that_breaks_a_contract_is_usage);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
