/* Damaged headers of messages that NCCL carries, a session each: those ahead, by a bit turned over before they are
 * announced; those in band, by a bit turned over once they have come, or by the stand-in in transit.  Nothing damaged
 * is delivered.
 *
 * The program owns MPI: a session that failed cannot be used again.
 * usage: nccl_refusals STEP FIRST COUNT      every STEP-th bit of a bundle's first header from FIRST on (1 0: all), and
 * COUNT random ones */
#include <check.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/plugin.h"
#include "tests/loop/flip.h"
#include "tests/suite.h"

static const struct plugin *mpi;
static const struct plugin *cuda;
static struct device *device;
static int rank;
static int step;
static int first;
static int count;
static uint64_t seed;

/* A bundle's first tensor: of the headers the one with the most fields. */
static const struct flip of_bundle = {FLIP_BUNDLE, 0, 192};

static uint32_t next(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33);
}

/* tensors: of the bundle. */
static enum status open_session(const struct transport_ops *ops, int tensors, struct session **ret, struct error *err)
{
    struct transport_options carrier_options = {.program_owns_mpi = true, .startup_timeout_ns = 30 * NS_PER_S};
    struct transport_options options = {.startup_timeout_ns = 30 * NS_PER_S};
    struct session_options session_options = {
        .timeout_ns = 20 * NS_PER_S, .startup_timeout_ns = 20 * NS_PER_S, .checks = CHECKS_LIGHT};
    struct route_spec route = flip_route;
    struct transport *transport = NULL;
    enum status st = mpi->transport->open(&carrier_options, &options.carrier, err);

    route.tensor_count = tensors;
    route.memory_tensors = (1u << tensors) - 1;
    options.carrier_ops = mpi->transport;
    options.memory = session_options.memory = route.memory = device->memory;
    session_options.pinned = device->pinned;
    if (st == STATUS_OK)
        st = ops->open(&options, &transport, err);
    if (st == STATUS_OK)
        st = session_create(ops, transport, &session_options, ret, err);
    return st == STATUS_OK ? session_build(*ret, &flip_group, 1, &route, 1, err) : st;
}

/* One session, whose damage is armed.  The receiver says what came of it; the sender waits until it is told. */
static enum status run(const struct transport_ops *ops, enum flip_kind kind, int tensors, bool *ret_delivered,
                       struct error *err)
{
    struct session *session = NULL;
    enum status st = open_session(ops, tensors, &session, err);

    *ret_delivered = false;
    if (st == STATUS_OK)
        st = flip_run(session, device->memory, kind, ret_delivered, err);
    for (int i = 0; i < 5000 && rank == 0 && st == STATUS_OK; i++) {
        st = session_check(session, err);
        clock_sleep_ns(NS_PER_MS);
    }
    if (session)
        (void)session_close(session, false, NULL);
    return st;
}

/* words: where the receiver saw it. */
static bool is_refused(const struct flip *flip, int bit, bool in_band, const char *words, char *text, size_t text_bytes)
{
    struct transport_ops ops = flip_transport(cuda->transport);
    struct error err = {0};
    bool delivered = false;
    enum status st;

    if (in_band)
        flip_arm_in_band(flip->message, bit);
    else
        flip_arm(flip, bit);
    st = run(&ops, flip->kind, flip_route.tensor_count, &delivered, &err);
    if (st == STATUS_MISMATCH && (rank == 0 || !delivered) && strstr(err.text, words) && strstr(err.text, "expected "))
        return true;
    (void)snprintf(text, text_bytes, "%s, message %d, bit %d%s: %s%s: %.400s", flip_name(flip->kind), flip->message,
                   bit, in_band ? " in band" : "", status_name(st), delivered ? ", delivered" : "", err.text);
    return false;
}

/* This share of the bits of a bundle's header, one after the other. */
static void every_bit_is_refused(bool in_band, const char *words)
{
    char text[600] = "";
    bool right = true;

    for (int bit = first; bit < of_bundle.header_bytes * 8 && right; bit += step)
        right = is_refused(&of_bundle, bit, in_band, words, text, sizeof text);
    ck_assert_msg(right, "%s", text);
}

START_TEST(every_single_bit_of_a_header_ahead_is_refused)
{
    every_bit_is_refused(false, "tensor scales");
}
END_TEST

START_TEST(every_single_bit_of_a_header_in_band_is_refused)
{
    every_bit_is_refused(true, "in band: ");
}
END_TEST

START_TEST(random_single_bits_of_other_headers_are_refused)
{
    char text[600] = "";
    bool right = true;

    for (int i = 0; i < count && right; i++) {
        const struct flip *flip = &flips[next() % (uint32_t)flip_count];
        int bit = (int)(next() % (uint32_t)(flip->header_bytes * 8));

        right = is_refused(flip, bit, false, "", text, sizeof text);
    }
    ck_assert_msg(right, "%s", text);
}
END_TEST

/* On the wire, below everything that is Ferry's. */
START_TEST(random_bytes_in_transit_are_refused)
{
    char text[600] = "";
    bool right = true;

    for (int i = 0; i < count && right; i++) {
        char fault[64];
        int byte = (int)(next() % (uint32_t)of_bundle.header_bytes);
        struct error err = {0};
        bool delivered = false;
        enum status st;

        /* One transfer a session, and the first sessions of all. */
        (void)snprintf(fault, sizeof fault, "rank=0,op=%d,kind=flip:%d", i, byte);
        (void)setenv("FERRY_STANDIN_FAULT", fault, 1);
        st = run(cuda->transport, FLIP_BUNDLE, 1, &delivered, &err);
        if (st == STATUS_MISMATCH && (rank == 0 || !delivered) && strstr(err.text, "in band: "))
            continue;
        right = false;
        (void)snprintf(text, sizeof text, "byte %d: %s: %.400s", byte, status_name(st), err.text);
    }
    (void)unsetenv("FERRY_STANDIN_FAULT");
    ck_assert_msg(right, "%s", text);
}
END_TEST

static enum status start(struct error *err)
{
    int level = 0;
    enum status st = plugin_open("mpi", &mpi, NULL, 0, err);

    if (st == STATUS_OK)
        st = plugin_open("cuda", &cuda, NULL, 0, err);
    if (st != STATUS_OK)
        return st;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) || MPI_Comm_rank(MPI_COMM_WORLD, &rank))
        return error_set(err, STATUS_ENVIRONMENT, "MPI_Init_thread");
    return cuda->devices->open(rank, &device, err);
}

int main(int argc, char **argv)
{
    Suite *suite = suite_create("nccl refusals");
    TCase *tests = tcase_create("nccl refusals");
    struct error err = {0};
    int failed;

    if (argc != 4)
        return 2;
    step = (int)strtol(argv[1], NULL, 10);
    first = (int)strtol(argv[2], NULL, 10);
    count = (int)strtol(argv[3], NULL, 10);
    seed = (uint64_t)first + 1;
    if (step < 1 || first < 0 || start(&err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, random_bytes_in_transit_are_refused);
    tcase_add_test(tests, every_single_bit_of_a_header_ahead_is_refused);
    tcase_add_test(tests, every_single_bit_of_a_header_in_band_is_refused);
    tcase_add_test(tests, random_single_bits_of_other_headers_are_refused);
    suite_add_tcase(suite, tests);
    failed = suite_run_here(suite);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    (void)MPI_Finalize();
    return failed;
}
