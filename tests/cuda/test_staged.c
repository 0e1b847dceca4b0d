/* Tensors of a device over a transport that does not reach them, where pinned memory takes long to come: the session's
 * lock is held while a message takes its block, so a message does not wait for one. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/cuda/opened.h"
#include "tests/loop/ranks.h"
#include "tests/suite.h"

enum { SIZE = 2, COUNT = 5000 };

static const int members[] = {0, 1};
static const struct group_spec groups[] = {GROUP(5, SIZE, members)};

static struct tensor *counting(struct memory *memory, uint64_t count, uint32_t first)
{
    struct shape shape = {1, {count}};
    uint32_t *numbers = malloc(count * sizeof *numbers);
    struct tensor *tensor = NULL;

    for (uint32_t k = 0; k < count; k++)
        numbers[k] = first + k;
    EXPECT(tensor_create_in(memory, DTYPE_U32, &shape, &tensor, NULL) == STATUS_OK);
    EXPECT(memory->ops->copy(memory, tensor->data, numbers, count * sizeof *numbers, NULL) == STATUS_OK);
    EXPECT(memory_wait(memory, clock_ns() + 30 * NS_PER_S, NULL) == STATUS_OK);
    free(numbers);
    return tensor;
}

/* Every rank's numbers, one rank's behind the other's; context: the device of all. */
static enum status gather(struct rank *self)
{
    struct memory *memory = ((struct device *)self->context)->memory;
    struct tensor *send = counting(memory, COUNT, (uint32_t)self->rank * COUNT);
    struct tensor *recv = counting(memory, (uint64_t)SIZE * COUNT, 7);
    uint32_t *got = malloc(recv->bytes);
    struct completion *completion = NULL;
    enum status st = group_all_gather_even(session_group(self->session, 5), send, recv, 0, &completion, &self->err);

    st = finish(st, &completion, &self->err);
    EXPECT(memory->ops->copy(memory, got, recv->data, recv->bytes, NULL) == STATUS_OK);
    EXPECT(memory_wait(memory, clock_ns() + 30 * NS_PER_S, NULL) == STATUS_OK);
    for (uint32_t k = 0; st == STATUS_OK && k < SIZE * COUNT; k++)
        EXPECT(got[k] == k);
    free(got);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

static void run(struct device *device)
{
    struct ranks ranks = {.size = SIZE, .groups = groups, .group_count = 1, .body = gather, .context = device};

    ranks.session.memory = device->memory;
    ranks.session.pinned = device->pinned;
    ranks_run(&ranks);
    ranks_check(&ranks);
}

START_TEST(a_message_does_not_wait_for_pinned_memory)
{
    struct device *device = device_here(0);

    run(device);
    plugin_here()->devices->close(device); /* nor does the end, which leaves to CUDA what is CUDA's */
}
END_TEST

START_TEST(what_was_missed_is_made_and_used_again)
{
    struct device *device = device_here(0);
    struct memory *pinned = device->pinned;
    uint64_t until_ns = clock_ns() + 30 * NS_PER_S;
    void *block = NULL;
    void *other = NULL;

    ck_assert_ptr_null(pinned->ops->at_hand(pinned, 100000));
    while (!block && clock_ns() < until_ns)
        block = pinned->ops->at_hand(pinned, 100000);
    ck_assert_ptr_nonnull(block);
    ck_assert(pinned->ops->holds(pinned, block, 100000));
    memset(block, 1, 100000);
    pinned->ops->release(pinned, block);
    OK(pinned->ops->allocate(pinned, 100000, &other, &err_));
    ck_assert_ptr_eq(other, block);
    run(device);
    pinned->ops->release(pinned, other);
    plugin_here()->devices->close(device);
}
END_TEST

/* The first is the device's own, at its opening. */
static void pin_for_ever(void)
{
    (void)setenv("FERRY_STANDIN_FAULT", "op=1,kind=pin:3600000", 1);
}

int main(void)
{
    Suite *suite = suite_create("staged");
    TCase *tests = tcase_create("all");
    TCase *slow = tcase_create("slow");

    tcase_add_test(tests, what_was_missed_is_made_and_used_again);
    tcase_add_checked_fixture(slow, pin_for_ever, NULL);
    tcase_add_test(slow, a_message_does_not_wait_for_pinned_memory);
    tcase_set_timeout(tests, 60);
    tcase_set_timeout(slow, 60);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, slow);
    return suite_run(suite);
}
