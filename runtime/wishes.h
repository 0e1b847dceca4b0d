/* Keys of a topology that are well formed, but ask for what this build cannot do, or for what this machine lacks. */
#ifndef RUNTIME_WISHES_H
#define RUNTIME_WISHES_H

#include "base/status.h"

struct topology;

/* Local.  STATUS_UNSUPPORTED (transport, backend, reduction: the key is named), STATUS_ENVIRONMENT (a variable of
 * launch.require_env is not set). */
enum status wishes_check(const struct topology *topology, struct error *err);

#endif
