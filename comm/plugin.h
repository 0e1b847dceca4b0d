/* Finds and opens ferry-mpi.so, so that one `ferry`, or one libferry, runs with and without an MPI. */
#ifndef COMM_PLUGIN_H
#define COMM_PLUGIN_H

#include "comm/transport.h"

/* Open ferry-NAME.so and lend its table for the life of the process.  Looked for in $FERRY_PLUGIN_DIR when that is set,
 * then beside the file that this code lies in (the program, or libferry.so), then in the installation's folder as seen
 * from there: ferry/ beside a library, ../lib/ferry from a program.  path [path_bytes] receives the file's path ("it
 * says which it chose"); NULL: not wanted.
 * STATUS_ENVIRONMENT  no such file (the folders are listed), or it cannot be opened (why, and what to do) */
enum status plugin_open(const char *name, const struct transport_ops **ret, char *path, size_t path_bytes,
                        struct error *err);

#endif
