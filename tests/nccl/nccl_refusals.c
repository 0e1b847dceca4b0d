/* Damaged headers of device messages, a session each: those ahead, by a bit turned over before they are announced, and
 * those in band, by the stand-in in transit.  Nothing damaged is delivered.
 *
 * The program owns MPI: a session that failed cannot be used again.  usage: nccl_refusals COUNT [SEED] */
#include <check.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/plugin.h"
#include "comm/route.h"
#include "comm/session.h"

enum { HEADER_BYTES = 256, VALUES = 50 };

static const struct plugin *mpi;
static const struct plugin *cuda;
static struct device *device;
static struct transport_ops damaging;
static struct device_message_ops damaging_device;
static int damaged_bit; /* -1: none */
static int rank;
static int count = 1;
static uint64_t seed = 1;

static const struct tensor_spec hidden = {"hidden", DTYPE_F32, 1, {{VALUES, VALUES, -1}}};
static const struct route_spec route_spec_of = {.id = 5,
                                                .name = "forward",
                                                .from = 0,
                                                .to = 1,
                                                .tensor_count = 1,
                                                .tensors = &hidden,
                                                .depth = 1,
                                                .memory_tensors = 1};

static uint32_t next(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33);
}

static enum status damage(struct transport *transport, int peer, uint32_t tag, const void *header, size_t header_bytes,
                          struct memory *memory, void *payload, size_t bytes, bool headroom, struct work **ret,
                          struct error *err)
{
    unsigned char copy[512];

    memcpy(copy, header, header_bytes);
    if (damaged_bit >= 0 && header_bytes != HEADER_BYTES)
        return error_set(err, STATUS_INTERNAL, "a header of %zu bytes", header_bytes);
    if (damaged_bit >= 0)
        copy[damaged_bit / 8] ^= (unsigned char)(1 << damaged_bit % 8);
    return cuda->transport->device->send(transport, peer, tag, copy, header_bytes, memory, payload, bytes, headroom,
                                         ret, err);
}

static enum status open_session(struct session **ret, struct error *err)
{
    struct transport_options carrier_options = {.program_owns_mpi = true, .startup_timeout_ns = 30 * NS_PER_S};
    struct transport_options options = {.startup_timeout_ns = 30 * NS_PER_S};
    struct session_options session_options = {.timeout_ns = 20 * NS_PER_S, .startup_timeout_ns = 20 * NS_PER_S};
    struct transport *transport = NULL;
    enum status st = mpi->transport->open(&carrier_options, &options.carrier, err);

    options.carrier_ops = mpi->transport;
    options.memory = session_options.memory = device->memory;
    session_options.pinned = device->pinned;
    if (st == STATUS_OK)
        st = damaging.open(&options, &transport, err);
    if (st == STATUS_OK)
        st = session_create(&damaging, transport, &session_options, ret, err);
    return st == STATUS_OK ? session_build(*ret, NULL, 0, &route_spec_of, 1, err) : st;
}

static enum status transfer(struct session *session, bool *ret_delivered, struct error *err)
{
    struct route *route = session_route(session, route_spec_of.id);
    struct shape shape = {1, {VALUES}};
    struct bundle *bundle = NULL;
    struct completion *completion = NULL;
    enum status st = STATUS_OK;

    if (rank == 0) {
        st = route_acquire(route, &bundle, err);
        if (st == STATUS_OK)
            st = route_send(route, bundle, 1, &completion, err);
    } else {
        st = route_receive(route, &shape, NULL, NULL, 1, &completion, err);
    }
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    if (rank == 1 && st == STATUS_OK) {
        *ret_delivered = true;
        route_return(route, route_take(completion, NULL));
    }
    completion_abandon(completion);
    /* A sender whose message was taken hears of it from the other. */
    for (int i = 0; i < 5000 && rank == 0 && st == STATUS_OK; i++) {
        st = session_check(session, err);
        clock_sleep_ns(NS_PER_MS);
    }
    return st;
}

static bool is_refused(const char *words, struct error *err)
{
    struct session *session = NULL;
    bool delivered = false;
    enum status st = open_session(&session, err);

    if (st == STATUS_OK)
        st = transfer(session, &delivered, err);
    if (session)
        (void)session_close(session, false, NULL);
    return st == STATUS_MISMATCH && !delivered && strstr(err->text, words) && strstr(err->text, "expected ");
}

START_TEST(random_single_bits_of_headers_ahead_are_refused)
{
    char text[600] = "";
    bool right = true;

    for (int i = 0; i < count && right; i++) {
        struct error err = {0};

        damaged_bit = (int)(next() % (HEADER_BYTES * 8));
        right = is_refused("tensor hidden", &err);
        if (!right)
            (void)snprintf(text, sizeof text, "bit %d: %.400s", damaged_bit, err.text);
    }
    ck_assert_msg(right, "%s", text);
}
END_TEST

START_TEST(random_bytes_of_headers_in_band_are_refused)
{
    char text[600] = "";
    bool right = true;

    damaged_bit = -1;
    for (int i = 0; i < count && right; i++) {
        struct error err = {0};
        char fault[64];
        int byte = (int)(next() % HEADER_BYTES);

        /* The transfer is this rank's operation number i: what was refused ahead has never begun. */
        (void)snprintf(fault, sizeof fault, "rank=0,op=%d,kind=flip:%d", i, byte);
        (void)setenv("FERRY_STANDIN_FAULT", fault, 1);
        right = is_refused("in band: ", &err);
        if (!right)
            (void)snprintf(text, sizeof text, "byte %d: %.400s", byte, err.text);
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
    damaging = *cuda->transport;
    damaging_device = *cuda->transport->device;
    damaging_device.send = damage;
    damaging.device = &damaging_device;
    return cuda->devices->open(rank, &device, err);
}

int main(int argc, char **argv)
{
    Suite *suite = suite_create("nccl refusals");
    TCase *tests = tcase_create("nccl refusals");
    SRunner *runner = srunner_create(suite);
    struct error err = {0};
    int failed;

    if (argc > 1)
        count = (int)strtol(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    if (start(&err)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, random_single_bits_of_headers_ahead_are_refused);
    tcase_add_test(tests, random_bytes_of_headers_in_band_are_refused);
    suite_add_tcase(suite, tests);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, rank == 0 ? CK_NORMAL : CK_MINIMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    (void)MPI_Finalize();
    return failed ? 1 : 0;
}
