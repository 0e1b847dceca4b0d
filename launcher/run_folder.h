/* The folder of one run below run_dir, the same for all its ranks: rings, logs, cause.json. */
#ifndef LAUNCHER_RUN_FOLDER_H
#define LAUNCHER_RUN_FOLDER_H

#include <stdint.h>

#include "base/text.h"
#include "comm/transport.h"

enum { RUN_ID_BYTES = 64 };

/* The id that the starter, or FERRY_RUN_ID, gives all ranks of this run; NULL: none.  Lent by the environment. */
const char *run_id_given(void);

/* All ranks take rank 0's id: the given one, else time and process.  Collective over the transport's world, before a
 * session takes it; blocks until deadline_ns.  id [RUN_ID_BYTES] must outlive the transport.
 * STATUS_TIMEOUT, STATUS_CORRUPT (another message came), the transport's. */
enum status run_id_agree(const struct transport_ops *ops, struct transport *transport, uint64_t deadline_ns, char *id,
                         struct error *err);

/* Make run_dir and run_dir/NAME-ID; path receives the latter.  fresh: nothing of an earlier run under this id may stay
 * in the way (one rank says so, before the others can fail).  STATUS_STORAGE, STATUS_NOMEM. */
enum status run_folder_make(const char *run_dir, const char *name, const char *id, bool fresh, struct text *path,
                            struct error *err);

/* Does this host see the folder that rank 0 writes to? */
bool run_folder_shared(const char *path);

#endif
