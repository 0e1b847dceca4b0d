/* The `ferry` program: one table of commands. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "launcher/bench_command.h"
#include "launcher/check_command.h"
#include "launcher/doctor_command.h"
#include "launcher/inspect_command.h"
#include "launcher/plan_command.h"
#include "launcher/run_command.h"
#include "launcher/starter.h"
#include "launcher/version.h"
#include "launcher/version_command.h"
#include "topology/topology.h"

static int help_command(int argc, char **argv);

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit code */
    const char *summary;
} commands[] = {
    {"run", run_command, "run a topology, on every rank under mpirun or srun"},
    {"plan", plan_command, "check a topology and show what it means for every rank, offline"},
    {"bench", bench_command, "measure every group and route of a topology beside plain MPI"},
    {"check", check_command, "exercise every group and route on the ranks of a job"},
    {"inspect", inspect_command, "show what a checkpoint holds"},
    {"doctor", doctor_command, "say what a hung, failed or running job waits for"},
    {"version", version_command, "print the version, and what this build and this machine can do"},
    {"help", help_command, "explain a command: ferry help plan"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static const struct command *find(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    }
    return NULL;
}

static void usage(FILE *out)
{
    starter_yield();
    (void)fprintf(out, "usage: ferry COMMAND [OPTION...] [ARGUMENT]\n\n"
                       "Launches one model across many processes and proves every hand-over.\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        (void)fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    (void)fprintf(out,
                  "\nExamples:\n"
                  "  ferry plan topology.yaml\n"
                  "  mpirun -n 4 ferry run topology.yaml\n"
                  "\n`ferry COMMAND --help` explains a command, `ferry help keys` lists the keys of a topology.\n");
}

/* Exit code of a usage error: says which command may have been meant. */
static int unknown_command(const char *name)
{
    const char *names[COMMAND_COUNT];
    const char *nearest;

    for (int i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i].name;
    nearest = topology_nearest(name, names, COMMAND_COUNT);
    starter_yield();
    if (nearest)
        log_error("usage: no command '%s'; did you mean '%s'?", name, nearest);
    else
        log_error("usage: no command '%s'; `ferry help` lists them", name);
    return status_exit_code(STATUS_USAGE);
}

/* Exit code of a usage error: a command takes no more than so many words. */
static int too_many(const char *command, const char *word)
{
    starter_yield();
    log_error("usage: ferry %s takes no argument '%s'; `ferry help` explains the commands", command, word);
    return status_exit_code(STATUS_USAGE);
}

/* `ferry help keys`, for people and for the shell's completion. */
static int keys_help(void)
{
    struct text text = {0};

    topology_keys(&text);
    (void)fputs(text_string(&text), stdout);
    text_done(&text);
    return 0;
}

static int help_command(int argc, char **argv)
{
    char option[] = "--help";
    bool of_a_command = argc > 1 && strcmp(argv[1], "--help") != 0;
    const struct command *command = of_a_command ? find(argv[1]) : NULL;

    bool of_keys = of_a_command && !strcmp(argv[1], "keys");

    if (of_a_command && !command && !of_keys)
        return unknown_command(argv[1]);
    if (argc > 2)
        return too_many("help", argv[2]);
    if (!starter_speaks())
        return 0;
    if (of_keys)
        return keys_help();
    if (!command || command->run == help_command) {
        usage(stdout);
        return 0;
    }
    return command->run(2, (char *[]){argv[1], option, NULL});
}

/* A stream that the caller closed would be the next file or socket that is opened, and our text would go into it.  What
 * takes its place cannot be written to, so that closed output stays an error. */
static void hold_standard_streams(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) < 0)
            (void)open("/dev/null", O_RDONLY); /* takes the lowest free number: stream */
    }
}

/* Help and version go through the C library, whose last write may fail when main has returned its 0. */
static void check_output(int code, void *unused)
{
    (void)unused;
    if (code || (!fflush(stdout) && !ferror(stdout)))
        return;
    log_error("storage: standard output: %s", strerror(errno));
    _exit(status_exit_code(STATUS_STORAGE));
}

int main(int argc, char **argv)
{
    const struct command *command;

    hold_standard_streams();
    (void)signal(SIGPIPE, SIG_IGN); /* who reads has gone: a failed write, which every writer answers */
    (void)on_exit(check_output, NULL);
    if (argc < 2) {
        usage(stderr);
        return status_exit_code(STATUS_USAGE);
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "-?"))
        return help_command(argc - 1, argv + 1);
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
        return argc > 2 ? too_many(argv[1], argv[2])
                        : printf("ferry %s\n", FERRY_VERSION) < 0; /* check_output looks again at the end */
    command = find(argv[1]);
    return command ? command->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}
