/* The model that a topology names: where it lies, seen from here. */
#ifndef LAUNCHER_MODEL_H
#define LAUNCHER_MODEL_H

#include <stdbool.h>

#include "base/status.h"

struct checkpoint;
struct topology;

/* Is there anything by that name?  The topology has a workload.generate.  Local. */
bool model_is_here(const struct topology *topology);

/* Open it (returns; the caller closes).  The topology has a workload.generate.  Local.  The failures of
 * checkpoint_open; the sentence begins with the key and the place that gives it. */
enum status model_open(const struct topology *topology, struct checkpoint **ret, struct error *err);

#endif
