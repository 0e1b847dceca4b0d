/* The rules of a route's bundle: pure functions over its spec. */
#ifndef COMM_ROUTE_SCHEMA_H
#define COMM_ROUTE_SCHEMA_H

#include <stdbool.h>

#include "base/status.h"
#include "base/tensor.h"
#include "comm/spec.h"

/* Is the spec one that a world of this size can have?  STATUS_INVALID names the route, the tensor and what is wrong. */
enum status route_schema_check(const struct route_spec *spec, int world_size, struct error *err);

/* The largest shape of one tensor. */
void route_schema_largest(const struct route_spec *spec, int tensor, struct shape *ret);

/* Do shapes [tensor_count] fit the schema, with tied dimensions equal all over the bundle?  STATUS_INVALID names the
 * first that does not. */
enum status route_schema_shapes(const struct route_spec *spec, const struct shape *shapes, struct error *err);

/* What a receiver expects: shapes, checked (copied to ret [tensor_count]); or, described, tensor 0's alone, which the
 * schema must have fixed (shapes may then be NULL).  STATUS_INVALID. */
enum status route_schema_expect(const struct route_spec *spec, const struct shape *shapes, bool described,
                                struct shape *ret, struct error *err);

#endif
