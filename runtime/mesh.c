/* The mesh's mixed-radix numbers: data is the slowest digit, expert the fastest. */
#include "runtime/mesh.h"

#include "base/size.h"

enum { MESH_MAX_RANKS = 1 << 20 };

const char *axis_name(enum axis axis)
{
    static const char *const names[AXIS_COUNT] = {"data", "pipeline", "tensor", "expert"};

    return (unsigned)axis < AXIS_COUNT ? names[axis] : "none";
}

enum status mesh_init(struct mesh *mesh, struct error *err)
{
    size_t world = 1;

    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (mesh->size[axis] < 1)
            return error_set(err, STATUS_INVALID, "mesh axis %s has size %d, at least 1 is needed", axis_name(axis),
                             mesh->size[axis]);
        if (size_mul(world, (size_t)mesh->size[axis], &world) != STATUS_OK || world > MESH_MAX_RANKS)
            return error_set(err, STATUS_OVERFLOW, "data %d * pipeline %d * tensor %d * expert %d exceeds %d ranks",
                             mesh->size[AXIS_DATA], mesh->size[AXIS_PIPELINE], mesh->size[AXIS_TENSOR],
                             mesh->size[AXIS_EXPERT], MESH_MAX_RANKS);
    }
    mesh->world = (int)world;
    return STATUS_OK;
}

int mesh_rank(const struct mesh *mesh, struct coordinates at)
{
    int rank = 0;

    for (int axis = 0; axis < AXIS_COUNT; axis++)
        rank = rank * mesh->size[axis] + at.at[axis];
    return rank;
}

struct coordinates mesh_coordinates(const struct mesh *mesh, int rank)
{
    struct coordinates at;

    for (int axis = AXIS_COUNT - 1; axis >= 0; axis--) {
        at.at[axis] = rank % mesh->size[axis];
        rank /= mesh->size[axis];
    }
    return at;
}

int mesh_stride(const struct mesh *mesh, enum axis axis)
{
    int stride = 1;

    for (int faster = AXIS_COUNT - 1; faster > (int)axis; faster--)
        stride *= mesh->size[faster];
    return stride;
}

/* A line's members are first, first + stride, ...; the ranks below first that start a line are those whose coordinate
 * on the axis is 0, and they come in blocks of stride out of every stride * size. */
int mesh_line(const struct mesh *mesh, enum axis axis, int rank)
{
    int stride = mesh_stride(mesh, axis);

    return rank / (stride * mesh->size[axis]) * stride + rank % stride;
}

int mesh_line_member(const struct mesh *mesh, enum axis axis, int line, int member)
{
    int stride = mesh_stride(mesh, axis);

    return line / stride * stride * mesh->size[axis] + line % stride + member * stride;
}
