/* How much of a transfer's time stays visible behind compute of equal length: a boundary between two ranks, compute
 * that calls session_progress between tiles.
 *
 *   mpirun -n 2 bench_overlap [--bytes 8388608] [--repeats 31] [--compute sender,receiver,both] [--bound PERCENT]
 *
 * Each row says who computes while the bundle travels; the other side only waits.  Exposed is (together - compute) /
 * alone, each the least of interleaved repeats.  --bound: exit 1 when a row other than "both" exposes more. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory_shared.h"
#include "comm/group.h"
#include "comm/plugin.h"
#include "comm/route.h"
#include "comm/session.h"

enum {
    GROUP_ID = 1,
    ROUTE_ID = 2,
    MAX_REPEATS = 101,
    WARM_UP = 3,
    TILE_FLOATS = 4096,
    TILE_PASSES = 12,
    HOST_BYTES = 64
};

#define SHARED_BYTES ((size_t)1 << 30)

enum { SENDER = 1, RECEIVER = 2, BOTH = SENDER | RECEIVER };

struct options {
    uint64_t bytes;
    int repeats;
    double bound; /* percent; 0: none */
    int rows[3];
    int row_count;
};

struct bench {
    struct options options;
    struct memory *shared; /* where the bundles lie, as in a run; NULL: in the process's own */
    struct session *session;
    struct group *pair;
    struct route *route;
    int rank;
    uint64_t tiles; /* of this rank's compute */
    float tile[TILE_FLOATS];
    uint64_t turn; /* the pattern of the next bundle */
};

/* In nanoseconds, of the slower rank. */
struct times {
    uint64_t alone[MAX_REPEATS];
    uint64_t compute[MAX_REPEATS];
    uint64_t together[MAX_REPEATS];
};

static const int members[] = {0, 1};
static const struct group_spec pair_spec = {.id = GROUP_ID,
                                            .name = "pair",
                                            .size = 2,
                                            .members = members,
                                            .operations = OPERATIONS_ALL,
                                            .dtypes = DTYPES_ALL,
                                            .max_bytes = 1 << 12};

static int usage(void)
{
    (void)fprintf(stderr, "usage: mpirun -n 2 bench_overlap [--bytes N] [--repeats N] [--compute ROW,...] "
                          "[--bound PERCENT]\n       ROW: sender, receiver, both\n");
    return 2;
}

static bool parse_rows(char *text, struct options *options)
{
    static const char *const names[] = {[SENDER] = "sender", [RECEIVER] = "receiver", [BOTH] = "both"};
    char *rest = NULL;

    options->row_count = 0;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int row = SENDER;

        while (row <= BOTH && strcmp(word, names[row]) != 0)
            row++;
        if (row > BOTH || options->row_count == 3)
            return false;
        options->rows[options->row_count++] = row;
    }
    return options->row_count > 0;
}

static bool parse(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {{"bytes", required_argument, NULL, 'b'},
                                          {"repeats", required_argument, NULL, 'r'},
                                          {"compute", required_argument, NULL, 'c'},
                                          {"bound", required_argument, NULL, 'p'},
                                          {NULL, 0, NULL, 0}};
    char *end = NULL;
    int name = 0;

    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (name == 'b')
            options->bytes = strtoull(optarg, &end, 10);
        else if (name == 'r')
            options->repeats = (int)strtol(optarg, &end, 10);
        else if (name == 'p')
            options->bound = strtod(optarg, &end);
        else if (name != 'c' || !parse_rows(optarg, options))
            return false;
        if (name != 'c' && *end)
            return false;
    }
    return optind == argc && options->bytes >= 1 && options->bytes <= UINT64_C(1) << 32 && options->repeats >= 1 &&
           options->repeats <= MAX_REPEATS && options->bound >= 0.0;
}

static enum status finish(enum status st, struct completion *completion, struct error *err)
{
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    completion_abandon(completion);
    return st;
}

static enum status meet(struct bench *bench, struct error *err)
{
    struct completion *completion = NULL;
    enum status st = group_barrier(bench->pair, &completion, err);

    return finish(st, completion, err);
}

/* The larger of both ranks' values. */
static enum status slower(struct bench *bench, uint64_t own, uint64_t *ret, struct error *err)
{
    struct tensor *both = NULL;
    struct tensor *mine = NULL;
    struct completion *completion = NULL;
    enum status st = tensor_create(DTYPE_U64, &(struct shape){1, {2}}, &both, err);

    if (st == STATUS_OK)
        st = tensor_create(DTYPE_U64, &(struct shape){1, {1}}, &mine, err);
    if (st == STATUS_OK) {
        memcpy(mine->data, &own, sizeof own);
        st = group_all_gather_even(bench->pair, mine, both, 0, &completion, err);
        st = finish(st, completion, err);
    }
    if (st == STATUS_OK) {
        uint64_t values[2];

        memcpy(values, both->data, sizeof values);
        *ret = values[0] > values[1] ? values[0] : values[1];
    }
    tensor_release(mine);
    tensor_release(both);
    return st;
}

/* A tile: some tens of microseconds of multiply-adds in the first-level cache, then a look at the transfers. */
static void compute(struct bench *bench)
{
    for (uint64_t i = 0; i < bench->tiles; i++) {
        for (int pass = 0; pass < TILE_PASSES; pass++) {
            for (int k = 0; k < TILE_FLOATS; k++)
                bench->tile[k] = bench->tile[k] * 0.999f + 0.001f;
        }
        session_progress(bench->session);
    }
}

static uint64_t time_compute(struct bench *bench)
{
    uint64_t start_ns = clock_ns();

    compute(bench);
    return clock_ns() - start_ns;
}

static unsigned char pattern(const struct bench *bench, uint64_t i)
{
    return (unsigned char)(i * 31 + (i >> 12) + bench->turn);
}

static enum status fill(struct bench *bench, struct bundle **ret, struct error *err)
{
    struct shape shape = {1, {bench->options.bytes}};
    enum status st = route_acquire(bench->route, ret, err);

    if (st == STATUS_OK)
        st = tensor_reshape((*ret)->tensor[0], DTYPE_U8, &shape, err);
    for (uint64_t i = 0; st == STATUS_OK && i < bench->options.bytes; i++)
        (*ret)->tensor[0]->data[i] = pattern(bench, i);
    return st;
}

static enum status verify(struct bench *bench, struct completion *completion, struct error *err)
{
    struct bundle *bundle = route_take(completion, NULL);
    enum status st = STATUS_OK;

    for (uint64_t i = 0; st == STATUS_OK && i < bench->options.bytes; i++) {
        if (bundle->tensor[0]->data[i] != pattern(bench, i))
            st = error_set(err, STATUS_CORRUPT, "byte %llu of the bundle is wrong", (unsigned long long)i);
    }
    route_return(bench->route, bundle);
    return st;
}

/* One transfer; who (a mask) computes behind it.  *ret_ns: from the common start to the slower rank's completion. */
static enum status transfer(struct bench *bench, int who, uint64_t *ret_ns, struct error *err)
{
    struct shape shape = {1, {bench->options.bytes}};
    struct completion *completion = NULL;
    struct bundle *bundle = NULL;
    uint64_t start_ns = 0;
    enum status st = bench->rank ? STATUS_OK : fill(bench, &bundle, err);

    if (st == STATUS_OK)
        st = meet(bench, err);
    start_ns = clock_ns();
    if (st == STATUS_OK && bench->rank)
        st = route_receive(bench->route, &shape, NULL, NULL, 0, &completion, err);
    else if (st == STATUS_OK)
        st = route_send(bench->route, bundle, 0, &completion, err);
    if (st == STATUS_OK && (who & (bench->rank ? RECEIVER : SENDER)))
        compute(bench);
    if (st == STATUS_OK)
        st = completion_wait(completion, DEADLINE_NONE, err);
    if (st == STATUS_OK)
        st = slower(bench, clock_ns() - start_ns, ret_ns, err);
    if (st == STATUS_OK && bench->rank)
        st = verify(bench, completion, err);
    completion_abandon(completion);
    bench->turn++;
    return st;
}

/* What disturbs a measurement only ever adds to it. */
static double least(const uint64_t *values, int count)
{
    uint64_t least = values[0];

    for (int i = 1; i < count; i++)
        least = values[i] < least ? values[i] : least;
    return (double)least;
}

/* So many tiles that compute lasts as long as a transfer: a guess, then twice from what was measured with it. */
static enum status calibrate(struct bench *bench, struct error *err)
{
    enum status st = STATUS_OK;

    bench->tiles = 200;
    for (int i = 0; i < WARM_UP && st == STATUS_OK; i++) {
        uint64_t transfers[MAX_REPEATS] = {0};
        uint64_t computes[MAX_REPEATS] = {0};

        for (int k = 0; k < bench->options.repeats && st == STATUS_OK; k++) {
            st = transfer(bench, 0, &transfers[k], err);
            /* One rank after the other, so that neither disturbs the other's figure. */
            for (int turn = 0; turn < 2 && st == STATUS_OK; turn++) {
                if (bench->rank == turn)
                    computes[k] = time_compute(bench);
                st = meet(bench, err);
            }
        }
        if (st == STATUS_OK)
            bench->tiles = 1 + (uint64_t)(least(transfers, bench->options.repeats) * (double)bench->tiles /
                                          least(computes, bench->options.repeats));
    }
    return st;
}

static enum status measure(struct bench *bench, int who, struct times *times, struct error *err)
{
    enum status st = STATUS_OK;

    for (int i = 0; i < bench->options.repeats && st == STATUS_OK; i++) {
        uint64_t own = 0;

        st = transfer(bench, 0, &times->alone[i], err);
        if (st == STATUS_OK)
            st = meet(bench, err);
        if (who & (bench->rank ? RECEIVER : SENDER))
            own = time_compute(bench);
        if (st == STATUS_OK)
            st = slower(bench, own, &times->compute[i], err);
        if (st == STATUS_OK)
            st = transfer(bench, who, &times->together[i], err);
    }
    return st;
}

/* Prints at rank 0; false: over the bound. */
static bool report(const struct bench *bench, int who, const struct times *times)
{
    static const char *const names[] = {[SENDER] = "sender", [RECEIVER] = "receiver", [BOTH] = "both"};
    int count = bench->options.repeats;
    double alone = least(times->alone, count);
    double work = least(times->compute, count);
    double together = least(times->together, count);
    double exposed = (together - work) / alone * 100.0;
    bool over = bench->options.bound > 0.0 && who != BOTH && exposed > bench->options.bound;

    if (!bench->rank)
        printf("%-9s %9.3f %11.3f %12.3f %10.1f%%%s\n", names[who], alone / 1e6, work / 1e6, together / 1e6, exposed,
               over ? "  over the bound" : "");
    return !over;
}

static enum status run(struct bench *bench, bool *ret_within, struct error *err)
{
    char host[HOST_BYTES] = "";
    struct times *times = calloc(1, sizeof *times);
    enum status st = times ? calibrate(bench, err) : error_set(err, STATUS_NOMEM, "the times");

    (void)gethostname(host, sizeof host - 1);
    if (st == STATUS_OK && !bench->rank)
        printf("%llu bytes from rank 0 (host %s) to rank 1, least of %d repeats\n"
               "computing  alone ms  compute ms  together ms    exposed\n",
               (unsigned long long)bench->options.bytes, host, bench->options.repeats);
    for (int i = 0; i < bench->options.row_count && st == STATUS_OK; i++) {
        st = measure(bench, bench->options.rows[i], times, err);
        if (st == STATUS_OK)
            *ret_within = report(bench, bench->options.rows[i], times) && *ret_within;
    }
    free(times);
    return st;
}

static enum status start(struct bench *bench, const struct route_spec *route, struct error *err)
{
    struct transport_options transport_options = {.startup_timeout_ns = 60 * NS_PER_S, .shared = bench->shared};
    struct session_options options = {.timeout_ns = 60 * NS_PER_S,
                                      .startup_timeout_ns = 60 * NS_PER_S,
                                      .checks = CHECKS_LIGHT,
                                      .shared = bench->shared};
    struct manifest manifest = {.topology_digest = bench->options.bytes};
    const struct transport_ops *ops = NULL;
    struct transport *transport = NULL;
    enum status st = plugin_transport("mpi", &ops, NULL, 0, err);

    if (st == STATUS_OK)
        st = ops->open(&transport_options, &transport, err);
    if (st == STATUS_OK && ops->size(transport) != 2)
        st = error_set(err, STATUS_USAGE, "%d ranks, 2 are needed: mpirun -n 2", ops->size(transport));
    if (st == STATUS_OK)
        st = session_create(ops, transport, &options, &bench->session, err);
    if (st == STATUS_OK)
        st = session_consensus(bench->session, &manifest, err);
    if (st == STATUS_OK)
        st = session_build(bench->session, &pair_spec, 1, route, 1, err);
    if (st != STATUS_OK)
        return st;
    bench->rank = session_rank(bench->session);
    bench->pair = session_group(bench->session, GROUP_ID);
    bench->route = session_route(bench->session, ROUTE_ID);
    return STATUS_OK;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct error err = {0};
    bool within = true;
    enum status st;

    bench.options = (struct options){.bytes = 8 << 20, .repeats = 31, .rows = {SENDER, RECEIVER, BOTH}, .row_count = 3};
    if (!parse(argc, argv, &bench.options))
        return usage();
    struct tensor_spec page = {.role = "page", .dtype = DTYPE_U8, .ndim = 1, .dim = {{1, bench.options.bytes, -1}}};
    struct route_spec route = {
        .id = ROUTE_ID, .name = "boundary", .from = 0, .to = 1, .tensor_count = 1, .tensors = &page, .depth = 2};

    bench.shared = memory_shared_create(SHARED_BYTES);
    st = start(&bench, &route, &err);
    if (st == STATUS_OK)
        st = run(&bench, &within, &err);
    if (st == STATUS_OK)
        st = session_close(bench.session, true, &err);
    if (st != STATUS_OK) {
        (void)fprintf(stderr, "bench_overlap: %s: %s\n", status_name(st), err.text);
        /* After a failure MPI is not finalised; the starter ends the other rank. */
        _exit(status_exit_code(st));
    }
    memory_shared_destroy(bench.shared);
    return within ? 0 : 1;
}
