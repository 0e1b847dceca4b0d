/* Base: checked sizes, conversions, tensors, text, pool. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/pool.h"
#include "base/size.h"
#include "base/tensor.h"
#include "base/text.h"
#include "tests/each.h"
#include "tests/suite.h"

START_TEST(size_arithmetic_refuses_overflow_and_keeps_the_result)
{
    size_t ret = 7;

    ck_assert_int_eq(size_mul(SIZE_MAX / 2, 3, &ret), STATUS_OVERFLOW);
    ck_assert_int_eq(size_add(SIZE_MAX, 1, &ret), STATUS_OVERFLOW);
    ck_assert_int_eq(size_round_up(SIZE_MAX - 3, 64, &ret), STATUS_OVERFLOW);
    ck_assert_uint_eq(ret, 7);
    ck_assert_int_eq(size_round_up(65, 64, &ret), STATUS_OK);
    ck_assert_uint_eq(ret, 128);
}
END_TEST

START_TEST(shares_are_contiguous_and_the_first_get_one_more)
{
    ck_assert_uint_eq(share_start(8, 3, 1), 3);
    ck_assert_uint_eq(share_start(8, 3, 2), 6);
    ck_assert_uint_eq(share_count(8, 3, 2), 2);
    ck_assert_uint_eq(share_start(7, 3, 2), 5);
    ck_assert_uint_eq(share_count(2, 4, 3), 0);
}
END_TEST

START_TEST(half_conversions_are_inverse_on_every_half)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float value = f16_to_f32((uint16_t)bits);
        float brain = bf16_to_f32((uint16_t)bits);

        assert_each(isnan(value) || f32_to_f16(value) == bits, "%04x: %04x", bits, f32_to_f16(value));
        assert_each(isnan(brain) || f32_to_bf16(brain) == bits, "%04x: %04x", bits, f32_to_bf16(brain));
    }
    ck_assert_uint_eq(f32_to_f16(65504.0f), 0x7bff);
    ck_assert_uint_eq(f32_to_f16(65520.0f), 0x7c00);
    ck_assert_uint_eq(f32_to_f16(0x1p-24f), 1);
    ck_assert_uint_eq(f32_to_f16(0x1p-25f), 0);
    ck_assert_uint_eq(f32_to_f16(0x1.8p-25f), 1);
    ck_assert_uint_eq(f32_to_bf16(0x1.01p0f), 0x3f80);
    ck_assert_uint_eq(f32_to_bf16(0x1.03p0f), 0x3f82);
}
END_TEST

START_TEST(tensor_is_aligned_and_refuses_to_outgrow_its_memory)
{
    struct error err = {0};
    struct tensor *tensor = NULL;
    struct shape shape = {2, {3, 5}};
    struct shape larger = {2, {4, 5}};
    struct shape huge = {2, {UINT64_MAX, 2}};
    struct shape empty = {2, {UINT64_MAX / 8, 0}};
    size_t bytes = 1;

    ck_assert_int_eq(tensor_create(DTYPE_F32, &shape, &tensor, &err), STATUS_OK);
    ck_assert_uint_eq((uintptr_t)tensor->data % TENSOR_ALIGN, 0);
    ck_assert_uint_eq(tensor->bytes, 60);
    ck_assert_int_eq(tensor_reshape(tensor, DTYPE_F32, &larger, &err), STATUS_OVERFLOW);
    ck_assert_int_eq(tensor_reshape(tensor, DTYPE_F16, &larger, &err), STATUS_OK);
    ck_assert_uint_eq(tensor->bytes, 40);
    tensor_release(tensor_retain(tensor));
    tensor_release(tensor);
    ck_assert_int_eq(shape_bytes(&huge, DTYPE_F32, &bytes, &err), STATUS_OVERFLOW);
    ck_assert_int_eq(shape_bytes(&empty, DTYPE_F32, &bytes, &err), STATUS_OK);
    ck_assert_uint_eq(bytes, 0);
}
END_TEST

static void add_one(void *context)
{
    ++*(int *)context;
}

START_TEST(a_view_is_the_callers_memory_and_is_given_back_once)
{
    struct error err = {0};
    struct tensor *tensor = NULL;
    struct shape shape = {1, {3}};
    struct shape larger = {1, {4}};
    struct shape empty = {2, {0, 7}};
    float memory[3] = {1, 2, 3};
    int given = 0;

    ck_assert_int_eq(tensor_view(DTYPE_F32, &shape, memory, add_one, &given, &tensor, &err), STATUS_OK);
    ck_assert_ptr_eq(tensor->data, memory);
    ck_assert_uint_eq(tensor->bytes, sizeof memory);
    ck_assert_int_eq(tensor_reshape(tensor, DTYPE_F32, &larger, &err), STATUS_OVERFLOW);
    tensor_release(tensor_retain(tensor));
    ck_assert_int_eq(given, 0);
    tensor_release(tensor);
    ck_assert_int_eq(given, 1);
    ck_assert_float_eq(memory[2], 3);
    ck_assert_int_eq(tensor_view(DTYPE_F32, &shape, NULL, NULL, NULL, &tensor, &err), STATUS_INVALID);
    ck_assert_int_eq(tensor_view(DTYPE_F32, &shape, (char *)memory + 2, NULL, NULL, &tensor, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "f32 wants addresses that are multiples of 4"));
    ck_assert_int_eq(tensor_view(DTYPE_F32, &empty, NULL, NULL, NULL, &tensor, &err), STATUS_OK);
    ck_assert_uint_eq(tensor->bytes, 0);
    tensor_release(tensor);
}
END_TEST

struct count {
    struct pool *pool;
    atomic_int phase_one;
    atomic_int early;
    atomic_int total;
};

static void count_work(void *context, int thread, int threads)
{
    struct count *count = context;

    atomic_fetch_add(&count->phase_one, 1);
    pool_barrier(count->pool);
    if (atomic_load(&count->phase_one) != threads)
        atomic_fetch_add(&count->early, 1);
    atomic_fetch_add(&count->total, thread + 1);
    pool_barrier(count->pool);
    if (!thread)
        atomic_store(&count->phase_one, 0);
}

START_TEST(pool_runs_every_thread_once_and_its_barrier_holds)
{
    for (int threads = 1; threads <= 5; threads++) {
        struct error err = {0};
        struct count count = {0};

        ck_assert_int_eq(pool_create(threads, &count.pool, &err), STATUS_OK);
        for (int i = 0; i < 500; i++)
            pool_run(count.pool, count_work, &count);
        ck_assert_int_eq(atomic_load(&count.total), 500 * threads * (threads + 1) / 2);
        ck_assert_int_eq(atomic_load(&count.early), 0);
        pool_destroy(count.pool);
    }
}
END_TEST

START_TEST(error_wrap_puts_the_context_in_front)
{
    struct error err = {0};

    ck_assert_int_eq(error_set(&err, STATUS_MODEL, "tensor %s", "w"), STATUS_MODEL);
    ck_assert_int_eq(error_wrap(&err, STATUS_MODEL, "stage %d", 3), STATUS_MODEL);
    ck_assert_str_eq(err.text, "stage 3: tensor w");
    ck_assert_int_eq(status_exit_code(STATUS_TIMEOUT), 7);
}
END_TEST

/* What a child that aborts says on standard error. */
static const char *said_by(void (*broken)(void))
{
    static char text[512];
    int ends[2];
    int status;
    ssize_t count;
    pid_t pid;

    ck_assert_int_eq(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        broken();
        _exit(0);
    }
    close(ends[1]);
    count = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    text[count > 0 ? count : 0] = '\0';
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    return text;
}

static void break_an_invariant(void)
{
    int size = 3;

    CHECK(size == 4);
}

static void break_a_rule(void)
{
    int size = 3;

    REQUIRE(size == 4, "four are needed");
}

START_TEST(mistakes_of_ours_and_of_callers_are_sentences)
{
    const char *said = said_by(break_an_invariant);

    ck_assert_ptr_eq(
        strstr(said, "ferry: error: internal: this is a mistake of Ferry itself, please report this line: at "), said);
    ck_assert_ptr_nonnull(strstr(said, "test_base.c:"));
    ck_assert_ptr_nonnull(strstr(said, " it is not so that size == 4\n"));
    said = said_by(break_a_rule);
    ck_assert_ptr_eq(strstr(said, "ferry: error: the program that calls Ferry broke a rule: four are needed ("), said);
    ck_assert_ptr_null(strstr(said, "size"));
}
END_TEST

START_TEST(text_grows)
{
    struct text text = {0};

    ck_assert_str_eq(text_string(&text), "");
    for (int i = 0; i < 1000; i++)
        text_add(&text, "%d,", i % 10);
    ck_assert_uint_eq(text.length, 2000);
    text_add(&text, "%0500d", 1);
    ck_assert_uint_eq(text.length, 2500);
    ck_assert_int_eq(text.bytes[2499], '1');
    text_done(&text);
}
END_TEST

START_TEST(sizes_for_people_have_three_or_four_digits_and_a_unit)
{
    struct text text = {0};

    text_add_size(&text, 0);
    text_add_size(&text, 999);
    text_add_size(&text, 1500);
    text_add_size(&text, 999999);
    text_add_size(&text, 34200000);
    text_add_size(&text, UINT64_MAX);
    ck_assert_str_eq(text_string(&text), "0 B999 B1.5 kB1.0 MB34.2 MB18.4 EB");
    text_done(&text);
}
END_TEST

START_TEST(json_strings_escape_what_must_be_and_stay_utf_8)
{
    static const char odd[] = "a\"\\\n\x01\xc3\xa9\xf0\x9f\x98\x80|\xff\xc0\xaf\xed\xa0\x80\xe2\x82";
    struct text text = {0};

    text_add_json(&text, odd, sizeof odd - 1);
    ck_assert_str_eq(text_string(&text), "\"a\\\"\\\\\\u000a\\u0001\xc3\xa9\xf0\x9f\x98\x80|"
                                         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                                         "\xef\xbf\xbd\xef\xbf\xbd\"");
    text_done(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base");
    TCase *all = tcase_create("all");

    tcase_add_test(all, a_view_is_the_callers_memory_and_is_given_back_once);
    tcase_add_test(all, size_arithmetic_refuses_overflow_and_keeps_the_result);
    tcase_add_test(all, json_strings_escape_what_must_be_and_stay_utf_8);
    tcase_add_test(all, sizes_for_people_have_three_or_four_digits_and_a_unit);
    tcase_add_test(all, shares_are_contiguous_and_the_first_get_one_more);
    tcase_add_test(all, half_conversions_are_inverse_on_every_half);
    tcase_add_test(all, tensor_is_aligned_and_refuses_to_outgrow_its_memory);
    tcase_add_test(all, pool_runs_every_thread_once_and_its_barrier_holds);
    tcase_add_test(all, error_wrap_puts_the_context_in_front);
    tcase_add_test(all, mistakes_of_ours_and_of_callers_are_sentences);
    tcase_add_test(all, text_grows);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
