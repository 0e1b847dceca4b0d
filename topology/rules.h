/* What must agree in a topology beyond the form of each value. */
#ifndef TOPOLOGY_RULES_H
#define TOPOLOGY_RULES_H

#include "topology/topology.h"

/* Check a topology that reader_fill has filled, resolve its world, the ends of routes and the extents of shapes.
 * Values that the reader has already refused are passed over.  STATUS_NOMEM is the only failure. */
enum status rules_check(struct topology *topology);

#endif
