/* The options of the commands that work offline. */
#ifndef LAUNCHER_OPTIONS_H
#define LAUNCHER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum { OPTIONS_MAX_SETS = 256 };

struct plan_options {
    const char *topology; /* path; borrowed from argv, as all strings here */
    const char *set[OPTIONS_MAX_SETS];
    size_t set_count;
    const char *model; /* NULL: the one of the topology */
    int rank;          /* -1: all */
    bool json;
};

struct inspect_options {
    const char *path;
    bool json;
};

struct doctor_options {
    const char *folder;
    bool json;
};

struct argp;
struct argp_state;

/* The one path that a command takes, what naming it; a second one and an empty one are argp errors.  Borrows text. */
void options_take_path(const struct argp_state *state, const char *what, const char *text, const char **ret);

/* argp takes the program's name ("ferry plan") from argv[0]; it prints help and errors and ends the process itself.
 * Under a starter help is rank 0's, and so is a mistake that all ranks have made: the others wait before they tell it.
 * Returns -1 to go on, else the process's exit code. */
int options_parse(const struct argp *argp, char *name, int argc, char **argv, void *options);

/* Parse argv (argv[0] is the command's name).  Prints help or a usage error itself.
 * Returns -1 to go on, else the process's exit code. */
int plan_options_parse(int argc, char **argv, struct plan_options *ret);
int inspect_options_parse(int argc, char **argv, struct inspect_options *ret);
int doctor_options_parse(int argc, char **argv, struct doctor_options *ret);

#endif
