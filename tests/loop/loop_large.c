/* B23: more elements than an int can count, through whole operations, in pieces as over MPI.
 *
 * What is sent and received are views of one small file mapped again and again, so that only messages under way take
 * memory: about 4 GB.  Where the machine has not got it, or reserves nothing it has not got: SKIP. */
#include "tests/loop/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/suite.h"

#define ELEMENTS ((UINT64_C(1) << 31) + 17)
#define NEEDED_KB (UINT64_C(8) << 20)

enum { FOLD = 1 << 20, PAGE = 4096 };

/* bytes of address space whose every FOLD bytes are the same memory, with a headroom in front. */
static unsigned char *folded(size_t bytes)
{
    size_t folds = (bytes + FOLD - 1) / FOLD;
    int file = memfd_create("folded", MFD_CLOEXEC);
    unsigned char *start =
        mmap(NULL, PAGE + folds * FOLD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    EXPECT(file >= 0 && start != MAP_FAILED && ftruncate(file, FOLD) == 0);
    for (size_t i = 0; i < folds; i++)
        EXPECT(mmap(start + PAGE + i * FOLD, FOLD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
               MAP_FAILED);
    (void)close(file);
    return start + PAGE;
}

static struct tensor *folded_tensor(uint64_t elements)
{
    struct shape shape = {1, {elements}};
    struct tensor *tensor = NULL;

    EXPECT(tensor_view(DTYPE_I8, &shape, folded(elements), NULL, NULL, &tensor, NULL) == STATUS_OK);
    return tensor;
}

/* Byte k of a fold. */
static unsigned char byte_at(size_t k)
{
    return (unsigned char)(k % 251);
}

/* In place.  Member 0 gives all but three, which member 1 has behind them. */
static enum status gather_body(struct rank *self)
{
    const uint64_t counts[] = {ELEMENTS, 3};
    struct group *group = session_group(self->session, 1);
    struct tensor *tensor = folded_tensor(ELEMENTS + 3);
    struct completion *completion = NULL;
    enum status st;

    for (size_t k = 0; k < FOLD; k++)
        tensor->data[k] = group_rank(group) ? (unsigned char)(200 + k) : byte_at(k);
    st = finish(group_all_gather_uneven(group, tensor, tensor, 0, counts, &completion, &self->err), &completion,
                &self->err);
    /* Elements 2^31 + 17 to 2^31 + 19 lie at 17 to 19 of the fold.  Member 0 gets them, and nothing else; what member 1
     * gets may lie over its own. */
    for (size_t k = 0; st == STATUS_OK && k < FOLD; k++) {
        bool behind = k >= 17 && k < 20;

        EXPECT(tensor->data[k] == (behind ? (unsigned char)(200 + k) : byte_at(k)) ||
               (behind && group_rank(group) && tensor->data[k] == byte_at(k)));
    }
    tensor_release(tensor);
    return st;
}

/* More than the plan allows: refused with size and limit before any traffic, alike on all ranks. */
static enum status refused_body(struct rank *self)
{
    struct tensor *tensor = folded_tensor(ELEMENTS);
    struct completion *completion = NULL;
    enum status st = group_all_reduce_sum(session_group(self->session, 2), tensor, tensor, &completion, &self->err);

    EXPECT(st == STATUS_OVERFLOW && !completion);
    EXPECT(strstr(self->err.text, "group group/2: 2147483665 bytes exceed its limit of 2147483648") != NULL);
    EXPECT(session_counters(self->session).frames_sent == 0);
    tensor_release(tensor);
    return STATUS_OK;
}

static void run_large(rank_body *body)
{
    static const int members[] = {0, 1};
    static const struct group_spec groups[] = {GROUP(1, 2, members),
                                               {.id = 2,
                                                .name = "group/2",
                                                .size = 2,
                                                .members = members,
                                                .operations = OPERATIONS_ALL,
                                                .dtypes = DTYPES_ALL,
                                                .max_bytes = UINT64_C(1) << 31}};
    struct ranks ranks = {.size = 2,
                          .loopback.max_message = 1 << 30,
                          .session = {.checks = CHECKS_FULL, .timeout_ns = 120 * NS_PER_S},
                          .groups = groups,
                          .group_count = 2,
                          .body = body};

    ranks_run(&ranks);
    ranks_check(&ranks);
}

START_TEST(more_than_two_to_the_31_elements_travel_in_pieces)
{
    run_large(gather_body);
}
END_TEST

START_TEST(more_than_the_group_may_carry_is_refused_with_size_and_limit)
{
    run_large(refused_body);
}
END_TEST

static uint64_t available_kb(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kb = 0;

    while (file && !kb && fgets(line, sizeof line, file)) {
        if (!strncmp(line, "MemAvailable:", 13))
            kb = strtoull(line + 13, NULL, 10);
    }
    if (file)
        (void)fclose(file);
    return kb;
}

int main(void)
{
    Suite *suite = suite_create("large");
    TCase *all = tcase_create("all");

    if (available_kb() < NEEDED_KB) {
        (void)printf("SKIP: less than 8 GB of memory is available\n");
        return 77;
    }
    tcase_set_timeout(all, 120);
    tcase_add_test(all, more_than_two_to_the_31_elements_travel_in_pieces);
    tcase_add_test(all, more_than_the_group_may_carry_is_refused_with_size_and_limit);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
