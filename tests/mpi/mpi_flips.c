/* Random single bits of headers, damaged between real ranks: refused, and nothing is delivered.
 *
 * The program owns MPI here: after a failure a session's transport cannot be used again, so each flip gets one of its
 * own.  usage: mpi_flips COUNT [SEED], on 2 ranks */
#include <check.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/plugin.h"
#include "tests/loop/flip.h"

static const struct transport_ops *mpi;
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
    return st == STATUS_OK ? session_build(*ret, &flip_group, 1, &flip_route, 1, err) : st;
}

/* One flip in one session.  The receiver says what came of it; the sender waits until it is told. */
static bool is_refused(const struct flip *flip, int bit, struct error *err)
{
    struct transport_ops ops = flip_transport(mpi);
    struct session *session = NULL;
    bool delivered = false;
    bool sender;
    enum status st;

    flip_arm(flip, bit);
    st = open_session(&ops, &session, err);
    if (st != STATUS_OK)
        return false;
    st = flip_run(session, flip->kind, &delivered, err);
    sender = session_rank(session) == 0;
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

int main(int argc, char **argv)
{
    Suite *suite = suite_create("mpi flips");
    TCase *tests = tcase_create("mpi flips");
    SRunner *runner = srunner_create(suite);
    struct error err = {0};
    int level = 0;
    int rank = 0;
    int failed;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (level < MPI_THREAD_MULTIPLE) {
        (void)fprintf(stderr, "SKIP: this MPI has no MPI_THREAD_MULTIPLE\n");
        (void)MPI_Finalize();
        return 77;
    }
    if (argc > 1)
        count = (int)strtol(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    if (plugin_open("mpi", &mpi, NULL, 0, &err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, random_single_bits_of_headers_are_refused);
    suite_add_tcase(suite, tests);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, rank == 0 ? CK_NORMAL : CK_MINIMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    (void)MPI_Finalize();
    return failed ? 1 : 0;
}
