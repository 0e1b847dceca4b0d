/* A process of its own, whose exit code and standard error are looked at. */
#ifndef TESTS_UNIT_LIFE_CHILD_H
#define TESTS_UNIT_LIFE_CHILD_H

#include <sys/types.h>

struct child {
    pid_t pid;
    int pipe; /* its standard error */
    int code; /* -1: died by a signal */
    char text[2048];
};

/* Run the body there; its result is the exit code. */
void child_spawn(struct child *child, int (*body)(void));

/* Until it has written "ready\n". */
void child_until_ready(struct child *child);

/* Wait for its end; fills in code and text. */
void child_collect(struct child *child);

#endif
