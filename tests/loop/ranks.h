/* Several ranks as threads over loopback, each with its own session, for tests. */
#ifndef TESTS_LOOP_RANKS_H
#define TESTS_LOOP_RANKS_H

#include <check.h>

#include "backends/loopback/loopback.h"
#include "comm/group.h"
#include "comm/route.h"
#include "comm/session.h"

struct rank {
    int rank;
    int size;
    struct session *session;
    struct memory *memory; /* with late_memory: its own */
    void *context;
    struct error err;    /* of the body, or of the closing, for whoever looks after ranks_run */
    enum status status;  /* what the body returned */
    enum status closing; /* what session_close returned */
    bool speaker;        /* with settle: this rank is the one that prints the cause, which is in err */
};

/* What one rank does.  Anything but STATUS_OK: the session is closed without waiting for anybody. */
typedef enum status rank_body(struct rank *self);

struct ranks {
    int size;
    struct loopback_options loopback;
    bool job_teardown;
    bool settle;                     /* after a failure, agree on its one cause */
    const struct transport_ops *ops; /* another table; NULL: loopback's */
    bool late_memory;                /* each rank has one of its own (late_memory.h), for its bundles, too */
    unsigned late_us;                /* the longest that an operation there is held back; 0: 100 */
    struct session_options session;  /* 0 timeouts: 20 s */
    const struct group_spec *groups;
    size_t group_count;
    const struct route_spec *routes;
    const struct route_spec *other_routes; /* what ranks other than 0 were told, when not the same */
    size_t route_count;
    rank_body *body;
    void *context;
    struct rank rank[64]; /* results */
};

/* Run the body on every rank and wait for all.  Collective results are in ranks->rank. */
void ranks_run(struct ranks *ranks);

/* Every rank ended with STATUS_OK, or the test fails with its sentence. */
void ranks_check(const struct ranks *ranks);

/* Inside bodies and inner loops: Check's own assertions write a line each and know of one thread only. */
#define EXPECT(expression)                                                                                             \
    do {                                                                                                               \
        if (!(expression))                                                                                             \
            ck_abort_msg("not so: %s", #expression);                                                                   \
    } while (0)

/* Wait and release: what most bodies do with a completion. */
enum status finish(enum status st, struct completion **completion, struct error *err);

struct tensor *tensor_of(enum dtype dtype, int ndim, const uint64_t *dims);

#define TENSOR(dtype, ...)                                                                                             \
    tensor_of(dtype, (int)(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)), (uint64_t[]){__VA_ARGS__})

/* A group of these members with every operation. */
#define GROUP(number, count, list)                                                                                     \
    {                                                                                                                  \
        .id = (number), .name = "group/" #number, .size = (count), .members = (list), .operations = OPERATIONS_ALL,    \
        .dtypes = DTYPES_ALL, .max_bytes = UINT64_C(1) << 40                                                           \
    }

/* A small repeatable random sequence. */
static inline uint32_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

#endif
