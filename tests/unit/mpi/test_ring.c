/* Rings of cells: between two threads, full, and damaged by whoever shares their memory. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_ring.h"
#include "tests/suite.h"

enum { MANY = 20000, AT_NUMBER = 0, AT_TAG = 8, AT_COUNT = 16, NUMBER_BITS = 64 };

static struct ring *ring;
static struct ring_writer writer;
static struct ring_reader reader;

static void setup(void)
{
    ring = aligned_alloc(RING_ALIGN, ring_bytes());
    ck_assert_ptr_nonnull(ring);
    memset(ring, 0, ring_bytes());
    writer = (struct ring_writer){.ring = ring};
    reader = (struct ring_reader){.ring = ring};
}

static void teardown(void)
{
    free(ring);
}

/* Sizes and contents follow from the number alone, differently from one to the next. */
static size_t size_of(int message)
{
    return (size_t)(((uint64_t)message * UINT64_C(2654435761)) >> 7) % (RING_CELL_BYTES + 1);
}

static unsigned char byte_of(int message, size_t at)
{
    return (unsigned char)((size_t)message * 13 + at * 7 + 1);
}

static void put(int message)
{
    const struct ring_label label = {
        .tag = (uint32_t)message * 3, .kind = (uint32_t)message % 5, .byte_count = size_of(message)};
    unsigned char bytes[RING_CELL_BYTES] = {0};

    for (size_t i = 0; i < label.byte_count; i++)
        bytes[i] = byte_of(message, i);
    ring_put(&writer, &label, bytes);
}

/* Is the next one here, and this one? */
static bool take_is(int message)
{
    struct ring_label label = {0};
    unsigned char bytes[RING_CELL_BYTES];
    bool right;

    if (ring_read(&reader, &label, bytes, NULL) != STATUS_OK)
        return false;
    ring_next(&reader);
    right = label.tag == (uint32_t)message * 3 && label.kind == (uint32_t)message % 5 &&
            label.byte_count == size_of(message);
    for (size_t i = 0; right && i < label.byte_count; i++)
        right = bytes[i] == byte_of(message, i);
    return right;
}

static bool has_come(void)
{
    bool come = false;

    return ring_has_come(&reader, &come, NULL) == STATUS_OK && come;
}

static bool has_room(void)
{
    bool room = false;

    return ring_has_room(&writer, &room, NULL) == STATUS_OK && room;
}

static void *write_all(void *unused)
{
    for (int i = 0; i < MANY; i++) {
        while (!has_room())
            (void)sched_yield();
        put(i);
    }
    return unused;
}

START_TEST(every_message_comes_once_in_order)
{
    pthread_t thread;
    int right = 0;

    ck_assert_int_eq(pthread_create(&thread, NULL, write_all, NULL), 0);
    for (int i = 0; i < MANY; i++) {
        while (!has_come())
            (void)sched_yield();
        right += take_is(i);
    }
    (void)pthread_join(thread, NULL);
    ck_assert_int_eq(right, MANY);
    ck_assert(!has_come());
}
END_TEST

START_TEST(a_full_ring_has_room_again_for_what_was_taken)
{
    int first = 0;
    int again = 0;

    while (has_room() && first < MANY)
        put(first++);
    for (int i = 0; i < 5; i++)
        ck_assert(has_come() && take_is(i));
    while (has_room() && again < MANY)
        put(first + again++);
    ck_assert_int_eq(first, RING_CELLS);
    ck_assert_int_eq(again, 5);
    for (int i = 5; i < first + again; i++)
        ck_assert(has_come() && take_is(i));
    ck_assert(!has_come());
}
END_TEST

/* Where a cell of the ring begins: behind the line of what was taken. */
static unsigned char *cell(int at)
{
    size_t stride = (ring_bytes() - RING_ALIGN) / RING_CELLS;

    return (unsigned char *)ring + RING_ALIGN + (size_t)at * stride;
}

/* Nothing but "not yet" is another number's meaning: that of the round before, or none in the first. */
START_TEST(no_damaged_number_is_believed)
{
    int rounds[] = {1, RING_CELLS + 1, 7 * RING_CELLS + 1};
    int message = 0;

    for (int i = 0; i < 3; i++) {
        for (; message < rounds[i]; message++) {
            put(message);
            if (message + 1 < rounds[i])
                ck_assert(has_come() && take_is(message) && has_room());
        }
        for (int bit = 0; bit < NUMBER_BITS; bit++) {
            unsigned char *byte = cell((message - 1) % RING_CELLS) + AT_NUMBER + bit / 8;
            bool come = true;
            struct error err = {0};
            enum status st;
            uint64_t number = (uint64_t)message ^ UINT64_C(1) << bit;

            *byte ^= (unsigned char)(1 << bit % 8);
            st = ring_has_come(&reader, &come, &err);
            *byte ^= (unsigned char)(1 << bit % 8);
            ck_assert(!come);
            if (number == (uint64_t)(message > RING_CELLS ? message - RING_CELLS : 0)) {
                ck_assert_int_eq(st, STATUS_OK);
                continue;
            }
            ck_assert_msg(st == STATUS_CORRUPT, "message %d, bit %d", message, bit);
            ck_assert_ptr_nonnull(strstr(err.text, "bears the number"));
        }
        ck_assert(has_come() && take_is(message - 1) && has_room());
    }
}
END_TEST

/* A count that a cell can carry is copied from the cell, whatever it is; a larger one is not. */
START_TEST(no_more_is_copied_than_a_cell_carries)
{
    uint64_t counts[] = {RING_CELL_BYTES, RING_CELL_BYTES + 1, UINT32_MAX, UINT64_MAX, UINT64_MAX - 200};
    unsigned char *bytes = malloc(RING_CELL_BYTES);
    struct ring_label label;

    put(0);
    for (int i = 4; i >= 0; i--) {
        struct error err = {0};
        enum status st;

        memcpy(cell(0) + AT_COUNT, &counts[i], sizeof counts[i]);
        st = ring_read(&reader, &label, bytes, &err);
        ck_assert_int_eq(st, i ? STATUS_CORRUPT : STATUS_OK);
        ck_assert(!i || strstr(err.text, "at most 1320 can be"));
        ck_assert_uint_eq(reader.next, 0);
    }
    ck_assert_uint_eq(label.byte_count, RING_CELL_BYTES);
    free(bytes);
}
END_TEST

START_TEST(a_reader_cannot_have_taken_what_was_not_put)
{
    uint64_t lies[] = {RING_CELLS + 1, UINT64_MAX, 0};
    uint64_t taken = 1;
    bool room = true;

    for (int i = 0; i < RING_CELLS; i++)
        put(i);
    ck_assert(take_is(0));
    memcpy(ring, &taken, sizeof taken);
    ck_assert(has_room());
    put(RING_CELLS);
    for (int i = 0; i < 3; i++) {
        struct error err = {0};

        lies[i] += i == 0;
        memcpy(ring, &lies[i], sizeof lies[i]);
        ck_assert_int_eq(ring_has_room(&writer, &room, &err), STATUS_CORRUPT);
        ck_assert_ptr_nonnull(strstr(err.text, "expected 1 to 33"));
        ck_assert(!room);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mpi ring");
    TCase *tests = tcase_create("mpi ring");

    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, every_message_comes_once_in_order);
    tcase_add_test(tests, a_full_ring_has_room_again_for_what_was_taken);
    tcase_add_test(tests, no_damaged_number_is_believed);
    tcase_add_test(tests, no_more_is_copied_than_a_cell_carries);
    tcase_add_test(tests, a_reader_cannot_have_taken_what_was_not_put);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
