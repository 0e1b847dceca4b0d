/* argp's table for `ferry bench`. */
#include "launcher/bench_options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "topology/topology.h"
#include "launcher/options.h"

enum { KEY_SET = 's', KEY_JSON = 'j', KEY_SVG = 256, KEY_SIZES, KEY_REPEATS, KEY_TARGET, KEY_OPERATION };

/* Of one message; several of these are allocated. */
#define MOST_BYTES ((size_t)1 << 30)

static const struct argp_option table[] = {
    {"set", KEY_SET, "KEY=VALUE", 0, "Override a key of the topology: --set mesh.tensor=2.  May be repeated.", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object a line for every measured point, and nothing else.", 0},
    {"svg", KEY_SVG, "FILE", 0, "Write a plot: time over size, ours and MPI's, one panel an operation.", 0},
    {"sizes", KEY_SIZES, "A..B", 0,
     "Bytes from A to B, each four times the one before; K, M and G are powers of 1024.  Default 64..16M.", 0},
    {"repeats", KEY_REPEATS, "N", 0, "Interleaved repeats whose median counts, 5 (the default) to 101.", 0},
    {"target", KEY_TARGET, "GROUP|ROUTE", 0, "Only this group or route, by its name in the plan.", 0},
    {"operation", KEY_OPERATION, "OP", 0, "Only this operation, for example all_reduce_sum or send_receive.", 0},
    {0},
};

static const char doc[] =
    "Measure every group and route of TOPOLOGY with every operation that it selects, beside the same in plain MPI, in "
    "the same run.  The ratio is MPI's time over ours: above 1 we are faster."
    "\vExamples:\n"
    "  mpirun -n 2 ferry bench topology.yaml\n"
    "  mpirun -n 2 ferry bench topology.yaml --json > bench.json\n"
    "  mpirun -n 4 ferry bench topology.yaml --target tensor/0 \\\n"
    "      --operation all_reduce_sum --svg sum.svg\n"
    "  mpirun -n 2 ferry bench topology.yaml --sizes 64K..4M --repeats 11\n"
    "\n"
    "Keep the machine quiet, and have no more ranks than cores.  docs/bench.md explains the columns.  Exit codes: 0 "
    "done, 2 usage, 3 topology, 4 model, 5 environment, 6 mismatch, 7 timeout, 8 a rank died, 9 storage.";

/* "64", "4K", "16M": digits with at most one suffix.  Returns what follows, NULL when it is no size. */
static const char *parse_bytes(const char *text, size_t *ret)
{
    static const char suffixes[] = "KMG";
    char *end = NULL;
    unsigned long long value;

    if (*text < '0' || *text > '9')
        return NULL;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || value > MOST_BYTES)
        return NULL;
    for (int i = 0; suffixes[i]; i++) {
        if (*end != suffixes[i])
            continue;
        end++;
        value <<= 10 * (i + 1);
        break;
    }
    *ret = (size_t)value;
    return value <= MOST_BYTES ? end : NULL;
}

static void parse_sizes(const char *text, struct bench_options *options, struct argp_state *state)
{
    const char *rest = parse_bytes(text, &options->first_bytes);

    if (rest && !*rest)
        options->last_bytes = options->first_bytes;
    else if (rest && !strncmp(rest, "..", 2))
        rest = parse_bytes(rest + 2, &options->last_bytes);
    else
        rest = NULL;
    if (!rest || *rest)
        argp_error(state, "--sizes %s: expected one size, or two as in 64..16M, each from 1 to 1G", text);
    if (!options->first_bytes || options->last_bytes < options->first_bytes)
        argp_error(state, "--sizes %s: the first must be at least 1, the last no smaller", text);
}

static int parse_repeats(const char *text, struct argp_state *state)
{
    char *end = NULL;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < BENCH_MIN_REPEATS || value > BENCH_MAX_REPEATS)
        argp_error(state, "--repeats %s: expected a number from %d to %d", text, BENCH_MIN_REPEATS, BENCH_MAX_REPEATS);
    return (int)value;
}

static enum operation parse_operation(const char *text, struct argp_state *state)
{
    enum operation operation = operation_from_name(text);
    const char *names[OPERATION_COUNT];
    const char *nearest;

    if (operation != OPERATION_NONE)
        return operation;
    for (int i = 1; i < OPERATION_COUNT; i++)
        names[i - 1] = operation_name((enum operation)i);
    nearest = topology_nearest(text, names, OPERATION_COUNT - 1);
    if (nearest)
        argp_error(state, "--operation %s: there is none; did you mean %s?", text, nearest);
    argp_error(state,
               "--operation %s: there is none; all_reduce_sum, all_gather_even, all_gather_uneven, "
               "variable_all_to_all, broadcast, barrier, failure_agreement and send_receive are",
               text);
    return OPERATION_NONE;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct bench_options *options = state->input;

    switch (key) {
    case KEY_SET:
        run_options_set(&options->run, text, state);
        return 0;
    case KEY_JSON:
        options->run.json = options->run.quiet = true;
        return 0;
    case KEY_SVG:
        options->svg = text;
        return 0;
    case KEY_SIZES:
        parse_sizes(text, options, state);
        return 0;
    case KEY_REPEATS:
        options->repeats = parse_repeats(text, state);
        return 0;
    case KEY_TARGET:
        options->target = text;
        return 0;
    case KEY_OPERATION:
        options->operation = parse_operation(text, state);
        return 0;
    case ARGP_KEY_ARG:
        options_take_path(state, "topology", text, &options->run.topology);
        return 0;
    case ARGP_KEY_END:
        if (!options->run.topology)
            argp_error(state, "which topology?  ferry bench TOPOLOGY");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int bench_options_parse(int argc, char **argv, struct bench_options *ret)
{
    static const struct argp argp = {table, parse, "TOPOLOGY", doc, NULL, NULL, NULL};
    char name[] = "ferry bench";

    *ret = (struct bench_options){.first_bytes = 64, .last_bytes = (size_t)16 << 20, .repeats = BENCH_MIN_REPEATS};
    return options_parse(&argp, name, argc, argv, ret);
}
