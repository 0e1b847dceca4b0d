/* Memory that peers can read where it lies: blocks, and what is left of them.
 *
 * Where a page has no access is asked of the system: it writes from there into a pipe, or says that it cannot. */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory_shared.h"
#include "base/tensor.h"
#include "tests/suite.h"

enum { ROOM = 1 << 20, BLOCK = 50000 };

static struct memory *memory;

static void start(void)
{
    memory = memory_shared_create(ROOM);
    ck_assert_ptr_nonnull(memory);
}

static void end(void)
{
    memory_shared_destroy(memory);
}

static unsigned char *take(size_t bytes)
{
    void *block = NULL;
    struct error err = {0};

    ck_assert_msg(memory->ops->allocate(memory, bytes, &block, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_eq((uintptr_t)block % MEMORY_ALIGN, 0);
    memset(block, 0x5a, bytes);
    return block;
}

static void give(void *block)
{
    memory->ops->release(memory, block);
}

static bool is_readable(const void *byte)
{
    int ends[2];
    bool readable;

    ck_assert_int_eq(pipe(ends), 0);
    readable = write(ends[1], byte, 1) == 1;
    ck_assert(readable || errno == EFAULT);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return readable;
}

static uint64_t place_of(const void *bytes, size_t count)
{
    uint64_t at = UINT64_MAX;

    return memory_shared_find(memory, bytes, count, &at) ? at : UINT64_MAX;
}

static uint64_t held_bytes(void)
{
    struct stat about;

    ck_assert_int_eq(fstat(memory_shared_file(memory).fd, &about), 0);
    return (uint64_t)about.st_blocks * 512;
}

START_TEST(a_peer_reads_a_block_where_it_lies)
{
    struct shared_file file = memory_shared_file(memory);
    unsigned char *block = take(BLOCK);
    unsigned char *at = shared_file_map(file.fd, &file, false);

    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(memory->kind, MEMORY_SHARED);
    ck_assert_uint_lt(place_of(block, BLOCK), file.bytes - BLOCK);
    ck_assert_mem_eq(at + place_of(block, BLOCK), block, BLOCK);
    block[BLOCK - 1] = 0xc3;
    ck_assert_uint_eq(at[place_of(block, BLOCK) + BLOCK - 1], 0xc3);
    give(block);
    shared_file_unmap(at, &file);
}
END_TEST

START_TEST(only_what_lies_in_one_block_is_found)
{
    unsigned char *one = take(BLOCK);
    unsigned char *other = take(BLOCK);
    static unsigned char elsewhere[BLOCK];

    ck_assert_uint_eq(place_of(one + 100, 300), place_of(one, BLOCK) + 100);
    ck_assert_uint_ne(place_of(one, BLOCK), place_of(other, BLOCK));
    ck_assert_uint_eq(place_of(one, BLOCK + MEMORY_ALIGN), UINT64_MAX);
    ck_assert_uint_eq(place_of(one, SIZE_MAX), UINT64_MAX);
    ck_assert_uint_eq(place_of(elsewhere, 1), UINT64_MAX);
    give(one);
    ck_assert_uint_eq(place_of(one, BLOCK), UINT64_MAX);
    ck_assert_uint_ne(place_of(other, BLOCK), UINT64_MAX);
    give(other);
    ck_assert(!memory_shared_find(memory_host(), elsewhere, 1, &(uint64_t){0}));
    ck_assert(!memory_shared_find(NULL, elsewhere, 1, &(uint64_t){0}));
}
END_TEST

START_TEST(a_released_block_is_gone_and_the_page_behind_one_is_not_there)
{
    unsigned char *block = take(BLOCK);
    uint64_t held = held_bytes();

    ck_assert(is_readable(block));
    ck_assert(is_readable(block + BLOCK - 1));
    ck_assert(!is_readable(block + (BLOCK + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN));
    give(block);
    ck_assert(!is_readable(block));
    ck_assert_uint_ge(held, BLOCK);
    ck_assert_uint_lt(held_bytes(), BLOCK);
}
END_TEST

START_TEST(gaps_are_filled_and_what_has_no_room_lies_elsewhere)
{
    enum { MANY = 40 };
    unsigned char *blocks[MANY];
    uint64_t second;
    int inside = 0;

    for (int i = 0; i < MANY; i++) {
        blocks[i] = take(BLOCK);
        inside += place_of(blocks[i], BLOCK) != UINT64_MAX;
    }
    ck_assert_int_gt(inside, ROOM / BLOCK / 2);
    ck_assert_int_le(inside, ROOM / BLOCK);
    ck_assert_uint_eq(place_of(blocks[MANY - 1], BLOCK), UINT64_MAX);
    second = place_of(blocks[1], BLOCK);
    give(blocks[1]);
    blocks[1] = take(BLOCK);
    ck_assert_uint_eq(place_of(blocks[1], BLOCK), second);
    for (int i = 0; i < MANY; i++) {
        ck_assert_uint_eq(blocks[i][BLOCK - 1], 0x5a);
        give(blocks[i]);
    }
    blocks[0] = take(ROOM - 2 * BLOCK);
    ck_assert_uint_ne(place_of(blocks[0], ROOM - 2 * BLOCK), UINT64_MAX);
    give(blocks[0]);
}
END_TEST

START_TEST(small_and_huge_blocks_are_the_process_own)
{
    unsigned char *small = take(SHARED_LEAST_BYTES - 1);
    unsigned char *large = take(2 * ROOM);
    void *none = NULL;

    ck_assert_uint_eq(place_of(small, 1), UINT64_MAX);
    ck_assert_uint_eq(place_of(large, 1), UINT64_MAX);
    give(small);
    give(large);
    give(NULL);
    ck_assert_int_eq(memory->ops->allocate(memory, SIZE_MAX, &none, NULL), STATUS_NOMEM);
}
END_TEST

/* What is sent from it may still be read. */
START_TEST(a_block_that_is_held_outlives_its_memory)
{
    unsigned char *block = take(BLOCK);

    memory_shared_destroy(memory);
    ck_assert(is_readable(block));
    ck_assert_uint_eq(block[BLOCK - 1], 0x5a);
    memory->ops->release(memory, block);
}
END_TEST

START_TEST(tensors_lie_there)
{
    struct shape shape = {2, {100, 200}};
    struct tensor *tensor = NULL;

    ck_assert_int_eq(tensor_create_in(memory, DTYPE_F32, &shape, &tensor, NULL), STATUS_OK);
    ck_assert_uint_ne(place_of(tensor->data, tensor->bytes), UINT64_MAX);
    ck_assert_uint_eq((uintptr_t)tensor->data % TENSOR_ALIGN, 0);
    ck_assert(memory_host_view(tensor->memory));
    tensor_release(tensor);
    ck_assert_uint_lt(held_bytes(), 3 * 4096);
}
END_TEST

START_TEST(a_child_does_not_have_it)
{
    unsigned char *block = take(BLOCK);
    pid_t child = fork();
    int status = 0;

    if (child == 0)
        _exit(is_readable(block));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    give(block);
}
END_TEST

/* Would a dump of this process's memory write the byte?  By the system's list of what is mapped. */
static bool is_dumped(const void *byte)
{
    FILE *list = fopen("/proc/self/smaps", "re");
    uint64_t at = (uint64_t)(uintptr_t)byte;
    char line[512];
    bool here = false;
    bool found = false;
    bool dumped = true;

    ck_assert_ptr_nonnull(list);
    while (fgets(line, sizeof line, list)) {
        uint64_t from = 0;
        uint64_t to = 0;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2)
            here = from <= at && at < to;
        else if (here && !strncmp(line, "VmFlags:", 8)) {
            found = true;
            dumped = !strstr(line, " dd");
        }
    }
    (void)fclose(list);
    ck_assert(found);
    return dumped;
}

/* A dump fills the pages that it writes. */
START_TEST(held_blocks_alone_are_dumped)
{
    struct shared_file file = memory_shared_file(memory);
    unsigned char *at = shared_file_map(file.fd, &file, false);
    unsigned char *block = take(BLOCK);

    ck_assert_ptr_nonnull(at);
    ck_assert(is_dumped(block) && is_dumped(block + BLOCK - 1));
    ck_assert(!is_dumped(block + ROOM / 2));
    ck_assert(!is_dumped(at) && !is_dumped(at + place_of(block, BLOCK)));
    give(block);
    ck_assert(!is_dumped(block));
    shared_file_unmap(at, &file);
}
END_TEST

START_TEST(limits_leave_a_process_without_it)
{
    struct rlimit limit = {.rlim_cur = ROOM, .rlim_max = ROOM};

    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_ptr_null(memory_shared_create(2 * ROOM));
    ck_assert_ptr_null(memory_shared_create(SIZE_MAX));
    memory_shared_destroy(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shared memory");
    TCase *tests = tcase_create("shared memory");

    tcase_add_checked_fixture(tests, start, end);
    tcase_add_test(tests, a_peer_reads_a_block_where_it_lies);
    tcase_add_test(tests, only_what_lies_in_one_block_is_found);
    tcase_add_test(tests, a_released_block_is_gone_and_the_page_behind_one_is_not_there);
    tcase_add_test(tests, gaps_are_filled_and_what_has_no_room_lies_elsewhere);
    tcase_add_test(tests, small_and_huge_blocks_are_the_process_own);
    tcase_add_test(tests, tensors_lie_there);
    tcase_add_test(tests, a_child_does_not_have_it);
    tcase_add_test(tests, held_blocks_alone_are_dumped);
    suite_add_tcase(suite, tests);
    tests = tcase_create("beside");
    tcase_add_test(tests, limits_leave_a_process_without_it);
    suite_add_tcase(suite, tests);
    tests = tcase_create("outlived");
    tcase_add_checked_fixture(tests, start, NULL);
    tcase_add_test(tests, a_block_that_is_held_outlives_its_memory);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
