/* What a topology asks of this build, this machine and its session. */
#ifndef RUNTIME_WISHES_H
#define RUNTIME_WISHES_H

#include "base/status.h"

struct session_options;
struct topology;

/* Keys that are well formed, but ask for what this build cannot do, or for what this machine lacks.
 * Local.  STATUS_UNSUPPORTED (transport, backend: the key is named), STATUS_ENVIRONMENT (a variable of
 * launch.require_env is not set). */
enum status wishes_check(const struct topology *topology, struct error *err);

/* The same for a program that links libferry: its tensors lie in host memory, so mpi is what it runs over.  Statuses as
 * above (reduction, too). */
enum status wishes_check_program(const struct topology *topology, struct error *err);

/* How a topology wants its session: timeouts, checks, reduction, integrity.  topology NULL (it could not be read here): the
 * defaults of the keys.  Other fields stay as they are. */
void wishes_session(const struct topology *topology, struct session_options *ret);

#endif
