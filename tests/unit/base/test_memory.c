/* The table of the process's own memory, and tensors in a memory that nobody may look into. */
#include "base/memory_host.h"

#include <check.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/tensor.h"
#include "tests/suite.h"

START_TEST(host_memory_has_done_what_it_was_asked_when_a_call_returns)
{
    struct memory *memory = memory_host();
    static const unsigned char from[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const unsigned char expected[8] = {2, 3, 0, 6, 7, 0, 10, 11};
    unsigned char to[8] = {0};
    uint32_t left[2] = {1, UINT32_MAX};
    const uint32_t right[2] = {2, 2};
    const uint16_t half[2] = {0x3c00, 0xc000}; /* 1, -2 */
    float single[2];
    uint16_t back[2];
    struct memory_mark *mark = NULL;
    bool reached = false;
    void *block = NULL;

    ck_assert(memory_host_view(memory) && memory_host_view(NULL));
    ck_assert_str_eq(memory->ops->name(memory), "host");
    ck_assert_int_eq(memory->ops->allocate(memory, 1, &block, NULL), STATUS_OK);
    ck_assert_uint_eq((uintptr_t)block % MEMORY_ALIGN, 0);
    memory->ops->release(memory, block);
    ck_assert_int_eq(memory_copy_rows(memory, to, 3, from + 1, 4, 2, 3, NULL), STATUS_OK);
    ck_assert_mem_eq(to, expected, sizeof to);
    ck_assert_int_eq(memory->ops->add(memory, DTYPE_U32, left, right, 2, NULL), STATUS_OK);
    ck_assert(left[0] == 3 && left[1] == 1);
    ck_assert_int_eq(memory->ops->convert(memory, DTYPE_F16, half, DTYPE_F32, single, 2, NULL), STATUS_OK);
    ck_assert(single[0] == 1 && single[1] == -2);
    ck_assert_int_eq(memory->ops->convert(memory, DTYPE_F32, single, DTYPE_BF16, back, 2, NULL), STATUS_OK);
    ck_assert(back[0] == 0x3f80 && back[1] == 0xc000);
    ck_assert_int_eq(memory->ops->mark(memory, &mark, NULL), STATUS_OK);
    ck_assert_int_eq(memory->ops->reached(memory, mark, &reached, NULL), STATUS_OK);
    ck_assert(reached);
}
END_TEST

START_TEST(host_memory_says_how_much_there_is)
{
    struct memory_space space = {0};

    ck_assert_int_eq(memory_host()->ops->space(memory_host(), &space, NULL), STATUS_OK);
    ck_assert(space.total == MEMORY_UNKNOWN || (space.total && space.available <= space.total));
}
END_TEST

START_TEST(host_memory_refuses_sizes_that_do_not_exist)
{
    struct error err = {0};
    void *block = NULL;

    ck_assert_int_eq(memory_host()->ops->allocate(memory_host(), SIZE_MAX, &block, &err), STATUS_NOMEM);
    ck_assert_ptr_nonnull(strstr(err.text, "bytes of host memory"));
    ck_assert_ptr_null(block);
}
END_TEST

START_TEST(copies_of_nothing_touch_no_pointer)
{
    ck_assert_int_eq(memory_copy(NULL, NULL, NULL, 0, NULL), STATUS_OK);
    ck_assert_int_eq(memory_copy_rows(NULL, NULL, 4, NULL, 4, 0, 3, NULL), STATUS_OK);
    ck_assert_int_eq(memory_copy_rows(memory_host(), NULL, 4, NULL, 4, 4, 0, NULL), STATUS_OK);
}
END_TEST

/* A memory of another kind whose marks are reached when they have been asked for often enough. */
struct counted {
    struct memory memory;
    int blocks;
    int asked;
    int forgotten;
    int patience;
};

static const char *counted_name(const struct memory *memory)
{
    (void)memory;
    return "counted";
}

static enum status counted_allocate(struct memory *memory, size_t bytes, void **ret, struct error *err)
{
    (void)err;
    ((struct counted *)memory)->blocks++;
    *ret = aligned_alloc(MEMORY_ALIGN, (bytes + MEMORY_ALIGN - 1) & ~(size_t)(MEMORY_ALIGN - 1));
    return STATUS_OK;
}

static void counted_release(struct memory *memory, void *block)
{
    ((struct counted *)memory)->blocks--;
    free(block);
}

static enum status counted_mark(struct memory *memory, struct memory_mark **ret, struct error *err)
{
    (void)err;
    *ret = (struct memory_mark *)memory;
    return STATUS_OK;
}

static enum status counted_reached(struct memory *memory, struct memory_mark *mark, bool *ret, struct error *err)
{
    struct counted *counted = (struct counted *)memory;

    ck_assert_ptr_eq(mark, memory);
    if (counted->patience < 0)
        return error_set(err, STATUS_ENVIRONMENT, "counted: it broke");
    *ret = ++counted->asked >= counted->patience;
    return STATUS_OK;
}

static void counted_forget(struct memory *memory, struct memory_mark *mark)
{
    (void)mark;
    ((struct counted *)memory)->forgotten++;
}

static const struct memory_ops counted_ops = {.name = counted_name,
                                              .allocate = counted_allocate,
                                              .release = counted_release,
                                              .mark = counted_mark,
                                              .reached = counted_reached,
                                              .forget = counted_forget};

START_TEST(a_tensor_lies_in_its_memory_and_is_given_back_there_once)
{
    struct counted counted = {.memory = {&counted_ops, MEMORY_DEVICE}};
    struct shape shape = {2, {3, 5}};
    struct tensor *tensor = NULL;
    struct tensor *view = NULL;

    ck_assert_int_eq(tensor_create_in(&counted.memory, DTYPE_F32, &shape, &tensor, NULL), STATUS_OK);
    ck_assert(tensor->memory == &counted.memory && tensor_kind(tensor) == MEMORY_DEVICE);
    ck_assert_uint_eq((uintptr_t)tensor->data % TENSOR_ALIGN, 0);
    ck_assert_int_eq(tensor->data - tensor->block, TENSOR_HEADROOM);
    ck_assert_int_eq(tensor_view_in(&counted.memory, DTYPE_F32, &shape, tensor->data, NULL, NULL, &view, NULL),
                     STATUS_OK);
    ck_assert(view->memory == &counted.memory && !view->block);
    tensor_release(view);
    ck_assert_int_eq(counted.blocks, 1);
    (void)tensor_retain(tensor);
    tensor_release(tensor);
    ck_assert_int_eq(counted.blocks, 1);
    tensor_release(tensor);
    ck_assert_int_eq(counted.blocks, 0);
    ck_assert_int_eq(tensor_create(DTYPE_F32, &shape, &tensor, NULL), STATUS_OK);
    ck_assert(!tensor->memory && tensor_kind(tensor) == MEMORY_OWNED);
    tensor_release(tensor);
}
END_TEST

START_TEST(waiting_for_a_queue_ends_when_it_is_reached_or_late_or_lost)
{
    struct counted counted = {.memory = {&counted_ops, MEMORY_DEVICE}, .patience = 3};
    struct error err = {0};

    ck_assert_int_eq(memory_wait(&counted.memory, clock_ns() + 10 * NS_PER_S, &err), STATUS_OK);
    ck_assert_int_eq(counted.asked, 3);
    counted.patience = 1 << 30;
    ck_assert_int_eq(memory_wait(&counted.memory, clock_ns() + 2 * NS_PER_MS, &err), STATUS_TIMEOUT);
    ck_assert_int_eq(counted.forgotten, 1);
    ck_assert_ptr_nonnull(strstr(err.text, "counted"));
    counted.patience = -1;
    ck_assert_int_eq(memory_wait(&counted.memory, clock_ns() + 10 * NS_PER_S, &err), STATUS_ENVIRONMENT);
    ck_assert_int_eq(memory_wait(NULL, 0, &err), STATUS_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *all = tcase_create("all");

    tcase_add_test(all, host_memory_has_done_what_it_was_asked_when_a_call_returns);
    tcase_add_test(all, host_memory_says_how_much_there_is);
    tcase_add_test(all, host_memory_refuses_sizes_that_do_not_exist);
    tcase_add_test(all, copies_of_nothing_touch_no_pointer);
    tcase_add_test(all, a_tensor_lies_in_its_memory_and_is_given_back_there_once);
    tcase_add_test(all, waiting_for_a_queue_ends_when_it_is_reached_or_late_or_lost);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
