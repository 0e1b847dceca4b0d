/* Threads as ranks: join, session, build, body, close. */
#include "tests/loop/ranks.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "tests/loop/late_memory.h"

enum { LATE_US = 100 };

struct start {
    struct ranks *ranks;
    struct rank *self;
    struct loopback_world *world;
};

static void *rank_main(void *context)
{
    struct start *start = context;
    struct ranks *ranks = start->ranks;
    struct rank *self = start->self;
    const struct transport_ops *ops = ranks->job_teardown ? &loopback_job_ops : &loopback_ops;
    struct transport *transport = NULL;
    struct session_options options = ranks->session;

    ops = ranks->ops ? ranks->ops : ops;
    EXPECT(loopback_join(start->world, self->rank, &transport, &self->err) == STATUS_OK);
    if (ranks->late_memory)
        options.memory = self->memory = late_memory_create(self->rank, ranks->late_us ? ranks->late_us : LATE_US);
    EXPECT(session_create(ops, transport, &options, &self->session, &self->err) == STATUS_OK);
    self->status = session_build(self->session, ranks->groups, ranks->group_count,
                                 self->rank && ranks->other_routes ? ranks->other_routes : ranks->routes,
                                 ranks->route_count, &self->err);
    if (self->status == STATUS_OK)
        self->status = ranks->body(self);
    self->closing = self->status;
    if (self->status == STATUS_OK)
        self->closing = session_close(self->session, true, &self->err);
    if (self->closing != STATUS_OK && ranks->settle)
        (void)session_settle(self->session, &self->err, &self->speaker);
    if (self->closing != STATUS_OK)
        (void)session_close(self->session, false, NULL);
    self->session = NULL;
    /* What a transport cannot give back stays to the end of the process. */
    if (self->closing == STATUS_OK || ops->teardown == TEARDOWN_NATIVE)
        late_memory_destroy(self->memory);
    self->memory = NULL;
    return NULL;
}

void ranks_run(struct ranks *ranks)
{
    struct error err = {0};
    struct loopback_world *world = NULL;
    pthread_t thread[64];
    struct start start[64];

    ck_assert_int_le(ranks->size, 64);
    if (!ranks->session.timeout_ns)
        ranks->session.timeout_ns = 20 * NS_PER_S;
    if (!ranks->session.startup_timeout_ns)
        ranks->session.startup_timeout_ns = ranks->session.timeout_ns;
    ck_assert_int_eq(loopback_world_create(ranks->size, &ranks->loopback, &world, &err), STATUS_OK);
    for (int i = 0; i < ranks->size; i++) {
        ranks->rank[i] = (struct rank){.rank = i, .size = ranks->size, .context = ranks->context};
        start[i] = (struct start){ranks, &ranks->rank[i], world};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, rank_main, &start[i]), 0);
    }
    for (int i = 0; i < ranks->size; i++)
        pthread_join(thread[i], NULL);
    loopback_world_destroy(world);
}

void ranks_check(const struct ranks *ranks)
{
    for (int i = 0; i < ranks->size; i++) {
        ck_assert_msg(ranks->rank[i].status == STATUS_OK, "rank %d: %s", i, ranks->rank[i].err.text);
        ck_assert_int_eq(ranks->rank[i].closing, STATUS_OK);
    }
}

enum status finish(enum status st, struct completion **completion, struct error *err)
{
    if (st != STATUS_OK)
        return st;
    st = completion_wait(*completion, DEADLINE_NONE, err);
    completion_abandon(*completion);
    return st;
}

struct tensor *tensor_of(enum dtype dtype, int ndim, const uint64_t *dims)
{
    struct shape shape = {.ndim = ndim};
    struct tensor *tensor = NULL;
    struct error err = {0};

    memcpy(shape.dim, dims, (size_t)ndim * sizeof dims[0]);
    EXPECT(tensor_create(dtype, &shape, &tensor, &err) == STATUS_OK);
    memset(tensor->data, 0xa5, tensor->capacity_bytes);
    return tensor;
}
