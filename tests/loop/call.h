/* What one member of a group is called with, by the cause's own words, and the call itself. */
#ifndef TESTS_LOOP_CALL_H
#define TESTS_LOOP_CALL_H

#include "tests/loop/ranks.h"

enum { MOST = 16, WORDS = 100 };

struct call {
    enum operation operation;
    enum dtype dtype;
    struct shape shape; /* of a gather the whole; of an all-to-all what is sent and received, but for more */
    int axis;
    int root;
    uint64_t counts[MOST]; /* of an uneven gather */
    uint64_t more;         /* of an all-to-all: so many more extents go to member 0 than it expects */
    bool in_place;
    char words[WORDS]; /* how the cause must call it */
};

struct call call_sum(enum dtype dtype, uint64_t count);
/* All extents are four times the group's size. */
struct call call_even(int size, int axis);
/* A broadcast of five bytes. */
struct call call_broadcast(int root);
struct call call_barrier(void);
struct call call_agreement(void);

/* Post it; the tensors hold one byte all over. */
enum status call_post(const struct call *call, struct group *group, struct tensor **send, struct tensor **recv,
                      struct completion **ret, struct error *err);

/* True also of no tensor. */
bool all_bytes(const struct tensor *tensor, unsigned char byte);

#endif
