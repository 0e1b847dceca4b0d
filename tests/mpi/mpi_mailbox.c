/* Shared mailboxes by themselves, between the ranks of one host.  All communication of a test comes before its first
 * assertion, and a barrier after it, so that a failing rank stays in step. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_mailbox.h"

enum { MOST = 64, TAG = 5, OTHER_TAG = 6 };

static struct mailbox *mailbox;
static int rank;
static int size;
static int right;
static int left;

static unsigned char byte_of(int sender, int message, size_t at)
{
    return (unsigned char)(sender * 17 + message * 5 + (int)(at % 251));
}

static void fill(unsigned char *bytes, size_t count, int message)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = byte_of(rank, message, i);
}

/* Is the next message of the left neighbour this one, of count bytes? */
static bool next_is(uint32_t tag, int message, size_t count)
{
    struct mailbox_slot *slot = NULL;
    unsigned char *in = NULL;
    size_t bytes = 0;
    bool right_bytes = false;

    if (mailbox_match(mailbox, left, tag, &slot, &bytes, NULL) != STATUS_OK)
        return false;
    in = malloc(bytes + 1);
    in[bytes] = 0x5a;
    memcpy(in, mailbox_bytes(mailbox, left, slot), bytes);
    mailbox_return(slot);
    right_bytes = bytes == count && in[bytes] == 0x5a;
    for (size_t i = 0; right_bytes && i < count; i++)
        right_bytes = in[i] == byte_of(left, message, i);
    free(in);
    return right_bytes;
}

static void barrier(void)
{
    (void)MPI_Barrier(MPI_COMM_WORLD);
}

START_TEST(each_tag_keeps_its_order)
{
    static const size_t counts[] = {5000, 1 << 20, 1, 0, 16384, 16385, 40000, 0};
    enum { COUNT = sizeof counts / sizeof *counts };
    unsigned char *out = malloc(1 << 20);
    bool put = true;
    bool came = true;

    for (int i = 0; i < COUNT; i++) {
        fill(out, counts[i], i);
        put = put && mailbox_put(mailbox, right, i % 2 ? OTHER_TAG : TAG, out, counts[i]);
    }
    barrier();
    for (int odd = 1; odd >= 0; odd--) {
        for (int i = odd; i < COUNT; i += 2)
            came = came && next_is(i % 2 ? OTHER_TAG : TAG, i, counts[i]);
    }
    barrier();
    free(out);
    ck_assert(put);
    ck_assert(came);
}
END_TEST

/* What was taken makes room, in whatever order; nothing that was not taken is overwritten. */
START_TEST(a_full_mailbox_refuses_until_something_is_taken)
{
    unsigned char *out = malloc(MAILBOX_MOST_BYTES);
    int first = 0;
    int again = 0;
    int rest = 0;
    bool came = true;

    for (; first < MOST; first++) {
        fill(out, MAILBOX_MOST_BYTES, first);
        if (!mailbox_put(mailbox, right, TAG, out, MAILBOX_MOST_BYTES))
            break;
    }
    barrier();
    for (int i = 0; i < first / 2; i++)
        came = came && next_is(TAG, i, MAILBOX_MOST_BYTES);
    barrier();
    for (; again < MOST; again++) {
        fill(out, MAILBOX_MOST_BYTES, first + again);
        if (!mailbox_put(mailbox, right, TAG, out, MAILBOX_MOST_BYTES))
            break;
    }
    barrier();
    for (int i = first / 2; i < first + again; i++, rest++)
        came = came && next_is(TAG, i, MAILBOX_MOST_BYTES);
    barrier();
    free(out);
    ck_assert_int_ge(first, 4);
    ck_assert_int_lt(first, MOST);
    ck_assert_int_eq(again, first / 2);
    ck_assert(came);
    ck_assert_int_eq(rest, first - first / 2 + again);
}
END_TEST

/* Small ones run out of slots first; those that stay are for empty messages, which cannot go otherwise. */
START_TEST(empty_messages_find_room_where_others_do_not)
{
    unsigned char byte = byte_of(rank, 0, 0);
    int others = 0;
    int empty = 0;
    bool came = true;

    while (others < 10000 && mailbox_put(mailbox, right, TAG, &byte, 1))
        others++;
    while (empty < 10000 && mailbox_put(mailbox, right, TAG, NULL, 0))
        empty++;
    barrier();
    for (int i = 0; i < others; i++)
        came = came && next_is(TAG, 0, 1);
    for (int i = 0; i < empty; i++)
        came = came && next_is(TAG, 0, 0);
    barrier();
    ck_assert_int_lt(others, 10000);
    ck_assert_int_gt(empty, 0);
    ck_assert_int_lt(empty, 10000);
    ck_assert(came);
}
END_TEST

START_TEST(word_of_a_message_that_is_not_there_is_refused)
{
    struct mailbox_slot *slot = NULL;
    struct error err = {0};
    size_t bytes = 0;
    unsigned char byte = 1;
    bool put = mailbox_put(mailbox, right, TAG, &byte, 1);
    enum status st;

    barrier();
    st = mailbox_match(mailbox, left, OTHER_TAG, &slot, &bytes, &err);
    (void)mailbox_match(mailbox, left, TAG, &slot, &bytes, NULL);
    mailbox_return(slot);
    barrier();
    ck_assert(put);
    ck_assert_int_eq(st, STATUS_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.text, "sent word of a message with tag 6 that is not there"));
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("mpi mailbox");
    TCase *tests = tcase_create("mpi mailbox");
    SRunner *runner = srunner_create(suite);
    int failed = 1;

    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 1;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    mailbox = mailbox_open(MPI_COMM_WORLD);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, each_tag_keeps_its_order);
    tcase_add_test(tests, a_full_mailbox_refuses_until_something_is_taken);
    tcase_add_test(tests, empty_messages_find_room_where_others_do_not);
    tcase_add_test(tests, word_of_a_message_that_is_not_there_is_refused);
    suite_add_tcase(suite, tests);
    srunner_set_fork_status(runner, CK_NOFORK);
    if (mailbox_reaches(mailbox, right) && mailbox_hears(mailbox, left)) {
        srunner_run_all(runner, rank == 0 ? CK_NORMAL : CK_MINIMAL);
        failed = srunner_ntests_failed(runner);
    } else {
        (void)fprintf(stderr, "rank %d: no mailbox between neighbours of one host\n", rank);
    }
    srunner_free(runner);
    mailbox_close(mailbox);
    (void)MPI_Finalize();
    return failed ? 1 : 0;
}
