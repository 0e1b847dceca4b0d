/* Finds and opens ferry-mpi.so, so that one `ferry` runs with and without an MPI. */
#ifndef LAUNCHER_PLUGIN_H
#define LAUNCHER_PLUGIN_H

#include "comm/transport.h"

/* Open ferry-NAME.so and lend its table for the life of the process.  Looked for in $FERRY_PLUGIN_DIR when that is set,
 * then beside the executable, then in the library folder of the installation.  path [path_bytes] receives the file's
 * path ("it says which it chose"); NULL: not wanted.
 * STATUS_ENVIRONMENT  no such file (the folders are listed), or it cannot be opened (why, and what to do) */
enum status plugin_open(const char *name, const struct transport_ops **ret, char *path, size_t path_bytes,
                        struct error *err);

#endif
