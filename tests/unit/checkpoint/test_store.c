/* Mapping and reading: ranges, counters, files that change, and the handler of SIGBUS. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/storage.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_private.h"
#include "checkpoint/mappings.h"
#include "checkpoint/store.h"
#include "files.h"
#include "tests/suite.h"

enum { ROWS = 64, ROW_BYTES = 4096 };

/* One U8 tensor "w" [64, 4096]; element (row, column) is row + column. */
static struct checkpoint *open_square(void)
{
    static unsigned char data[ROWS * ROW_BYTES];

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i / ROW_BYTES + i % ROW_BYTES);
    small_config("");
    (void)scratch_write_safetensors("model.safetensors",
                                    "{\"w\":{\"dtype\":\"U8\",\"shape\":[64,4096],\"data_offsets\":[0,262144]}}",
                                    UINT64_MAX, data, sizeof data);
    return expect_open(scratch_path(""));
}

START_TEST(ranges_are_counted_and_checked)
{
    struct checkpoint *checkpoint = open_square();
    const struct stored_tensor *tensor = checkpoint_find(checkpoint, "w");
    const unsigned char *mapped = NULL;
    unsigned char read[300];
    struct error err = {0};

    ck_assert_uint_eq(checkpoint_bytes_read(checkpoint), 0);
    ck_assert_uint_eq(checkpoint_bytes_resident(checkpoint), 0);
    ck_assert_int_eq(checkpoint_map(checkpoint, tensor, 3 * ROW_BYTES, 100, &mapped, &err), STATUS_OK);
    ck_assert_int_eq(checkpoint_read(checkpoint, tensor, 5 * ROW_BYTES + 1, 300, read, &err), STATUS_OK);
    ck_assert_uint_eq(checkpoint_bytes_read(checkpoint), 400);
    ck_assert_uint_eq(mapped[7], 10);
    ck_assert_uint_eq(read[2], 8);
    ck_assert_uint_ge(checkpoint_bytes_resident(checkpoint), 4096);

    ck_assert_int_eq(checkpoint_map(checkpoint, tensor, tensor->bytes, 1, &mapped, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "tensor 'w'"));
    ck_assert_int_eq(checkpoint_read(checkpoint, tensor, UINT64_MAX, 2, read, &err), STATUS_INVALID);
    ck_assert_int_eq(checkpoint_map(checkpoint, tensor, tensor->bytes, 0, &mapped, &err), STATUS_OK);
    ck_assert_uint_eq(checkpoint_bytes_read(checkpoint), 400);
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(sixty_four_bytes_behind_the_file_can_be_loaded)
{
    struct checkpoint *checkpoint = open_square();
    const struct stored_tensor *tensor = checkpoint_find(checkpoint, "w");
    const unsigned char *mapped = NULL;
    struct error err = {0};

    ck_assert_int_eq(checkpoint_map(checkpoint, tensor, 0, tensor->bytes, &mapped, &err), STATUS_OK);
    for (int i = 0; i < 64; i++)
        ck_assert_uint_eq(mapped[tensor->bytes + (uint64_t)i], 0);
    checkpoint_close(checkpoint);
}
END_TEST

/* Narrow rows come through a buffer, wide ones one by one: the same bytes, the same count. */
START_TEST(slices_along_the_inner_dimension_are_packed)
{
    static const uint64_t strides[] = {512, ROW_BYTES, 131072};
    struct checkpoint *checkpoint = open_square();
    const struct stored_tensor *tensor = checkpoint_find(checkpoint, "w");
    static unsigned char packed[ROWS * ROW_BYTES];
    struct error err = {0};
    uint64_t counted = 0;

    for (size_t s = 0; s < 3; s++) {
        uint64_t rows = tensor->bytes / strides[s];

        ck_assert_int_eq(checkpoint_read_strided(checkpoint, tensor, 100, rows, strides[s], 33, packed, &err),
                         STATUS_OK);
        for (uint64_t row = 0; row < rows; row++) {
            for (uint64_t i = 0; i < 33; i++) {
                uint64_t at = 100 + row * strides[s] + i;

                if (packed[row * 33 + i] != (unsigned char)(at / ROW_BYTES + at % ROW_BYTES))
                    ck_abort_msg("stride %zu, row %zu, byte %zu", (size_t)strides[s], (size_t)row, (size_t)i);
            }
        }
        counted += rows * 33;
        ck_assert_uint_eq(checkpoint_bytes_read(checkpoint), counted);
    }
    ck_assert_int_eq(checkpoint_read_strided(checkpoint, tensor, 0, 0, 8, 8, packed, &err), STATUS_OK);
    ck_assert_int_eq(checkpoint_read_strided(checkpoint, tensor, 0, 65, 4096, 1, packed, &err), STATUS_INVALID);
    ck_assert_int_eq(checkpoint_read_strided(checkpoint, tensor, 0, 2, 8, 9, packed, &err), STATUS_INVALID);
    ck_assert_int_eq(checkpoint_read_strided(checkpoint, tensor, 0, UINT64_MAX, 4096, 1, packed, &err), STATUS_INVALID);
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(a_file_that_changed_since_its_metadata_is_refused)
{
    struct checkpoint *checkpoint = open_square();
    const unsigned char *mapped = NULL;
    struct error err = {0};

    ck_assert_int_eq(truncate(scratch_path("model.safetensors"), 1000), 0);
    ck_assert_int_eq(checkpoint_map(checkpoint, checkpoint_find(checkpoint, "w"), 0, 1, &mapped, &err), STATUS_STORAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "now it has 1000"));
    ck_assert_ptr_nonnull(strstr(err.text, "model.safetensors"));
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(a_read_behind_the_end_of_a_cut_file_says_where)
{
    struct checkpoint *checkpoint = open_square();
    const struct stored_tensor *tensor = checkpoint_find(checkpoint, "w");
    static unsigned char memory[ROWS * ROW_BYTES];
    struct error err = {0};

    ck_assert_int_eq(checkpoint_read(checkpoint, tensor, 0, tensor->bytes, memory, &err), STATUS_OK);
    ck_assert_int_eq(truncate(scratch_path("model.safetensors"), 1000), 0);
    ck_assert_int_eq(checkpoint_read(checkpoint, tensor, 0, tensor->bytes, memory, &err), STATUS_STORAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "ends at offset 1000"));
    checkpoint_close(checkpoint);
}
END_TEST

static void leave_words(void *context, const char *line)
{
    (void)context;
    ssize_t written = write(STDOUT_FILENO, line, strlen(line));

    (void)written;
}

/* In a child whose output is a pipe: cut the file, then touch what is gone. */
static void touch_cut_file(int output)
{
    struct checkpoint *checkpoint = open_square();
    const struct stored_tensor *tensor = checkpoint_find(checkpoint, "w");
    const unsigned char *mapped = NULL;

    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    checkpoint_catch_sigbus(leave_words, NULL);
    if (checkpoint_map(checkpoint, tensor, 0, tensor->bytes, &mapped, NULL) != STATUS_OK ||
        truncate(scratch_path("model.safetensors"), 8192))
        _exit(1);
    _exit(((const volatile unsigned char *)mapped)[200000] ? 2 : 3);
}

START_TEST(a_file_cut_under_its_mapping_is_explained)
{
    char said[2048] = "";
    size_t length = 0;
    ssize_t got;
    int ends[2];
    int status;
    pid_t child;

    ck_assert_int_eq(pipe(ends), 0);
    child = fork();
    if (!child)
        touch_cut_file(ends[1]);
    close(ends[1]);
    while ((got = read(ends[0], said + length, sizeof said - 1 - length)) > 0)
        length += (size_t)got;
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 9, "status %d, said %s", status, said);
    /* The header has 8 + 64 bytes in front of the data. */
    ck_assert_msg(strstr(said, "/model.safetensors was cut: no data at offset 200072") != NULL, "%s", said);
    /* The last words, and nothing beside them. */
    ck_assert_ptr_null(strstr(strstr(said, "file ") + 1, "file "));
}
END_TEST

START_TEST(the_table_of_mappings_has_a_limit_and_reuses_its_slots)
{
    static char bytes[MAPPINGS_LIMIT + 1];
    struct error err = {0};

    for (int i = 0; i < MAPPINGS_LIMIT; i++)
        if (mappings_add(bytes + i, 1, "f", &err) != STATUS_OK)
            ck_abort_msg("%s", err.text);
    ck_assert_int_eq(mappings_add(bytes + MAPPINGS_LIMIT, 1, "last", &err), STATUS_OVERFLOW);
    ck_assert_ptr_nonnull(strstr(err.text, "last: more than 4096 files"));
    mappings_remove(bytes + 17);
    ck_assert_int_eq(mappings_add(bytes + MAPPINGS_LIMIT, 1, "last", &err), STATUS_OK);
}
END_TEST

enum { SHARDS = 5, SHARD_BYTES = 5000 };

/* Five files; byte i of file f is f + i. */
static struct store *open_shards(int limit)
{
    struct store *store = NULL;
    struct error err = {0};

    ck_assert_int_eq(store_create(&store, &err), STATUS_OK);
    store_limit(store, limit);
    for (int f = 0; f < SHARDS; f++) {
        char name[16];
        int shard = -1;

        (void)snprintf(name, sizeof name, "shard-%d", f);
        FILE *file = fopen(scratch_path(name), "wb");

        ck_assert_ptr_nonnull(file);
        for (int i = 0; i < SHARD_BYTES; i++)
            (void)putc((f + i) & 255, file);
        ck_assert_int_eq(fclose(file), 0);
        ck_assert_int_eq(store_add(store, scratch_path(name), SHARD_BYTES, &shard, &err), STATUS_OK);
        ck_assert_int_eq(shard, f);
    }
    return store;
}

/* With a limit of four, a fifth is refused while four are leased. */
START_TEST(leased_files_stay_and_a_fifth_is_refused)
{
    struct store *store = open_shards(4);
    const unsigned char *bytes[SHARDS] = {NULL};
    unsigned char read[10];
    struct error err = {0};

    for (int f = 0; f < 4; f++)
        ck_assert_int_eq(store_map(store, f, 100, 50, &bytes[f], &err), STATUS_OK);
    ck_assert_int_eq(store_map(store, 4, 0, 10, &bytes[4], &err), STATUS_OVERFLOW);
    ck_assert_msg(strstr(err.text, "shard-4: 4 files of weights are in use"), "%s", err.text);
    ck_assert_int_eq(store_read(store, 4, 0, 10, read, &err), STATUS_OVERFLOW);
    ck_assert_uint_eq(store_bytes_read(store), 200);
    store_release(store, 2);
    ck_assert_int_eq(store_map(store, 4, 7, 10, &bytes[4], &err), STATUS_OK);
    ck_assert_int_eq(store_open_count(store), 4);
    ck_assert_uint_eq(bytes[4][0], 11);
    for (int f = 0; f < 4; f++)
        ck_assert(f == 2 || bytes[f][49] == (unsigned char)(f + 149));
    ck_assert_int_eq(store_map(store, 2, 0, 10, &bytes[2], &err), STATUS_OVERFLOW);
    store_release(store, 4);
    ck_assert_int_eq(store_map(store, 2, 300, 10, &bytes[2], &err), STATUS_OK);
    ck_assert_uint_eq(bytes[2][0], (2 + 300) & 255);
    ck_assert_uint_eq(store_bytes_read(store), 220);
    store_destroy(store);
}
END_TEST

/* What was borrowed from a mapped file keeps it mapped, whoever else has let go. */
START_TEST(a_mapping_lives_as_long_as_what_was_borrowed_from_it)
{
    struct checkpoint *checkpoint = open_square();
    const struct stored_tensor *stored = checkpoint_find(checkpoint, "w");
    const struct shape row = {1, {ROW_BYTES}};
    const unsigned char *mapped = NULL;
    struct storage *storage = NULL;
    struct tensor *tensor = NULL;
    FILE *file = fopen(scratch_path("other"), "wb");
    struct error err = {0};
    int other = -1;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(putc('x', file), 'x');
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(store_add(checkpoint->store, scratch_path("other"), 1, &other, &err), STATUS_OK);
    store_limit(checkpoint->store, 1);

    ck_assert_int_eq(checkpoint_lend(checkpoint, stored, 2 * ROW_BYTES, ROW_BYTES, &storage, &err), STATUS_OK);
    ck_assert_int_eq(storage_kind(storage), MEMORY_MAPPED);
    ck_assert_ptr_null(storage_edit(storage));
    ck_assert_int_eq(storage_borrow(storage, 0, DTYPE_U8, &row, &tensor, &err), STATUS_OK);
    ck_assert_ptr_eq(tensor->data, storage_data(storage));
    storage_release(storage);
    ck_assert_int_eq(store_map(checkpoint->store, other, 0, 1, &mapped, &err), STATUS_OVERFLOW);
    ck_assert_uint_eq(tensor->data[5], 7);
    tensor_release(tensor);
    ck_assert_int_eq(store_map(checkpoint->store, other, 0, 1, &mapped, &err), STATUS_OK); /* "w" has given way */
    ck_assert_int_eq(mapped[0], 'x');
    checkpoint_close(checkpoint);
}
END_TEST

/* A file that is cut while it is closed is noticed when it comes back: so the test sees which one gave way. */
START_TEST(the_longest_unused_file_gives_way)
{
    struct store *store = open_shards(3);
    const unsigned char *bytes = NULL;
    unsigned char read[10];
    struct error err = {0};

    for (int f = 0; f < 3; f++)
        ck_assert_int_eq(store_read(store, f, 0, 10, read, &err), STATUS_OK);
    ck_assert_int_eq(store_read(store, 0, 0, 10, read, &err), STATUS_OK);
    ck_assert_int_eq(store_map(store, 1, 0, 1, &bytes, &err), STATUS_OK); /* unused for longest is 2 now */
    ck_assert_int_eq(store_read(store, 3, 20, 10, read, &err), STATUS_OK);
    ck_assert_uint_eq(read[0], 23);
    ck_assert_int_eq(store_open_count(store), 3);
    for (int f = 0; f < 3; f++) {
        char name[16];

        (void)snprintf(name, sizeof name, "shard-%d", f);
        ck_assert_int_eq(truncate(scratch_path(name), SHARD_BYTES - 1), 0);
    }
    ck_assert_int_eq(store_read(store, 0, 0, 10, read, &err), STATUS_OK);
    ck_assert_int_eq(store_read(store, 1, 0, 10, read, &err), STATUS_OK);
    ck_assert_int_eq(store_read(store, 2, 0, 10, read, &err), STATUS_STORAGE);
    store_destroy(store);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *tcase = tcase_create("store");

    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, ranges_are_counted_and_checked);
    tcase_add_test(tcase, sixty_four_bytes_behind_the_file_can_be_loaded);
    tcase_add_test(tcase, slices_along_the_inner_dimension_are_packed);
    tcase_add_test(tcase, a_file_that_changed_since_its_metadata_is_refused);
    tcase_add_test(tcase, a_read_behind_the_end_of_a_cut_file_says_where);
    tcase_add_test(tcase, a_file_cut_under_its_mapping_is_explained);
    tcase_add_test(tcase, the_table_of_mappings_has_a_limit_and_reuses_its_slots);
    tcase_add_test(tcase, leased_files_stay_and_a_fifth_is_refused);
    tcase_add_test(tcase, a_mapping_lives_as_long_as_what_was_borrowed_from_it);
    tcase_add_test(tcase, the_longest_unused_file_gives_way);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
