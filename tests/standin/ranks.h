/* A few processes for a test: each runs one function, and all must end in time with status 0. */
#ifndef TESTS_STANDIN_RANKS_H
#define TESTS_STANDIN_RANKS_H

#include <stdbool.h>
#include <stdint.h>

enum { RANKS_STATUS_KILLED = 128 /* plus the signal */, BOARD_BYTES = 4096 };

/* Memory that all processes of a test share, zero at first. */
struct board {
    uint32_t flags[16];
    char bytes[BOARD_BYTES];
};

/* Fork size processes that call run(rank, size, board) and exit with what it returns; FERRY_STANDIN_RANK is the rank.
 * Statuses are put into status [size].  What has not ended after seconds is killed. */
void ranks_run(int size, int (*run)(int rank, int size, struct board *board), int *status, int seconds);

/* Wait until flag k of the board is at least value. */
void board_await(struct board *board, int k, uint32_t value);
void board_raise(struct board *board, int k);

/* Say what does not hold and where, and leave the process with status 1. */
#define NEED(expression)                                                                                               \
    do {                                                                                                               \
        if (!(expression))                                                                                             \
            ranks_fail(__FILE__, __LINE__, #expression);                                                               \
    } while (0)
_Noreturn void ranks_fail(const char *file, int line, const char *expression);

#endif
