/* The text of a rehearsed fault, and what is told of one that never happened. */
#include <check.h>
#include <string.h>

#include "base/clock.h"
#include "comm/fault.h"
#include "tests/suite.h"

static struct fault fault;
static struct error err;

START_TEST(every_kind_is_read)
{
    static const struct {
        const char *text;
        struct fault fault;
    } vectors[] = {
        {"rank=1,op=17,kind=kill", {.rank = 1, .operation = 17, .kind = FAULT_KILL}},
        {"kind=stop,op=0,rank=0", {.kind = FAULT_STOP}},
        {"rank=2,op=3,kind=delay:2s", {.rank = 2, .operation = 3, .kind = FAULT_DELAY, .delay_ns = 2 * NS_PER_S}},
        {"rank=2,op=3,kind=delay:30ms", {.rank = 2, .operation = 3, .kind = FAULT_DELAY, .delay_ns = 30 * NS_PER_MS}},
        {"rank=0,op=1,kind=skip", {.operation = 1, .kind = FAULT_SKIP}},
        {"rank=0,op=1,kind=flip:48", {.operation = 1, .kind = FAULT_FLIP, .byte = 48}},
        {"rank=0,op=1,kind=flip:48:resealed", {.operation = 1, .kind = FAULT_FLIP, .byte = 48, .resealed = true}},
        {"rank=0,op=1,kind=short", {.operation = 1, .kind = FAULT_SHORT}},
        {"rank=0,op=1,kind=oom", {.operation = 1, .kind = FAULT_OOM}},
        {"rank=0,op=1,kind=disk-full", {.operation = 1, .kind = FAULT_DISK_FULL}},
    };

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const struct fault *want = &vectors[i].fault;

        ck_assert_msg(fault_parse(vectors[i].text, &fault, &err) == STATUS_OK, "%s: %s", vectors[i].text, err.text);
        ck_assert_int_eq(fault.rank, want->rank);
        ck_assert_uint_eq(fault.operation, want->operation);
        ck_assert_int_eq(fault.kind, want->kind);
        ck_assert_uint_eq(fault.delay_ns, want->delay_ns);
        ck_assert_uint_eq(fault.byte, want->byte);
        ck_assert_int_eq(fault.resealed, want->resealed);
    }
}
END_TEST

START_TEST(what_is_no_fault_is_refused_with_the_part)
{
    static const char *const vectors[][2] = {
        {"", "at \"\""},
        {"rank=1,op=2", "kind is missing"},
        {"rank=1,kind=kill", "op is missing"},
        {"op=1,kind=kill", "rank is missing"},
        {"rank=1,rank=2,op=1,kind=kill", "at \"rank=2"},
        {"rank=-1,op=1,kind=kill", "at \"rank=-1"},
        {"rank=1,op=1,kind=disk", "at \"kind=disk"},
        {"rank=1,op=1,kind=delay:2", "at \"kind=delay:2"},
        {"rank=1,op=1,kind=delay:99999999999999999999s", "at \"kind=delay"},
        {"rank=1,op=1,kind=kill,", "at \"\""},
        {"rank=1,op=1,kind=killed", "at \"kind=killed"},
    };

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        ck_assert_int_eq(fault_parse(vectors[i][0], &fault, &err), STATUS_USAGE);
        ck_assert_msg(strstr(err.text, vectors[i][1]) != NULL, "%s: %s", vectors[i][0], err.text);
        ck_assert_ptr_nonnull(strstr(err.text, "disk-full"));
    }
}
END_TEST

START_TEST(one_that_never_happened_is_told)
{
    static const struct {
        const char *text;
        struct fault_run run;
        const char *told; /* NULL: it happened */
    } vectors[] = {
        {"rank=1,op=999,kind=kill",
         {.operations = 312},
         "fault rank=1,op=999 was never reached: the rank posted 312 operations"},
        {"rank=1,op=312,kind=delay:1s",
         {.operations = 312},
         "fault rank=1,op=312 was never reached: the rank posted 312 operations"},
        {"rank=1,op=311,kind=delay:1s", {.operations = 312}, NULL},
        {"rank=1,op=5,kind=flip:9999",
         {.operations = 312, .armed = true},
         "fault rank=1,op=5,kind=flip:9999 never happened: the rank sent no frame of more than 9999 bytes from then "
         "on"},
        {"rank=1,op=5,kind=flip:9", {.operations = 312}, NULL},
        {"rank=1,op=5,kind=short",
         {.operations = 6, .armed = true},
         "fault rank=1,op=5,kind=short never happened: the rank sent no frame from then on"},
        {"rank=1,op=5,kind=disk-full",
         {.operations = 6},
         "fault rank=1,op=5,kind=disk-full did nothing: without a run_dir the rank writes no file"},
        {"rank=1,op=5,kind=disk-full", {.operations = 6, .has_recorder = true}, NULL},
    };

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        char line[256] = "";
        bool missed;

        ck_assert_int_eq(fault_parse(vectors[i].text, &fault, &err), STATUS_OK);
        missed = fault_missed(&fault, &vectors[i].run, line, sizeof line);
        ck_assert_int_eq(missed, vectors[i].told != NULL);
        if (missed)
            ck_assert_str_eq(line, vectors[i].told);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fault");
    TCase *tests = tcase_create("fault");

    tcase_add_test(tests, every_kind_is_read);
    tcase_add_test(tests, what_is_no_fault_is_refused_with_the_part);
    tcase_add_test(tests, one_that_never_happened_is_told);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
