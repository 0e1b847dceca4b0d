/* Worlds and cases from a seed. */
#include "tests/loop/property.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"

uint64_t property_mix(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* 0 .. below - 1 */
static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = property_mix(*state);
    return (*state >> 8) % below;
}

/* The first group has everybody, the second one member; the rest any number, each time in another order. */
static void draw_group(struct property_world *world, int number, uint64_t *state)
{
    struct group_spec *group = &world->groups[number];
    int *members = world->members[number];
    int size = number == 0 ? world->size : number == 1 ? 1 : 1 + (int)draw(state, (uint64_t)world->size);

    for (int i = 0; i < world->size; i++)
        members[i] = i;
    for (int i = world->size - 1; i > 0; i--) {
        int other = (int)draw(state, (uint64_t)i + 1);
        int member = members[i];

        members[i] = members[other];
        members[other] = member;
    }
    (void)snprintf(world->names[number], sizeof world->names[number], "group/%d", number);
    *group = (struct group_spec){.id = 1 + (uint32_t)number,
                                 .name = world->names[number],
                                 .size = size,
                                 .members = members,
                                 .operations = OPERATIONS_ALL,
                                 .dtypes = DTYPES_ALL,
                                 .max_bytes = UINT64_C(1) << 30};
}

static void draw_tensor_spec(struct property_world *world, int number, int tensor, uint64_t *state)
{
    static const char *const roles[PROPERTY_TENSORS] = {
        "hidden", "p", "a role whose name is as long as a role's name may ever be: here it is", "positions", "mask"};
    struct tensor_spec *spec = &world->tensors[number][tensor];

    spec->role = roles[tensor];
    if (strlen(spec->role) > ROUTE_ROLE_BYTES)
        spec->role += strlen(spec->role) - ROUTE_ROLE_BYTES;
    spec->dtype = (enum dtype)(1 + draw(state, DTYPE_COUNT - 1));
    spec->ndim = (int)draw(state, draw(state, 4) ? 4 : TENSOR_MAX_NDIM + 1);
    for (int i = 0; i < spec->ndim; i++) {
        bool tied = draw(state, 3) == 0;

        spec->dim[i] = (struct dim_spec){.extent = -1, .low = draw(state, 2), .high = 1 + draw(state, 4)};
        if (tied)
            spec->dim[i] = (struct dim_spec){.extent = (int)draw(state, PROPERTY_EXTENTS), .low = 0, .high = 40};
        if (tied && spec->ndim > 4)
            spec->dim[i].extent = 1;
    }
}

static void draw_route(struct property_world *world, int number, uint64_t *state)
{
    int from = (int)draw(state, (uint64_t)world->size);
    int to = (from + 1 + (int)draw(state, (uint64_t)world->size - 1)) % world->size;
    int count = 1 + (int)draw(state, PROPERTY_TENSORS);
    char *name = world->names[PROPERTY_GROUPS + number];

    world->extents[number][0] = (struct extent_spec){"rows", 0, 40};
    world->extents[number][1] = (struct extent_spec){"few", 0, 3};
    for (int t = 0; t < count; t++)
        draw_tensor_spec(world, number, t, state);
    (void)snprintf(name, sizeof world->names[0], "route/%d-%d", from, to);
    world->routes[number] = (struct route_spec){.id = 100 + (uint32_t)number,
                                                .name = name,
                                                .from = from,
                                                .to = to,
                                                .tensor_count = count,
                                                .tensors = world->tensors[number],
                                                .extent_count = PROPERTY_EXTENTS,
                                                .extents = world->extents[number],
                                                .depth = 1 + (int)draw(state, 3),
                                                .memory_tensors = (uint32_t)property_mix(*state)};
}

void property_world_draw(uint64_t seed, int size, struct property_world *world)
{
    uint64_t state = property_mix(seed);

    *world = (struct property_world){.seed = seed, .size = size, .group_count = PROPERTY_GROUPS};
    for (int i = 0; i < world->group_count; i++)
        draw_group(world, i, &state);
    world->route_count = size > 1 ? PROPERTY_ROUTES : 0;
    for (int i = 0; i < world->route_count; i++)
        draw_route(world, i, &state);
}

static void draw_bundle(struct property_case *c, uint64_t *state)
{
    uint64_t extents[PROPERTY_EXTENTS] = {draw(state, 41), draw(state, 4)};

    for (int t = 0; t < c->route->tensor_count; t++) {
        const struct tensor_spec *spec = &c->route->tensors[t];

        c->bundle[t].ndim = spec->ndim;
        for (int i = 0; i < spec->ndim; i++) {
            const struct dim_spec *dim = &spec->dim[i];

            c->bundle[t].dim[i] =
                dim->extent < 0 ? dim->low + draw(state, dim->high - dim->low + 1) : extents[dim->extent];
        }
    }
}

/* Counts along the axis: a third of them zero; now and then all of them. */
static uint64_t draw_count(uint64_t *state, uint64_t most)
{
    return draw(state, 3) ? draw(state, most + 1) : 0;
}

/* Few cases are large: they reach past the limits up to which small messages have their own algorithms. */
static void draw_extents(struct property_case *c, uint64_t *state)
{
    int size = c->size;
    bool large = draw(state, 14) == 0;
    bool nothing = draw(state, 14) == 0;
    uint64_t most = nothing ? 0 : large ? 40 + 2600 / (uint64_t)size : 5;
    uint64_t even = draw(state, most + 1);

    c->shape.ndim = 1 + (int)draw(state, draw(state, 10) ? 4 : TENSOR_MAX_NDIM);
    c->axis = (int)draw(state, (uint64_t)c->shape.ndim);
    for (int i = 0; i < c->shape.ndim; i++)
        c->shape.dim[i] = draw(state, 16) ? 1 + draw(state, c->shape.ndim > 4 ? 2 : 4) : 0;
    for (int i = 0; i < size; i++) {
        c->counts[i] = c->operation == OPERATION_ALL_GATHER_UNEVEN ? draw_count(state, most) : even;
        for (int k = 0; k < size; k++)
            c->matrix[i][k] = draw_count(state, most);
    }
    if (c->operation == OPERATION_ALL_REDUCE_SUM || c->operation == OPERATION_BROADCAST)
        c->shape.dim[c->axis] = large ? 3000 + draw(state, 3000) : draw(state, 30);
    if (c->operation == OPERATION_ALL_REDUCE_SUM && draw(state, 30) == 0)
        c->shape.ndim = 0;
}

void property_case_draw(const struct property_world *world, uint64_t index, struct property_case *ret)
{
    uint64_t state = property_mix(world->seed) ^ property_mix(~index);

    *ret = (struct property_case){.index = index};
    ret->seed = property_mix(state);
    ret->operation = (enum operation)(1 + draw(&state, OPERATION_SEND_RECEIVE));
    if (ret->operation == OPERATION_SEND_RECEIVE && !world->route_count)
        ret->operation = OPERATION_ALL_REDUCE_SUM;
    if (ret->operation == OPERATION_SEND_RECEIVE) {
        ret->route = &world->routes[draw(&state, (uint64_t)world->route_count)];
        draw_bundle(ret, &state);
        return;
    }
    ret->group = &world->groups[draw(&state, (uint64_t)world->group_count)];
    ret->size = ret->group->size;
    ret->dtype = (enum dtype)(1 + draw(&state, DTYPE_COUNT - 1));
    ret->root = (int)draw(&state, (uint64_t)ret->size);
    ret->in_place = draw(&state, 2);
    if (ret->operation != OPERATION_BARRIER && ret->operation != OPERATION_FAILURE_AGREEMENT)
        draw_extents(ret, &state);
}
