/* Gathers, exchanges and broadcasts whose parts lie in memory that their member shares: some members', or all.
 *
 * All communication of a test comes before its first assertion, so that a failing rank stays in step.  Alone, a rank
 * finds that there is nobody to lend to. */
#include <check.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory_shared.h"
#include "comm/group.h"
#include "tests/mpi/threads.h"
#include "tests/mpi/world.h"
#include "tests/suite.h"

enum { ROOM = 64 << 20, CASES = 120, GROUPS = 200, PART = 20000, LINE = 64 };

static struct world world;
static const struct transport_ops *uncounted; /* the transport's own */
static struct transport_ops counting;
static int lent;    /* messages, by the session */
static int refused; /* that could have been, perhaps */
static int untold;  /* what was lent and came back without a word of how long reading took, or not lent, with one */
static uint64_t told_ns;     /* all words together */
static bool draws;           /* some are refused, as it comes */
static uint64_t say_line_ns; /* instead of what is true; 0: the truth */
static uint64_t own_seed;    /* not the same on every rank */

static uint64_t next_draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

static struct work *reach_some(struct transport *transport, int peer, const struct runs *runs)
{
    struct work *ret = draws && next_draw(&own_seed, 2) ? NULL : uncounted->reach(transport, peer, runs);

    refused += ret == NULL;
    return ret;
}

static void tell(struct transport *transport, struct message *message, uint64_t read_ns)
{
    struct runs runs = {0};
    size_t head_bytes = 0;
    bool was_lent = uncounted->look(transport, message, &head_bytes, &runs) != NULL;

    untold += was_lent != (read_ns != 0);
    told_ns += read_ns;
    if (was_lent && say_line_ns)
        read_ns = (runs.run + LINE - 1) / LINE * runs.rows * say_line_ns;
    uncounted->give_back(transport, message, read_ns);
}

static enum status count_lent(struct transport *transport, struct work *work, uint32_t tag, const void *head,
                              size_t head_bytes, const struct runs *runs, struct error *err)
{
    lent++;
    return uncounted->send_lent(transport, work, tag, head, head_bytes, runs, err);
}

/* Told to share nothing. */
static bool is_alone(void)
{
    return getenv("FERRY_MPI_SHARED") != NULL;
}

struct draw {
    enum operation operation;
    enum checks checks;
    bool in_place;
    uint32_t shared; /* a bit for each member whose tensors are */
    size_t outer;
    size_t inner;
    uint64_t counts[8][8]; /* member i for member k; of a gather [i][0] */
    uint64_t sent[8];
    uint64_t received[8];
};

static uint64_t seed = 11;

static uint64_t draw(uint64_t below)
{
    return next_draw(&seed, below);
}

/* The same on every rank.  Parts are empty, small, or up to some hundreds of KiB. */
static struct draw draw_case(int number)
{
    static const size_t inner[] = {8, 12, 64, 1024, 6000};
    static const size_t outer[] = {1, 2, 7, 60};
    struct draw ret = {.operation = OPERATION_ALL_GATHER_EVEN + (enum operation)draw(3),
                       .checks = (enum checks)draw(3),
                       .shared = number % 3 ? UINT32_MAX : (uint32_t)draw(16),
                       .outer = outer[draw(4)],
                       .inner = inner[draw(5)]};
    uint64_t most = (draw(2) ? 300000 : 40000) / (ret.outer * ret.inner) + 1;
    uint64_t even = draw(most + 1);

    ret.in_place = ret.operation != OPERATION_VARIABLE_ALL_TO_ALL && draw(4) == 0;
    for (int i = 0; i < world.size; i++) {
        for (int k = 0; k < world.size; k++)
            ret.counts[i][k] = ret.operation == OPERATION_ALL_GATHER_EVEN ? even : draw(5) ? draw(most + 1) : 0;
    }
    return ret;
}

/* Byte at of row, of what member from gives to member to. */
static unsigned char given(int number, int from, int to, size_t row, size_t at)
{
    return (unsigned char)((size_t)number * 3 + (size_t)from * 37 + (size_t)to * 101 + row * 7 + at * 11 + (at >> 8));
}

static struct tensor *tensor_of(const struct draw *c, uint64_t extent, bool shared)
{
    struct shape shape = {3, {c->outer, extent, c->inner}};
    struct tensor *tensor = NULL;

    if (tensor_create_in(shared ? world.shared : NULL, DTYPE_U8, &shape, &tensor, NULL) == STATUS_OK)
        memset(tensor->data, 0xa5, tensor->capacity_bytes);
    return tensor;
}

/* Write (or compare) member from's part for to, count extents from start on in a tensor of extent. */
static bool part(const struct draw *c, int number, struct tensor *tensor, uint64_t extent, uint64_t start, int from,
                 int to, bool compare)
{
    uint64_t count = c->counts[from][to < 0 ? 0 : to];
    bool equal = true;

    for (size_t row = 0; row < c->outer; row++) {
        unsigned char *at = tensor->data + (row * extent + start) * c->inner;

        for (size_t i = 0; i < count * c->inner; i++) {
            if (compare)
                equal = equal && at[i] == given(number, from, to, row, i);
            else
                at[i] = given(number, from, to, row, i);
        }
    }
    return equal;
}

/* Post one case, wait, compare. */
static enum status run_case(int number, const struct draw *c, bool *ret_equal, struct error *err)
{
    struct group *group = session_group(world.session, 1);
    bool gather = c->operation != OPERATION_VARIABLE_ALL_TO_ALL;
    int me = world.size - 1 - world.rank; /* members are the ranks in reverse */
    bool shared = c->shared >> me & 1;
    struct completion *completion = NULL;
    uint64_t receive[8] = {0};
    uint64_t sends = 0;
    uint64_t receives = 0;
    uint64_t start = 0;
    struct tensor *send = NULL;
    struct tensor *recv = NULL;
    enum status st = STATUS_OK;

    for (int i = 0; i < world.size; i++) {
        receive[i] = c->counts[i][gather ? 0 : me];
        receives += receive[i];
        sends += gather ? 0 : c->counts[me][i];
        start += i < me ? receive[i] : 0;
    }
    sends = gather ? c->counts[me][0] : sends;
    recv = tensor_of(c, receives, shared);
    send = c->in_place ? tensor_retain(recv) : tensor_of(c, sends, shared);
    if (gather) {
        (void)part(c, number, send, c->in_place ? receives : sends, c->in_place ? start : 0, me, -1, false);
    } else {
        uint64_t at = 0;

        for (int i = 0; i < world.size; at += c->counts[me][i++])
            (void)part(c, number, send, sends, at, me, i, false);
    }
    session_set_checks(world.session, c->checks);
    if (c->operation == OPERATION_ALL_GATHER_EVEN)
        st = group_all_gather_even(group, send, recv, 1, &completion, err);
    else if (gather)
        st = group_all_gather_uneven(group, send, recv, 1, receive, &completion, err);
    else
        st = group_variable_all_to_all(group, send, recv, 1, c->counts[me], receive, &completion, err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    completion_abandon(completion);
    start = 0;
    for (int i = 0; i < world.size; start += receive[i++])
        *ret_equal = *ret_equal && part(c, number, recv, receives, start, i, gather ? -1 : me, true);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

/* Not where all is lent: some of it, drawn by each rank for itself, so that every mixture comes. */
START_TEST(gathers_and_exchanges_bring_what_was_sent)
{
    struct error err = {0};
    enum status st = STATUS_OK;
    uint64_t begun_ns = clock_ns();
    int wrong = -1;
    int before = lent;

    refused = untold = 0;
    told_ns = 0;
    draws = !world.lend_all;
    own_seed = (uint64_t)world.rank;
    for (int i = 0; i < CASES && st == STATUS_OK; i++) {
        struct draw c = draw_case(i);
        bool equal = true;

        st = run_case(i, &c, &equal, &err);
        if (!equal && wrong < 0)
            wrong = i;
    }
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    draws = false;
    ck_assert_int_eq(wrong, -1);
    ck_assert_int_eq(lent > before, world.size > 1 && !is_alone());
    if (!world.lend_all)
        ck_assert_int_gt(refused, 0);
    ck_assert_int_eq(untold, 0);
    ck_assert_int_eq(told_ns > 0, world.size > 1 && !is_alone());
    ck_assert_uint_lt(told_ns, clock_ns() - begun_ns);
}
END_TEST

/* Parts of 64 KiB with runs of 1 KiB: one message to each other member, whatever is checked; of the process's own
 * memory none. */
START_TEST(whole_parts_are_lent_once_to_each_member)
{
    static const enum operation operations[] = {OPERATION_ALL_GATHER_EVEN, OPERATION_ALL_GATHER_UNEVEN,
                                                OPERATION_VARIABLE_ALL_TO_ALL};
    struct error err = {0};
    enum status st = STATUS_OK;
    int counts[3][2];
    bool equal = true;

    for (int i = 0; i < 3; i++) {
        for (int shared = 0; shared < 2 && st == STATUS_OK; shared++) {
            struct draw c = {.operation = operations[i],
                             .checks = (enum checks)i,
                             .shared = shared ? UINT32_MAX : 0,
                             .outer = 300,
                             .inner = 1024};
            int before = lent;

            for (int k = 0; k < 64; k++)
                c.counts[k / 8][k % 8] = 1;
            st = run_case(i, &c, &equal, &err);
            counts[i][shared] = lent - before;
        }
    }
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert(equal);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(counts[i][0], 0);
        ck_assert_int_eq(counts[i][1], is_alone() ? 0 : world.size - 1);
    }
}
END_TEST

static size_t other_inner(int rank)
{
    return rank % 2 ? 512 : 1024;
}

/* Every other member has rows of half the length, and twice as many: unchecked, each finds the bytes in order.  ret
 * [size * 300 KiB]: what was gathered. */
static enum status gather_other_rows(bool shared, unsigned char *ret, struct error *err)
{
    size_t inner = other_inner(world.rank);
    struct draw c = {.outer = (size_t)300 * 1024 / inner, .inner = inner};
    uint64_t extent = (uint64_t)world.size;
    struct tensor *tensor = tensor_of(&c, extent, shared);
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    c.counts[world.rank][0] = 1;
    (void)part(&c, 3, tensor, extent, extent - 1 - (uint64_t)world.rank, world.rank, -1, false);
    session_set_checks(world.session, CHECKS_OFF);
    st = group_all_gather_even(session_group(world.session, 1), tensor, tensor, 1, &completion, err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    completion_abandon(completion);
    memcpy(ret, tensor->data, (size_t)extent * c.outer * c.inner);
    tensor_release(tensor);
    return st;
}

/* Has this rank got what that one gave, in the order in which it lies there? */
static bool is_in_order(const unsigned char *gathered, int from)
{
    size_t inner = other_inner(world.rank);
    size_t given_inner = other_inner(from);
    size_t at = (size_t)(world.size - 1 - from) * inner;
    bool equal = true;

    for (size_t i = 0; i < 300 * 1024; i++)
        equal = equal && gathered[i / inner * inner * (size_t)world.size + at + i % inner] ==
                             given(3, from, -1, i / given_inner, i % given_inner);
    return equal;
}

START_TEST(members_with_other_rows_find_the_same_lent_and_mailed)
{
    size_t bytes = (size_t)world.size * 300 * 1024;
    unsigned char *gathered[2] = {malloc(bytes), malloc(bytes)};
    struct error err = {0};
    enum status st = STATUS_OK;
    int before = lent;

    untold = 0;
    for (int shared = 0; shared < 2 && st == STATUS_OK; shared++)
        st = gather_other_rows(shared, gathered[shared], &err);
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert_int_eq(lent - before, is_alone() ? 0 : world.size - 1);
    ck_assert_int_eq(untold, 0);
    ck_assert(!memcmp(gathered[0], gathered[1], bytes));
    for (int from = 0; from < world.size; from++)
        ck_assert_msg(is_in_order(gathered[1], from), "what rank %d gave", from);
    for (int i = 0; i < 2; i++)
        free(gathered[i]);
}
END_TEST

/* Gather parts of 300 KiB so many times while peers say that reading takes line_ns a line; returns how many of the last
 * turns' were lent. */
static int gather_while_they_say(uint64_t line_ns, int turns, int last, bool *ret_equal, struct error *err)
{
    struct draw c = {.operation = OPERATION_ALL_GATHER_EVEN,
                     .checks = CHECKS_LIGHT,
                     .shared = UINT32_MAX,
                     .outer = 300,
                     .inner = 1024};
    int before = 0;

    for (int i = 0; i < 8; i++)
        c.counts[i][0] = 1;
    say_line_ns = line_ns;
    for (int i = 0; i < turns; i++) {
        if (i == turns - last)
            before = lent;
        if (run_case(i, &c, ret_equal, err) != STATUS_OK)
            return -1;
    }
    say_line_ns = 0;
    return lent - before;
}

/* What they say, and nothing else that can last. */
START_TEST(who_says_that_he_reads_slowly_is_lent_little)
{
    enum { TURNS = 100, LAST = 20 };
    static const uint64_t says[] = {30, 5, UINT64_MAX / LINE / 300, 30};
    enum { COUNT = sizeof says / sizeof *says };
    struct error err = {0};
    bool equal = true;
    int counts[COUNT] = {0};
    int all = LAST * (world.size - 1);

    for (int i = 0; i < COUNT && !err.text[0]; i++)
        counts[i] = gather_while_they_say(says[i], TURNS, LAST, &equal, &err);
    ck_assert_str_eq(err.text, "");
    ck_assert(equal);
    ck_assert_int_le(counts[0], all / 2);
    ck_assert_int_eq(counts[1], all);
    ck_assert_int_eq(counts[2], all);
    ck_assert_int_le(counts[3], all / 2);
}
END_TEST

static unsigned char broadcast_byte(int number, size_t at)
{
    return (unsigned char)((size_t)number * 29 + at * 13 + (at >> 8) * 3 + 1);
}

/* From member root, out of memory that all share, or none.  *ret_lent: messages of this rank. */
static enum status broadcast_once(int number, int root, size_t bytes, bool shared, int *ret_lent, bool *ret_equal,
                                  struct error *err)
{
    struct shape shape = {1, {bytes}};
    struct completion *completion = NULL;
    struct tensor *tensor = NULL;
    int before = lent;
    enum status st = tensor_create_in(shared ? world.shared : NULL, DTYPE_U8, &shape, &tensor, err);

    if (st != STATUS_OK)
        return st;
    memset(tensor->data, 0xa5, bytes);
    for (size_t i = 0; world.members[root] == world.rank && i < bytes; i++)
        tensor->data[i] = broadcast_byte(number, i);
    session_set_checks(world.session, (enum checks)(number % 3));
    st = group_broadcast(session_group(world.session, 1), tensor, root, &completion, err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    completion_abandon(completion);
    for (size_t i = 0; i < bytes; i++)
        *ret_equal = *ret_equal && tensor->data[i] == broadcast_byte(number, i);
    tensor_release(tensor);
    *ret_lent = lent - before;
    return st;
}

/* With each kind of checks; 300 KB are voted on ahead.  Where all is lent, each other member gets one message from the
 * root, and from nobody else; else some of them are mailed. */
START_TEST(broadcasts_bring_what_the_root_has)
{
    static const size_t sizes[] = {16384, 65540, 300001};
    enum { SIZES = sizeof sizes / sizeof *sizes, EACH = 3, MOST = 64 * SIZES * EACH };
    static int counts[2][MOST];
    struct error err = {0};
    enum status st = STATUS_OK;
    int cases = world.size * SIZES * EACH;
    bool equal = true;

    untold = 0;
    draws = !world.lend_all;
    for (int i = 0; i < 2 * cases && st == STATUS_OK; i++)
        st = broadcast_once(i / 2, i / 2 / EACH / SIZES, sizes[i / 2 / EACH % SIZES], i % 2, &counts[i % 2][i / 2],
                            &equal, &err);
    draws = false;
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert(equal);
    ck_assert_int_eq(untold, 0);
    for (int i = 0; i < cases; i++) {
        bool is_root = world.members[i / EACH / SIZES] == world.rank;

        ck_assert_int_eq(counts[0][i], 0);
        if (world.lend_all)
            ck_assert_int_eq(counts[1][i], is_root && !is_alone() ? world.size - 1 : 0);
    }
}
END_TEST

/* More parts lent than can be told of, to members that ask for the last first. */
START_TEST(more_gathers_than_can_be_lent_wait_for_nothing)
{
    static struct completion *completions[GROUPS];
    static struct tensor *tensors[GROUPS];
    struct shape shape = {1, {(uint64_t)world.size * PART}};
    struct error err = {0};
    enum status st = STATUS_OK;
    bool backwards = world.rank % 2;
    bool equal = true;

    session_set_checks(world.session, CHECKS_LIGHT);
    for (int i = 0; i < GROUPS && st == STATUS_OK; i++) {
        int at = backwards ? GROUPS - 1 - i : i;
        size_t own = (size_t)(world.size - 1 - world.rank) * PART;

        st = tensor_create_in(world.shared, DTYPE_U8, &shape, &tensors[at], &err);
        if (st == STATUS_OK)
            memset(tensors[at]->data + own, at + world.rank, PART);
        if (st == STATUS_OK)
            st = group_all_gather_even(session_group(world.session, (uint32_t)at + 1), tensors[at], tensors[at], 0,
                                       &completions[at], &err);
        if (st == STATUS_OK && backwards)
            st = completion_wait(completions[at], DEADLINE_NONE, &err);
    }
    for (int i = 0; i < GROUPS && st == STATUS_OK; i++)
        st = completion_wait(completions[i], DEADLINE_NONE, &err);
    for (int i = 0; i < GROUPS; i++) {
        for (int rank = 0; st == STATUS_OK && rank < world.size; rank++)
            equal = equal && tensors[i]->data[(size_t)(world.size - rank) * PART - 1] == (unsigned char)(i + rank);
        completion_abandon(completions[i]);
        tensor_release(tensors[i]);
    }
    ck_assert_msg(st == STATUS_OK, "%s", err.text);
    ck_assert(equal);
}
END_TEST

/* Groups of all, in reverse order, with the ids from 1 on. */
static enum status build(struct error *err)
{
    static struct group_spec groups[GROUPS];
    const struct manifest manifest = {.topology_digest = 1};
    enum status st = session_consensus(world.session, &manifest, err);

    for (int i = 0; i < GROUPS; i++)
        groups[i] = (struct group_spec){.id = (uint32_t)i + 1,
                                        .name = "all",
                                        .size = world.size,
                                        .members = world.members,
                                        .operations = OPERATIONS_ALL,
                                        .dtypes = DTYPES_ALL,
                                        .max_bytes = 1 << 24};
    return st == STATUS_OK ? session_build(world.session, groups, GROUPS, NULL, 0, err) : st;
}

static enum status start(bool all, struct error *err)
{
    enum status st = STATUS_OK;

    world.lend_all = all;
    world.shared = memory_shared_create(ROOM);
    if (!world.shared)
        return error_set(err, STATUS_ENVIRONMENT, "no shared memory");
    st = world_open(&world, err);
    if (st != STATUS_OK)
        return st;
    uncounted = world.ops;
    counting = *world.ops;
    counting.send_lent = count_lent;
    counting.reach = reach_some;
    counting.give_back = tell;
    world.ops = &counting;
    return STATUS_OK;
}

static int try_operations(void)
{
    const struct session_options options = {
        .timeout_ns = 30 * NS_PER_S, .startup_timeout_ns = 30 * NS_PER_S, .checks = CHECKS_FULL};
    Suite *suite = suite_create("mpi lent operations");
    TCase *tests = tcase_create("operations");
    struct error err = {0};
    enum status st = session_create(world.ops, world.transport, &options, &world.session, &err);

    if (st == STATUS_OK)
        st = build(&err);
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, gathers_and_exchanges_bring_what_was_sent);
    tcase_add_test(tests, broadcasts_bring_what_the_root_has);
    if (world.lend_all) {
        tcase_add_test(tests, whole_parts_are_lent_once_to_each_member);
        tcase_add_test(tests, members_with_other_rows_find_the_same_lent_and_mailed);
    } else {
        tcase_add_test(tests, who_says_that_he_reads_slowly_is_lent_little);
    }
    tcase_add_test(tests, more_gathers_than_can_be_lent_wait_for_nothing);
    suite_add_tcase(suite, tests);
    return world_run(&world, suite, st, &err);
}

/* auto: lent is what those get who read quickly, which may change from one message to the next. */
int main(int argc, char **argv)
{
    bool all = argc < 2 || strcmp(argv[1], "auto") != 0;
    struct error err = {0};
    int failed = 1;

    if (!threads_start(&argc, &argv))
        return SKIPPED;
    if (start(all, &err) == STATUS_OK)
        failed = try_operations();
    else
        (void)fprintf(stderr, "%s\n", err.text);
    memory_shared_destroy(world.shared);
    (void)MPI_Finalize();
    return failed;
}
