/* Memory of a device behind the table: copies, sums, marks, blocks. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/elements.h"
#include "tests/cuda/opened.h"
#include "tests/suite.h"

enum { MIB = 1 << 20 };

static struct device *device;
static struct memory *memory;

static void open_device(void)
{
    device = device_here(0);
    memory = device->memory;
}

static void close_device(void)
{
    settle(memory);
    plugin_here()->devices->close(device);
}

static void *block_of(struct memory *where, size_t bytes)
{
    void *block = NULL;

    OK(where->ops->allocate(where, bytes, &block, &err_));
    ck_assert_uint_eq((uintptr_t)block % MEMORY_ALIGN, 0);
    return block;
}

/* To the device, across it, and back, between memories of these kinds. */
static void round_trip(struct memory *from, struct memory *to, size_t bytes)
{
    unsigned char *sent = block_of(from, bytes);
    unsigned char *got = block_of(to, bytes);
    void *first = block_of(memory, bytes);
    void *second = block_of(memory, bytes);

    fill(sent, bytes, (unsigned int)bytes);
    memset(got, 0, bytes);
    OK(memory->ops->copy(memory, first, sent, bytes, &err_));
    OK(memory->ops->copy(memory, second, first, bytes, &err_));
    OK(memory->ops->copy(memory, got, second, bytes, &err_));
    settle(memory);
    ck_assert_int_eq(memcmp(sent, got, bytes), 0);
    memory->ops->release(memory, first);
    memory->ops->release(memory, second);
    from->ops->release(from, sent);
    to->ops->release(to, got);
}

static const size_t lengths[] = {1, 4, 255, 256, 4096, MIB - 1, MIB, MIB + 1, 3 * MIB + 5};

START_TEST(bytes_come_back_as_they_went)
{
    struct memory *const host[] = {memory_host(), device->pinned};

    for (int from = 0; from < 2; from++) {
        for (int to = 0; to < 2; to++)
            round_trip(host[from], host[to], lengths[_i]);
    }
    OK(memory->ops->copy(memory, NULL, NULL, 0, &err_));
}
END_TEST

/* run, rows, stride of the host's side, stride of the device's. */
static const struct rows_case {
    size_t run;
    size_t rows;
    size_t host;
    size_t device;
} rows_cases[] = {{4, 1, 4, 4},     {4, 1000, 12, 4},        {4, 1000, 4, 20},        {3, 77, 5, 7},
                  {64, 64, 64, 64}, {1000, 300, 1001, 2000}, {4096, 600, 5000, 4096}, {MIB + 3, 3, MIB + 9, MIB + 3}};

START_TEST(rows_are_copied_at_both_strides)
{
    const struct rows_case *now = &rows_cases[_i];
    struct memory *const hosts[] = {memory_host(), device->pinned};

    for (int pinned = 0; pinned < 2; pinned++) {
        struct memory *host = hosts[pinned];
        size_t bytes = now->host * now->rows;
        unsigned char *sent = block_of(host, bytes);
        unsigned char *got = block_of(host, bytes);
        void *there = block_of(memory, now->device * now->rows);
        void *packed = block_of(memory, now->run * now->rows);

        fill(sent, bytes, (unsigned int)_i);
        fill(got, bytes, 99);
        OK(memory->ops->copy_rows(memory, there, now->device, sent, now->host, now->run, now->rows, &err_));
        OK(memory->ops->copy_rows(memory, packed, now->run, there, now->device, now->run, now->rows, &err_));
        OK(memory->ops->copy_rows(memory, got, now->host, packed, now->run, now->run, now->rows, &err_));
        settle(memory);
        unsigned char *expected = malloc(bytes);
        fill(expected, bytes, 99); /* what lies between the runs stays */
        for (size_t row = 0; row < now->rows; row++) {
            for (size_t k = 0; k < now->run; k++)
                expected[row * now->host + k] = sent[row * now->host + k];
        }
        ck_assert_int_eq(memcmp(expected, got, bytes), 0);
        free(expected);
        memory->ops->release(memory, there);
        memory->ops->release(memory, packed);
        host->ops->release(host, sent);
        host->ops->release(host, got);
    }
}
END_TEST

static const enum dtype added[] = {DTYPE_F32, DTYPE_F64, DTYPE_I8,  DTYPE_U8,
                                   DTYPE_I32, DTYPE_U32, DTYPE_I64, DTYPE_U64};

START_TEST(sums_are_those_of_the_host)
{
    enum { COUNT = 100003 };
    size_t bytes = COUNT * dtype_bytes(added[_i]);
    unsigned char *left = malloc(bytes);
    unsigned char *right = malloc(bytes);
    unsigned char *got = malloc(bytes);
    void *sum = block_of(memory, bytes);
    void *other = block_of(memory, bytes);

    fill(left, bytes, 1);
    fill(right, bytes, 2);
    for (size_t k = 0; added[_i] == DTYPE_F32 && k < COUNT; k++) /* numbers, not patterns of bits */
        ((float *)left)[k] = (float)k * 0.37f, ((float *)right)[k] = 1.0f / (float)(k + 1);
    for (size_t k = 0; added[_i] == DTYPE_F64 && k < COUNT; k++)
        ((double *)left)[k] = (double)k * 0.37, ((double *)right)[k] = 1.0 / (double)(k + 1);
    OK(memory->ops->copy(memory, sum, left, bytes, &err_));
    OK(memory->ops->copy(memory, other, right, bytes, &err_));
    OK(memory->ops->add(memory, added[_i], sum, other, COUNT, &err_));
    OK(memory->ops->add(memory, added[_i], sum, other, 0, &err_));
    OK(memory->ops->copy(memory, got, sum, bytes, &err_));
    settle(memory);
    elements_add(added[_i], left, right, COUNT);
    ck_assert_int_eq(memcmp(left, got, bytes), 0);
    ck_assert_int_ne(device->capabilities.add_types & 1u << added[_i], 0);
    memory->ops->release(memory, sum);
    memory->ops->release(memory, other);
    free(left);
    free(right);
    free(got);
}
END_TEST

static const enum dtype halves[] = {DTYPE_F16, DTYPE_BF16};

START_TEST(halves_are_converted_as_the_host_does)
{
    enum { COUNT = 65536 };
    uint16_t *half = malloc(COUNT * 2);
    uint16_t *back = malloc(COUNT * 2);
    float *wide = malloc(COUNT * 4);
    float *got = malloc(COUNT * 4);
    uint16_t *there = block_of(memory, COUNT * 2);
    float *widened = block_of(memory, COUNT * 4);

    for (int k = 0; k < COUNT; k++)
        half[k] = (uint16_t)k;
    OK(memory->ops->copy(memory, there, half, COUNT * 2, &err_));
    OK(memory->ops->convert(memory, halves[_i], there, DTYPE_F32, widened, COUNT, &err_));
    OK(memory->ops->copy(memory, got, widened, COUNT * 4, &err_));
    settle(memory);
    elements_widen(halves[_i], half, COUNT, wide);
    ck_assert_int_eq(memcmp(wide, got, COUNT * 4), 0);
    fill((unsigned char *)wide, COUNT * 4, 7);
    OK(memory->ops->copy(memory, widened, wide, COUNT * 4, &err_));
    OK(memory->ops->convert(memory, DTYPE_F32, widened, halves[_i], there, COUNT, &err_));
    OK(memory->ops->copy(memory, back, there, COUNT * 2, &err_));
    settle(memory);
    elements_narrow(halves[_i], wide, COUNT, half);
    ck_assert_int_eq(memcmp(half, back, COUNT * 2), 0);
    memory->ops->release(memory, there);
    memory->ops->release(memory, widened);
    free(half);
    free(back);
    free(wide);
    free(got);
}
END_TEST

static bool is_reached(struct memory_mark *mark)
{
    bool reached = false;

    OK(memory->ops->reached(memory, mark, &reached, &err_));
    return reached;
}

/* The stand-in rests before each piece of work: a call that waited for it would find its mark reached. */
START_TEST(no_copy_waits_not_even_to_pageable_memory)
{
    enum { COUNT = 1000 };
    struct memory *const hosts[] = {memory_host(), device->pinned};
    void *there = block_of(memory, COUNT);

    for (int pinned = 0; pinned < 2; pinned++) {
        unsigned char *sent = block_of(hosts[pinned], COUNT);
        unsigned char *got = block_of(hosts[pinned], COUNT);
        struct memory_mark *mark = NULL;
        struct memory_mark *first = NULL;

        fill(sent, COUNT, 3);
        memset(got, 0, COUNT);
        OK(memory->ops->copy(memory, there, sent, COUNT, &err_));
        OK(memory->ops->mark(memory, &first, &err_));
        OK(memory->ops->copy(memory, got, there, COUNT, &err_));
        ck_assert(!is_reached(first)); /* the second did not wait for the first */
        memory->ops->forget(memory, first);
        OK(memory->ops->mark(memory, &mark, &err_));
        ck_assert(!is_reached(mark));
        while (!is_reached(mark))
            clock_sleep_ns(NS_PER_MS);
        ck_assert_int_eq(memcmp(sent, got, COUNT), 0);
        hosts[pinned]->ops->release(hosts[pinned], sent);
        hosts[pinned]->ops->release(hosts[pinned], got);
    }
    memory->ops->release(memory, there);
}
END_TEST

/* CUDA may wait for the device when a kernel is used first. */
START_TEST(no_kernel_waits_not_even_the_first_time)
{
    float *there = block_of(memory, sizeof(float));
    void *half = block_of(memory, sizeof(float));
    const float one = 1.0f;
    float got = 0.0f;
    struct memory_mark *first = NULL;

    OK(memory->ops->copy(memory, there, &one, sizeof one, &err_));
    OK(memory->ops->mark(memory, &first, &err_));
    OK(memory->ops->add(memory, DTYPE_F32, there, there, 1, &err_));
    OK(memory->ops->convert(memory, DTYPE_F32, there, DTYPE_BF16, half, 1, &err_));
    ck_assert(!is_reached(first));
    memory->ops->forget(memory, first);
    OK(memory->ops->copy(memory, &got, there, sizeof got, &err_));
    settle(memory);
    ck_assert(got == 2.0f);
    memory->ops->release(memory, there);
    memory->ops->release(memory, half);
}
END_TEST

/* A queue that follows a mark of another does nothing before that is reached, and the caller does not wait. */
START_TEST(a_queue_follows_the_mark_of_another)
{
    struct memory *other = NULL;
    float *there = block_of(memory, sizeof(float));
    const float one = 1.0f;
    float got = 0.0f;
    struct memory_mark *mark = NULL;

    OK(plugin_here()->devices->fork(device, &other, &err_));
    for (int i = 0; i < 3; i++)
        OK(memory->ops->copy(memory, there, &one, sizeof one, &err_));
    OK(memory->ops->mark(memory, &mark, &err_));
    OK(other->ops->follow(other, mark, &err_));
    OK(other->ops->add(other, DTYPE_F32, there, there, 1, &err_));
    OK(other->ops->copy(other, &got, there, sizeof got, &err_));
    ck_assert(!is_reached(mark));
    memory->ops->forget(memory, mark); /* what follows it still does */
    settle(other);
    ck_assert(got == 2.0f);
    memory->ops->release(memory, there);
    plugin_here()->devices->join(device, other);
}
END_TEST

START_TEST(bytes_of_pageable_memory_are_read_when_it_is_their_turn)
{
    unsigned char chain[2] = {1, 0};
    unsigned char end = 0;
    void *there = block_of(memory, 1);

    /* The third copy reads what the second has written. */
    OK(memory->ops->copy(memory, there, &chain[0], 1, &err_));
    OK(memory->ops->copy(memory, &chain[1], there, 1, &err_));
    OK(memory->ops->copy(memory, there, &chain[1], 1, &err_));
    OK(memory->ops->copy(memory, &end, there, 1, &err_));
    settle(memory);
    ck_assert_int_eq(end, 1);
    memory->ops->release(memory, there);
}
END_TEST

START_TEST(marks_are_reached_in_order_and_used_again)
{
    unsigned char byte = 5;
    void *there = block_of(memory, 1);
    struct memory_mark *marks[3];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) {
            OK(memory->ops->copy(memory, there, &byte, 1, &err_));
            OK(memory->ops->mark(memory, &marks[i], &err_));
        }
        while (!is_reached(marks[2]))
            clock_sleep_ns(NS_PER_MS);
        ck_assert(is_reached(marks[0]));
        memory->ops->forget(memory, marks[1]);
    }
    memory->ops->forget(memory, NULL);
    memory->ops->release(memory, there);
}
END_TEST

START_TEST(a_released_block_is_used_again_only_when_its_work_has_happened)
{
    enum { COUNT = 5000 };
    unsigned char *got = malloc(COUNT);
    unsigned char *sent = malloc(COUNT);
    void *block = block_of(memory, COUNT);
    void *next;

    fill(sent, COUNT, 8);
    OK(memory->ops->copy(memory, block, sent, COUNT, &err_));
    OK(memory->ops->copy(memory, got, block, COUNT, &err_));
    memory->ops->release(memory, block);
    next = block_of(memory, COUNT);
    ck_assert_ptr_ne(next, block);
    settle(memory);
    ck_assert_int_eq(memcmp(sent, got, COUNT), 0);
    memory->ops->release(memory, next);
    settle(memory);
    void *again = block_of(memory, COUNT - 3); /* of nearly the same size: the same class */
    ck_assert(again == block || again == next);
    memory->ops->release(memory, again);
    memory->ops->release(memory, NULL);
    free(got);
    free(sent);
}
END_TEST

START_TEST(memory_that_ran_out_says_how_much_there_is)
{
    struct memory_space before;
    struct memory_space after;
    struct error err = {0};
    void *block = NULL;
    void *none = NULL;
    char expected[96];

    OK(memory->ops->space(memory, &before, &err_));
    ck_assert_uint_eq(before.total, 64 * MIB);
    ck_assert_uint_le(before.available, before.total);
    block = block_of(memory, 16 * MIB);
    OK(memory->ops->space(memory, &after, &err_));
    ck_assert_uint_eq(before.available - after.available, 16 * MIB);
    ck_assert_int_eq(memory->ops->allocate(memory, 60 * MIB, &none, &err), STATUS_NOMEM);
    (void)snprintf(expected, sizeof expected, "%llu of 67108864 bytes are available",
                   (unsigned long long)after.available);
    ck_assert_msg(strstr(err.text, expected) && strstr(err.text, "cuda:0: "), "%s", err.text);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(memory->ops->allocate(memory, SIZE_MAX - 100, &none, &err), STATUS_NOMEM);
    memory->ops->release(memory, block);
    settle(memory);
    ck_assert_ptr_eq(block_of(memory, 16 * MIB), block);
    memory->ops->release(memory, block);
}
END_TEST

START_TEST(a_device_that_fails_says_so_in_its_own_words)
{
    struct error err = {0};
    struct memory_mark *mark = NULL;
    unsigned char byte = 1;
    void *there = NULL;
    enum status st = memory->ops->allocate(memory, 1, &there, &err);
    bool reached = false;

    for (int i = 0; st == STATUS_OK && i < 20; i++)
        st = memory->ops->copy(memory, there, &byte, 1, &err);
    if (st == STATUS_OK)
        st = memory->ops->mark(memory, &mark, &err);
    while (st == STATUS_OK && !reached)
        st = memory->ops->reached(memory, mark, &reached, &err);
    ck_assert_int_eq(st, STATUS_ENVIRONMENT);
    ck_assert_msg(strstr(err.text, "cuda:0") && strstr(err.text, "cudaError"), "%s", err.text);
    memory->ops->release(memory, there);
    plugin_here()->devices->close(device);
}
END_TEST

static void *copy_often(void *context)
{
    enum { COUNT = 3000, ROUNDS = 40 };
    unsigned char *sent = malloc(COUNT);
    unsigned char *got = malloc(COUNT);
    void *there = NULL;
    bool *same = context;

    *same = memory->ops->allocate(memory, COUNT, &there, NULL) == STATUS_OK;
    for (unsigned int round = 0; *same && round < ROUNDS; round++) {
        fill(sent, COUNT, round + (unsigned int)(uintptr_t)context);
        *same = memory->ops->copy(memory, there, sent, COUNT, NULL) == STATUS_OK &&
                memory->ops->copy(memory, got, there, COUNT, NULL) == STATUS_OK &&
                memory_wait(memory, clock_ns() + 30 * NS_PER_S, NULL) == STATUS_OK && memcmp(sent, got, COUNT) == 0;
    }
    memory->ops->release(memory, there);
    free(sent);
    free(got);
    return NULL;
}

START_TEST(threads_may_copy_at_once)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    bool same[THREADS];

    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, copy_often, &same[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        ck_assert_msg(same[i], "thread %d", i);
}
END_TEST

START_TEST(pinned_memory_is_the_hosts)
{
    struct memory *pinned = device->pinned;
    struct memory_mark *mark = NULL;
    bool reached = false;
    uint32_t *block = block_of(pinned, 8);
    const uint32_t more[2] = {1, UINT32_MAX};

    ck_assert_int_eq(pinned->kind, MEMORY_PINNED);
    ck_assert_str_eq(pinned->ops->name(pinned), "pinned");
    ck_assert(memory_host_view(pinned));
    ck_assert(!memory_host_view(memory));
    block[0] = 41;
    block[1] = 3;
    OK(pinned->ops->add(pinned, DTYPE_U32, block, more, 2, &err_));
    OK(pinned->ops->mark(pinned, &mark, &err_));
    OK(pinned->ops->reached(pinned, mark, &reached, &err_));
    ck_assert(reached);
    ck_assert_uint_eq(block[0], 42);
    ck_assert_uint_eq(block[1], 2);
    pinned->ops->release(pinned, block);
    ck_assert_ptr_eq(block_of(pinned, 8), block);
    pinned->ops->release(pinned, block);
}
END_TEST

START_TEST(a_memory_knows_what_lies_in_it)
{
    struct memory *const memories[] = {memory, device->pinned};

    for (int i = 0; i < 2; i++) {
        struct memory *where = memories[i];
        unsigned char *block = block_of(where, 1000);

        ck_assert(where->ops->holds(where, block, 1000));
        ck_assert(where->ops->holds(where, block + 999, 1));
        ck_assert(!where->ops->holds(where, block + 1, 1024));
        ck_assert(!where->ops->holds(where, block - 1, 2));
        ck_assert(!memories[!i]->ops->holds(memories[!i], block, 1));
        where->ops->release(where, block);
        ck_assert(!where->ops->holds(where, block, 1));
    }
}
END_TEST

#define COUNT_OF(list) ((int)(sizeof(list) / sizeof((list)[0])))

static void lag(const char *microseconds)
{
    (void)setenv("FERRY_STANDIN_LAG", microseconds, 1);
    open_device();
}

static void open_late(void)
{
    lag("100000");
}

static void open_slow(void)
{
    lag("300");
}

static void open_small(void)
{
    (void)setenv("FERRY_STANDIN_MEMORY", "67108864", 1);
    open_device();
}

static void open_failing(void)
{
    (void)setenv("FERRY_STANDIN_FAULT", "op=9,kind=lost", 1);
    open_device();
}

static TCase *machine(Suite *suite, const char *name, void (*open)(void), void (*close)(void))
{
    TCase *tests = tcase_create(name);

    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, open, close);
    suite_add_tcase(suite, tests);
    return tests;
}

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *plain = machine(suite, "plain", open_device, close_device);
    TCase *slow = machine(suite, "slow", open_slow, close_device);
    TCase *late = machine(suite, "late", open_late, close_device);

    tcase_add_loop_test(plain, bytes_come_back_as_they_went, 0, COUNT_OF(lengths));
    tcase_add_loop_test(plain, rows_are_copied_at_both_strides, 0, COUNT_OF(rows_cases));
    tcase_add_loop_test(plain, sums_are_those_of_the_host, 0, COUNT_OF(added));
    tcase_add_loop_test(plain, halves_are_converted_as_the_host_does, 0, COUNT_OF(halves));
    tcase_add_test(plain, pinned_memory_is_the_hosts);
    tcase_add_test(plain, a_memory_knows_what_lies_in_it);
    tcase_add_test(plain, threads_may_copy_at_once);
    tcase_add_test(slow, threads_may_copy_at_once);
    tcase_add_test(slow, marks_are_reached_in_order_and_used_again);
    tcase_add_test(late, no_copy_waits_not_even_to_pageable_memory);
    tcase_add_test(late, no_kernel_waits_not_even_the_first_time);
    tcase_add_test(late, a_queue_follows_the_mark_of_another);
    tcase_add_test(late, bytes_of_pageable_memory_are_read_when_it_is_their_turn);
    tcase_add_test(late, a_released_block_is_used_again_only_when_its_work_has_happened);
    tcase_add_test(machine(suite, "small", open_small, close_device), memory_that_ran_out_says_how_much_there_is);
    tcase_add_test(machine(suite, "failing", open_failing, NULL), a_device_that_fails_says_so_in_its_own_words);
    return suite_run(suite);
}
