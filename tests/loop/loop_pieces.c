/* Parts along a middle axis that are packed and travel in several pieces, against the values that a byte's place and
 * owner give; and payloads too large to be kept until everybody agrees, of which nothing arrives when somebody does
 * not.
 */
#include "tests/loop/ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backends/loopback/loopback.h"
#include "tests/suite.h"

enum { MEMBERS = 3, INNER = 3, ROOMS = 512 };

static const int members[] = {1, 2, 0};
static const struct group_spec group = GROUP(1, MEMBERS, members);

/* Runs of odd lengths, in many pieces, few, and none; rows longer than a piece; one row. */
static const struct {
    uint64_t outer;
    uint64_t counts[MEMBERS]; /* of a gather */
} cases[] = {{3001, {17, 0, 40}}, {977, {113, 230, 1}}, {5, {40000, 45001, 3}}, {3, {1, 90000, 0}}, {1, {50001, 0, 7}}};
enum { CASES = sizeof cases / sizeof *cases };

/* Byte of row o, extent k, inner i of what one member holds for another. */
static unsigned char byte_of(int from, int to, uint64_t o, uint64_t k, uint64_t i)
{
    return (unsigned char)((uint64_t)from * 101 + (uint64_t)to * 57 + o * 13 + k * 5 + i * 3 + (k >> 8) + (o >> 8));
}

/* What member sends to another in an all-to-all: some of them nothing, the first case's counts turned around. */
static uint64_t sent(int which, int from, int to)
{
    return (from + 2 * to) % 4 == 1 ? 0 : cases[which].counts[(from + to) % MEMBERS];
}

static void fill(struct tensor *tensor, uint64_t outer, uint64_t extent, uint64_t start, uint64_t count, int from,
                 int to)
{
    for (uint64_t o = 0; o < outer; o++) {
        for (uint64_t k = 0; k < count; k++) {
            for (uint64_t i = 0; i < INNER; i++)
                tensor->data[(o * extent + start + k) * INNER + i] = byte_of(from, to, o, k, i);
        }
    }
}

static bool holds(const struct tensor *tensor, uint64_t outer, uint64_t extent, uint64_t start, uint64_t count,
                  int from, int to)
{
    for (uint64_t o = 0; o < outer; o++) {
        for (uint64_t k = 0; k < count; k++) {
            for (uint64_t i = 0; i < INNER; i++) {
                if (tensor->data[(o * extent + start + k) * INNER + i] != byte_of(from, to, o, k, i))
                    return false;
            }
        }
    }
    return true;
}

static enum status gather(struct rank *self, int which, bool in_place)
{
    struct group *all = session_group(self->session, 1);
    int me = group_rank(all);
    uint64_t outer = cases[which].outer;
    const uint64_t *counts = cases[which].counts;
    uint64_t extent = counts[0] + counts[1] + counts[2];
    struct tensor *recv = TENSOR(DTYPE_U8, outer, extent, INNER);
    struct tensor *send = in_place ? tensor_retain(recv) : TENSOR(DTYPE_U8, outer, counts[me], INNER);
    struct completion *completion = NULL;
    uint64_t start = 0;
    enum status st;

    memset(recv->data, 0xee, recv->bytes);
    for (int i = 0; i < me; i++)
        start += counts[i];
    fill(send, outer, in_place ? extent : counts[me], in_place ? start : 0, counts[me], me, 0);
    st = finish(group_all_gather_uneven(all, send, recv, 1, counts, &completion, &self->err), &completion, &self->err);
    start = 0;
    for (int i = 0; st == STATUS_OK && i < MEMBERS; i++) {
        EXPECT(holds(recv, outer, extent, start, counts[i], i, 0));
        start += counts[i];
    }
    tensor_release(send);
    tensor_release(recv);
    return st;
}

static enum status exchange(struct rank *self, int which)
{
    struct group *all = session_group(self->session, 1);
    int me = group_rank(all);
    uint64_t outer = cases[which].outer;
    uint64_t out[MEMBERS];
    uint64_t in[MEMBERS];
    uint64_t out_extent = 0;
    uint64_t in_extent = 0;
    struct tensor *send;
    struct tensor *recv;
    struct completion *completion = NULL;
    uint64_t start = 0;
    enum status st;

    for (int i = 0; i < MEMBERS; i++) {
        out_extent += out[i] = sent(which, me, i);
        in_extent += in[i] = sent(which, i, me);
    }
    send = TENSOR(DTYPE_U8, outer, out_extent, INNER);
    recv = TENSOR(DTYPE_U8, outer, in_extent, INNER);
    for (int i = 0; i < MEMBERS; start += out[i++])
        fill(send, outer, out_extent, start, out[i], me, i);
    st = finish(group_variable_all_to_all(all, send, recv, 1, out, in, &completion, &self->err), &completion,
                &self->err);
    start = 0;
    for (int i = 0; st == STATUS_OK && i < MEMBERS; start += in[i++])
        EXPECT(holds(recv, outer, in_extent, start, in[i], i, me));
    tensor_release(send);
    tensor_release(recv);
    return st;
}

static enum status pieces_body(struct rank *self)
{
    enum status st = STATUS_OK;

    for (int i = 0; i < CASES && st == STATUS_OK; i++) {
        st = gather(self, i, false);
        if (st == STATUS_OK) /* one member alone works in place: the others need not know */
            st = gather(self, i, self->rank == 1);
        if (st == STATUS_OK)
            st = exchange(self, i);
    }
    return st;
}

START_TEST(packed_parts_arrive_in_pieces)
{
    static const size_t limits[] = {0, 50000};
    static struct ranks ranks;

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        ranks = (struct ranks){.size = MEMBERS,
                               .loopback.max_message = limits[i],
                               .session.checks = (enum checks)_i,
                               .groups = &group,
                               .group_count = 1,
                               .body = pieces_body};
        ranks_run(&ranks);
        ranks_check(&ranks);
    }
}
END_TEST

/* Rank 1 (member 0) means another tensor of as many bytes. */
static enum status broadcast_body(struct rank *self)
{
    struct group *all = session_group(self->session, 1);
    struct tensor *tensor = self->rank == 1 ? TENSOR(DTYPE_F32, 50000) : TENSOR(DTYPE_U8, 200000);
    bool root = group_rank(all) == 2;
    struct completion *completion = NULL;
    enum status st;

    memset(tensor->data, root ? 0x77 : 0xee, tensor->bytes);
    st = finish(group_broadcast(all, tensor, 2, &completion, &self->err), &completion, &self->err);
    for (size_t k = 0; k < tensor->bytes; k++)
        EXPECT(tensor->data[k] == (root ? 0x77 : 0xee));
    tensor_release(tensor);
    return st;
}

static enum status gather_body(struct rank *self)
{
    struct group *all = session_group(self->session, 1);
    bool other = self->rank == 1;
    struct tensor *send = other ? TENSOR(DTYPE_F32, 20000) : TENSOR(DTYPE_U8, 80000);
    struct tensor *recv = other ? TENSOR(DTYPE_F32, 60000) : TENSOR(DTYPE_U8, 240000);
    struct completion *completion = NULL;
    enum status st;

    memset(send->data, 0x77, send->bytes);
    memset(recv->data, 0xee, recv->bytes);
    st = finish(group_all_gather_even(all, send, recv, 0, &completion, &self->err), &completion, &self->err);
    for (size_t k = 0; k < recv->bytes; k++)
        EXPECT(recv->data[k] == 0xee);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

/* Ranks 0 and 2 agree with each other; only the third pair differs from what they expect. */
static enum status exchange_body(struct rank *self)
{
    struct group *all = session_group(self->session, 1);
    uint64_t counts[] = {70000, 70000, 70000};
    struct tensor *send;
    struct tensor *recv = TENSOR(DTYPE_U8, 210000);
    struct completion *completion = NULL;
    enum status st;

    if (self->rank == 1)
        counts[2]--; /* to member 2, which is rank 0 */
    send = TENSOR(DTYPE_U8, counts[0] + counts[1] + counts[2]);
    memset(send->data, 0x77, send->bytes);
    memset(recv->data, 0xee, recv->bytes);
    st = finish(group_variable_all_to_all(all, send, recv, 0, counts, (uint64_t[]){70000, 70000, 70000}, &completion,
                                          &self->err),
                &completion, &self->err);
    for (size_t k = 0; k < recv->bytes; k++)
        EXPECT(recv->data[k] == 0xee);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

START_TEST(nothing_of_a_large_payload_arrives_before_all_agree)
{
    static const struct {
        rank_body *body;
        const char *says;
    } tries[] = {{broadcast_body, "rank 1: broadcast f32[50000] root 2"},
                 {gather_body, "rank 1: all_gather_even f32[60000] axis 0"},
                 {exchange_body, "rank 1 sends 69999 to rank 0, which expects 70000"}};
    static struct ranks ranks;

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        ranks = (struct ranks){.size = MEMBERS,
                               .settle = true,
                               .session.checks = CHECKS_FULL,
                               .groups = &group,
                               .group_count = 1,
                               .body = tries[i].body};
        ranks_run(&ranks);
        for (int r = 0; r < MEMBERS; r++) {
            ck_assert_int_eq(ranks.rank[r].status, STATUS_MISMATCH);
            ck_assert_msg(strstr(ranks.rank[r].err.text, tries[i].says) != NULL, "%s", ranks.rank[r].err.text);
        }
    }
}
END_TEST

/* What a transport with room has lent, and what lay there when it was sent. */
static struct {
    pthread_mutex_t lock;
    int count;
    int sent;
    struct {
        unsigned char *at;
        unsigned char *was; /* NULL: not sent */
        size_t bytes;
    } rooms[ROOMS];
} lent = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Every third time there is none. */
static unsigned char *lent_room(struct transport *transport, int peer, size_t count, bool *ret_near)
{
    static int asked;
    unsigned char *room = NULL;

    (void)transport;
    (void)peer;
    (void)pthread_mutex_lock(&lent.lock);
    if (asked++ % 3 && lent.count < ROOMS) {
        room = aligned_alloc(64, (count + 63) / 64 * 64);
        lent.rooms[lent.count].at = room;
        lent.rooms[lent.count].was = NULL;
        lent.rooms[lent.count++].bytes = count;
        *ret_near = asked % 2;
    }
    (void)pthread_mutex_unlock(&lent.lock);
    return room;
}

static enum status lent_send(struct transport *transport, int peer, uint32_t tag, const void *bytes, size_t count,
                             struct work **ret, struct error *err)
{
    (void)pthread_mutex_lock(&lent.lock);
    for (int i = 0; i < lent.count; i++) {
        if (lent.rooms[i].at != bytes)
            continue;
        EXPECT(!lent.rooms[i].was && lent.rooms[i].bytes == count);
        lent.rooms[i].was = malloc(count);
        memcpy(lent.rooms[i].was, bytes, count);
        lent.sent++;
    }
    (void)pthread_mutex_unlock(&lent.lock);
    return loopback_ops.send(transport, peer, tag, bytes, count, ret, err);
}

static enum status exchanges_body(struct rank *self)
{
    enum status st = STATUS_OK;

    for (int i = 0; i < CASES && st == STATUS_OK; i++)
        st = exchange(self, i);
    return st;
}

/* Each room is sent from once, and nobody writes there afterwards. */
START_TEST(packed_parts_are_written_where_the_transport_has_room)
{
    struct transport_ops ops = loopback_ops;
    static struct ranks ranks;
    bool checksums = _i == 1;
    bool untouched = true;

    ops.room = lent_room;
    ops.send = lent_send;
    lent.count = lent.sent = 0;
    ranks = (struct ranks){.size = MEMBERS,
                           .ops = &ops,
                           .session.checks = CHECKS_LIGHT,
                           .session.payload_integrity = checksums,
                           .groups = &group,
                           .group_count = 1,
                           .body = exchanges_body};
    ranks_run(&ranks);
    for (int i = 0; i < lent.count; i++) {
        untouched =
            untouched && lent.rooms[i].was && memcmp(lent.rooms[i].at, lent.rooms[i].was, lent.rooms[i].bytes) == 0;
        free(lent.rooms[i].at);
        free(lent.rooms[i].was);
    }
    ranks_check(&ranks);
    ck_assert_int_eq(lent.sent, lent.count);
    ck_assert(untouched);
    if (checksums) /* it would be read where it lies */
        ck_assert_int_eq(lent.count, 0);
    else
        ck_assert_int_gt(lent.count, MEMBERS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pieces");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, packed_parts_arrive_in_pieces, CHECKS_OFF, CHECKS_FULL + 1);
    tcase_add_loop_test(all, packed_parts_are_written_where_the_transport_has_room, 0, 2);
    tcase_add_test(all, nothing_of_a_large_payload_arrives_before_all_agree);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
