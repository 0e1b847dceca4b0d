/* A wave's description: what is written is read back, and whatever the plan does not allow is refused. */
#include <check.h>
#include <string.h>

#include "runtime/wave.h"
#include "tests/suite.h"

static const struct wave_limits limits = {.slots = 4, .used = 3, .rows = 10, .requests = 5, .context = 32};

static struct tensor *description(const uint32_t fields[4][WAVE_FIELDS])
{
    struct shape shape = {2, {4, WAVE_FIELDS}};
    struct tensor *tensor = NULL;
    struct error err = {0};

    ck_assert_int_eq(tensor_create(DTYPE_U32, &shape, &tensor, &err), STATUS_OK);
    memcpy(tensor->data, fields, tensor->bytes);
    return tensor;
}

START_TEST(written_waves_are_read_back)
{
    const struct wave wave = {4, 9, {{1, 0, 5, 0}, {4, 28, 4, WAVE_SAMPLE | WAVE_FINAL}}};
    const uint32_t nothing[4][WAVE_FIELDS] = {{9, 9, 9, 9}};
    struct tensor *tensor = description(nothing);
    struct error err = {0};
    struct wave got;

    wave_write(&wave, tensor);
    ck_assert_int_eq(wave_read(tensor, &limits, &got, &err), STATUS_OK);
    ck_assert_uint_eq(got.rows, 9);
    ck_assert_mem_eq(got.slot, wave.slot, 4 * sizeof *got.slot);
    ck_assert_uint_eq(wave_samples(&got), 1);
    tensor_release(tensor);
}
END_TEST

START_TEST(values_outside_the_plan_are_refused_by_name)
{
    static const struct {
        uint32_t slot;
        uint32_t fields[WAVE_FIELDS];
        const char *text;
    } bad[] = {
        {0, {5, 0, 1, 0}, "request 5"}, {1, {0, 32, 1, 0}, "position 32"},
        {1, {0, 30, 3, 0}, "3 rows"},   {2, {0, 0, 11, 0}, "11 rows"},
        {0, {0, 0, 1, 4}, "flags 4"},   {0, {1, 0, 0, 0}, "idle"},
        {3, {0, 0, 1, 0}, "in use"},    {0, {0, 0xffffffffu, 0xffffffffu, 0}, "rows"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t fields[4][WAVE_FIELDS] = {{0}};
        struct error err = {0};
        struct wave got;

        memcpy(fields[bad[i].slot], bad[i].fields, sizeof bad[i].fields);
        struct tensor *tensor = description((const uint32_t(*)[WAVE_FIELDS])fields);

        ck_assert_int_eq(wave_read(tensor, &limits, &got, &err), STATUS_MISMATCH);
        ck_assert_msg(strstr(err.text, bad[i].text) != NULL, "%s not in: %s", bad[i].text, err.text);
        tensor_release(tensor);
    }
}
END_TEST

START_TEST(rows_of_all_slots_together_are_limited)
{
    const uint32_t fields[4][WAVE_FIELDS] = {{0, 0, 6, 0}, {1, 0, 5, 0}};
    struct tensor *tensor = description(fields);
    struct error err = {0};
    struct wave got;

    ck_assert_int_eq(wave_read(tensor, &limits, &got, &err), STATUS_MISMATCH);
    tensor_release(tensor);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wave");
    TCase *all = tcase_create("all");

    tcase_add_test(all, written_waves_are_read_back);
    tcase_add_test(all, values_outside_the_plan_are_refused_by_name);
    tcase_add_test(all, rows_of_all_slots_together_are_limited);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
