/* argp's table for `ferry run`. */
#include "launcher/run_options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "launcher/options.h"
#include "runtime/results.h"

enum { KEY_SET = 's', KEY_JSON = 'j', KEY_QUIET = 'q', KEY_DIGEST = 256, KEY_TOP, KEY_FAULT };

static const struct argp_option table[] = {
    {"set", KEY_SET, "KEY=VALUE", 0, "Override a key of the topology: --set mesh.tensor=2.  May be repeated.", 0},
    {"json", KEY_JSON, NULL, 0, "Standard output carries one JSON object per finished prompt and nothing else.", 0},
    {"logits-digest", KEY_DIGEST, NULL, 0, "With --json: a digest (XXH3-64) of every generated token's logits.", 0},
    {"top-logits", KEY_TOP, "K", 0, "With --json: the K best logits of every generated token, K at most 64.", 0},
    {"quiet", KEY_QUIET, NULL, 0, "No notes at the start, no summary at the end.", 0},
    {"fault", KEY_FAULT, "rank=R,op=N,kind=KIND", 0,
     "Rehearse a fault: KIND is kill, stop, delay:2s, skip, flip:BYTE, flip:BYTE:resealed, short, oom or "
     "disk-full; N counts that rank's collectives and transfers from 0.  May be repeated.",
     0},
    {0},
};

static const char doc[] =
    "Run TOPOLOGY on every rank: check it on all of them, build its groups and routes, load each rank's part of the "
    "model, and generate."
    "\vExamples:\n"
    "  ferry run topology.yaml                        one rank\n"
    "  mpirun -n 4 ferry run topology.yaml            four ranks on this host\n"
    "  mpirun -n 4 ferry run topology.yaml --json     for scripts\n"
    "\n"
    "Look at the topology first with `ferry plan topology.yaml`.  Exit codes: 0 done, 2 usage, 3 topology, 4 model, "
    "5 environment, 6 mismatch, 7 timeout, 8 a rank died, 9 storage.";

static error_t parse_top(const char *text, struct run_options *options, struct argp_state *state)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno || *end || end == text || text[0] == '-' || value > RESULTS_MAX_TOP)
        argp_error(state, "--top-logits %s: expected a number from 0 to %d", text, RESULTS_MAX_TOP);
    options->top_logits = (uint32_t)value;
    return 0;
}

void run_options_set(struct run_options *options, const char *text, struct argp_state *state)
{
    if (options->set_count == RUN_MAX_SETS)
        argp_error(state, "more than %d overrides", RUN_MAX_SETS);
    options->set[options->set_count++] = text;
}

void run_options_fault(struct run_options *options, const char *text, struct argp_state *state)
{
    struct error err = {0};

    if (options->fault_count == RUN_MAX_FAULTS)
        argp_error(state, "more than %d faults", RUN_MAX_FAULTS);
    if (fault_parse(text, &options->fault[options->fault_count], &err) != STATUS_OK)
        argp_error(state, "--fault %s: %s", text, err.text);
    options->fault_count++;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct run_options *options = state->input;

    switch (key) {
    case KEY_SET:
        run_options_set(options, text, state);
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_QUIET:
        options->quiet = true;
        return 0;
    case KEY_DIGEST:
        options->logits_digest = true;
        return 0;
    case KEY_TOP:
        return parse_top(text, options, state);
    case KEY_FAULT:
        run_options_fault(options, text, state);
        return 0;
    case ARGP_KEY_ARG:
        options_take_path(state, "topology", text, &options->topology);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which topology?  ferry run TOPOLOGY");
        return EINVAL;
    case ARGP_KEY_END:
        if ((options->logits_digest || options->top_logits) && !options->json)
            argp_error(state, "%s: only with --json", options->logits_digest ? "--logits-digest" : "--top-logits");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int run_options_parse(int argc, char **argv, struct run_options *ret)
{
    static const struct argp argp = {table, parse, "TOPOLOGY", doc, NULL, NULL, NULL};
    char name[] = "ferry run";

    return options_parse(&argp, name, argc, argv, ret);
}
