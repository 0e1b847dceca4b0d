/* The network interfaces of this host. */
#ifndef LAUNCHER_INTERFACES_H
#define LAUNCHER_INTERFACES_H

#include "base/status.h"
#include "base/text.h"

/* Does this host have the interface that communication.interface names ("eth0")?  MPI itself would fall back or hang
 * without a word.  Local.  STATUS_ENVIRONMENT names it, the host and the interfaces that this has. */
enum status interfaces_check(const char *name, struct error *err);

/* Add this host's interfaces with their first IPv4 addresses: "lo (127.0.0.1), eth0 (10.0.0.1)".  Local. */
void interfaces_list(struct text *out);

#endif
