/* Host storage of every kind: borrowing makes no copy, copying makes one, and the last reference gives back. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/storage.h"
#include "tests/suite.h"

enum { BYTES = 4096 };

static struct error err;

static void fill(unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(7 * i + 3);
}

static void count_one(void *context)
{
    ++*(int *)context;
}

/* ---- a pinned memory, by its interface: the heap, counted ---- */

struct pinned {
    struct memory memory;
    int held;
};

static const char *pinned_name(const struct memory *memory)
{
    (void)memory;
    return "pinned";
}

static enum status pinned_allocate(struct memory *memory, size_t bytes, void **ret, struct error *error)
{
    struct pinned *pinned = (struct pinned *)memory;

    if (bytes > BYTES)
        return error_set(error, STATUS_NOMEM, "%d bytes are available", BYTES);
    *ret = aligned_alloc(MEMORY_ALIGN, BYTES);
    ck_assert_ptr_nonnull(*ret);
    pinned->held++;
    return STATUS_OK;
}

static void pinned_release(struct memory *memory, void *block)
{
    struct pinned *pinned = (struct pinned *)memory;

    pinned->held -= block != NULL;
    free(block);
}

static const struct memory_ops pinned_ops = {
    .name = pinned_name, .allocate = pinned_allocate, .release = pinned_release};

/* ---- one storage of each kind ---- */

static unsigned char *map_page(void)
{
    unsigned char *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(page, MAP_FAILED);
    return page;
}

static void unmap_page(void *page)
{
    ck_assert_int_eq(munmap(page, BYTES), 0);
}

static struct storage *open_kind(enum memory_kind kind, struct pinned *pinned)
{
    struct storage *storage = NULL;
    unsigned char *page;

    if (kind == MEMORY_PINNED) {
        ck_assert_int_eq(storage_create_in(&pinned->memory, BYTES, &storage, &err), STATUS_OK);
        fill(storage_edit(storage), BYTES);
    } else if (kind == MEMORY_MAPPED) {
        page = map_page();
        fill(page, BYTES);
        ck_assert_int_eq(mprotect(page, BYTES, PROT_READ), 0);
        ck_assert_int_eq(storage_lend(kind, page, BYTES, unmap_page, page, &storage, &err), STATUS_OK);
    } else {
        ck_assert_int_eq(storage_create(kind, BYTES, &storage, &err), STATUS_OK);
        fill(storage_edit(storage), BYTES);
    }
    return storage;
}

static const enum memory_kind kinds[] = {MEMORY_OWNED, MEMORY_MAPPED, MEMORY_PINNED, MEMORY_SHARED};

START_TEST(a_borrowed_tensor_is_the_same_bytes_and_keeps_them)
{
    struct pinned pinned = {.memory = {&pinned_ops, MEMORY_PINNED}};
    const struct shape shape = {2, {3, 5}};
    unsigned char expected[60];

    fill(expected, sizeof expected);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct storage *storage = open_kind(kinds[k], &pinned);
        const unsigned char *data = storage_data(storage);
        struct tensor *tensor = NULL;

        ck_assert_int_eq(storage_kind(storage), kinds[k]);
        ck_assert_uint_eq(storage_bytes(storage), BYTES);
        ck_assert_int_eq(storage_borrow(storage, 0, DTYPE_F32, &shape, &tensor, &err), STATUS_OK);
        ck_assert_ptr_eq(tensor->data, data);
        storage_release(storage); /* the tensor is the last reference */
        ck_assert_mem_eq(tensor->data, expected, sizeof expected);
        ck_assert_int_eq(pinned.held, kinds[k] == MEMORY_PINNED);
        tensor_release(tensor);
        ck_assert_int_eq(pinned.held, 0);
    }
}
END_TEST

START_TEST(a_copy_is_owned_and_independent)
{
    struct pinned pinned = {.memory = {&pinned_ops, MEMORY_PINNED}};
    unsigned char expected[BYTES];

    fill(expected, sizeof expected);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct storage *storage = open_kind(kinds[k], &pinned);
        struct storage *copy = NULL;

        ck_assert_int_eq(storage_copy(storage, &copy, &err), STATUS_OK);
        ck_assert_ptr_ne(storage_data(copy), storage_data(storage));
        ck_assert_int_eq(storage_kind(copy), MEMORY_OWNED);
        if (storage_edit(storage))
            memset(storage_edit(storage), 0, BYTES);
        storage_release(storage);
        ck_assert_mem_eq(storage_data(copy), expected, BYTES);
        storage_release(copy);
    }
}
END_TEST

START_TEST(a_lease_ends_once_with_the_last_reference)
{
    static const unsigned char bytes[16];
    const struct shape shape = {1, {4}};
    struct storage *storage = NULL;
    struct tensor *tensor = NULL;
    int ended = 0;

    ck_assert_int_eq(storage_lend(MEMORY_MAPPED, bytes, sizeof bytes, count_one, &ended, &storage, &err), STATUS_OK);
    ck_assert_ptr_null(storage_edit(storage)); /* a file's */
    ck_assert_int_eq(storage_borrow(storage, 0, DTYPE_U32, &shape, &tensor, &err), STATUS_OK);
    storage_release(storage_retain(storage));
    storage_release(storage);
    ck_assert_int_eq(ended, 0);
    tensor_release(tensor_retain(tensor));
    ck_assert_int_eq(ended, 0);
    tensor_release(tensor);
    ck_assert_int_eq(ended, 1);
    storage_release(NULL);
}
END_TEST

START_TEST(shared_storage_is_seen_by_a_forked_process)
{
    struct storage *storage = NULL;
    unsigned char *bytes;
    int status = 0;
    pid_t child;

    ck_assert_int_eq(storage_create(MEMORY_SHARED, 3, &storage, &err), STATUS_OK);
    bytes = storage_edit(storage);
    bytes[0] = 1;
    child = fork();
    if (child == 0) {
        bytes[1] = (unsigned char)(bytes[0] + 41);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(bytes[1], 42);
    storage_release(storage);
}
END_TEST

START_TEST(what_cannot_be_is_refused_in_words)
{
    struct pinned pinned = {.memory = {&pinned_ops, MEMORY_PINNED}};
    struct memory device = {&pinned_ops, MEMORY_DEVICE};
    const struct shape four = {1, {4}};
    struct storage *storage = NULL;
    struct tensor *tensor = NULL;

    ck_assert_int_eq(storage_create(MEMORY_MAPPED, 8, &storage, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "storage that is mapped cannot be made from nothing");
    ck_assert_int_eq(storage_create(MEMORY_OWNED, SIZE_MAX - 8, &storage, &err), STATUS_OVERFLOW);
    ck_assert_int_eq(storage_create(MEMORY_SHARED, SIZE_MAX / 4, &storage, &err), STATUS_NOMEM);
    ck_assert_int_eq(storage_create_in(&device, 8, &storage, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot be read by the host"));
    ck_assert_int_eq(storage_create_in(&pinned.memory, BYTES + 1, &storage, &err), STATUS_NOMEM);
    ck_assert_int_eq(storage_lend(MEMORY_DEVICE, &four, 8, NULL, NULL, &storage, &err), STATUS_INVALID);
    ck_assert_ptr_null(storage);

    ck_assert_int_eq(storage_create(MEMORY_OWNED, 20, &storage, &err), STATUS_OK);
    ck_assert_int_eq(storage_borrow(storage, 4, DTYPE_F32, &four, &tensor, &err), STATUS_OK);
    tensor_release(tensor);
    ck_assert_int_eq(storage_borrow(storage, 5, DTYPE_U8, &four, &tensor, &err), STATUS_OK);
    tensor_release(tensor);
    ck_assert_int_eq(storage_borrow(storage, 2, DTYPE_F32, &four, &tensor, &err), STATUS_INVALID); /* alignment */
    ck_assert_int_eq(storage_borrow(storage, 8, DTYPE_F32, &four, &tensor, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "16 bytes at 8 of a storage of 20");
    ck_assert_int_eq(storage_borrow(storage, SIZE_MAX, DTYPE_F32, &four, &tensor, &err), STATUS_INVALID);
    storage_release(storage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("storage");
    TCase *all = tcase_create("all");

    tcase_add_test(all, a_borrowed_tensor_is_the_same_bytes_and_keeps_them);
    tcase_add_test(all, a_copy_is_owned_and_independent);
    tcase_add_test(all, a_lease_ends_once_with_the_last_reference);
    tcase_add_test(all, shared_storage_is_seen_by_a_forked_process);
    tcase_add_test(all, what_cannot_be_is_refused_in_words);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
