/* The slots of a memory that the host may read and write where it lies: a provider of another kind of such memory
 * (pinned, shared) takes these and brings its own name, allocate and release. */
#ifndef BASE_MEMORY_HOST_H
#define BASE_MEMORY_HOST_H

#include "base/memory.h"

extern const struct memory_ops memory_host_ops;

#endif
