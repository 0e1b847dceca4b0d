/* Payloads that lie in memory which their sender shares, by the transport alone.
 *
 * All communication of a test comes before its first assertion, and a barrier after it, so that a failing rank stays in
 * step.  Alone, a rank finds that there is nobody to lend to. */
#include <check.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_lending.h"
#include "base/clock.h"
#include "base/memory_shared.h"
#include "comm/group.h"
#include "tests/mpi/neighbours.h"
#include "tests/mpi/threads.h"
#include "tests/mpi/world.h"
#include "tests/suite.h"

enum { ROOM = 64 << 20, TAG = 5, OTHER_TAG = 6, HEADER = 192, BYTES = 100000, MANY = 300, TURNS = 100000 };

static struct world world;
static unsigned char *block;
static unsigned char header[HEADER];
static int right;
static int left;

static unsigned char byte_of(int rank, size_t at)
{
    return (unsigned char)((size_t)rank * 37 + at * 11 + (at >> 8) * 7 + 1);
}

/* Told to share nothing. */
static bool is_alone(void)
{
    return getenv("FERRY_MPI_SHARED") != NULL;
}

static void barrier(void)
{
    (void)MPI_Barrier(MPI_COMM_WORLD);
}

static void *take(struct memory *memory, size_t bytes)
{
    void *ret = NULL;

    return memory->ops->allocate(memory, bytes, &ret, NULL) == STATUS_OK ? ret : NULL;
}

/* ---- the transport ---- */

static struct runs strided(void)
{
    return (struct runs){.bytes = block + 100, .run = 1000, .stride = 3000, .rows = 20};
}

static struct work *lend(uint32_t tag, const struct runs *runs)
{
    struct work *work = world.ops->reach(world.transport, right, runs);

    if (work && world.ops->send_lent(world.transport, work, tag, header, HEADER, runs, NULL) != STATUS_OK)
        return NULL;
    return work;
}

/* Turns of a transport that is asked for anything. */
static bool has_ended(struct work **work)
{
    bool ended = false;

    if (*work && world.ops->test(world.transport, *work, &ended, NULL) == STATUS_OK && ended)
        *work = NULL;
    return !*work;
}

static bool ends(struct work **work)
{
    for (int i = 0; i < TURNS && !has_ended(work); i++)
        clock_sleep_ns(i > 1000 ? NS_PER_US : 0);
    return !*work;
}

static struct message *next(uint32_t tag, size_t *ret_bytes)
{
    struct message *message = NULL;

    for (int i = 0; i < TURNS && !message; i++) {
        if (world.ops->probe(world.transport, left, tag, &message, ret_bytes, NULL) != STATUS_OK)
            return NULL;
        clock_sleep_ns(i > 1000 ? NS_PER_US : 0);
    }
    return message;
}

/* Is this the left neighbour's header and are these its runs? */
static bool is_strided(const unsigned char *head, const struct runs *runs)
{
    bool right_bytes = runs->run == 1000 && runs->rows == 20;

    for (size_t i = 0; right_bytes && i < HEADER; i++)
        right_bytes = head[i] == (unsigned char)(left + (int)i);
    for (size_t row = 0; right_bytes && row < runs->rows; row++) {
        for (size_t i = 0; right_bytes && i < runs->run; i++)
            right_bytes = runs->bytes[row * runs->stride + i] == byte_of(left, 100 + row * 3000 + i);
    }
    return right_bytes;
}

START_TEST(a_lent_message_is_read_where_it_lies_and_then_its_sender_is_done)
{
    const struct runs runs = strided();
    struct runs seen = {0};
    struct work *work = NULL;
    struct message *message = NULL;
    const unsigned char *head = NULL;
    size_t bytes = 0;
    size_t head_bytes = 0;
    bool as_sent = false;
    bool early[2] = {true, true};
    bool ended = false;

    barrier();
    work = lend(TAG, &runs);
    barrier();
    early[0] = has_ended(&work);
    message = next(TAG, &bytes);
    head = message ? world.ops->look(world.transport, message, &head_bytes, &seen) : NULL;
    as_sent = head && is_strided(head, &seen);
    barrier();
    early[1] = has_ended(&work);
    barrier();
    if (message)
        world.ops->give_back(world.transport, message, 0);
    ended = ends(&work);
    barrier();
    ck_assert(!early[0]);
    ck_assert(!early[1]);
    ck_assert_uint_eq(bytes, HEADER + 20 * 1000);
    ck_assert_uint_eq(head_bytes, HEADER);
    ck_assert(as_sent);
    ck_assert(ended);
}
END_TEST

/* Whoever does not look for runs gets what he gets of every message. */
START_TEST(a_lent_message_is_received_like_any_other)
{
    enum { ALL = HEADER + 20 * 1000 };
    const struct runs runs = strided();
    static unsigned char in[ALL + 1];
    struct work *work = NULL;
    struct work *receipt = NULL;
    struct message *message = NULL;
    size_t bytes = 0;
    bool came = false;
    bool ended = false;

    barrier();
    in[ALL] = 0x5a;
    work = lend(TAG, &runs);
    message = next(TAG, &bytes);
    came = message && bytes == ALL &&
           world.ops->receive(world.transport, message, in, bytes, &receipt, NULL) == STATUS_OK && ends(&receipt);
    ended = ends(&work);
    barrier();
    ck_assert(came);
    ck_assert(ended);
    ck_assert_uint_eq(in[ALL], 0x5a);
    for (size_t i = 0; i < HEADER; i++)
        ck_assert_uint_eq(in[i], (unsigned char)(left + (int)i));
    for (size_t i = 0; i < 20000; i++)
        ck_assert_uint_eq(in[HEADER + i], byte_of(left, 100 + i / 1000 * 3000 + i % 1000));
}
END_TEST

/* The same bytes in two messages: each send ends by itself. */
START_TEST(what_is_lent_twice_comes_back_twice)
{
    const struct runs runs = strided();
    struct work *works[2] = {NULL, NULL};
    struct message *messages[2] = {NULL, NULL};
    size_t bytes = 0;
    bool first = true;
    bool second = false;
    bool last = false;

    barrier();
    works[0] = lend(TAG, &runs);
    works[1] = lend(OTHER_TAG, &runs);
    messages[1] = next(OTHER_TAG, &bytes);
    messages[0] = next(TAG, &bytes);
    barrier();
    if (messages[1])
        world.ops->give_back(world.transport, messages[1], 0);
    second = ends(&works[1]);
    first = has_ended(&works[0]);
    barrier();
    if (messages[0])
        world.ops->give_back(world.transport, messages[0], 0);
    last = ends(&works[0]);
    barrier();
    ck_assert(messages[0] && messages[1]);
    ck_assert(second);
    ck_assert(!first);
    ck_assert(last);
}
END_TEST

/* As any message is sent.  early: the send was over before anybody had looked; lent: its receiver finds it so. */
struct sent {
    bool early;
    bool lent;
    bool came;
    bool ended;
    bool equal;
};

static struct sent send_whole(unsigned char *out, unsigned char *in, size_t count)
{
    struct sent ret = {.equal = true};
    struct work *work = NULL;
    struct work *receipt = NULL;
    struct message *message = NULL;
    struct runs runs = {0};
    size_t head_bytes = 1;
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        out[i] = byte_of(world.rank, i + count);
    barrier();
    (void)world.ops->send(world.transport, right, TAG, out, count, &work, NULL);
    barrier();
    ret.early = has_ended(&work);
    barrier();
    message = next(TAG, &bytes);
    ret.lent = message && world.ops->look(world.transport, message, &head_bytes, &runs) && !head_bytes;
    ret.came = message && bytes == count &&
               world.ops->receive(world.transport, message, in, count, &receipt, NULL) == STATUS_OK && ends(&receipt);
    ret.ended = ends(&work);
    for (size_t i = 0; i < count; i++)
        ret.equal = ret.equal && in[i] == byte_of(left, i + count);
    barrier();
    return ret;
}

/* Out of shared memory from 16 KiB on, and of the process's own none; what the mailbox carries is over at once. */
START_TEST(messages_out_of_shared_memory_are_lent)
{
    static const struct {
        size_t count;
        bool shared;
        bool lent;
        bool early;
    } cases[] = {{16383, true, false, true},   {16384, true, true, false},    {300000, true, true, false},
                 {3000000, true, true, false}, {300000, false, false, true}};
    enum { CASES = sizeof cases / sizeof *cases, LONGEST = 3000000 };
    unsigned char *out[2] = {malloc(LONGEST), take(world.shared, LONGEST)};
    unsigned char *in = malloc(LONGEST);
    struct sent sent[CASES];

    ck_assert(out[0] && out[1] && in);
    for (int i = 0; i < CASES; i++)
        sent[i] = send_whole(out[cases[i].shared], in, cases[i].count);
    for (int i = 0; i < CASES; i++) {
        ck_assert_msg(sent[i].came && sent[i].ended && sent[i].equal, "%zu bytes", cases[i].count);
        ck_assert_msg(sent[i].lent == cases[i].lent, "%zu bytes are lent: %d", cases[i].count, sent[i].lent);
        ck_assert_msg(sent[i].early == cases[i].early, "%zu bytes left early: %d", cases[i].count, sent[i].early);
    }
    world.shared->ops->release(world.shared, out[1]);
    free(out[0]);
    free(in);
}
END_TEST

/* Where lending is measured, and nothing is known of the peer yet: what the mailbox is too small for is lent, and what
 * it can carry is not. */
START_TEST(the_first_message_to_a_peer_is_mailed)
{
    enum { LONG = 3000000, MIDDLING = 300000 };
    unsigned char *out = take(world.shared, LONG);
    unsigned char *in = malloc(LONG);
    struct sent middling;
    struct sent whole;

    ck_assert(out && in);
    middling = send_whole(out, in, MIDDLING);
    whole = send_whole(out, in, LONG);
    ck_assert(middling.came && middling.ended && middling.equal);
    ck_assert(whole.came && whole.ended && whole.equal);
    ck_assert(!middling.lent);
    ck_assert(whole.lent);
    world.shared->ops->release(world.shared, out);
    free(in);
}
END_TEST

/* There is room to tell of so many at a time, and of as many again when those have come back; they keep their order. */
START_TEST(as_many_as_can_be_told_of_are_lent_in_order)
{
    static struct work *works[2][MANY];
    int counts[2] = {0, 0};
    bool in_order = true;
    bool all = true;

    for (int turn = 0; turn < 2; turn++) {
        int *count = &counts[turn];

        barrier();
        for (; *count < MANY; ++*count) {
            size_t run = 64 + (size_t)*count;

            works[turn][*count] = lend(TAG, &(struct runs){block + *count, run, run, 1});
            if (!works[turn][*count])
                break;
        }
        barrier();
        for (int i = 0; i < *count; i++) {
            struct runs seen = {0};
            size_t bytes = 0;
            size_t head_bytes = 0;
            struct message *message = next(TAG, &bytes);

            in_order = in_order && message && world.ops->look(world.transport, message, &head_bytes, &seen) &&
                       seen.run == 64 + (size_t)i && seen.rows == 1 && seen.bytes[0] == byte_of(left, (size_t)i);
            if (message)
                world.ops->give_back(world.transport, message, 0);
        }
        for (int i = 0; i < *count; i++)
            all = ends(&works[turn][i]) && all;
        barrier();
    }
    ck_assert(in_order);
    ck_assert(all);
    ck_assert_int_ge(counts[0], 100);
    ck_assert_int_lt(counts[0], MANY);
    ck_assert_int_eq(counts[1], counts[0]);
}
END_TEST

START_TEST(only_shared_memory_is_within_reach)
{
    static unsigned char own[BYTES];
    const struct {
        struct runs runs;
        bool reached;
    } some[] = {
        {strided(), true},
        {{block, BYTES, BYTES, 1}, true},
        {{block, BYTES / 2, BYTES / 2, 2}, true},
        {{own, BYTES, BYTES, 1}, false},
        {{block, BYTES / 2, BYTES, 3}, false},
        {{block, 1, SIZE_MAX, 3}, false},
        {{block, BYTES, BYTES, 0}, false},
    };

    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        ck_assert_msg((world.ops->reach(world.transport, right, &some[i].runs) != NULL) == some[i].reached, "runs %zu",
                      i);
}
END_TEST

/* ---- what a peer says ---- */

START_TEST(words_that_lie_are_refused)
{
    struct neighbours neighbours = neighbours_open(world.shared);
    const struct lending lending = {world.shared, neighbours.host};
    const struct runs runs = strided();
    struct lent good = {0};
    struct lent lies[11];
    enum { LIES = sizeof lies / sizeof *lies };
    enum status st[LIES];
    struct error err[LIES] = {0};
    uint64_t size = memory_shared_file(world.shared).bytes;
    bool reached = lending_reaches(&lending, left, &runs, &good);
    struct lent last = good;
    enum status truth;
    enum status edge;

    for (int i = 0; i < LIES; i++)
        lies[i] = good;
    last.offset = size - 19 * 3000 - 1000;
    lies[0].offset = last.offset + 1;
    lies[1].offset = size;
    lies[2].offset = size + 1;
    lies[3].offset = UINT64_MAX;
    lies[4].run = (uint32_t)size;
    lies[5].run = UINT32_MAX;
    lies[6].run = 0;
    lies[7].rows = 0;
    lies[8].rows = UINT32_MAX;
    lies[9].stride = UINT64_MAX / 19 + 1;
    lies[10].stride = size;
    for (int i = 0; i < LIES; i++)
        st[i] = lending_check(&lending, left, &lies[i], &err[i]);
    truth = lending_check(&lending, left, &good, NULL);
    edge = lending_check(&lending, left, &last, NULL);
    neighbours_close(&neighbours);
    barrier();
    ck_assert(reached);
    ck_assert_int_eq(truth, STATUS_OK);
    ck_assert_int_eq(edge, STATUS_OK);
    for (int i = 0; i < LIES; i++) {
        ck_assert_msg(st[i] == STATUS_CORRUPT, "lie %d", i);
        ck_assert_ptr_nonnull(strstr(err[i].text, "bytes that it shares"));
    }
}
END_TEST

/* The lines that each run touches, but no more than all of it covers. */
START_TEST(lines_are_counted_as_they_are_read)
{
    static const struct {
        struct lent lent;
        uint64_t lines;
    } some[] = {
        {{.run = 1, .rows = 1}, 1},
        {{.run = 65536, .rows = 1}, 1024},
        {{.run = 1000, .stride = 3000, .rows = 20}, 320},
        {{.run = 8, .stride = 4096, .rows = 100}, 100},
        {{.run = 8, .stride = 16, .rows = 1000}, 250},
        {{.run = 64, .stride = 0, .rows = UINT32_MAX}, 2},
        {{.run = UINT32_MAX, .stride = UINT64_C(1) << 31, .rows = UINT32_C(1) << 31}, (UINT64_C(1) << 56) + (1 << 25)},
    };

    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        ck_assert_msg(lending_lines(&some[i].lent) == some[i].lines, "%zu: %zu", i,
                      (size_t)lending_lines(&some[i].lent));
}
END_TEST

/* Rank 0 has none: its peers read nothing of it, and still lend to each other. */
START_TEST(a_rank_without_shared_memory_lends_nothing)
{
    const struct memory *lent = world.rank ? world.shared : NULL;
    struct neighbours neighbours = neighbours_open(lent);
    const struct lending lending = {lent, neighbours.host};
    const struct runs runs = strided();
    struct lent found = {.run = 1, .rows = 1};
    struct error err = {0};
    enum status st = lending_check(&lending, left, &found, &err);
    bool reached = lending_reaches(&lending, right, &runs, &found);

    neighbours_close(&neighbours);
    barrier();
    ck_assert_int_eq(reached, world.rank != 0);
    ck_assert_int_eq(st, left ? STATUS_OK : STATUS_CORRUPT);
    if (left == 0)
        ck_assert_ptr_nonnull(strstr(err.text, "that this rank cannot read"));
}
END_TEST

static enum status start(bool all, struct error *err)
{
    enum status st = STATUS_OK;

    world.lend_all = all;
    world.shared = memory_shared_create(ROOM);
    if (!world.shared || !(block = take(world.shared, BYTES)))
        return error_set(err, STATUS_ENVIRONMENT, "no shared memory");
    st = world_open(&world, err);
    if (st != STATUS_OK)
        return st;
    right = (world.rank + 1) % world.size;
    left = (world.rank + world.size - 1) % world.size;
    for (size_t i = 0; i < BYTES; i++)
        block[i] = byte_of(world.rank, i);
    for (int i = 0; i < HEADER; i++)
        header[i] = (unsigned char)(world.rank + i);
    return STATUS_OK;
}

/* Without a session, whose thread uses the transport as well. */
static int try_transport(enum status st, struct error *err)
{
    Suite *suite = suite_create("mpi lending");
    TCase *tests = tcase_create("transport");

    tcase_set_timeout(tests, 100);
    if (!world.lend_all) {
        tcase_add_test(tests, the_first_message_to_a_peer_is_mailed);
    } else if (world.size > 1 && !is_alone()) {
        tcase_add_test(tests, a_lent_message_is_read_where_it_lies_and_then_its_sender_is_done);
        tcase_add_test(tests, a_lent_message_is_received_like_any_other);
        tcase_add_test(tests, what_is_lent_twice_comes_back_twice);
        tcase_add_test(tests, messages_out_of_shared_memory_are_lent);
        tcase_add_test(tests, as_many_as_can_be_told_of_are_lent_in_order);
        tcase_add_test(tests, only_shared_memory_is_within_reach);
        tcase_add_test(tests, words_that_lie_are_refused);
        tcase_add_test(tests, lines_are_counted_as_they_are_read);
        tcase_add_test(tests, a_rank_without_shared_memory_lends_nothing);
    }
    suite_add_tcase(suite, tests);
    return world_run(&world, suite, st, err);
}

/* auto: lent is what is read quickly, as far as is known. */
int main(int argc, char **argv)
{
    bool all = argc < 2 || strcmp(argv[1], "auto") != 0;
    struct error err = {0};
    int failed = 0;

    if (!threads_start(&argc, &argv))
        return SKIPPED;
    failed = try_transport(start(all, &err), &err);
    if (block)
        world.shared->ops->release(world.shared, block);
    memory_shared_destroy(world.shared);
    (void)MPI_Finalize();
    return failed;
}
