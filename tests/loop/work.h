/* Pieces of work for executors, held back by gates that the test opens, never by sleeping long enough. */
#ifndef TESTS_LOOP_WORK_H
#define TESTS_LOOP_WORK_H

#include "comm/executor.h"
#include "tests/loop/ranks.h"

enum { PATIENCE_S = 60 };

/* What a piece of work waits for and tells; shared by the ranks of a test. */
struct gate {
    atomic_int open;
    atomic_int begun; /* pieces of work that have begun */
};

/* Until it is open so far, making progress; fails the test after PATIENCE_S. */
void gate_wait(struct session *session, struct gate *gate, int open);

/* One piece of work: behind its gate, write value to where. */
struct piece {
    struct session *session;
    struct gate *gate; /* NULL: none */
    uint32_t *where;
    size_t count;
    uint32_t value;
    enum status result;
};

/* A submission's work; context: a piece. */
enum status write_values(void *context, struct error *err);

uint32_t *words(struct tensor *tensor);
bool all_are(struct tensor *tensor, uint32_t value);

/* What a completion is asked to retain; value: an atomic_int that counts its releases. */
void count_release(void *value);

/* Run the body on so many ranks. */
void work_run(struct ranks *ranks, int size, rank_body *body);

#endif
