/* Shared mailboxes by themselves, between the ranks of one host.  All communication of a test comes before its first
 * assertion, and a barrier after it, so that a failing rank stays in step. */
#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_message.h"
#include "tests/mpi/neighbours.h"
#include "tests/suite.h"

enum { MOST = 64, TAG = 5, OTHER_TAG = 6, ENOUGH = 10000 };

static struct neighbours neighbours;
static struct mailbox *mailbox;
static MPI_Request envelope[ENOUGH];
static struct mail sent[ENOUGH];
static int envelopes;
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

/* Put a message in and send its envelope to the right neighbour; false: no room. */
static bool post(int tag, const void *bytes, size_t count)
{
    struct mail *mail = &sent[envelopes];

    if (!mailbox_reserve(mailbox, right, count, mail))
        return false;
    (void)mailbox_write(mailbox, mail, bytes, 0, count);
    (void)MPI_Isend(mail, sizeof *mail, MPI_BYTE, right, tag, MPI_COMM_WORLD, &envelope[envelopes++]);
    return true;
}

static struct mail next_envelope(uint32_t tag)
{
    struct mail mail = {0};

    (void)MPI_Recv(&mail, sizeof mail, MPI_BYTE, left, (int)tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return mail;
}

/* Is the next message of the left neighbour this one, of count bytes? */
static bool next_is(uint32_t tag, int message, size_t count)
{
    struct mail mail = next_envelope(tag);
    unsigned char *in = NULL;
    size_t bytes = (size_t)mail.bytes;
    bool right_bytes = false;

    if (mailbox_match(mailbox, left, tag, &mail, NULL) != STATUS_OK)
        return false;
    in = malloc(bytes + 1);
    in[bytes] = 0x5a;
    memcpy(in, mailbox_bytes(mailbox, left, &mail), bytes);
    mailbox_return(mailbox, left, &mail, 0);
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

/* The end of a test's communication. */
static void settle(void)
{
    (void)MPI_Waitall(envelopes, envelope, MPI_STATUSES_IGNORE);
    envelopes = 0;
    barrier();
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
        put = put && post(i % 2 ? OTHER_TAG : TAG, out, counts[i]);
    }
    barrier();
    for (int odd = 1; odd >= 0; odd--) {
        for (int i = odd; i < COUNT; i += 2)
            came = came && next_is(i % 2 ? OTHER_TAG : TAG, i, counts[i]);
    }
    settle();
    free(out);
    ck_assert(put);
    ck_assert(came);
}
END_TEST

START_TEST(near_and_far_peers_read_the_same)
{
    enum { SOON_NS = 30, LATE_NS = 130, BYTES = 70003, MANY = 20 };
    unsigned char *out = malloc(BYTES);
    bool put = true;
    bool came = true;

    for (int i = 0; i < 2; i++) { /* written past the cache, and not */
        for (int k = 0; k < MANY; k++)
            distance_looked(mailbox_distance(mailbox, right), i ? SOON_NS : LATE_NS);
        fill(out, BYTES, i);
        put = put && post(TAG, out, BYTES);
    }
    barrier();
    for (int i = 0; i < 2; i++)
        came = came && next_is(TAG, i, BYTES);
    settle();
    free(out);
    ck_assert(put);
    ck_assert(came);
}
END_TEST

/* What writing a message to the right neighbour has told of plain stores, from what is known before: 0: nothing.  The
 * other's mail is taken, too. */
static int8_t told_by_writing(struct distance before, const unsigned char *out, size_t count, bool *all)
{
    struct distance *distance = mailbox_distance(mailbox, right);

    *distance = before;
    *all = post(TAG, out, count) && *all;
    before = *distance;
    *all = next_is(TAG, 0, count) && *all;
    settle();
    return before.stored.quick;
}

/* Where the looks do not say near, and a trial is due, long messages are; one that somebody interrupted tells nothing.
 */
START_TEST(plain_stores_are_timed)
{
    enum { BYTES = 70003, BRIEF = 8000, MANY = 50, DUE = 255 };
    const struct distance due = {.near = -2, .stored.others = DUE};
    const struct distance not_due = {.near = -2};
    const struct distance near = {.near = 4, .stored.others = DUE};
    unsigned char *out = malloc(BYTES);
    bool all = true;
    int told = 0;
    int told_else = 0;

    fill(out, BYTES, 0);
    for (int i = 0; i < MANY; i++) {
        told += told_by_writing(due, out, BYTES, &all) != 0;
        told_else += told_by_writing(not_due, out, BYTES, &all) || told_by_writing(near, out, BYTES, &all) ||
                     told_by_writing(due, out, BRIEF, &all);
    }
    free(out);
    ck_assert(all);
    ck_assert_int_gt(told, 0);
    ck_assert_int_eq(told_else, 0);
}
END_TEST

/* Lend so many lines (0: send mail) to the right neighbour, who says that reading took so long, as this rank says to
 * the left one; both are returned then.  False: there was no room, or nothing came. */
static bool lend_and_say(uint64_t lines, uint64_t ns, struct mail *ret)
{
    static unsigned char bytes[MAILBOX_LEAST_BYTES];
    struct mail *own = &sent[envelopes];
    struct mail mail;
    bool put = mailbox_reserve(mailbox, right, lines ? 0 : sizeof bytes, own);

    if (lines)
        mailbox_lends(mailbox, own, lines);
    else
        (void)mailbox_write(mailbox, own, bytes, 0, sizeof bytes);
    (void)MPI_Isend(own, sizeof *own, MPI_BYTE, right, TAG, MPI_COMM_WORLD, &envelope[envelopes++]);
    mail = next_envelope(TAG);
    put = mailbox_match(mailbox, left, TAG, &mail, NULL) == STATUS_OK && put;
    mailbox_return(mailbox, left, &mail, ns);
    barrier();
    *ret = *own;
    return put;
}

/* Whether it looks for the one message, or for room for another; once each, and of what was lent alone. */
START_TEST(a_sender_hears_how_quickly_its_peer_reads)
{
    enum { LINES = 1000, QUICK_NS = 5 * LINES, SLOW_NS = 30 * LINES };
    static const struct {
        uint64_t lines;
        uint64_t ns;
        int8_t heard;
    } words[] = {{LINES, QUICK_NS, 1},    {LINES, QUICK_NS, 2}, {LINES, SLOW_NS, 1}, {LINES, SLOW_NS, 0},
                 {LINES, SLOW_NS, -1},    {0, QUICK_NS, -1},    {0, SLOW_NS, -1},    {LINES, 0, -1},
                 {LINES, UINT64_MAX, -1}, {LINES, QUICK_NS, 0}};
    enum { COUNT = sizeof words / sizeof *words };
    struct distance *distance = mailbox_distance(mailbox, right);
    int8_t heard[COUNT][2];
    bool put = true;
    bool returned = true;

    *distance = (struct distance){0};
    for (int i = 0; i < COUNT; i++) {
        struct mail mail;

        *distance = (struct distance){.lent.quick = distance->lent.quick}; /* what the looks say must not matter */
        put = lend_and_say(words[i].lines, words[i].ns, &mail) && put;
        for (int k = 0; k < 2 && i % 2 && words[i].lines; k++)
            returned = mailbox_is_returned(mailbox, &mail) && returned;
        heard[i][0] = distance->lent.quick;
        put = lend_and_say(0, 0, &mail) && put; /* takes the other's slot back */
        heard[i][1] = distance->lent.quick;
    }
    settle();
    ck_assert(put);
    ck_assert(returned);
    for (int i = 0; i < COUNT; i++) {
        int8_t before = i ? words[i - 1].heard : (int8_t)0;

        ck_assert_msg(heard[i][0] == (i % 2 ? words[i].heard : before), "words %d", i);
        ck_assert_msg(heard[i][1] == words[i].heard, "words %d, behind", i);
    }
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
        if (!post(TAG, out, MAILBOX_MOST_BYTES))
            break;
    }
    barrier();
    for (int i = 0; i < first / 2; i++)
        came = came && next_is(TAG, i, MAILBOX_MOST_BYTES);
    barrier();
    for (; again < MOST; again++) {
        fill(out, MAILBOX_MOST_BYTES, first + again);
        if (!post(TAG, out, MAILBOX_MOST_BYTES))
            break;
    }
    barrier();
    for (int i = first / 2; i < first + again; i++, rest++)
        came = came && next_is(TAG, i, MAILBOX_MOST_BYTES);
    settle();
    free(out);
    ck_assert_int_ge(first, 4);
    ck_assert_int_lt(first, MOST);
    ck_assert_int_eq(again, first / 2);
    ck_assert(came);
    ck_assert_int_eq(rest, first - first / 2 + again);
}
END_TEST

START_TEST(envelopes_that_lie_are_refused)
{
    static const struct {
        struct mail wrong; /* is added to what was sent */
        const char *says;
    } lies[] = {
        {{.slot = 1}, "sent word of a message with tag 5 that is not there"},
        {{.slot = 1 << 20}, "sent word of a message with tag 5 that is not there"},
        {{.number = 1}, "sent word of a message with tag 5 that is not there"},
        {{.unit = 1 << 20}, "bytes lie at unit"},
        {{.unit = UINT32_MAX / 2}, "bytes lie at unit"},
        {{.bytes = MAILBOX_MOST_BYTES}, "bytes lie at unit"},
        {{.bytes = UINT64_MAX - 100000}, "bytes lie at unit"},
    };
    enum { COUNT = sizeof lies / sizeof *lies };
    static unsigned char out[5000];
    struct error err[COUNT] = {0};
    enum status st[COUNT];
    enum status twice;
    enum status once;
    struct mail mail;
    bool put = post(TAG, out, sizeof out);

    mail = next_envelope(TAG);
    for (int i = 0; i < COUNT; i++) {
        struct mail lie = {mail.slot + lies[i].wrong.slot, mail.unit + lies[i].wrong.unit,
                           mail.number + lies[i].wrong.number, mail.bytes + lies[i].wrong.bytes};

        st[i] = mailbox_match(mailbox, left, TAG, &lie, &err[i]);
    }
    once = mailbox_match(mailbox, left, TAG, &mail, NULL);
    twice = mailbox_match(mailbox, left, TAG, &mail, NULL);
    mailbox_return(mailbox, left, &mail, 0);
    settle();
    ck_assert(put);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_msg(st[i] == STATUS_CORRUPT, "lie %d", i);
        ck_assert_ptr_nonnull(strstr(err[i].text, lies[i].says));
    }
    ck_assert_int_eq(once, STATUS_OK);
    ck_assert_int_eq(twice, STATUS_CORRUPT);
}
END_TEST

/* A slot that was emptied and filled again is another message's, whoever it is for. */
START_TEST(an_envelope_never_opens_a_later_message_in_its_slot)
{
    static unsigned char out[5000];
    bool put = post(TAG, out, sizeof out);
    struct mail first = next_envelope(TAG);
    struct mail second;
    enum status before = mailbox_match(mailbox, left, TAG, &first, NULL);
    enum status old;
    enum status new;

    mailbox_return(mailbox, left, &first, 0);
    barrier();
    put = post(TAG, out, sizeof out) && put;
    second = next_envelope(TAG);
    old = mailbox_match(mailbox, left, TAG, &first, NULL);
    new = mailbox_match(mailbox, left, TAG, &second, NULL);
    mailbox_return(mailbox, left, &second, 0);
    settle();
    ck_assert(put);
    ck_assert_uint_eq(first.slot, second.slot);
    ck_assert_int_eq(before, STATUS_OK);
    ck_assert_int_eq(old, STATUS_CORRUPT);
    ck_assert_int_eq(new, STATUS_OK);
}
END_TEST

/* Its envelope says how long it will be; what is not written yet is not read. */
START_TEST(a_long_message_is_read_behind_its_writer)
{
    enum { BYTES = 100001, FIRST = 32768, SECOND = 65536 };
    static const size_t most[] = {FIRST, SECOND - FIRST, BYTES};
    static const size_t done[] = {FIRST, SECOND, BYTES};
    unsigned char *out = malloc(BYTES);
    unsigned char *in = calloc(BYTES + 1, 1);
    struct mail mail = {0};
    size_t wrote[3] = {0};
    size_t read[3] = {0};
    bool whole[3] = {false};
    bool untouched[3] = {false};
    enum status matched = STATUS_INTERNAL;
    bool reserved = mailbox_reserve(mailbox, right, BYTES, &mail);
    struct mail own = mail;

    fill(out, BYTES, 3);
    (void)MPI_Isend(&own, sizeof own, MPI_BYTE, right, TAG, MPI_COMM_WORLD, &envelope[envelopes++]);
    mail = next_envelope(TAG);
    matched = mailbox_match(mailbox, left, TAG, &mail, NULL);
    for (int i = 0; i < 3; i++) {
        wrote[i] = mailbox_write(mailbox, &own, out, i ? wrote[i - 1] : 0, most[i]);
        barrier();
        whole[i] = mailbox_whole(mailbox, left, &mail);
        read[i] = mailbox_read(mailbox, left, &mail, in, i ? read[i - 1] : 0);
        untouched[i] = in[read[i]] == 0;
        barrier();
    }
    mailbox_return(mailbox, left, &mail, 0);
    settle();
    ck_assert(reserved);
    ck_assert_int_eq(matched, STATUS_OK);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(wrote[i], done[i]);
        ck_assert_uint_eq(read[i], done[i]);
        ck_assert(untouched[i]);
        ck_assert_int_eq(whole[i], i == 2);
    }
    for (size_t i = 0; i < BYTES; i++)
        ck_assert_uint_eq(in[i], byte_of(left, 3, i));
    free(in);
    free(out);
}
END_TEST

/* Take many messages and give back every other one; false: no memory. */
static bool take(struct message_pool *pool)
{
    for (int i = 0; i < ENOUGH; i++) {
        struct message *message = message_take(pool);

        if (!message)
            return false;
        if (i % 2)
            message_give(pool, message);
    }
    return true;
}

/* A holder that is let go after a failure gives nothing back.  What the C library keeps of freed blocks, which counts
 * as used, the first round gave it. */
START_TEST(messages_that_are_never_given_back_are_freed_with_their_pool)
{
    struct message_pool pool = {0};
    size_t before = 0;
    size_t between = 0;
    size_t after = 0;
    bool made = take(&pool);

    message_pool_done(&pool);
    before = mallinfo2().uordblks;
    made = take(&pool) && made;
    between = mallinfo2().uordblks;
    message_pool_done(&pool);
    after = mallinfo2().uordblks;
    settle();
    ck_assert(made);
    ck_assert_ptr_null(pool.newest);
    if (between) /* a sanitizer's allocator counts nothing here */
        ck_assert_uint_ge(between - before, ENOUGH / 2 * sizeof(struct message));
    ck_assert_uint_lt(after, before + 4096);
}
END_TEST

/* How many mailboxes are mapped, and how many of them a dump of this process's memory would write. */
static int count_mapped(int *ret_dumped)
{
    FILE *list = fopen("/proc/self/smaps", "re");
    char line[512];
    bool here = false;
    int mapped = 0;

    *ret_dumped = 0;
    while (list && fgets(line, sizeof line, list)) {
        if (strstr(line, "memfd:ferry-mailbox")) {
            here = true;
            mapped++;
        } else if (here && !strncmp(line, "VmFlags:", 8)) {
            here = false;
            *ret_dumped += !strstr(line, " dd");
        }
    }
    if (list)
        (void)fclose(list);
    return mapped;
}

START_TEST(no_mailbox_is_dumped)
{
    int dumped = -1;
    int mapped = count_mapped(&dumped);

    ck_assert_int_eq(mapped, size);
    ck_assert_int_eq(dumped, 0);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("mpi mailbox");
    TCase *tests = tcase_create("mpi mailbox");
    int failed = 1;

    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 1;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    neighbours = neighbours_open(NULL);
    mailbox = neighbours.mailbox;
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, each_tag_keeps_its_order);
    tcase_add_test(tests, a_full_mailbox_refuses_until_something_is_taken);
    tcase_add_test(tests, near_and_far_peers_read_the_same);
    tcase_add_test(tests, plain_stores_are_timed);
    tcase_add_test(tests, a_sender_hears_how_quickly_its_peer_reads);
    tcase_add_test(tests, envelopes_that_lie_are_refused);
    tcase_add_test(tests, an_envelope_never_opens_a_later_message_in_its_slot);
    tcase_add_test(tests, a_long_message_is_read_behind_its_writer);
    tcase_add_test(tests, no_mailbox_is_dumped);
    tcase_add_test(tests, messages_that_are_never_given_back_are_freed_with_their_pool);
    suite_add_tcase(suite, tests);
    if (mailbox_ring_to(mailbox, right) && mailbox_ring_from(mailbox, left))
        failed = suite_run_here(suite);
    else
        (void)fprintf(stderr, "rank %d: no mailbox between neighbours of one host\n", rank);
    neighbours_close(&neighbours);
    (void)MPI_Finalize();
    return failed;
}
