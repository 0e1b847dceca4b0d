/* The MPI transport's table by itself, on every rank of a real world.  All communication of a test comes before its
 * first assertion, and a barrier after it, so that a failing rank stays in step. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory_shared.h"
#include "base/runs.h"
#include "tests/mpi/world.h"

static const struct transport_ops *ops;
static struct transport *transport;
static int rank;
static int size;
static int right; /* neighbours in a ring; on one rank: itself */
static int left;
static void *block; /* of memory that the host can read */

static const size_t sizes[] = {0, 1, 24, 64, 4095, 4097, 65536, 70000, 200001, 1 << 20, (8 << 20) + 3};
enum { SIZES = sizeof sizes / sizeof sizes[0], BLOCK = 100000 };

static enum status finish(struct work *work)
{
    bool over = false;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && !over)
        st = ops->test(transport, work, &over, NULL);
    return st;
}

/* Until a message is there; its bytes, or SIZE_MAX after an error. */
static size_t await(int peer, uint32_t tag, struct message **message)
{
    size_t bytes = 0;

    *message = NULL;
    while (!*message) {
        if (ops->probe(transport, peer, tag, message, &bytes, NULL))
            return SIZE_MAX;
    }
    return bytes;
}

static bool all_are(const unsigned char *bytes, size_t count, unsigned char value)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != value)
            return false;
    }
    return true;
}

/* A token around the ring, twice: nobody goes on before everybody has come. */
static void barrier(void)
{
    for (int round = 0; round < 2; round++) {
        struct work *work = NULL;
        struct message *message;
        char token = 0;

        if (rank == 0 && ops->send(transport, right, 1, &token, 1, &work, NULL) == STATUS_OK)
            (void)finish(work);
        if (await(left, 1, &message) == 1 && ops->receive(transport, message, &token, 1, &work, NULL) == STATUS_OK)
            (void)finish(work);
        if (rank != 0 && ops->send(transport, right, 1, &token, 1, &work, NULL) == STATUS_OK)
            (void)finish(work);
    }
}

START_TEST(messages_of_every_size_arrive_whole)
{
    bool right_size[SIZES];
    bool right_bytes[SIZES];

    for (int i = 0; i < SIZES; i++) {
        unsigned char *out = malloc(sizes[i] + 1);
        struct work *send = NULL;
        struct work *receive = NULL;
        struct message *message;
        unsigned char *in;
        size_t came;

        memset(out, rank + i, sizes[i]);
        (void)ops->send(transport, right, 7, out, sizes[i], &send, NULL);
        came = await(left, 7, &message);
        in = malloc(came + 1);
        (void)ops->receive(transport, message, in, came, &receive, NULL);
        right_size[i] = finish(receive) == STATUS_OK && finish(send) == STATUS_OK && came == sizes[i];
        right_bytes[i] = all_are(in, came, (unsigned char)(left + i));
        free(in);
        free(out);
    }
    barrier();
    for (int i = 0; i < SIZES; i++) {
        ck_assert_msg(right_size[i], "%zu bytes", sizes[i]);
        ck_assert_msg(right_bytes[i], "%zu bytes", sizes[i]);
    }
}
END_TEST

/* Nothing is announced of it: what follows is received in its place. */
START_TEST(a_send_that_mpi_refuses_leaves_nothing_behind)
{
    static const uint32_t no_tag = (uint32_t)1 << 31;
    size_t long_bytes = (size_t)2 << 20; /* by no other way */
    unsigned char *long_out = calloc(long_bytes, 1);
    unsigned char bytes[24] = {1, 2, 3};
    unsigned char in[24] = {0};
    struct work *send = NULL;
    struct work *receive = NULL;
    struct message *message;
    size_t came = 0;
    int refused = 0;
    enum status st;

    for (int i = 0; i < 1000; i++)
        refused += ops->send(transport, right, no_tag, long_out, long_bytes, &send, NULL) != STATUS_OK;
    st = ops->send(transport, right, 9, bytes, sizeof bytes, &send, NULL);
    if (st == STATUS_OK) {
        came = await(left, 9, &message);
        (void)ops->receive(transport, message, in, came, &receive, NULL);
        (void)finish(receive);
        (void)finish(send);
    }
    barrier();
    free(long_out);
    ck_assert_int_eq(refused, 1000);
    ck_assert_int_eq(st, STATUS_OK);
    ck_assert_uint_eq(came, sizeof in);
    ck_assert_mem_eq(in, bytes, sizeof in);
}
END_TEST

/* Between processes of a host there is no room for all of them at a time; those that wait leave in order, and nothing
 * that follows to their peer overtakes them. */
START_TEST(short_messages_wait_for_room)
{
    enum { MANY = 400, BYTES = 24 };
    static unsigned char out[MANY][BYTES];
    static struct work *sends[MANY];
    int posted = 0;
    int in_order = 0;
    int sent = 0;

    for (int i = 0; i < MANY; i++) {
        memset(out[i], rank + i, BYTES);
        posted += ops->send(transport, right, 11, out[i], i % 16 == 15 ? 5 : BYTES, &sends[i], NULL) == STATUS_OK;
    }
    barrier();
    for (int i = 0; i < MANY && posted == MANY; i++) {
        unsigned char in[BYTES] = {0};
        struct work *receive = NULL;
        struct message *message;
        size_t came = await(left, 11, &message);

        if (came > BYTES || ops->receive(transport, message, in, came, &receive, NULL) != STATUS_OK)
            break;
        in_order += finish(receive) == STATUS_OK && came == (i % 16 == 15 ? 5 : BYTES) &&
                    all_are(in, came, (unsigned char)(left + i));
    }
    for (int i = 0; i < posted; i++)
        sent += finish(sends[i]) == STATUS_OK;
    barrier();
    ck_assert_int_eq(posted, MANY);
    ck_assert_int_eq(in_order, MANY);
    ck_assert_int_eq(sent, MANY);
}
END_TEST

/* One of rank 0's, this one? */
static bool take_byte(int peer, uint32_t tag, int value)
{
    struct work *work = NULL;
    struct message *message;
    unsigned char in = 0;

    return await(peer, tag, &message) == 1 && ops->receive(transport, message, &in, 1, &work, NULL) == STATUS_OK &&
           finish(work) == STATUS_OK && in == (unsigned char)value;
}

/* Rank 0 sends ranks 1 and 2 more than there is room for; rank 2 lets rank 1 look only when it has all of its own. */
START_TEST(what_waits_for_one_rank_holds_up_no_other)
{
    enum { MANY = 200, TAG = 13 };
    static unsigned char out[2 * MANY];
    struct work *sends[2 * MANY];
    struct work *work = NULL;
    int good = 0;

    for (int i = 0; i < 2 * MANY && rank == 0; i++) {
        out[i] = (unsigned char)(i % MANY);
        (void)ops->send(transport, 1 + i / MANY, TAG, &out[i], 1, &sends[i], NULL);
    }
    for (int i = 2 * MANY - 1; i >= 0 && rank == 0; i--)
        good += finish(sends[i]) == STATUS_OK;
    if (rank == 1)
        good += take_byte(2, TAG, 0);
    for (int i = 0; i < MANY && (rank == 1 || rank == 2); i++)
        good += take_byte(0, TAG, i);
    if (rank == 2)
        good += ops->send(transport, 1, TAG, out, 1, &work, NULL) == STATUS_OK && finish(work) == STATUS_OK;
    barrier();
    ck_assert_int_eq(good, rank == 0 ? 2 * MANY : rank <= 2 ? MANY + 1 : 0);
}
END_TEST

enum { MIXED = 600, MIXED_TAGS = 4, MIXED_MOST = 1200000 };

/* Some of every way: in a cell, by a mailbox, by MPI. */
static size_t mixed_size(uint32_t *state)
{
    static const uint32_t most[] = {1, 300, 300, 1500, 4000, 70000, MIXED_MOST};
    uint32_t limit;

    *state = *state * 1664525 + 1013904223;
    limit = most[(*state >> 20) % (sizeof most / sizeof most[0])];
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % (limit + 1);
}

/* What both ends of a turn know: how long each of its messages is, and its bytes. */
struct turn {
    size_t counts[MIXED];
    unsigned char *bytes[MIXED];
    struct work *works[MIXED];
};

static void mixed_turn(struct turn *turn, int sender)
{
    uint32_t state = (uint32_t)sender + 7;

    memset(turn, 0, sizeof *turn);
    for (int i = 0; i < MIXED; i++)
        turn->counts[i] = mixed_size(&state);
}

/* Of each tag in order, the tags in whatever order the state says; what has no message yet is asked again later. */
static int mixed_receive(struct turn *in, int *next, uint32_t *state)
{
    uint32_t tag = (*state >> 16) % MIXED_TAGS;
    struct message *message = NULL;
    struct work *work = NULL;
    size_t bytes = 0;
    int at = next[tag];
    bool is = false;

    *state = *state * 1664525 + 1013904223;
    if (at >= MIXED || ops->probe(transport, left, 20 + tag, &message, &bytes, NULL) != STATUS_OK || !message)
        return 0;
    next[tag] += MIXED_TAGS;
    in->bytes[at] = malloc(bytes + 1);
    if (bytes == in->counts[at] && ops->receive(transport, message, in->bytes[at], bytes, &work, NULL) == STATUS_OK)
        is = finish(work) == STATUS_OK && all_are(in->bytes[at], bytes, (unsigned char)(left + at));
    free(in->bytes[at]);
    in->bytes[at] = NULL;
    return is ? 1 : -1;
}

START_TEST(messages_of_all_kinds_keep_their_order)
{
    static struct turn out;
    static struct turn in;
    int next[MIXED_TAGS] = {0, 1, 2, 3};
    uint32_t state = (uint32_t)rank;
    uint64_t deadline_ns = clock_ns() + 50 * NS_PER_S;
    int sent = 0;
    int came = 0;
    int step = 0;

    mixed_turn(&out, rank);
    mixed_turn(&in, left);
    while ((sent < MIXED || came < MIXED) && step >= 0 && clock_ns() < deadline_ns) {
        for (int burst = state >> 30 ? 1 : 90; burst && sent < MIXED; burst--, sent++) {
            out.bytes[sent] = malloc(out.counts[sent] + 1);
            memset(out.bytes[sent], rank + sent, out.counts[sent]);
            if (ops->send(transport, right, 20 + (uint32_t)sent % MIXED_TAGS, out.bytes[sent], out.counts[sent],
                          &out.works[sent], NULL) != STATUS_OK)
                break;
        }
        step = mixed_receive(&in, next, &state);
        came += step > 0;
    }
    for (int i = 0; i < sent; i++) {
        (void)finish(out.works[i]);
        free(out.bytes[i]);
    }
    barrier();
    ck_assert_int_eq(step >= 0, 1);
    ck_assert_int_eq(sent, MIXED);
    ck_assert_int_eq(came, MIXED);
}
END_TEST

/* Nobody knows yet how quickly it reads.  Until it has said so little is lent. */
START_TEST(a_peer_that_is_not_known_is_lent_to_now_and_then)
{
    enum { TURNS = 40 };
    const struct runs runs = {.bytes = block, .run = BLOCK, .stride = BLOCK, .rows = 1};
    bool first = block && ops->reach(transport, right, &runs);
    int lent = 0;

    for (int i = 0; block && i < TURNS; i++)
        lent += ops->reach(transport, right, &runs) != NULL;
    ck_assert_ptr_nonnull(block);
    ck_assert(!first);
    ck_assert_int_le(lent, TURNS / 2);
    ck_assert_int_eq(lent > 0, size > 1 && !getenv("FERRY_MPI_SHARED"));
}
END_TEST

/* Alone, between hosts, or where it is switched off there is none.  What is written there leaves without a copy. */
START_TEST(a_message_may_be_written_where_the_transport_has_room)
{
    enum { TURNS = 200, BYTES = 70003 };
    unsigned char *in = calloc(BYTES, 1);
    bool near = false;
    int rooms = 0;
    int came = 0;

    for (int i = 0; i < TURNS; i++) {
        unsigned char *room = ops->room(transport, right, BYTES, &near);
        unsigned char *out = room ? room : malloc(BYTES);
        struct work *send = NULL;
        struct work *receive = NULL;
        struct message *message;

        rooms += room && (uintptr_t)room % 64 == 0;
        memset(out, rank + i, BYTES);
        (void)ops->send(transport, right, 12, out, BYTES, &send, NULL);
        if (await(left, 12, &message) == BYTES &&
            ops->receive(transport, message, in, BYTES, &receive, NULL) == STATUS_OK)
            came += finish(receive) == STATUS_OK && all_are(in, BYTES, (unsigned char)(left + i));
        (void)finish(send);
        if (!room)
            free(out);
    }
    barrier();
    free(in);
    ck_assert_int_eq(rooms, size > 1 && !getenv("FERRY_MPI_SHARED") ? TURNS : 0);
    ck_assert_int_eq(came, TURNS);
}
END_TEST

/* A receiver that expects 100 bytes and gets 8 MiB learns the size first, and its heap stays whole. */
START_TEST(a_message_of_an_unexpected_size_is_told_before_it_is_received)
{
    size_t big = (size_t)8 << 20;
    unsigned char *out = calloc(big, 1);
    unsigned char *small = calloc(100, 1);
    struct work *send = NULL;
    struct work *receive = NULL;
    struct message *message;
    size_t came;
    enum status st;

    (void)ops->send(transport, right, 8, out, big, &send, NULL);
    came = await(left, 8, &message);
    free(small);
    small = malloc(came);
    st = ops->receive(transport, message, small, came, &receive, NULL);
    if (st == STATUS_OK)
        st = finish(receive);
    (void)finish(send);
    barrier();
    free(small);
    free(out);
    ck_assert_uint_eq(came, big);
    ck_assert_int_eq(st, STATUS_OK);
}
END_TEST

START_TEST(tags_do_not_mix_and_order_is_kept)
{
    unsigned char out[6] = {0, 1, 2, 3, 4, 5};
    unsigned char in[6] = {9, 9, 9, 9, 9, 9};
    struct work *sends[6];
    uint32_t top = ops->max_tag(transport);

    for (int i = 0; i < 6; i++)
        (void)ops->send(transport, right, i % 2 ? top : 9, &out[i], 1, &sends[i], NULL);
    for (int odd = 1; odd >= 0; odd--) {
        for (int i = odd; i < 6; i += 2) {
            struct message *message;
            struct work *work = NULL;

            if (await(left, odd ? top : 9, &message) == 1 &&
                ops->receive(transport, message, &in[i], 1, &work, NULL) == STATUS_OK)
                (void)finish(work);
        }
    }
    for (int i = 0; i < 6; i++)
        (void)finish(sends[i]);
    barrier();
    ck_assert_mem_eq(in, out, 6);
    ck_assert_uint_ge(top, 32767);
}
END_TEST

/* B41 and its kind start with a send that waits: 64 MiB to a peer that has posted nothing must return at once. */
START_TEST(a_large_send_returns_at_once)
{
    size_t big = (size_t)64 << 20;
    unsigned char *out = calloc(big, 1);
    unsigned char *in = malloc(big);
    struct work *send = NULL;
    struct work *receive = NULL;
    struct message *message;
    uint64_t begin_ns;
    uint64_t took_ns;

    barrier();
    begin_ns = clock_ns();
    (void)ops->send(transport, right, 10, out, big, &send, NULL);
    took_ns = clock_ns() - begin_ns;
    clock_sleep_ns(20 * NS_PER_MS);
    if (await(left, 10, &message) == big && ops->receive(transport, message, in, big, &receive, NULL) == STATUS_OK)
        (void)finish(receive);
    (void)finish(send);
    barrier();
    free(in);
    free(out);
    if (size > 1)
        ck_assert_uint_lt(took_ns, 20 * NS_PER_MS);
}
END_TEST

START_TEST(control_messages_reach_every_rank)
{
    unsigned char message[CONTROL_BYTES];
    int came[64] = {0};
    bool whole = true;
    int total = 0;

    for (int peer = 0; peer < size; peer++) {
        for (int i = 0; i < 100; i++) {
            memset(message, rank + i, sizeof message);
            (void)ops->control_send(transport, peer, message, NULL);
        }
    }
    while (total < 100 * size) {
        bool found = false;
        int peer = -1;

        if (ops->control_receive(transport, &peer, message, &found, NULL))
            break;
        if (!found)
            continue;
        whole &= all_are(message, sizeof message, (unsigned char)(peer + came[peer]));
        came[peer]++;
        total++;
    }
    barrier();
    ck_assert(whole);
    for (int peer = 0; peer < size; peer++)
        ck_assert_int_eq(came[peer], 100);
}
END_TEST

START_TEST(errors_of_mpi_are_sentences)
{
    struct error err = {0};
    struct work *work = NULL;
    enum status st = ops->send(transport, size + 5, 3, "x", 1, &work, &err);

    barrier();
    ck_assert_int_eq(st, STATUS_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "MPI_Isend failed: MPI_ERR_RANK"));
    ck_assert_int_eq(ops->send(transport, 0, 3, "x", (size_t)5 << 30, &work, &err), STATUS_OVERFLOW);
    ck_assert_ptr_nonnull(strstr(ops->describe(transport), "host"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mpi transport");
    TCase *tests = tcase_create("mpi transport");
    struct world world = {.shared = memory_shared_create(2 * BLOCK)};
    struct error err = {0};
    enum status st = world_open(&world, &err);
    int failed;

    if (world.shared)
        (void)world.shared->ops->allocate(world.shared, BLOCK, &block, NULL);
    if (st == STATUS_OK) {
        ops = world.ops;
        transport = world.transport;
        rank = world.rank;
        size = world.size;
        right = (rank + 1) % size;
        left = (rank + size - 1) % size;
    }
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_peer_that_is_not_known_is_lent_to_now_and_then);
    tcase_add_test(tests, messages_of_every_size_arrive_whole);
    tcase_add_test(tests, a_send_that_mpi_refuses_leaves_nothing_behind);
    tcase_add_test(tests, short_messages_wait_for_room);
    if (size > 2)
        tcase_add_test(tests, what_waits_for_one_rank_holds_up_no_other);
    tcase_add_test(tests, messages_of_all_kinds_keep_their_order);
    tcase_add_test(tests, a_message_may_be_written_where_the_transport_has_room);
    tcase_add_test(tests, a_message_of_an_unexpected_size_is_told_before_it_is_received);
    tcase_add_test(tests, tags_do_not_mix_and_order_is_kept);
    tcase_add_test(tests, a_large_send_returns_at_once);
    tcase_add_test(tests, control_messages_reach_every_rank);
    tcase_add_test(tests, errors_of_mpi_are_sentences);
    suite_add_tcase(suite, tests);
    failed = world_run(&world, suite, st, &err);
    if (block)
        world.shared->ops->release(world.shared, block);
    memory_shared_destroy(world.shared);
    return failed;
}
