/* The post by itself, between the ranks of one host: what it keeps, and what it does not believe.  All communication of
 * a test comes before its first assertion, and a barrier after it, so that a failing rank stays in step. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_post.h"
#include "tests/mpi/neighbours.h"
#include "tests/suite.h"

enum { MAX_TAG = 1000, MAX_BYTES = 1 << 20 };

static struct neighbours neighbours;
static struct post *post;
static struct message_pool pool;
static int rank;
static int size;
static int right;
static int left;

/* Every test has rings of its own.  Collective. */
static void setup(void)
{
    post = post_create(size);
    neighbours = neighbours_open(NULL);
    post_open(post, neighbours.mailbox, MAX_TAG, MAX_BYTES);
    ck_assert(post_reaches(post, right) && post_hears(post, left));
}

static void teardown(void)
{
    (void)MPI_Barrier(MPI_COMM_WORLD);
    message_pool_done(&pool);
    post_destroy(post);
    neighbours_close(&neighbours);
}

static bool has_room(int peer)
{
    bool room = false;

    return post_has_room(post, peer, &room, NULL) == STATUS_OK && room;
}

static unsigned char byte_of(int sender, int message)
{
    return (unsigned char)(sender * 31 + message);
}

/* The next message of the left neighbour with this tag, until it has come. */
static struct message *await(uint32_t tag)
{
    struct message *message = NULL;

    while (!message && post_find(post, &pool, left, tag, &message, NULL) == STATUS_OK)
        continue;
    return message;
}

static bool is_nothing(uint32_t tag)
{
    struct message *message = NULL;

    return post_find(post, &pool, left, tag, &message, NULL) == STATUS_OK && !message;
}

/* Is the next one with this tag a short one, this one? */
static bool take_is(uint32_t tag, int number, size_t count)
{
    struct message *message = await(tag);
    bool is = message && message->kind == MESSAGE_SHORT && message->count == (int)count;

    for (size_t i = 0; is && i < count; i++)
        is = message->bytes[i] == byte_of(left, number);
    if (message) {
        post_remove(post, message);
        message_give(&pool, message);
    }
    return is;
}

static void put(uint32_t tag, int number, size_t count)
{
    unsigned char bytes[RING_CELL_BYTES];

    memset(bytes, byte_of(rank, number), sizeof bytes);
    post_put_short(post, right, tag, bytes, count);
}

/* A barrier that takes in what comes meanwhile: whoever has not put all of his needs the cells. */
static void meet(void)
{
    MPI_Request request;
    int done = 0;

    (void)MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (!done && is_nothing(MAX_TAG))
        (void)MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

/* More of them than cells, put by and by; the last tag is asked for first. */
START_TEST(messages_of_other_tags_are_kept_in_order)
{
    enum { TAGS = 7, EACH = 30 };
    int put_count = 0;
    int came = 0;

    while (put_count < TAGS * EACH) {
        for (; put_count < TAGS * EACH && has_room(right); put_count++)
            put((uint32_t)(put_count % TAGS), put_count, (size_t)(put_count % (RING_CELL_BYTES + 1)));
        (void)is_nothing(MAX_TAG); /* takes in what has come */
    }
    meet();
    for (int tag = TAGS - 1; tag >= 0; tag -= 2) { /* the even tags, then the odd ones from above */
        for (int i = 0; i < EACH; i++)
            came += take_is((uint32_t)tag, i * TAGS + tag, (size_t)((i * TAGS + tag) % (RING_CELL_BYTES + 1)));
    }
    for (int i = 0; i < EACH; i++) {
        for (int tag = 1; tag < TAGS; tag += 2)
            came += take_is((uint32_t)tag, i * TAGS + tag, (size_t)((i * TAGS + tag) % (RING_CELL_BYTES + 1)));
    }
    ck_assert_int_eq(put_count, TAGS * EACH);
    ck_assert_int_eq(came, TAGS * EACH);
    for (uint32_t tag = 0; tag < TAGS; tag++)
        ck_assert(is_nothing(tag));
}
END_TEST

START_TEST(each_kind_says_what_it_said)
{
    const struct mail mail = {.slot = 3, .unit = 4, .number = 5, .bytes = 70000};
    struct message *message[3];

    post_put_mail(post, right, MAX_TAG, &mail);
    post_put_passed(post, right, 0, MAX_BYTES);
    put(1, 0, 0);
    message[0] = await(MAX_TAG);
    message[1] = await(0);
    message[2] = await(1);
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_nonnull(message[i]);
    ck_assert_uint_eq(message[0]->kind, MESSAGE_MAIL);
    ck_assert(memcmp(&message[0]->mail, &mail, sizeof mail) == 0);
    ck_assert_int_eq(message[0]->count, 70000);
    ck_assert_uint_eq(message[1]->kind, MESSAGE_PASSED);
    ck_assert_int_eq(message[1]->count, MAX_BYTES);
    ck_assert_uint_eq(message[2]->kind, MESSAGE_SHORT);
    ck_assert_int_eq(message[2]->count, 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(message[i]->peer, left);
}
END_TEST

/* What a cell says, written past the post. */
struct lie {
    struct ring_label label;
    uint64_t words[5];
    const char *says; /* NULL: it is none */
};

static const struct lie lies[] = {
    {{.tag = MAX_TAG, .kind = MESSAGE_PASSED, .byte_count = 8}, {MAX_BYTES}, NULL},
    {{.tag = MAX_TAG + 1, .kind = MESSAGE_SHORT, .byte_count = 8}, {0}, "tag 1001, kind 1, 8 bytes"},
    {{.tag = UINT32_MAX, .kind = MESSAGE_SHORT, .byte_count = 8}, {0}, "tag 4294967295, kind 1, 8 bytes"},
    {{.tag = 1, .kind = 0, .byte_count = 8}, {0}, "tag 1, kind 0, 8 bytes"},
    {{.tag = 1, .kind = MESSAGE_LENT + 1, .byte_count = 8}, {0}, "tag 1, kind 5, 8 bytes"},
    {{.tag = 1, .kind = MESSAGE_LENT, .byte_count = 8}, {0}, "tag 1, kind 4, 8 bytes"},
    {{.tag = 1, .kind = MESSAGE_LENT, .byte_count = sizeof(struct lent) - 1}, {0}, "tag 1, kind 4, 39 bytes"},
    {{.tag = 1, .kind = MESSAGE_LENT, .byte_count = sizeof(struct lent)},
     {0, 0, 0, (UINT64_C(1) + MAX_BYTES) << 32, 1},
     "kind 4, 1048577 bytes"},
    {{.tag = 1, .kind = MESSAGE_LENT, .byte_count = sizeof(struct lent)},
     {0, 0, 0, (uint64_t)UINT32_MAX << 32, UINT32_MAX},
     "kind 4, 18446744065119617025 bytes"},
    {{.tag = 1, .kind = MESSAGE_MAIL, .byte_count = 23}, {0}, "tag 1, kind 2, 23 bytes"},
    {{.tag = 1, .kind = MESSAGE_MAIL, .byte_count = 0}, {0}, "tag 1, kind 2, 0 bytes"},
    {{.tag = 1, .kind = MESSAGE_MAIL, .byte_count = 24}, {0, 0, MAX_BYTES + 1}, "kind 2, 1048577 bytes"},
    {{.tag = 1, .kind = MESSAGE_MAIL, .byte_count = 24}, {0, 0, UINT64_MAX}, "kind 2, 18446744073709551615 bytes"},
    {{.tag = 1, .kind = MESSAGE_PASSED, .byte_count = 9}, {5}, "tag 1, kind 3, 9 bytes"},
    {{.tag = 1, .kind = MESSAGE_PASSED, .byte_count = 8}, {MAX_BYTES + 1}, "kind 3, 1048577 bytes"},
    {{.tag = 1, .kind = MESSAGE_PASSED, .byte_count = 8}, {UINT64_C(1) << 32}, "kind 3, 4294967296 bytes"},
};

START_TEST(cells_that_lie_are_refused)
{
    const struct lie *lie = &lies[_i];
    struct ring_writer writer = {.ring = mailbox_ring_to(neighbours.mailbox, right)};
    struct message *message = NULL;
    struct error err = {0};
    enum status st = STATUS_OK;

    ring_put(&writer, &lie->label, lie->words);
    while (st == STATUS_OK && !message) {
        post_take_in(post, &pool); /* leaves it to whoever asks */
        st = post_find(post, &pool, left, lie->label.tag, &message, &err);
    }
    if (!lie->says) {
        ck_assert_int_eq(st, STATUS_OK);
        ck_assert_ptr_nonnull(message);
        return;
    }
    ck_assert_int_eq(st, STATUS_CORRUPT);
    ck_assert_ptr_null(message);
    ck_assert_ptr_nonnull(strstr(err.text, lie->says));
    ck_assert_ptr_nonnull(strstr(err.text, "from rank"));
}
END_TEST

START_TEST(a_full_ring_has_no_room)
{
    int first = 0;
    int came = 0;
    bool again = false;

    for (; first < 10 * RING_CELLS && has_room(right); first++)
        put(1, first, 16);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < first; i++)
        came += take_is(1, i, 16);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    again = has_room(right);
    ck_assert_int_eq(first, RING_CELLS);
    ck_assert_int_eq(came, RING_CELLS);
    ck_assert(again);
}
END_TEST

/* Nobody asks for any of them while they are put. */
START_TEST(what_is_taken_in_makes_room_up_to_a_bound)
{
    enum { MANY = POST_KEPT + RING_CELLS };
    MPI_Request request;
    int first = 0;
    int came = 0;
    int done = 0;
    bool room = true;

    while (first < MANY) {
        for (; first < MANY && has_room(right); first++)
            put((uint32_t)(first % 2), first, 8);
        post_take_in(post, &pool);
    }
    (void)MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (!done) {
        (void)MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        post_take_in(post, &pool);
    }
    post_take_in(post, &pool);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    room = has_room(right);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++)
        came += take_is((uint32_t)(i % 2), i, 8);
    ck_assert(!room);
    ck_assert_int_eq(came, MANY);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("mpi post");
    TCase *tests = tcase_create("mpi post");
    int failed;

    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, messages_of_other_tags_are_kept_in_order);
    tcase_add_test(tests, each_kind_says_what_it_said);
    tcase_add_loop_test(tests, cells_that_lie_are_refused, 0, sizeof lies / sizeof lies[0]);
    tcase_add_test(tests, a_full_ring_has_no_room);
    tcase_add_test(tests, what_is_taken_in_makes_room_up_to_a_bound);
    suite_add_tcase(suite, tests);
    failed = suite_run_here(suite);
    (void)MPI_Finalize();
    return failed;
}
