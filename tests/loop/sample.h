/* One collective of a group of any size, and its serial reference: what every rank fills in, calls and checks. */
#ifndef TESTS_LOOP_SAMPLE_H
#define TESTS_LOOP_SAMPLE_H

#include "tests/loop/ranks.h"

enum { MOST = 16 };

/* The case that all ranks of one run work on. */
struct sample {
    const int *members;
    enum dtype dtype;
    uint64_t elements;
    int axis;
    int ndim;
    uint64_t dims[4]; /* of the whole; dims[axis] is the sum of counts */
    uint64_t counts[MOST];
    uint64_t matrix[MOST][MOST]; /* member i sends to member k */
    int root;
    bool in_place;
    bool even;
};

/* Ranks 0..n-1 in an order that is neither theirs nor its reverse. */
void sample_permute(int size, int *members);

/* Run the body on so many ranks with the group of these members, its id 1; every rank ends well or the test fails.
 * more: options of the world; NULL: full checks. */
void sample_run(int size, const int *members, struct sample *sample, rank_body *body, struct ranks *more);

/* Contribution of a member to an element: small integers and thirds, so that the order of adding shows in f32. */
float sample_contribution(int member, uint64_t element);

/* The definition itself, element by element: left half first, rounded up. */
float sample_tree(const float *in, int count);

/* Bodies: the operation called with the sample, its result compared. */
enum status sample_sum(struct rank *self);
enum status sample_gather(struct rank *self);
enum status sample_exchange(struct rank *self); /* there and back */
enum status sample_broadcast(struct rank *self);

#endif
