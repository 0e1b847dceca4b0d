/* See world.h. */
#include "tests/mpi/world.h"

#include <stdio.h>

#include "base/clock.h"
#include "comm/plugin.h"
#include "tests/suite.h"

enum status world_open(struct world *world, struct error *err)
{
    const struct transport_options options = {
        .startup_timeout_ns = 30 * NS_PER_S, .shared = world->shared, .lend_all = world->lend_all};
    enum status st = plugin_transport("mpi", &world->ops, NULL, 0, err);

    if (st == STATUS_OK)
        st = world->ops->open(&options, &world->transport, err);
    if (st != STATUS_OK)
        return st;
    world->rank = world->ops->rank(world->transport);
    world->size = world->ops->size(world->transport);
    for (int i = 0; i < world->size; i++)
        world->members[i] = world->size - 1 - i;
    return STATUS_OK;
}

enum status world_start(struct world *world, struct error *err)
{
    const struct session_options options = {
        .timeout_ns = 30 * NS_PER_S, .startup_timeout_ns = 30 * NS_PER_S, .checks = CHECKS_FULL};
    enum status st = world_open(world, err);

    return st == STATUS_OK ? session_create(world->ops, world->transport, &options, &world->session, err) : st;
}

enum status world_build(struct world *world, const struct route_spec *routes, size_t route_count, struct error *err)
{
    const struct manifest manifest = {.topology_digest = 1};
    enum status st = session_consensus(world->session, &manifest, err);

    world->group = (struct group_spec){.id = 1,
                                       .name = "world/0",
                                       .size = world->size,
                                       .members = world->members,
                                       .operations = OPERATIONS_ALL,
                                       .dtypes = DTYPES_ALL,
                                       .max_bytes = 1 << 24};
    return st == STATUS_OK ? session_build(world->session, &world->group, 1, routes, route_count, err) : st;
}

int world_run(struct world *world, Suite *suite, enum status st, struct error *err)
{
    int failed = 0;

    if (st == STATUS_OK) {
        failed = suite_run_here(suite);
        if (world->session)
            st = session_close(world->session, true, err);
        else
            st = world->ops->close(world->transport, true, err);
    }
    if (st != STATUS_OK)
        (void)fprintf(stderr, "%s\n", err->text);
    return failed || st != STATUS_OK ? 1 : 0;
}
