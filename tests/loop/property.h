/* Random cases of all eight operations, and a serial reference for their results: over any transport.
 *
 * Everything follows from a seed, so that every rank draws the same world and the same cases by itself, and a case that
 * failed can be run again. */
#ifndef TESTS_LOOP_PROPERTY_H
#define TESTS_LOOP_PROPERTY_H

#include <stdatomic.h>

#include "comm/session.h"

enum { PROPERTY_RANKS = 16, PROPERTY_GROUPS = 8, PROPERTY_ROUTES = 4, PROPERTY_TENSORS = 5, PROPERTY_EXTENTS = 2 };

/* Groups that overlap, with members in any order, some of them alone; routes with bundles of any make. */
struct property_world {
    uint64_t seed;
    int size;
    int group_count;
    struct group_spec groups[PROPERTY_GROUPS];
    int members[PROPERTY_GROUPS][PROPERTY_RANKS];
    int route_count; /* 0 in a world of one */
    struct route_spec routes[PROPERTY_ROUTES];
    struct tensor_spec tensors[PROPERTY_ROUTES][PROPERTY_TENSORS];
    struct extent_spec extents[PROPERTY_ROUTES][PROPERTY_EXTENTS];
    char names[PROPERTY_GROUPS + PROPERTY_ROUTES][32];
};

struct property_case {
    uint64_t seed;
    uint64_t index;
    enum operation operation;
    const struct group_spec *group; /* NULL: send_receive */
    const struct route_spec *route;
    int size; /* members of the group; 0: send_receive */
    enum dtype dtype;
    struct shape shape; /* without the extent along axis */
    int axis;
    uint64_t counts[PROPERTY_RANKS];                 /* of a gather, by member */
    uint64_t matrix[PROPERTY_RANKS][PROPERTY_RANKS]; /* member i sends to member k */
    int root;
    bool in_place;
    struct shape bundle[PROPERTY_TENSORS];
};

void property_world_draw(uint64_t seed, int size, struct property_world *world);
void property_case_draw(const struct property_world *world, uint64_t index, struct property_case *ret);

/* A well mixed number from another. */
uint64_t property_mix(uint64_t value);

/* Byte k of what member (or bundle tensor) from gives to member to (-1: to all). */
unsigned char property_byte(const struct property_case *c, int from, int to, size_t k);
/* A member's contribution to a sum: element k into data. */
void property_put(const struct property_case *c, int member, size_t k, unsigned char *data);
/* What the sum's element k must be: the balanced tree over member order. */
void property_sum(const struct property_case *c, size_t k, unsigned char *data);

/* Run count cases from index first on, several of them posted before the first is waited for.  Collective.
 * memory: where this rank's tensors lie, the session's; NULL: on the host.
 * arrived [count], or NULL: counts who has entered each barrier, where ranks share memory.
 * A wrong result is STATUS_INTERNAL, told after the last case so that every rank stays in step; err names seed and
 * case. */
enum status property_run(struct session *session, struct memory *memory, const struct property_world *world,
                         uint64_t first, int count, atomic_int *arrived, struct error *err);

#endif
