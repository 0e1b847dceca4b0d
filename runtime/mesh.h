/* The four parallel axes and their mapping to world ranks: rank = ((data*P + pipeline)*T + tensor)*E + expert. */
#ifndef RUNTIME_MESH_H
#define RUNTIME_MESH_H

#include "base/status.h"

enum axis { AXIS_DATA, AXIS_PIPELINE, AXIS_TENSOR, AXIS_EXPERT, AXIS_COUNT };

struct mesh {
    int size[AXIS_COUNT]; /* each >= 1 */
    int world;            /* their product, at most 2^20 */
};

struct coordinates {
    int at[AXIS_COUNT];
};

const char *axis_name(enum axis axis);

/* Fill world.  STATUS_OVERFLOW beyond 2^20 ranks, STATUS_INVALID for a size below 1. */
enum status mesh_init(struct mesh *mesh, struct error *err);
int mesh_rank(const struct mesh *mesh, struct coordinates at);
struct coordinates mesh_coordinates(const struct mesh *mesh, int rank);

/* Distance in ranks between neighbours on this axis. */
int mesh_stride(const struct mesh *mesh, enum axis axis);

/* A line: the ranks that differ on this axis only.  There are world / size[axis] of them, numbered from 0 by their
 * lowest rank.  The line through a rank, and the member of a line with this coordinate. */
int mesh_line(const struct mesh *mesh, enum axis axis, int rank);
int mesh_line_member(const struct mesh *mesh, enum axis axis, int line, int member);

#endif
