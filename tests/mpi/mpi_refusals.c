/* What real ranks refuse: random single bits of headers, damaged on their way (between two ranks); members that were
 * called with different things.
 *
 * The program owns MPI here: after a failure a session's transport cannot be used again, so each case gets one of its
 * own.  usage: mpi_refusals COUNT [SEED]      COUNT: of damaged bits */
#include <check.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/group.h"
#include "comm/plugin.h"
#include "tests/loop/flip.h"
#include "tests/mpi/threads.h"
#include "tests/suite.h"

static const struct transport_ops *mpi;
static int rank;
static int size;
static int members[64]; /* the ranks in reverse */
static int count = 1;
static uint64_t seed = 1;

static uint32_t next(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33);
}

static enum status open_session(const struct transport_ops *ops, struct session **ret, struct error *err)
{
    struct transport_options transport_options = {.program_owns_mpi = true, .startup_timeout_ns = 30 * NS_PER_S};
    struct session_options options = {
        .timeout_ns = 20 * NS_PER_S, .startup_timeout_ns = 20 * NS_PER_S, .checks = CHECKS_FULL};
    struct transport *transport = NULL;
    enum status st = ops->open(&transport_options, &transport, err);

    if (st == STATUS_OK)
        st = session_create(ops, transport, &options, ret, err);
    return st;
}

/* One flip in one session.  The receiver says what came of it; the sender waits until it is told. */
static bool is_refused(const struct flip *flip, int bit, struct error *err)
{
    struct transport_ops ops = flip_transport(mpi);
    struct session *session = NULL;
    bool delivered = false;
    bool sender = rank == 0;
    enum status st;

    flip_arm(flip, bit);
    st = open_session(&ops, &session, err);
    if (st == STATUS_OK)
        st = session_build(session, &flip_group, 1, &flip_route, 1, err);
    if (st != STATUS_OK)
        return false;
    st = flip_run(session, NULL, flip->kind, &delivered, err);
    for (int i = 0; i < 5000 && sender && st == STATUS_OK; i++) {
        st = session_check(session, err);
        clock_sleep_ns(NS_PER_MS);
    }
    (void)session_close(session, false, NULL);
    return st == STATUS_MISMATCH && (sender || !delivered) && strstr(err->text, ": expected ");
}

START_TEST(random_single_bits_of_headers_are_refused)
{
    char text[600] = "";
    bool right = true;

    for (int i = 0; i < count; i++) {
        const struct flip *flip = &flips[next() % (uint32_t)flip_count];
        int bit = (int)(next() % (uint32_t)(flip->header_bytes * 8));
        struct error err = {0};

        if (is_refused(flip, bit, &err) || !right)
            continue;
        right = false;
        (void)snprintf(text, sizeof text, "%s, message %d, bit %d: %.400s", flip_name(flip->kind), flip->message, bit,
                       err.text);
    }
    ck_assert_msg(right, "%s", text);
}
END_TEST

/* What the last rank is called with, and all the others. */
struct kind {
    enum operation usual;
    uint64_t usual_count;
    enum operation odd;
    uint64_t odd_count;
    const char *usual_words;
    const char *odd_words;
};

static const struct kind kinds[] = {
    /* B26 */
    {OPERATION_ALL_REDUCE_SUM, 100, OPERATION_BROADCAST, 100, "all_reduce_sum f32[100]", "broadcast f32[100] root 0"},
    /* B27: both eager, both larger than any eager limit, one of each */
    {OPERATION_ALL_REDUCE_SUM, 4, OPERATION_ALL_REDUCE_SUM, 8, "all_reduce_sum f32[4]", "all_reduce_sum f32[8]"},
    {OPERATION_ALL_REDUCE_SUM, 40000, OPERATION_ALL_REDUCE_SUM, 20000, "all_reduce_sum f32[40000]",
     "all_reduce_sum f32[20000]"},
    {OPERATION_ALL_REDUCE_SUM, 3, OPERATION_ALL_REDUCE_SUM, 40000, "all_reduce_sum f32[3]",
     "all_reduce_sum f32[40000]"},
    {OPERATION_BARRIER, 1, OPERATION_FAILURE_AGREEMENT, 1, "barrier", "failure_agreement"},
};

static enum status call(struct group *group, enum operation operation, struct tensor *tensor, struct error *err)
{
    struct completion *completion = NULL;
    enum status st;

    if (operation == OPERATION_BARRIER)
        st = group_barrier(group, &completion, err);
    else if (operation == OPERATION_FAILURE_AGREEMENT)
        st = group_failure_agreement(group, 1, &completion, err);
    else if (operation == OPERATION_BROADCAST)
        st = group_broadcast(group, tensor, 0, &completion, err);
    else
        st = group_all_reduce_sum(group, tensor, tensor, &completion, err);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    completion_abandon(completion);
    return st;
}

/* One case in a session of its own.  err: what this rank holds in the end. */
static enum status differ(const struct kind *kind, bool *ret_speaker, bool *ret_touched, struct error *err)
{
    struct group_spec spec = flip_group;
    struct session *session = NULL;
    bool odd = rank == size - 1;
    struct shape shape = {1, {odd ? kind->odd_count : kind->usual_count}};
    struct tensor *tensor = NULL;
    enum status st = open_session(mpi, &session, err);

    spec.size = size;
    spec.members = members;
    if (st == STATUS_OK)
        st = session_build(session, &spec, 1, NULL, 0, err);
    if (st == STATUS_OK)
        st = tensor_create(DTYPE_F32, &shape, &tensor, err);
    if (st != STATUS_OK)
        return st;
    memset(tensor->data, 0x11, tensor->bytes);
    st = call(session_group(session, spec.id), odd ? kind->odd : kind->usual, tensor, err);
    for (size_t k = 0; k < tensor->bytes; k++)
        *ret_touched = *ret_touched || tensor->data[k] != 0x11;
    if (st != STATUS_OK)
        st = session_settle(session, err, ret_speaker);
    (void)session_close(session, false, NULL);
    tensor_release(tensor);
    return st;
}

/* "group pair, sequence 0: ranks 0, 1, 2: ...; rank 3: ..." */
static void sentence(const struct kind *kind, char *text)
{
    text += sprintf(text, "group pair, sequence 0: %s 0", size > 2 ? "ranks" : "rank");
    for (int i = 1; i < size - 1; i++)
        text += sprintf(text, ", %d", i);
    (void)sprintf(text, ": %s; rank %d: %s", kind->usual_words, size - 1, kind->odd_words);
}

START_TEST(members_called_with_different_things_hold_one_cause)
{
    const struct kind *kind = &kinds[_i];
    struct error err = {0};
    char expected[400];
    bool speaker = false;
    bool touched = false;
    enum status st = differ(kind, &speaker, &touched, &err);
    int says = speaker;
    int speakers = 0;

    (void)MPI_Allreduce(&says, &speakers, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    sentence(kind, expected);
    ck_assert_int_eq(st, STATUS_MISMATCH);
    ck_assert_str_eq(err.text, expected);
    ck_assert(!touched);
    ck_assert_int_eq(speakers, 1);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("mpi refusals");
    TCase *tests = tcase_create("mpi refusals");
    struct error err = {0};
    int failed;

    if (!threads_start(&argc, &argv))
        return SKIPPED;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < size; i++)
        members[i] = size - 1 - i;
    if (argc > 1)
        count = (int)strtol(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    if (plugin_transport("mpi", &mpi, NULL, 0, &err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    tcase_set_timeout(tests, 100);
    tcase_add_loop_test(tests, members_called_with_different_things_hold_one_cause, 0, sizeof kinds / sizeof kinds[0]);
    if (size == 2)
        tcase_add_test(tests, random_single_bits_of_headers_are_refused);
    suite_add_tcase(suite, tests);
    failed = suite_run_here(suite);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    (void)MPI_Finalize();
    return failed;
}
