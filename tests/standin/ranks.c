#include "tests/standin/ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

void ranks_fail(const char *file, int line, const char *expression)
{
    const char *rank = getenv("FERRY_STANDIN_RANK");

    fprintf(stderr, "%s:%d: rank %s: %s does not hold\n", file, line, rank ? rank : "?", expression);
    _exit(1);
}

void board_await(struct board *board, int k, uint32_t value)
{
    while (__atomic_load_n(&board->flags[k], __ATOMIC_ACQUIRE) < value)
        clock_sleep_ns(NS_PER_MS);
}

void board_raise(struct board *board, int k)
{
    __atomic_fetch_add(&board->flags[k], 1, __ATOMIC_ACQ_REL);
}

static pid_t start(int rank, int size, int (*run)(int, int, struct board *), struct board *board)
{
    pid_t child = fork();
    char text[16];

    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(text, sizeof text, "%d", rank);
    setenv("FERRY_STANDIN_RANK", text, 1);
    _exit(run(rank, size, board));
}

static int status_of(pid_t child, uint64_t until)
{
    int status = 0;

    while (waitpid(child, &status, WNOHANG) == 0) {
        if (clock_ns() > until)
            kill(child, SIGKILL);
        clock_sleep_ns(2 * NS_PER_MS);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : RANKS_STATUS_KILLED + WTERMSIG(status);
}

void ranks_run(int size, int (*run)(int rank, int size, struct board *board), int *status, int seconds)
{
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t until = clock_ns() + (uint64_t)seconds * NS_PER_S;
    pid_t children[16];

    for (int rank = 0; rank < size; rank++)
        children[rank] = start(rank, size, run, board);
    for (int rank = 0; rank < size; rank++)
        status[rank] = status_of(children[rank], until);
    munmap(board, sizeof *board);
}
