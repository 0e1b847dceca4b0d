/* What the NCCL transport does when something fails, one mode a run.  Each rank prints "rank R: ok", or what was not as
 * it should be.  What fails is set from outside, by the stand-in's FERRY_STANDIN_FAULT (faults.py), or by the mode.
 *
 * usage: nccl_faults MODE */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/native.h"
#include "comm/raw.h"
#include "comm/route.h"
#include "comm/session.h"
#include "tests/nccl/device_world.h"

enum { HEADER = 128, BYTES = 100000, TAG = 9, PATTERN = 0x5a };

#define PATIENCE_NS (1500 * NS_PER_MS) /* the deadline that comm would have */
#define RETURN_NS (5 * NS_PER_S)       /* by then the memory must be back */
#define TIMEOUT_NS (2 * NS_PER_S)      /* of the transport */
#define GRACE_NS (10 * NS_PER_S)       /* in which every rank leaves beyond it */

static struct device_world world;
static unsigned char *payload;
static unsigned char header[HEADER];
static unsigned char in_band[HEADER];

static int fail(const char *what)
{
    printf("rank %d: %s\n", world.rank, what);
    (void)fflush(stdout);
    return 1;
}

static bool is(const char *mode, const char *word)
{
    return strcmp(mode, word) == 0;
}

/* The work is over, or has failed, or it is too late; *ret_over. */
static enum status wait_for(struct work *work, uint64_t ns, bool *ret_over, struct error *err)
{
    uint64_t deadline_ns = clock_ns() + ns;
    enum status st = STATUS_OK;

    *ret_over = false;
    while (st == STATUS_OK && !*ret_over && clock_ns() < deadline_ns) {
        st = world.ops->test(world.transport, work, ret_over, err);
        clock_sleep_ns(50 * NS_PER_US);
    }
    return st;
}

static enum status begin(struct work **ret, struct error *err)
{
    struct message *message = NULL;
    size_t bytes = 0;
    enum status st = STATUS_OK;

    payload = device_room(&world, BYTES);
    for (int i = 0; i < HEADER; i++)
        header[i] = (unsigned char)(i + 1);
    if (world.rank == 0)
        return world.ops->device->send(world.transport, 1, TAG, header, HEADER, world.memory, payload, BYTES, true, ret,
                                       err);
    while (st == STATUS_OK && !message)
        st = world.ops->probe(world.transport, 0, TAG, &message, &bytes, err);
    return st == STATUS_OK ? world.ops->device->receive(world.transport, message, world.memory, payload, BYTES, true,
                                                        in_band, ret, err)
                           : st;
}

/* Written by its owner, the memory stays so: nobody else writes there any more. */
static bool is_back(void)
{
    unsigned char *bytes = malloc(BYTES);
    bool same = true;

    memset(bytes, PATTERN, BYTES);
    device_put(&world, payload, bytes, BYTES);
    clock_sleep_ns(300 * NS_PER_MS);
    memset(bytes, 0, BYTES);
    device_get(&world, bytes, payload, BYTES);
    for (int i = 0; i < BYTES; i++)
        same &= bytes[i] == PATTERN;
    free(bytes);
    device_free(&world, payload);
    return same;
}

static bool cancel(struct work *work)
{
    uint64_t deadline_ns = clock_ns() + RETURN_NS;
    bool over = false;

    while (!world.ops->cancel(world.transport, work)) {
        if (clock_ns() > deadline_ns || world.ops->test(world.transport, work, &over, NULL) != STATUS_OK || over)
            return false;
        clock_sleep_ns(NS_PER_MS);
    }
    return true;
}

/* The deadline passes without a word of NCCL's; then the memory is taken back. */
static int deadline_decides(struct work *work)
{
    struct error err = {0};
    bool over = false;
    enum status st = wait_for(work, PATIENCE_NS, &over, &err);

    if (st != STATUS_OK || over)
        return fail(over ? "it ended" : err.text);
    if (!cancel(work))
        return fail("the memory does not come back");
    if (!is_back())
        return fail("somebody else writes to the memory");
    work = NULL;
    st = world.ops->device->send(world.transport, 1, TAG, header, HEADER, world.memory, NULL, 0, false, &work, &err);
    return st == STATUS_LOST ? 0 : fail("a torn transport takes work");
}

/* NCCL reports it: the test fails once the memory is back. */
static int error_decides(struct work *work, const char *word)
{
    struct error err = {0};
    bool over = false;
    enum status st = wait_for(work, RETURN_NS, &over, &err);

    if (st == STATUS_OK || !strstr(err.text, word))
        return fail(over ? "it ended" : err.text);
    return is_back() ? 0 : fail("somebody else writes to the memory");
}

/* The device takes nothing any more: the sentence says which one. */
static int device_decides(struct work *work)
{
    struct error err = {0};
    bool over = false;
    enum status st = wait_for(work, RETURN_NS, &over, &err);

    return st == STATUS_ENVIRONMENT && strstr(err.text, "device cuda:1 at 0000:") ? 0
                                                                                  : fail(over ? "it ended" : err.text);
}

static int flipped(struct work *work)
{
    struct error err = {0};
    bool over = false;
    enum status st = wait_for(work, RETURN_NS, &over, &err);
    int differing = 0;

    if (st != STATUS_OK || !over)
        return fail(over ? err.text : "it does not end");
    for (int i = 0; world.rank == 1 && i < HEADER; i++)
        differing += header[i] != in_band[i];
    if (world.rank == 1 && (differing != 1 || (header[5] ^ in_band[5]) != 1))
        return fail("the flipped byte of the header was not seen");
    return 0;
}

static int stop(void)
{
    (void)raise(SIGSTOP);
    return 0;
}

static enum status take_from(int peer, struct work **ret, struct error *err)
{
    struct message *message = NULL;
    size_t bytes = 0;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && !message)
        st = world.ops->probe(world.transport, peer, TAG, &message, &bytes, err);
    return st == STATUS_OK ? world.ops->device->receive(world.transport, message, world.memory, payload, BYTES, true,
                                                        in_band, ret, err)
                           : st;
}

/* Rank 2 announces and is stopped: what rank 0 wants of rank 1 lies behind it, and rank 0 says so. */
static int behind(void)
{
    struct error err = {0};
    struct work *stopped = NULL;
    struct work *healthy = NULL;
    bool over = false;
    enum status st = STATUS_OK;

    payload = device_room(&world, BYTES);
    memset(header, 1, sizeof header);
    if (world.rank)
        st = world.ops->device->send(world.transport, 0, TAG, header, HEADER, world.memory, payload, BYTES, true,
                                     &healthy, &err);
    else
        st = take_from(2, &stopped, &err);
    if (st == STATUS_OK && world.rank == 0)
        st = take_from(1, &healthy, &err);
    if (st != STATUS_OK)
        return fail(err.text);
    if (world.rank == 2)
        return stop();
    st = wait_for(healthy, PATIENCE_NS, &over, &err);
    if (st != STATUS_OK || over)
        return fail(over ? "it ended" : err.text);
    if (world.rank == 0 && (world.ops->awaits(world.transport, 1) != 2 || world.ops->awaits(world.transport, 2) != 2))
        return fail("it does not say whom it waits for");
    return 0;
}

static const struct tensor_spec hidden = {"hidden", DTYPE_F32, 1, {{1000, 1000, -1}}};

/* Routes 10 (of rank 1) and 11 (of rank 2) to rank 0, in device memory. */
static enum status open_routes(struct session **ret, struct error *err)
{
    struct session_options options = {
        .timeout_ns = NS_PER_S, .startup_timeout_ns = 20 * NS_PER_S, .memory = world.memory};
    struct route_spec routes[] = {{.id = 10, .name = "well/1-0", .from = 1, .to = 0},
                                  {.id = 11, .name = "stopped/2-0", .from = 2, .to = 0}};
    struct manifest manifest = {.topology_digest = 1};
    enum status st;

    options.pinned = world.device->pinned;
    for (int i = 0; i < 2; i++) {
        routes[i].tensor_count = 1;
        routes[i].tensors = &hidden;
        routes[i].depth = 1;
        routes[i].memory_tensors = 1;
    }
    st = session_create(world.ops, world.transport, &options, ret, err);
    if (st == STATUS_OK)
        st = session_consensus(*ret, &manifest, err);
    if (st == STATUS_OK)
        st = session_build(*ret, NULL, 0, routes, 2, err);
    if (st == STATUS_OK)
        session_started(*ret);
    return st;
}

/* Ranks 1 and 2 send; rank 0 wants what rank 2 has announced first. */
static enum status post_routes(struct session *session, struct completion **ret, struct error *err)
{
    struct shape shape = {1, {1000}};
    struct completion *first = NULL;
    struct bundle *bundle = NULL;
    struct route *route = session_route(session, world.rank == 2 ? 11 : 10);
    enum status st;

    if (world.rank) {
        st = route_acquire(route, &bundle, err);
        return st == STATUS_OK ? route_send(route, bundle, 0, ret, err) : st;
    }
    clock_sleep_ns(NS_PER_S / 2);
    st = route_receive(session_route(session, 11), &shape, NULL, NULL, 0, &first, err);
    if (st == STATUS_OK)
        st = route_receive(route, &shape, NULL, NULL, 0, ret, err);
    completion_abandon(first);
    return st;
}

/* Rank 2 has announced and is stopped.  Ranks 0 and 1, held back by it, name it and nobody else. */
static int held(void)
{
    static const char *const others[] = {"wait for each other", "rank 0 has", "rank 1 has"};
    struct error err = {0};
    struct session *session = NULL;
    struct completion *wanted = NULL;
    bool speaks = false;
    enum status st = open_routes(&session, &err);

    if (st == STATUS_OK)
        st = post_routes(session, &wanted, &err);
    if (st != STATUS_OK)
        return fail(err.text);
    if (world.rank == 2)
        return stop();
    st = completion_wait(wanted, DEADLINE_NONE, &err);
    if (st != STATUS_OK)
        st = session_settle(session, &err, &speaks);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strstr(err.text, others[i]))
            return fail(err.text);
    }
    return st == STATUS_TIMEOUT && strstr(err.text, "rank 2 has been silent") ? 0 : fail(st ? err.text : "it ended");
}

/* A carrier whose close was given a shorter limit, when NCCL's end has used the rest up: rank 1 does not come to it. */
static int carrier_ends(void)
{
    struct transport_options options = {.startup_timeout_ns = 60 * NS_PER_S, .timeout_ns = 60 * NS_PER_S};
    struct error err = {0};
    struct transport *carrier = NULL;
    const struct plugin *mpi = NULL;
    uint64_t begun_ns;
    enum status st = plugin_open("mpi", &mpi, NULL, 0, &err);

    if (st == STATUS_OK)
        st = mpi->transport->open(&options, &carrier, &err);
    if (st != STATUS_OK)
        return fail(err.text);
    world.rank = mpi->transport->rank(carrier);
    if (world.rank)
        return stop();
    begun_ns = clock_ns();
    mpi->transport->limit_close(carrier, NS_PER_S / 4);
    st = mpi->transport->close(carrier, true, &err);
    if (st != STATUS_TIMEOUT || !strstr(err.text, "not every rank has come to the end of MPI"))
        return fail(st ? err.text : "all have come");
    return clock_ns() - begun_ns < RETURN_NS ? 0 : fail("it waits for its own time");
}

/* Of the end: when it began, and when NCCL's part of it was over and what is left for the carrier's. */
static uint64_t end_begun_ns;
static uint64_t limited_ns;
static uint64_t left_ns;
static void (*limit_close)(struct transport *transport, uint64_t close_ns);

static void note_limit(struct transport *transport, uint64_t close_ns)
{
    limited_ns = clock_ns();
    left_ns = close_ns;
    limit_close(transport, close_ns);
}

static void watch_limit(struct transport_ops *carrier)
{
    limit_close = carrier->limit_close;
    carrier->limit_close = note_limit;
}

/* A stream that rests only after seconds: both ends together take no longer than all of a rank's end may. */
static int limited(struct work *work)
{
    struct error err = {0};
    bool over = false;
    enum status st = wait_for(work, RETURN_NS, &over, &err);

    if (st != STATUS_OK || !over)
        return fail(over ? err.text : "it does not end");
    device_free(&world, payload);
    end_begun_ns = clock_ns();
    if (device_world_close(&world, true, &err) != STATUS_OK)
        return fail(err.text);
    if (!limited_ns || limited_ns - end_begun_ns < 2 * NS_PER_S)
        return fail(limited_ns ? "NCCL's end took no time" : "the carrier's end was not limited");
    return limited_ns - end_begun_ns + left_ns < TIMEOUT_NS + GRACE_NS ? 0 : fail("the carrier begins from the start");
}

/* The first transfer runs for seconds; what CUDA may make only when the device rests was made before. */
static int reserved(struct work *first)
{
    struct error err = {0};
    struct work *second = NULL;
    bool over = false;
    uint64_t begun_ns;
    enum status st = wait_for(first, NS_PER_S / 4, &over, &err);

    if (st != STATUS_OK || over)
        return fail(over ? "it ended at once" : err.text);
    begun_ns = clock_ns();
    if (world.rank == 0)
        st = world.ops->device->send(world.transport, 1, TAG, header, HEADER, world.memory, payload, BYTES, true,
                                     &second, &err);
    else
        st = take_from(0, &second, &err);
    if (st == STATUS_OK && clock_ns() - begun_ns > NS_PER_S)
        return fail("to post a message waits for the device");
    if (st == STATUS_OK)
        st = wait_for(first, RETURN_NS, &over, &err);
    if (st == STATUS_OK && over)
        st = wait_for(second, RETURN_NS, &over, &err);
    return st == STATUS_OK && over ? 0 : fail(over ? err.text : "it does not end");
}

/* NCCL's own call, as the bench makes it: what NCCL reports ends the wait. */
static int raw_decides(void)
{
    static const int members[] = {0, 1};
    struct raw_call call = {.operation = OPERATION_ALL_REDUCE_SUM, .dtype = DTYPE_F32, .outer = 1, .bytes = BYTES};
    struct error err = {0};
    struct raw *raw = NULL;
    uint64_t ns = 0;
    int ways = 0;
    enum status st = world.ops->raw->open(world.transport, members, 2, &raw, &err);

    call.inner_bytes = BYTES;
    call.send = device_room(&world, BYTES);
    call.recv = device_room(&world, BYTES);
    if (st == STATUS_OK)
        st = world.ops->raw->prepare(raw, &call, &ways, &err);
    if (st != STATUS_OK || ways != 1)
        return fail(err.text);
    st = world.ops->raw->run(raw, 0, 1, &ns, &err);
    return st == STATUS_LOST && strstr(err.text, "remote process exited") ? 0 : fail(st ? err.text : "it ended");
}

/* The communicator of some ranks that rank 1 does not build.  No sum uses it: a good end does not wait for it. */
static int unbuilt(void)
{
    static const int members[] = {0, 1};
    struct native *native = NULL;
    struct error err = {0};
    uint64_t begun_ns = clock_ns();
    int ranks[2] = {-1, -1};
    enum status st = world.ops->native->open(world.transport, 7, 0, members, 2, &native, &err);

    while (st == STATUS_OK && clock_ns() - begun_ns < PATIENCE_NS) {
        unsigned char bytes[CONTROL_BYTES];
        bool any = false;
        int peer = -1;

        st = world.ops->control_receive(world.transport, &peer, bytes, &any, &err);
        clock_sleep_ns(NS_PER_MS);
    }
    if (st != STATUS_OK)
        return fail(err.text);
    if (world.ops->native->missing(world.transport, native, ranks, 2) != 2 || ranks[0] != 0 || ranks[1] != 1)
        return fail("it does not know who has not built");
    if (world.ops->native->awaits(world.transport, native) != world.rank)
        return fail("it does not say that it waits for NCCL");
    begun_ns = clock_ns();
    if (device_world_close(&world, true, &err) != STATUS_OK)
        return fail(err.text);
    return clock_ns() - begun_ns < RETURN_NS ? 0 : fail("the end waits for a communicator that nobody uses");
}

static int run(const char *mode)
{
    struct error err = {0};
    struct work *work = NULL;
    enum status st = STATUS_OK;

    if (is(mode, "behind") || is(mode, "unbuilt"))
        return is(mode, "behind") ? behind() : unbuilt();
    if (is(mode, "raw") || is(mode, "held"))
        return is(mode, "raw") ? raw_decides() : held();
    st = begin(&work, &err);

    if (st != STATUS_OK)
        return fail(err.text);
    if (is(mode, "flip"))
        return flipped(work);
    if (is(mode, "limited"))
        return limited(work);
    if (is(mode, "reserved"))
        return reserved(work);
    if (is(mode, "error") && world.rank == 1)
        return error_decides(work, "remote process exited");
    if (is(mode, "lost") && world.rank == 1)
        return device_decides(work);
    if (is(mode, "short") && world.rank == 0) /* what it had has left */
        return 0;
    if (is(mode, "stop") && world.rank == 1)
        return stop();
    return deadline_decides(work);
}

static int check_start(enum status st, const struct error *err, const char *mode)
{
    const char *expected = is(mode, "late")        ? "rank 1 did not come to it"
                           : is(mode, "stuck")     ? "did not build the communicator of 2 ranks"
                           : is(mode, "duplicate") ? "Duplicate GPU"
                                                   : "?";
    enum status kind = is(mode, "duplicate") ? STATUS_ENVIRONMENT : STATUS_TIMEOUT;

    return st == kind && strstr(err->text, expected) ? 0 : fail(err->text);
}

static _Noreturn void leave(int code)
{
    if (code == 0)
        printf("rank %d: ok\n", world.rank);
    (void)fflush(stdout);
    _exit(code);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    struct error err = {0};
    bool starts = !is(mode, "late") && !is(mode, "stuck") && !is(mode, "duplicate");
    uint64_t begun_ns = clock_ns();
    int code;
    enum status st;

    if (is(mode, "late") && number && is(number, "1"))
        world.delay_ns = 8 * NS_PER_S;
    if (is(mode, "carrier"))
        leave(carrier_ends());
    if (is(mode, "limited"))
        world.watch = watch_limit;
    st = device_world_open(starts ? 60 * NS_PER_S : 2 * NS_PER_S, TIMEOUT_NS, &world, &err);
    if (starts)
        code = st == STATUS_OK ? run(mode) : fail(err.text);
    else
        code = check_start(st, &err, mode);
    if (!starts && !world.delay_ns && clock_ns() - begun_ns > 20 * NS_PER_S)
        code = fail("the start took too long to fail");
    leave(code);
}
