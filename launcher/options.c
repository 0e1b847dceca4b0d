/* argp's tables for the commands that work offline. */
#include "launcher/options.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "launcher/starter.h"

enum { KEY_SET = 's', KEY_JSON = 'j', KEY_RANK = 'r', KEY_MODEL = 'm' };

static const struct argp_option plan_table[] = {
    {"set", KEY_SET, "KEY=VALUE", 0, "Override a key of the topology: --set mesh.tensor=2.  May be repeated.", 0},
    {"model", KEY_MODEL, "PATH", 0,
     "Plan for this model instead of the topology's: a folder (config.json alone is enough), a .gguf "
     "file, or the saved output of `ferry inspect --json`.",
     0},
    {"rank", KEY_RANK, "R", 0, "Show everything about one rank.", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object a line: plan, stages, ranks, groups, routes.", 0},
    {0},
};

static const char plan_doc[] =
    "Check TOPOLOGY and show what it means for every rank: layers, heads, bytes, groups, routes and what travels "
    "between "
    "stages.  Needs neither MPI nor a GPU nor the weights."
    "\vExamples:\n"
    "  ferry plan topology.yaml\n"
    "  ferry plan topology.yaml --set mesh.pipeline=4 --set mesh.tensor=2\n"
    "  ferry plan topology.yaml --model ./folder-with-config.json\n"
    "  ferry plan topology.yaml --rank 3\n"
    "  ferry plan topology.yaml --json | jq 'select(.kind == \"rank\")'\n"
    "\n"
    "Exit codes: 0 the plan is sound, 2 usage, 3 topology, 4 model, 9 a file cannot be read or the output written.";

static const struct argp_option inspect_table[] = {
    {"json", KEY_JSON, NULL, 0, "One JSON object a line: the checkpoint, then its tensors.", 0},
    {0},
};

static const char inspect_doc[] =
    "Show what a checkpoint holds: the model's facts, its files, every tensor with type, shape and bytes.  Reads "
    "metadata only."
    "\vExamples:\n"
    "  ferry inspect ./model-folder\n"
    "  ferry inspect model.gguf --json\n"
    "\n"
    "Exit codes: 0 done, 2 usage, 4 the model's files contradict themselves or are not supported, 9 a file cannot be "
    "read.";

static const struct argp_option doctor_table[] = {
    {"json", KEY_JSON, NULL, 0, "One JSON object a line: the run, its cause, its ranks, cycles, ends, advice.", 0},
    {0},
};

static const char doctor_doc[] =
    "Say what a job is, or was, waiting for: per rank its state and last sign of life, who waits for whom, since when "
    "and "
    "in which operation, the cause, and what to do next.  DIR is the run_dir of a topology (then the newest run in it) "
    "or "
    "one run's folder.  Reads files only: of a running job too, and on any machine."
    "\vExamples:\n"
    "  ferry doctor runs\n"
    "  ferry doctor runs/chat-1234 --json | jq 'select(.kind == \"rank\")'\n"
    "\n"
    "Exit codes: 0 the page is printed, whatever the job's state; 2 usage; 9 DIR cannot be read or holds no run.";

void options_take_path(const struct argp_state *state, const char *what, const char *text, const char **ret)
{
    if (*ret)
        argp_error(state, "one %s at a time: %s, and %s", what, *ret, text);
    if (!*text)
        argp_error(state, "the path of the %s is empty", what);
    *ret = text;
}

static int parse_rank(const char *text, struct argp_state *state)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || *end || end == text || value < 0 || value > INT_MAX || text[0] < '0' || text[0] > '9')
        argp_error(state, "--rank %s: expected a world rank", text);
    return (int)value;
}

static error_t parse_plan(int key, char *text, struct argp_state *state)
{
    struct plan_options *options = state->input;

    switch (key) {
    case KEY_SET:
        if (options->set_count == OPTIONS_MAX_SETS)
            argp_error(state, "more than %d overrides", OPTIONS_MAX_SETS);
        options->set[options->set_count++] = text;
        return 0;
    case KEY_MODEL:
        options->model = text;
        return 0;
    case KEY_RANK:
        options->rank = parse_rank(text, state);
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        options_take_path(state, "topology", text, &options->topology);
        return 0;
    case ARGP_KEY_END:
        if (!options->topology)
            argp_error(state, "which topology?  ferry plan TOPOLOGY");
        if (options->json && options->rank >= 0)
            argp_error(state, "--json shows all ranks, --rank one: not both");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_inspect(int key, char *text, struct argp_state *state)
{
    struct inspect_options *options = state->input;

    switch (key) {
    case KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        options_take_path(state, "checkpoint", text, &options->path);
        return 0;
    case ARGP_KEY_END:
        if (!options->path)
            argp_error(state, "which checkpoint?  ferry inspect PATH");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* What argp prints on a rank above 0, until it is known whether rank 0 says the same. */
struct captured {
    bool parsed; /* argp has come back */
    int file;
    int saved[2]; /* standard output and error as they were */
};

static void restore(const struct captured *captured)
{
    (void)dup2(captured->saved[0], STDOUT_FILENO);
    (void)dup2(captured->saved[1], STDERR_FILENO);
}

/* argp ends the process.  A mistake that all ranks have made is told by rank 0, and the starter ends the others while
 * they wait; one of this rank alone is told after that.  Help is told by rank 0. */
static void tell_captured(int code, void *context)
{
    const struct captured *captured = context;
    char bytes[4096];
    ssize_t count;

    if (captured->parsed || !code)
        return;
    (void)fflush(NULL);
    restore(captured);
    starter_yield();
    if (lseek(captured->file, 0, SEEK_SET))
        return;
    while ((count = read(captured->file, bytes, sizeof bytes)) > 0) {
        if (write(STDERR_FILENO, bytes, (size_t)count) < 0)
            return;
    }
}

/* NULL: everything stays as it is. */
static struct captured *capture(void)
{
    struct captured *captured = starter_speaks() ? NULL : calloc(1, sizeof *captured);

    if (!captured)
        return NULL;
    captured->file = memfd_create("usage", MFD_CLOEXEC);
    captured->saved[0] = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    captured->saved[1] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (captured->file < 0 || captured->saved[0] < 0 || captured->saved[1] < 0 || on_exit(tell_captured, captured)) {
        free(captured);
        return NULL;
    }
    (void)dup2(captured->file, STDOUT_FILENO);
    (void)dup2(captured->file, STDERR_FILENO);
    return captured;
}

/* argp's help has the letter ?, which a shell may take for a pattern; -h is what everybody tries. */
static void allow_h(int argc, char **argv, char *help)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!strcmp(argv[i], "-h"))
            argv[i] = help;
    }
}

int options_parse(const struct argp *argp, char *name, int argc, char **argv, void *options)
{
    struct captured *captured = capture();
    char help[] = "--help";
    char *old = argv[0];
    error_t code;

    argv[0] = name;
    allow_h(argc, argv, help);
    argp_err_exit_status = status_exit_code(STATUS_USAGE);
    code = argp_parse(argp, argc, argv, 0, NULL, options);
    argv[0] = old;
    if (captured) { /* read by the exit's handler, so it lives as long as the process */
        captured->parsed = true;
        restore(captured);
        close(captured->saved[0]);
        close(captured->saved[1]);
        close(captured->file);
    }
    return code ? status_exit_code(STATUS_USAGE) : -1;
}

static error_t parse_doctor(int key, char *text, struct argp_state *state)
{
    struct doctor_options *options = state->input;

    switch (key) {
    case KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        options_take_path(state, "folder", text, &options->folder);
        return 0;
    case ARGP_KEY_END:
        if (!options->folder)
            argp_error(state, "which folder?  ferry doctor DIR");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int plan_options_parse(int argc, char **argv, struct plan_options *ret)
{
    static const struct argp argp = {plan_table, parse_plan, "TOPOLOGY", plan_doc, NULL, NULL, NULL};
    char name[] = "ferry plan";

    ret->rank = -1;
    return options_parse(&argp, name, argc, argv, ret);
}

int inspect_options_parse(int argc, char **argv, struct inspect_options *ret)
{
    static const struct argp argp = {inspect_table, parse_inspect, "PATH", inspect_doc, NULL, NULL, NULL};
    char name[] = "ferry inspect";

    return options_parse(&argp, name, argc, argv, ret);
}

int doctor_options_parse(int argc, char **argv, struct doctor_options *ret)
{
    static const struct argp argp = {doctor_table, parse_doctor, "DIR", doctor_doc, NULL, NULL, NULL};
    char name[] = "ferry doctor";

    return options_parse(&argp, name, argc, argv, ret);
}
