/* Some ranks with a stream each, messages that take their time, and random programs of transfers and sums.
 *
 * The ranks speak the protocol of nccl_queue.h.  A stream runs one group at a time: a transfer ends when both its ranks
 * run it, a sum when all members do, a group when all in it has ended.  The first transfer between two ranks connects
 * them: until both have started it, neither starts anything else.  Whatever the programs, all must end, and every rank
 * must start in the order of tickets. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "backends/nccl/nccl_queue.h"
#include "tests/suite.h"

enum { RANKS = 6, MAX_OPERATIONS = 48, MAX_LETTERS = 4096, MAX_GROUPS = 64, QUIET = 4000 };

enum letter_kind { READY, GO, REACHED, ASK, PROPOSE, TICKET };

struct letter {
    enum letter_kind kind;
    int operation;
    int from;
    uint64_t clock;
};

/* One transfer or sum of the world's program. */
struct operation {
    bool sum;
    int from; /* of a sum: its first member */
    int to;
    bool member[RANKS];
    int members;
    bool alone;
    struct entry entry[RANKS];
    bool posted[RANKS];
    bool started[RANKS];
    bool running[RANKS]; /* it lies in the group at the head of this rank's stream */
    bool ended[RANKS];
    int reached;
    int proposed;
    uint64_t largest;
};

struct stream {
    int group[MAX_GROUPS][QUEUE_GROUP];
    size_t count[MAX_GROUPS];
    int first;
    int end;
};

struct pipe {
    struct letter letters[MAX_LETTERS];
    int first;
    int end;
};

static struct {
    int ranks;
    int count;
    struct operation operations[MAX_OPERATIONS];
    int program[RANKS][MAX_OPERATIONS];
    int length[RANKS];
    int posted[RANKS];
    struct queue queues[RANKS];
    struct stream streams[RANKS];
    struct pipe pipes[RANKS][RANKS];
    struct ticket last[RANKS];
    int ended;
    int together; /* groups of more than one */
} world;

static uint64_t state;

static int below(int limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int)(state % (uint64_t)limit);
}

static void tell(int from, int to, enum letter_kind kind, int operation, uint64_t clock)
{
    struct pipe *pipe = &world.pipes[from][to];

    ck_assert_int_lt(pipe->end, MAX_LETTERS);
    pipe->letters[pipe->end++] = (struct letter){kind, operation, from, clock};
}

static void draw_operation(struct operation *operation, int index)
{
    operation->sum = below(4) == 0;
    operation->from = below(world.ranks);
    operation->to = (operation->from + 1 + below(world.ranks - 1)) % world.ranks;
    operation->members = 0;
    for (int rank = 0; rank < world.ranks; rank++) {
        operation->member[rank] = rank == operation->from || rank == operation->to || (operation->sum && below(2));
        operation->members += operation->member[rank];
    }
    operation->alone = operation->sum || below(5) == 0;
    for (int rank = 0; rank < world.ranks; rank++) {
        struct entry *entry = &operation->entry[rank];

        if (!operation->member[rank])
            continue;
        world.program[rank][world.length[rank]++] = index;
        *entry = (struct entry){.ticket = {.kind = operation->sum ? ENTRY_SUM : ENTRY_TRANSFER,
                                           .from = (uint32_t)operation->from,
                                           .to = (uint32_t)operation->to,
                                           .number = (uint64_t)index},
                                .peer = rank == operation->from ? operation->to : operation->from,
                                .sends = rank == operation->from,
                                .alone = operation->alone};
    }
}

/* Every rank's own order.  A first transfer between two ranks connects them, whichever it will be: so each is alone
 * that may be the first. */
static void draw_world(void)
{
    memset(&world, 0, sizeof world);
    world.ranks = 2 + below(RANKS - 1);
    world.count = 4 + below(MAX_OPERATIONS - 4);
    for (int i = 0; i < world.count; i++)
        draw_operation(&world.operations[i], i);
    for (int rank = 0; rank < world.ranks; rank++) {
        for (int i = world.length[rank] - 1; i > 0; i--) {
            int other = below(i + 1);
            int kept = world.program[rank][i];

            world.program[rank][i] = world.program[rank][other];
            world.program[rank][other] = kept;
        }
    }
}

static bool post(int rank)
{
    struct operation *operation;
    int index;

    if (world.posted[rank] == world.length[rank])
        return false;
    index = world.program[rank][world.posted[rank]++];
    operation = &world.operations[index];
    operation->posted[rank] = true;
    if (operation->sum)
        tell(rank, operation->from, REACHED, index, 0);
    else if (rank == operation->from)
        tell(rank, operation->to, ASK, index, 0); /* the announcement */
    else if (operation->reached)
        tell(rank, operation->from, READY, index, queue_propose(&world.queues[rank], &operation->entry[rank]));
    return true;
}

static void take_sum(int rank, const struct letter *letter)
{
    struct operation *operation = &world.operations[letter->operation];
    struct entry *entry = &operation->entry[rank];

    if (letter->kind == REACHED && ++operation->reached == operation->members) {
        for (int to = 0; to < world.ranks; to++) {
            if (operation->member[to])
                tell(rank, to, ASK, letter->operation, 0);
        }
    } else if (letter->kind == ASK) {
        tell(rank, operation->from, PROPOSE, letter->operation, queue_propose(&world.queues[rank], entry));
    } else if (letter->kind == PROPOSE) {
        operation->largest = letter->clock > operation->largest ? letter->clock : operation->largest;
        if (++operation->proposed < operation->members)
            return;
        for (int to = 0; to < world.ranks; to++) {
            if (operation->member[to])
                tell(rank, to, TICKET, letter->operation, operation->largest);
        }
    } else if (letter->kind == TICKET) {
        ck_assert_int_eq(queue_settle(&world.queues[rank], entry, letter->clock), STATUS_OK);
    }
}

static void take_transfer(int rank, const struct letter *letter)
{
    struct operation *operation = &world.operations[letter->operation];
    struct entry *entry = &operation->entry[rank];
    uint64_t clock = 0;

    if (letter->kind == ASK) {
        operation->reached = 1;
        if (operation->posted[rank])
            tell(rank, letter->from, READY, letter->operation, queue_propose(&world.queues[rank], entry));
    } else if (letter->kind == READY) {
        ck_assert_int_eq(queue_decide(&world.queues[rank], entry, letter->clock, &clock), STATUS_OK);
        tell(rank, letter->from, GO, letter->operation, clock);
    } else {
        ck_assert_int_eq(queue_settle(&world.queues[rank], entry, letter->clock), STATUS_OK);
    }
}

static bool deliver(int from, int to)
{
    struct pipe *pipe = &world.pipes[from][to];
    const struct letter *letter;

    if (pipe->first == pipe->end)
        return false;
    letter = &pipe->letters[pipe->first++];
    if (world.operations[letter->operation].sum)
        take_sum(to, letter);
    else
        take_transfer(to, letter);
    return true;
}

/* Is the newest group of this rank one that still connects two ranks? */
static bool connecting(int rank)
{
    const struct stream *stream = &world.streams[rank];
    const struct operation *operation;

    if (stream->first == stream->end)
        return false;
    operation = &world.operations[stream->group[stream->end - 1][0]];
    if (!operation->alone)
        return false;
    for (int other = 0; other < world.ranks; other++) {
        if (operation->member[other] && !operation->started[other])
            return true;
    }
    return false;
}

static int index_of(const struct entry *entry)
{
    return (int)entry->ticket.number;
}

static bool start(int rank)
{
    struct stream *stream = &world.streams[rank];
    struct entry *entries[QUEUE_GROUP];
    size_t count = connecting(rank) ? 0 : queue_take(&world.queues[rank], entries);

    if (!count)
        return false;
    ck_assert_int_lt(stream->end, MAX_GROUPS);
    for (size_t i = 0; i < count; i++) {
        struct operation *operation = &world.operations[index_of(entries[i])];

        ck_assert_msg(ticket_compare(&world.last[rank], &entries[i]->ticket) < 0, "rank %d starts out of order", rank);
        world.last[rank] = entries[i]->ticket;
        operation->started[rank] = true;
        stream->group[stream->end][i] = index_of(entries[i]);
    }
    world.together += count > 1;
    stream->count[stream->end++] = count;
    return true;
}

static bool all(const struct operation *operation, const bool *what)
{
    for (int rank = 0; rank < world.ranks; rank++) {
        if (operation->member[rank] && !what[rank])
            return false;
    }
    return true;
}

static bool run(int rank)
{
    struct stream *stream = &world.streams[rank];
    bool over = true;
    bool moved = false;

    if (stream->first == stream->end)
        return false;
    for (size_t i = 0; i < stream->count[stream->first]; i++) {
        struct operation *operation = &world.operations[stream->group[stream->first][i]];

        moved |= !operation->running[rank];
        operation->running[rank] = true;
        over &= all(operation, operation->running);
    }
    if (!over)
        return moved;
    world.ended += (int)stream->count[stream->first];
    stream->first++;
    return true;
}

static bool act(void)
{
    int rank = below(world.ranks);

    switch (below(5)) {
    case 0:
        return post(rank);
    case 1:
    case 2:
        return deliver(below(world.ranks), rank);
    case 3:
        return start(rank);
    default:
        return run(rank);
    }
}

static int parts(void)
{
    int sum = 0;

    for (int rank = 0; rank < world.ranks; rank++)
        sum += world.length[rank];
    return sum;
}

START_TEST(every_random_schedule_ends_in_the_order_of_tickets)
{
    int together = 0;

    for (int schedule = 0; schedule < 5000; schedule++) {
        int quiet = 0;

        state = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(schedule + 1);
        draw_world();
        while (world.ended < parts() && quiet < QUIET)
            quiet = act() ? 0 : quiet + 1;
        ck_assert_msg(world.ended == parts(), "schedule %d: %d of %d parts ended on %d ranks", schedule, world.ended,
                      parts(), world.ranks);
        together += world.together;
    }
    /* The rule would be easy to keep by starting everything alone. */
    ck_assert_int_gt(together, 1000);
}
END_TEST

static struct entry transfer(int peer, bool sends, uint64_t number)
{
    return (struct entry){
        .ticket = {.from = (uint32_t)(sends ? 0 : peer), .to = (uint32_t)(sends ? peer : 0), .number = number},
        .peer = peer,
        .sends = sends};
}

START_TEST(an_unanswered_proposal_holds_back_what_lies_behind_it_alone)
{
    struct queue queue = {0};
    struct entry *taken[QUEUE_GROUP];
    struct entry before = transfer(1, true, 1);
    struct entry asked = transfer(2, false, 2);
    struct entry behind = transfer(3, true, 3);
    uint64_t clock = 0;

    ck_assert_int_eq(queue_decide(&queue, &before, 1, &clock), STATUS_OK);
    ck_assert_uint_eq(clock, 1);
    ck_assert_uint_eq(queue_propose(&queue, &asked), 2);
    ck_assert_int_eq(queue_decide(&queue, &behind, 1, &clock), STATUS_OK);
    ck_assert_uint_eq(clock, 3);
    ck_assert_uint_eq(queue_take(&queue, taken), 1);
    ck_assert_ptr_eq(taken[0], &before);
    ck_assert_uint_eq(queue_take(&queue, taken), 0);
    ck_assert_int_eq(queue_settle(&queue, &asked, 9), STATUS_OK);
    ck_assert_uint_eq(queue_take(&queue, taken), 2);
    ck_assert_ptr_eq(taken[0], &behind);
    ck_assert_ptr_eq(taken[1], &asked);
    /* No later ticket is smaller than one that has been seen. */
    ck_assert_int_eq(queue_decide(&queue, &before, 4, &clock), STATUS_OK);
    ck_assert_uint_eq(clock, 10);
}
END_TEST

START_TEST(one_each_way_between_two_ranks_goes_out_together)
{
    struct queue queue = {0};
    struct entry *taken[QUEUE_GROUP];
    struct entry entries[] = {transfer(1, true, 1), transfer(1, false, 2), transfer(2, true, 3), transfer(1, true, 4)};
    uint64_t clock = 0;

    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(queue_decide(&queue, &entries[i], 1, &clock), STATUS_OK);
    ck_assert_uint_eq(queue_take(&queue, taken), 3);
    ck_assert_uint_eq(queue_take(&queue, taken), 1);
    ck_assert_ptr_eq(taken[0], &entries[3]);
}
END_TEST

START_TEST(a_group_holds_no_more_than_runs_side_by_side)
{
    struct queue queue = {0};
    struct entry *taken[QUEUE_GROUP];
    struct entry entries[QUEUE_GROUP + 3];
    uint64_t clock = 0;

    for (int i = 0; i < QUEUE_GROUP + 3; i++) {
        entries[i] = transfer(i + 1, true, 1);
        entries[i].alone = i == QUEUE_GROUP + 1;
        ck_assert_int_eq(queue_decide(&queue, &entries[i], 1, &clock), STATUS_OK);
    }
    ck_assert_uint_eq(queue_take(&queue, taken), QUEUE_GROUP);
    ck_assert_uint_eq(queue_take(&queue, taken), 1);
    ck_assert_uint_eq(queue_take(&queue, taken), 1);
    ck_assert_ptr_eq(taken[0], &entries[QUEUE_GROUP + 1]);
    ck_assert_uint_eq(queue_take(&queue, taken), 1);
    ck_assert_uint_eq(queue_take(&queue, taken), 0);
}
END_TEST

START_TEST(tickets_that_cannot_be_are_refused)
{
    struct queue queue = {.clock = 5};
    struct entry one = transfer(1, true, 1);
    struct entry two = transfer(1, false, 2);
    uint64_t clock = 0;

    ck_assert_int_eq(queue_decide(&queue, &one, 0, &clock), STATUS_CORRUPT);
    ck_assert_int_eq(queue_decide(&queue, &one, TICKET_LIMIT + 1, &clock), STATUS_CORRUPT);
    ck_assert_int_eq(queue_settle(&queue, &two, 7), STATUS_CORRUPT);
    ck_assert_uint_eq(queue_propose(&queue, &two), 6);
    ck_assert_int_eq(queue_settle(&queue, &two, 5), STATUS_CORRUPT);
    ck_assert_int_eq(queue_settle(&queue, &two, UINT64_MAX), STATUS_CORRUPT);
    ck_assert_int_eq(queue_settle(&queue, &two, 6), STATUS_OK);
    ck_assert_int_eq(queue_settle(&queue, &two, 6), STATUS_CORRUPT);
    queue_remove(&queue, &two);
    queue_remove(&queue, &two);
    ck_assert_ptr_null(queue.first);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nccl queue");
    TCase *tests = tcase_create("nccl queue");

    tcase_set_timeout(tests, 50);
    tcase_add_test(tests, every_random_schedule_ends_in_the_order_of_tickets);
    tcase_add_test(tests, an_unanswered_proposal_holds_back_what_lies_behind_it_alone);
    tcase_add_test(tests, one_each_way_between_two_ranks_goes_out_together);
    tcase_add_test(tests, a_group_holds_no_more_than_runs_side_by_side);
    tcase_add_test(tests, tickets_that_cannot_be_are_refused);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
