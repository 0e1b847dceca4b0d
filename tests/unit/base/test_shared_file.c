/* Files in memory that other processes map: what is mapped, and what an owner can do to those who have. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/shared_file.h"
#include "tests/suite.h"

enum { BYTES = 8192 };

static struct shared_file create(void)
{
    struct shared_file file = {.fd = -1};

    ck_assert(shared_file_create("ferry-test", BYTES, &file));
    ck_assert_int_ge(file.fd, 0);
    ck_assert_uint_eq(file.bytes, BYTES);
    return file;
}

START_TEST(what_is_written_in_one_map_is_read_in_another)
{
    struct shared_file file = create();
    unsigned char *to = shared_file_map(file.fd, &file, true);
    const unsigned char *from = shared_file_map(file.fd, &file, false);

    ck_assert(to && from);
    ck_assert_mem_eq(from, &file.nonce, SHARED_FILE_NONCE_BYTES);
    for (int i = SHARED_FILE_NONCE_BYTES; i < BYTES; i++)
        ck_assert_uint_eq(from[i], 0);
    to[BYTES - 1] = 0xc3;
    ck_assert_uint_eq(from[BYTES - 1], 0xc3);
    shared_file_close(&file);
    shared_file_close(&file);
    to[BYTES - 1] = 0xc4;
    ck_assert_uint_eq(from[BYTES - 1], 0xc4);
}
END_TEST

START_TEST(two_files_have_two_numbers)
{
    struct shared_file one = create();
    struct shared_file other = create();

    ck_assert_uint_ne(one.nonce, other.nonce);
    ck_assert_ptr_null(shared_file_map(one.fd, &other, false));
    ck_assert_ptr_null(shared_file_map(one.fd, &other, true));
}
END_TEST

/* Who has mapped it for reading alone ends at a write. */
START_TEST(a_map_for_reading_is_not_written)
{
    struct shared_file file = create();
    volatile unsigned char *at = shared_file_map(file.fd, &file, false);
    pid_t child = fork();
    int status = 0;

    ck_assert_ptr_nonnull((const void *)(uintptr_t)at);
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        at[100] = 1;
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
END_TEST

/* A file of this length with these seals. */
static int file_of(size_t bytes, int seals, uint64_t nonce)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    ck_assert_int_eq(pwrite(fd, &nonce, sizeof nonce, 0), (ssize_t)sizeof nonce);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

START_TEST(files_that_are_not_what_they_are_said_to_be_are_not_mapped)
{
    static const struct {
        size_t bytes;
        int seals;
        uint64_t nonce;
        bool mapped;
    } files[] = {
        {BYTES, F_SEAL_SHRINK, 77, true},  {BYTES, 0, 77, false},
        {BYTES, F_SEAL_GROW, 77, false},   {4096, F_SEAL_SHRINK, 77, false},
        {12288, F_SEAL_SHRINK, 77, false}, {BYTES, F_SEAL_SHRINK, 78, false},
    };
    const struct shared_file said = {.fd = -1, .bytes = BYTES, .nonce = 77};
    int ends[2];

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int fd = file_of(files[i].bytes, files[i].seals, files[i].nonce);
        void *at = shared_file_map(fd, &said, false);

        ck_assert_msg((at != NULL) == files[i].mapped, "file %zu", i);
        shared_file_unmap(at, &said);
        (void)close(fd);
    }
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_ptr_null(shared_file_map(ends[0], &said, false));
    shared_file_unmap(NULL, &said);
}
END_TEST

/* Its owner cannot take from a peer what it has mapped. */
START_TEST(it_cannot_change_its_length)
{
    struct shared_file file = create();

    ck_assert_int_eq(ftruncate(file.fd, 4096), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(file.fd, BYTES + 4096), -1);
    ck_assert_int_eq(fcntl(file.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
}
END_TEST

/* A write beyond the limit would end the process. */
START_TEST(limits_leave_a_process_without_one)
{
    struct rlimit limit = {.rlim_cur = BYTES, .rlim_max = BYTES};
    struct shared_file file = {.fd = 0};

    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert(!shared_file_create("ferry-test", BYTES + 1, &file));
    ck_assert_int_eq(file.fd, -1);
    ck_assert_uint_eq(file.bytes, BYTES + 1);
    ck_assert(!shared_file_create("ferry-test", UINT64_MAX, &file));
    ck_assert_int_eq(file.fd, -1);
    ck_assert(shared_file_create("ferry-test", BYTES, &file));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shared file");
    TCase *tests = tcase_create("shared file");

    tcase_add_test(tests, what_is_written_in_one_map_is_read_in_another);
    tcase_add_test(tests, two_files_have_two_numbers);
    tcase_add_test(tests, a_map_for_reading_is_not_written);
    tcase_add_test(tests, files_that_are_not_what_they_are_said_to_be_are_not_mapped);
    tcase_add_test(tests, it_cannot_change_its_length);
    tcase_add_test(tests, limits_leave_a_process_without_one);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
