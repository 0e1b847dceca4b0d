/* Tests of nccl_transport: what NCCL does by itself, without a message of comm's. */
#ifndef TESTS_NCCL_NCCL_NATIVE_CALLS_H
#define TESTS_NCCL_NCCL_NATIVE_CALLS_H

#include <check.h>

#include "tests/nccl/device_world.h"

/* Add them; the world is borrowed until they have run. */
void native_calls_add(TCase *tests, const struct device_world *world);

#endif
