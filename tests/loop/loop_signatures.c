/* Members of a group that were called with different things: every kind of difference, under every depth of checking,
 * ends in one cause that says who was called with what. */
#include "tests/loop/call.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/fault.h"
#include "tests/suite.h"

enum { RANKS_AT_ONCE = 180 };

/* How deep must checks be to find the difference?  LATER: a message that nobody receives, found at the end, or by
 * whoever waits for another. */
enum found { FOUND, LATER, UNSEEN };

struct kind {
    const char *name;
    enum found off;
    enum found light;
    void (*call)(int size, struct call *usual, struct call *odd);
};

/* B26 */
static void operations(int size, struct call *usual, struct call *odd)
{
    *usual = call_sum(DTYPE_F32, 16);
    *odd = call_even(size, 0);
}

static void types_of_equal_size(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_sum(DTYPE_F32, 16);
    *odd = call_sum(DTYPE_I32, 16);
}

/* Above and below: partial sums of both travel as f32. */
static void types_with_equal_partial_sums(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_sum(DTYPE_F32, 24);
    *odd = call_sum(DTYPE_BF16, 24);
}

static void types_of_other_size(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_sum(DTYPE_F32, 16);
    *odd = call_sum(DTYPE_F64, 16);
}

/* B27 */
static void large_sizes(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_sum(DTYPE_F32, 40000);
    *odd = call_sum(DTYPE_F32, 20000);
}

static void small_sizes(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_sum(DTYPE_F32, 4);
    *odd = call_sum(DTYPE_F32, 8);
}

/* One member takes the algorithm for large sums, the others that for small ones. */
static void sizes_of_two_algorithms(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_sum(DTYPE_F32, 3);
    *odd = call_sum(DTYPE_F32, 40000);
}

static void shapes_of_equal_size(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_sum(DTYPE_F32, 8);
    *odd = call_sum(DTYPE_F32, 8);
    odd->shape = (struct shape){2, {4, 2}};
    (void)snprintf(odd->words, WORDS, "all_reduce_sum f32[4,2]");
}

/* B32: equal totals. */
static void counts(int size, struct call *usual, struct call *odd)
{
    char *at = usual->words;

    *usual = (struct call){.operation = OPERATION_ALL_GATHER_UNEVEN, .dtype = DTYPE_U8, .shape = {1, {0}}};
    for (int i = 0; i < size; i++)
        usual->shape.dim[0] += usual->counts[i] = (uint64_t)i + 1;
    *odd = *usual;
    odd->counts[0]++;
    odd->counts[1]--;
    at += sprintf(at, "all_gather_uneven u8[%d] axis 0 counts ", (int)usual->shape.dim[0]);
    for (int i = 0; i < size; i++)
        at += sprintf(at, "%s%d", i ? "," : "", i + 1);
    memcpy(odd->words, usual->words, WORDS);
    memcpy(strstr(odd->words, "1,2"), "2,1", 3);
}

/* B32: what stands beside the axis differs. */
static void inner_extents(int size, struct call *usual, struct call *odd)
{
    *usual = call_even(size, 0);
    *odd = *usual;
    odd->shape.dim[1]++;
    (void)snprintf(odd->words, WORDS, "all_gather_even f32[%d,%d] axis 0", 4 * size, 4 * size + 1);
}

/* Equal parts, joined along one axis here and along another there. */
static void axes_of_gathers(int size, struct call *usual, struct call *odd)
{
    uint64_t extent = 4 * (uint64_t)size;

    *usual = call_even(size, 0);
    *odd = call_even(size, 1);
    usual->shape.dim[1] = odd->shape.dim[0] = 4;
    (void)snprintf(usual->words, WORDS, "all_gather_even f32[%d,4] axis 0", (int)extent);
    (void)snprintf(odd->words, WORDS, "all_gather_even f32[4,%d] axis 1", (int)extent);
}

static struct call exchange_of(int size, int axis)
{
    uint64_t extent = 2 * (uint64_t)size;
    struct call call = {
        .operation = OPERATION_VARIABLE_ALL_TO_ALL, .dtype = DTYPE_U8, .shape = {2, {extent, extent}}, .axis = axis};

    (void)snprintf(call.words, WORDS,
                   axis ? "variable_all_to_all u8[%d,*] axis 1" : "variable_all_to_all u8[*,%d] axis 0", (int)extent);
    return call;
}

static void axes_of_exchanges(int size, struct call *usual, struct call *odd)
{
    *usual = exchange_of(size, 0);
    *odd = exchange_of(size, 1);
}

/* B30: asymmetric counts; the words are those of the pair. */
static void counts_of_exchanges(int size, struct call *usual, struct call *odd)
{
    *usual = exchange_of(size, 0);
    *odd = *usual;
    odd->more = 1;
    usual->words[0] = odd->words[0] = '\0';
}

static void roots(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_broadcast(0);
    *odd = call_broadcast(1);
}

/* It has what it needs, and sends what nobody expects. */
static void own_root(int size, struct call *usual, struct call *odd)
{
    *usual = call_broadcast(0);
    *odd = call_broadcast(size - 1);
}

static void barriers(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_barrier();
    *odd = call_agreement();
}

static void barrier_and_sum(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_barrier();
    *odd = call_sum(DTYPE_F16, 5);
}

static void broadcast_and_gather(int size, struct call *usual, struct call *odd)
{
    *usual = call_broadcast(0);
    *odd = call_even(size, 0);
}

/* Not a difference. */
static void places(int size, struct call *usual, struct call *odd)
{
    (void)size;
    *usual = call_sum(DTYPE_F32, 16);
    *odd = *usual;
    odd->in_place = true;
}

static const struct kind kinds[] = {
    {"operations", FOUND, FOUND, operations},
    {"types of equal size", UNSEEN, FOUND, types_of_equal_size},
    {"types with equal partial sums", FOUND, FOUND, types_with_equal_partial_sums},
    {"types of other size", FOUND, FOUND, types_of_other_size},
    {"large sizes", FOUND, FOUND, large_sizes},
    {"small sizes", FOUND, FOUND, small_sizes},
    {"sizes of two algorithms", FOUND, FOUND, sizes_of_two_algorithms},
    {"shapes of equal size", UNSEEN, FOUND, shapes_of_equal_size},
    {"counts", FOUND, FOUND, counts},
    {"inner extents", FOUND, FOUND, inner_extents},
    {"axes of gathers", UNSEEN, FOUND, axes_of_gathers},
    {"axes of exchanges", UNSEEN, FOUND, axes_of_exchanges},
    {"counts of exchanges", FOUND, FOUND, counts_of_exchanges},
    {"roots", LATER, LATER, roots},
    {"its own root", LATER, LATER, own_root},
    {"barriers", FOUND, FOUND, barriers},
    {"barrier and sum", FOUND, FOUND, barrier_and_sum},
    {"broadcast and gather", FOUND, FOUND, broadcast_and_gather},
    {"places", UNSEEN, UNSEEN, places},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* One kind of difference in one world. */
struct trial {
    const struct kind *kind;
    struct call usual;
    struct call odd;
    int odd_member;
    int members[MOST];
    struct group_spec groups[2]; /* the second one, where everybody meets first */
    bool touched[MOST];
    bool wrong[MOST]; /* its operation ended well, and must not have */
    struct ranks ranks;
};

/* May a member's operation end well although another's was another?  A broadcast's, with its root's data; and an
 * all-to-all's that takes part in no pair whose counts differ. */
static bool may_end(const struct trial *trial, int member, const struct tensor *recv)
{
    if (trial->kind->call == counts_of_exchanges)
        return member != 0 && member != trial->odd_member;
    return recv && trial->usual.operation == OPERATION_BROADCAST && all_bytes(recv, 0x22);
}

static enum status differ_body(struct rank *self)
{
    struct trial *trial = self->context;
    struct group *group = session_group(self->session, 1);
    const struct call *call = group_rank(group) == trial->odd_member ? &trial->odd : &trial->usual;
    bool root = call->operation == OPERATION_BROADCAST && group_rank(group) == call->root;
    struct completion *completion = NULL;
    struct tensor *send = NULL;
    struct tensor *recv = NULL;
    enum status st = group_barrier(session_group(self->session, 2), &completion, &self->err);

    st = finish(st, &completion, &self->err);
    if (st == STATUS_OK)
        st = call_post(call, group, &send, &recv, &completion, &self->err);
    st = finish(st, &completion, &self->err);
    trial->wrong[self->rank] = st == STATUS_OK && !may_end(trial, group_rank(group), recv);
    trial->touched[self->rank] = !all_bytes(send, 0x11) || !all_bytes(recv, root ? 0x22 : 0x11);
    tensor_release(send);
    tensor_release(recv);
    return st;
}

static void *trial_main(void *context)
{
    struct trial *trial = context;

    ranks_run(&trial->ranks);
    return NULL;
}

/* "ranks 0, 1, 3: all_reduce_sum f32[4]"; many: "the other 11 ranks: ...". */
static void add_ranks(char *text, const struct trial *trial, bool odd)
{
    int size = trial->ranks.size;
    int odd_rank = trial->members[trial->odd_member];
    const char *comma = " ";

    text += strlen(text);
    if (!odd && size > 9) {
        (void)sprintf(text, "the other %d ranks: %s", size - 1, trial->usual.words);
        return;
    }
    text += sprintf(text, "%s", odd || size == 2 ? "rank" : "ranks");
    for (int rank = 0; rank < size; rank++) {
        if ((rank == odd_rank) != odd)
            continue;
        text += sprintf(text, "%s%d", comma, rank);
        comma = ", ";
    }
    (void)sprintf(text, ": %s", odd ? trial->odd.words : trial->usual.words);
}

/* The whole sentence, as it must be. */
static void sentence(const struct trial *trial, char *text)
{
    bool odd_first = trial->members[trial->odd_member] == 0 || trial->ranks.size > 9;

    (void)sprintf(text, "group group/1, sequence 0: ");
    if (!trial->usual.words[0]) {
        (void)sprintf(text + strlen(text), "variable_all_to_all: rank %d sends 3 to rank %d, which expects 2",
                      trial->members[trial->odd_member], trial->members[0]);
        return;
    }
    add_ranks(text, trial, odd_first);
    (void)sprintf(text + strlen(text), "; ");
    add_ranks(text, trial, !odd_first);
}

/* Everybody ended with one cause; one rank alone says it. */
static void expect_cause(const struct trial *trial, enum checks checks)
{
    const struct rank *rank = trial->ranks.rank;
    char expected[600];
    int speakers = 0;

    sentence(trial, expected);
    for (int i = 0; i < trial->ranks.size; i++) {
        const char *text = rank[i].err.text;

        speakers += rank[i].speaker;
        ck_assert_msg((checks == CHECKS_FULL ? rank[i].status : rank[i].closing) == STATUS_MISMATCH,
                      "%s, rank %d: %s: %s", trial->kind->name, i, status_name(rank[i].closing), text);
        ck_assert_msg(!strcmp(text, rank[0].err.text), "%s: rank 0: %s\nrank %d: %s", trial->kind->name,
                      rank[0].err.text, i, text);
        ck_assert_msg(checks != CHECKS_FULL || !trial->touched[i], "%s: rank %d has touched its tensors",
                      trial->kind->name, i);
        ck_assert_msg(checks != CHECKS_LIGHT || !trial->wrong[i], "%s: rank %d has taken wrong data", trial->kind->name,
                      i);
        ck_assert_msg(checks != CHECKS_FULL || !strcmp(text, expected), "%s: rank %d: expected %s\ngot      %s",
                      trial->kind->name, i, expected, text);
        ck_assert_msg(!strncmp(text, "group group/1, sequence 0: ", 27) && strstr(text, trial->usual.words) &&
                          strstr(text, trial->odd.words),
                      "%s: rank %d: expected %s\ngot      %s", trial->kind->name, i, expected, text);
    }
    ck_assert_msg(speakers == 1, "%s: %d ranks speak", trial->kind->name, speakers);
}

/* A broadcast with two roots: a member that is done with it has sent what nobody received, which is found when the
 * session closes; one that waits for what nobody sends asks what the others were called with. */
static void expect_later(const struct trial *trial, enum checks checks)
{
    const struct rank *rank = trial->ranks.rank;
    int speakers = 0;

    for (int i = 0; i < trial->ranks.size; i++) {
        speakers += rank[i].speaker;
        ck_assert_msg(rank[i].err.status == STATUS_MISMATCH, "%s, rank %d: %s: %s", trial->kind->name, i,
                      status_name(rank[i].err.status), rank[i].err.text);
        ck_assert_str_eq(rank[i].err.text, rank[0].err.text);
        ck_assert_msg(checks != CHECKS_LIGHT || !trial->wrong[i], "%s: rank %d has taken wrong data", trial->kind->name,
                      i);
    }
    ck_assert_int_eq(speakers, 1);
    ck_assert_msg(!strncmp(rank[0].err.text, "group group/1, sequence 0: ", 27) &&
                      strstr(rank[0].err.text, "broadcast"),
                  "%s: %s", trial->kind->name, rank[0].err.text);
}

static void expect_nothing(const struct trial *trial)
{
    for (int i = 0; i < trial->ranks.size; i++)
        ck_assert_msg(trial->ranks.rank[i].status == STATUS_OK && trial->ranks.rank[i].closing == STATUS_OK,
                      "%s, rank %d: %s", trial->kind->name, i, trial->ranks.rank[i].err.text);
}

static void start_trial(struct trial *trial, const struct kind *kind, int size, enum checks checks, pthread_t *thread)
{
    bool late = checks == CHECKS_OFF && kind->off == LATER; /* found after half of the timeout */

    trial->kind = kind;
    kind->call(size, &trial->usual, &trial->odd);
    trial->odd_member = size - 1;
    for (int i = 0; i < size; i++)
        trial->members[i] = (i + size / 2) % size;
    trial->groups[0] = (struct group_spec)GROUP(1, size, trial->members);
    trial->groups[1] = (struct group_spec)GROUP(2, size, trial->members);
    trial->ranks = (struct ranks){.size = size,
                                  .loopback.eager_bytes = 1 << 20,
                                  .session = {.checks = checks, .timeout_ns = (late ? 4 : 20) * NS_PER_S},
                                  .groups = trial->groups,
                                  .group_count = 2,
                                  .settle = true,
                                  .body = differ_body,
                                  .context = trial};
    ck_assert_int_eq(pthread_create(thread, NULL, trial_main, trial), 0);
}

static void expect(const struct trial *trial, enum checks checks)
{
    const struct kind *kind = trial->kind;
    enum found found = checks == CHECKS_OFF ? kind->off : checks == CHECKS_LIGHT ? kind->light : FOUND;

    /* Where it is sent to from where it expects it, sizes say nothing of roots. */
    if (checks == CHECKS_OFF && kind->call == roots && trial->ranks.size > 4 &&
        trial->ranks.rank[0].closing == STATUS_OK)
        found = UNSEEN;
    if (found == UNSEEN || kind->call == places)
        expect_nothing(trial);
    else if (found == LATER)
        expect_later(trial, checks);
    else
        expect_cause(trial, checks);
}

/* All kinds in this world, many at once: each waits for most of a second until its cause is settled. */
static void run_kinds(int size, enum checks checks)
{
    struct trial *trials = calloc(KINDS, sizeof *trials);
    pthread_t threads[KINDS];

    ck_assert(trials != NULL);
    for (int begin = 0, end = 0; begin < KINDS; begin = end) {
        end = begin + RANKS_AT_ONCE / size < KINDS ? begin + RANKS_AT_ONCE / size : KINDS;
        for (int i = begin; i < end; i++)
            start_trial(&trials[i], &kinds[i], size, checks, &threads[i]);
        for (int i = begin; i < end; i++)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < KINDS; i++)
        expect(&trials[i], checks);
    free(trials);
}

static const int sizes[] = {2, 3, 5, 8, 9, 16};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

START_TEST(full_checks_find_every_difference_and_touch_nothing)
{
    run_kinds(sizes[_i], CHECKS_FULL);
}
END_TEST

START_TEST(light_checks_find_every_difference_of_messages)
{
    run_kinds(sizes[_i], CHECKS_LIGHT);
}
END_TEST

START_TEST(without_checks_sizes_are_compared)
{
    run_kinds(sizes[_i], CHECKS_OFF);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("signatures");
    TCase *all = tcase_create("all");

    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, full_checks_find_every_difference_and_touch_nothing, 0, SIZES);
    tcase_add_loop_test(all, light_checks_find_every_difference_of_messages, 0, SIZES);
    tcase_add_loop_test(all, without_checks_sizes_are_compared, 0, SIZES);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
